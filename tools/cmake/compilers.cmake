# The oldest supported compilers. An older compiler fails here with the reason, not in the middle of
# a header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  set(too_old "GCC ${CMAKE_CXX_COMPILER_VERSION} is too old: Bowline is written in C++20 and tested with GCC 12 and newer")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  set(too_old "Clang ${CMAKE_CXX_COMPILER_VERSION} is too old: Bowline is written in C++20 and tested with Clang 14 and newer")
endif()
if(too_old)
  message(FATAL_ERROR "${too_old}. Choose another compiler: cmake -D CMAKE_CXX_COMPILER=g++-12 ...")
endif()
