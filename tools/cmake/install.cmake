# cmake --install: the library, its one header, and find_package(bowline CONFIG).
include(CMakePackageConfigHelpers)
