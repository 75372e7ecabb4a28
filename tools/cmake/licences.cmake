# The software of others in this build: for `bowline --licences`, and for the bill of materials
# (SPDX). The place that finds a library also calls bowline_uses().
include_guard(GLOBAL)
set_property(GLOBAL PROPERTY BOWLINE_USES "")
set(BOWLINE_LICENCES "${PROJECT_BINARY_DIR}/licences")

# bowline_uses(<name> LICENCE <SPDX expression> HOW compiled|linked|opened|system [FILE <path>]
#              [HEADER <name> [HINTS <folder>...]] [TARGET <target>] [VERSION <version>])
#   HOW      compiled  its headers or a static library are compiled in
#            linked    a shared library; parts of its headers are compiled in
#            opened    a shared library that is opened at run time, if there is one
#            system    a library of every program of the system
#   FILE     a file of it, whose package has the version and the texts of the licence
#   HEADER   searched for, instead of FILE; TARGET may have its folder
#   VERSION  used where no package has the file
function(bowline_uses name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LICENCE;HOW;FILE;HEADER;TARGET;VERSION" "HINTS")
  if(arg_HEADER)
    if(arg_TARGET)
      get_target_property(folders ${arg_TARGET} INTERFACE_INCLUDE_DIRECTORIES)
      list(APPEND arg_HINTS ${folders})
    endif()
    find_path(folder "${arg_HEADER}" HINTS ${arg_HINTS} NO_CACHE)
    if(NOT folder)
      message(FATAL_ERROR "${arg_HEADER} of ${name} is not found.")
    endif()
    cmake_path(SET arg_FILE NORMALIZE "${folder}/${arg_HEADER}")
  endif()
  set_property(GLOBAL APPEND PROPERTY BOWLINE_USES "${name}|${arg_LICENCE}|${arg_HOW}|${arg_FILE}|${arg_VERSION}")
endfunction()

# Libraries that the compiler links into every program.
function(bowline_uses_system)
  foreach(library IN ITEMS "GNU C++ library|stdc++|GPL-3.0-or-later WITH GCC-exception-3.1"
      "GNU C library|c|LGPL-2.1-or-later")
    string(REPLACE "|" ";" parts "${library}")
    list(GET parts 0 name)
    list(GET parts 1 link)
    list(GET parts 2 licence)
    if(link IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
      execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=lib${link}.so
        OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      bowline_uses("${name}" LICENCE "${licence}" HOW system FILE "${file}")
    endif()
  endforeach()
endfunction()

# Writes the folder BOWLINE_LICENCES: licences.cpp for the command, and the bill of materials.
function(bowline_write_licences)
  bowline_uses_system()
  get_property(uses GLOBAL PROPERTY BOWLINE_USES)
  list(REMOVE_DUPLICATES uses)
  list(SORT uses CASE INSENSITIVE)
  list(JOIN uses "\n" lines)
  file(CONFIGURE OUTPUT "${BOWLINE_LICENCES}/uses.txt" CONTENT "@lines@\n" @ONLY)
  set(script "${PROJECT_SOURCE_DIR}/tools/install/licences.py")
  add_custom_command(OUTPUT "${BOWLINE_LICENCES}/licences.cpp" "${BOWLINE_LICENCES}/bowline.spdx.json"
    COMMAND "${Python3_EXECUTABLE}" "${script}" --uses "${BOWLINE_LICENCES}/uses.txt" --source "${PROJECT_SOURCE_DIR}"
      --version "${PROJECT_VERSION}" --out "${BOWLINE_LICENCES}"
    DEPENDS "${BOWLINE_LICENCES}/uses.txt" "${script}" "${PROJECT_SOURCE_DIR}/LICENSE" COMMENT "Licences" VERBATIM)
  add_custom_target(bowline_licences ALL DEPENDS "${BOWLINE_LICENCES}/licences.cpp" "${BOWLINE_LICENCES}/bowline.spdx.json")
  if(TARGET bowline_command)
    target_sources(bowline_command PRIVATE "${BOWLINE_LICENCES}/licences.cpp")
    set_property(TARGET bowline_command APPEND PROPERTY INCLUDE_DIRECTORIES "${PROJECT_SOURCE_DIR}/tools/bowline")
    add_dependencies(bowline_command bowline_licences)
  endif()
endfunction()
