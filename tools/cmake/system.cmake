# The system that the library is built for. runtime/base has a folder for each, with the same files.
if(WIN32)
  set(BOWLINE_SYSTEM windows)
elseif(CMAKE_SYSTEM_NAME STREQUAL "WASI")
  set(BOWLINE_SYSTEM wasi)
else()
  set(BOWLINE_SYSTEM posix)
endif()

# Threads::Threads. WASI has no threads, and Windows has them in its own library.
if(BOWLINE_SYSTEM STREQUAL "posix")
  find_package(Threads REQUIRED)
else()
  add_library(Threads::Threads INTERFACE IMPORTED GLOBAL)
endif()

# Android devices have pages of 4 KB or 16 KB. Segments for 16 KB fit both.
if(ANDROID)
  add_link_options("LINKER:-z,max-page-size=16384")
endif()
