# A toolchain file: compiles the library for another system with zig, which brings the headers and C
# libraries of many systems. "pip install ziglang" installs zig.
#
#   cmake -D CMAKE_TOOLCHAIN_FILE=tools/cmake/zig.cmake -D BOWLINE_ZIG_TARGET=aarch64-macos ...
#
# Targets that tools/check builds: x86_64-linux-musl, aarch64-linux-musl, aarch64-macos,
# x86_64-windows-gnu, wasm32-wasi.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BOWLINE_ZIG_TARGET BOWLINE_ZIG_PYTHON)
set(BOWLINE_ZIG_PYTHON python3 CACHE STRING "A Python that has the package ziglang")
if(NOT BOWLINE_ZIG_TARGET MATCHES "^([a-z0-9_]+)-(linux|macos|wasi|windows)")
  message(FATAL_ERROR "BOWLINE_ZIG_TARGET is \"${BOWLINE_ZIG_TARGET}\". It must be a target of zig, for example aarch64-macos.")
endif()
set(CMAKE_SYSTEM_PROCESSOR "${CMAKE_MATCH_1}")
set(bowline_system_linux Linux)
set(bowline_system_macos Darwin)
set(bowline_system_wasi WASI)
set(bowline_system_windows Windows)
set(CMAKE_SYSTEM_NAME "${bowline_system_${CMAKE_MATCH_2}}")
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
find_program(bowline_zig_python NAMES "${BOWLINE_ZIG_PYTHON}" REQUIRED NO_CMAKE_FIND_ROOT_PATH)
set(CMAKE_CXX_COMPILER "${bowline_zig_python}" -m ziglang c++ -target "${BOWLINE_ZIG_TARGET}")
set(CMAKE_C_COMPILER "${bowline_zig_python}" -m ziglang cc -target "${BOWLINE_ZIG_TARGET}")

# Libraries that are only headers are those of this machine. Its other headers stay out of sight.
set(bowline_headers "${CMAKE_BINARY_DIR}/header_libraries")
file(MAKE_DIRECTORY "${bowline_headers}/include")
foreach(name IN ITEMS flatbuffers hwy xxhash.h xxh3.h)
  if(EXISTS "/usr/include/${name}")
    file(CREATE_LINK "/usr/include/${name}" "${bowline_headers}/include/${name}" SYMBOLIC)
  endif()
endforeach()
set(CMAKE_FIND_ROOT_PATH "${bowline_headers}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind IN ITEMS LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_CXX_FLAGS_INIT "-isystem ${bowline_headers}/include")
if(CMAKE_SYSTEM_NAME STREQUAL "WASI")
  # Every engine of today has SIMD. None of its C++ libraries here has exceptions.
  string(APPEND CMAKE_CXX_FLAGS_INIT " -mcpu=generic+simd128")
  set(BOWLINE_EXCEPTIONS OFF CACHE BOOL "")
endif()
