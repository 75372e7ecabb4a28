# Homebrew on Linux. BOWLINE_SOURCE_URL and BOWLINE_SOURCE_SHA256 are those of the release that is
# packaged: tools/release makes the file and its SHA-256.
class Bowline < Formula
  desc "Runs and fine-tunes neural networks on the CPU and on GPUs"
  homepage ENV.fetch("BOWLINE_HOMEPAGE", "https://bowline.invalid")
  url ENV.fetch("BOWLINE_SOURCE_URL", "https://bowline.invalid/bowline-0.1.0.tar.gz")
  version "0.1.0"
  sha256 ENV.fetch("BOWLINE_SOURCE_SHA256", "0" * 64)
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "glslang" => :build
  depends_on "highway" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "spirv-tools" => :build
  depends_on "vulkan-headers" => :build
  depends_on "xxhash" => :build
  depends_on "flatbuffers"
  depends_on "fmt"
  depends_on "libcsv"
  depends_on "libmd"
  depends_on :linux
  depends_on "pcre2"
  depends_on "protobuf"
  depends_on "simdjson"
  depends_on "utf8proc"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DBOWLINE_TESTS=OFF", "-DBOWLINE_CUDA=OFF",
           "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_UNITY_BUILD=ON", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/bowline --version")
    system bin/"bowline", "bench", "matmul", "--m", "16", "--n", "16", "--k", "16", "--device", "cpu"
  end
end
