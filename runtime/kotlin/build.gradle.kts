// An AAR with the library for 64-bit phones and for the emulator: `gradle assembleRelease`.
plugins {
    id("com.android.library") version "8.7.3"
    id("org.jetbrains.kotlin.android") version "2.0.21"
}

android {
    namespace = "bowline.runtime"
    compileSdk = 35
    ndkVersion = "27.2.12479018"

    defaultConfig {
        minSdk = 24 // as tests/kotlin/bionic_symbols.txt
        consumerProguardFiles("consumer-rules.pro")
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
        externalNativeBuild {
            cmake {
                // The JNI library and the C interface each have their own C++ library inside: only C crosses the border.
                arguments += listOf(
                    "-DANDROID_STL=c++_static",
                    "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON",
                    "-DBOWLINE_KOTLIN=ON",
                    "-DBOWLINE_TOOLS=OFF",
                    "-DBOWLINE_TESTS=OFF",
                    "-DBOWLINE_CUDA=OFF",
                    "-DBOWLINE_NULL=OFF",
                    "-DBOWLINE_MPI=OFF",
                    "-DCMAKE_UNITY_BUILD=ON",
                    "-DBOWLINE_SOURCE_PACKAGES=" + (findProperty("bowline.sourcePackages") ?: "")
                )
                targets += listOf("bowline_c", "bowline_jni")
            }
        }
    }

    externalNativeBuild {
        cmake {
            path = file("../../CMakeLists.txt")
            version = "3.31.6"
        }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
    kotlinOptions { jvmTarget = "1.8" }
    publishing { singleVariant("release") }
}
