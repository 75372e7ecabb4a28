# The warnings of every target.
set(BOWLINE_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual)
# For programs that concatenate strings: GCC 12 warns wrongly about "a" + std::string (its bug
# 105651).
set(BOWLINE_PROGRAM_WARNINGS ${BOWLINE_WARNINGS})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND BOWLINE_PROGRAM_WARNINGS -Wno-restrict)
endif()
