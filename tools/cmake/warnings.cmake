# The warnings of every target.
set(BOWLINE_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual)
# Of programs, which add texts up: GCC 12 takes "a" + std::string for a copy onto itself (its bug
# 105651).
set(BOWLINE_PROGRAM_WARNINGS ${BOWLINE_WARNINGS})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND BOWLINE_PROGRAM_WARNINGS -Wno-restrict)
endif()
