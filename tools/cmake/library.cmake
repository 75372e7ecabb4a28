# The library for programs. Only the public API is visible, so it cannot clash with libraries of a
# program, such as another FlatBuffers: namespaces of compiled-in libraries are renamed, symbols
# that no public header declares are hidden, and template instances (symbols of std) are local.
include_guard(GLOBAL)

# Namespaces of header libraries that a program may use in another version.
set(BOWLINE_RENAMED flatbuffers=bowline_flatbuffers hwy=bowline_hwy)
# Symbols that the dynamic linker keeps one of per process would keep the library loaded after
# dlclose().
set(BOWLINE_HIDDEN -fvisibility=hidden -fvisibility-inlines-hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND BOWLINE_HIDDEN -fno-gnu-unique)
endif()

# The linker that merges objects. lld knows the option only since version 20, and CMake prefers lld
# for Clang.
function(bowline_find_merging_linker)
  set(linkers "${CMAKE_LINKER}" "${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-ld")
  if(NOT CMAKE_CROSSCOMPILING)
    list(APPEND linkers ld.bfd ld)
  endif()
  foreach(linker IN LISTS linkers)
    execute_process(COMMAND "${linker}" --help OUTPUT_VARIABLE help ERROR_QUIET)
    if(help MATCHES "--force-group-allocation")
      set(BOWLINE_MERGING_LINKER "${linker}" CACHE INTERNAL "")
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "No linker knows --force-group-allocation, which makes one object of the library: "
    "install GNU ld (Debian: binutils), or lld 20 or newer.")
endfunction()

# Makes `object`: the objects of the targets PARTS and the archives ARCHIVES, linked to one. Only
# the public API stays global.
function(bowline_merge_objects object)
  cmake_parse_arguments(PARSE_ARGV 1 merged "" "" "PARTS;ARCHIVES")
  if(NOT BOWLINE_MERGING_LINKER)
    bowline_find_merging_linker()
  endif()
  set(objects "")
  foreach(part IN LISTS merged_PARTS)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:${part}>,EXCLUDE,[.][gp]ch$>" "$<TARGET_PROPERTY:${part},INTERFACE_SOURCES>")
  endforeach()
  # The linker splits lines at spaces, except in quotes.
  set(files "$<FILTER:${objects};${merged_ARCHIVES},INCLUDE,.>")
  file(GENERATE OUTPUT "${object}.list" CONTENT "\"$<JOIN:${files},\"\n\">\"\n")
  list(TRANSFORM BOWLINE_PUBLIC_SYMBOLS PREPEND "--keep-global-symbol=" OUTPUT_VARIABLE public)
  add_custom_command(OUTPUT "${object}"
    COMMAND "${BOWLINE_MERGING_LINKER}" -r --force-group-allocation -o "${object}" "@${object}.list"
    COMMAND "${CMAKE_OBJCOPY}" --localize-hidden --wildcard ${public} "${object}"
    DEPENDS ${objects} "${object}.list" COMMENT "One object of the library, with local symbols" COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

# Adds the library `target` (STATIC or SHARED) from the objects of the runtime, the operators and
# the backends.
function(bowline_add_library target type)
  set(parts bowline_runtime bowline_ops bowline_base ${BOWLINE_BACKEND_OBJECTS})
  set(archives "")
  set(names "")
  foreach(link IN LISTS BOWLINE_BACKEND_LINKS)
    if(TARGET ${link})
      list(APPEND archives "$<TARGET_FILE:${link}>")
    else()
      list(APPEND names ${link})
    endif()
  endforeach()
  if(type STREQUAL "SHARED")
    set(exports "${CMAKE_CURRENT_BINARY_DIR}/${target}.map")
    file(CONFIGURE OUTPUT "${exports}" CONTENT "{ global: extern \"C++\" { bowline::*; }; local: *; };\n")
    add_library(${target} SHARED)
    target_link_libraries(${target} PRIVATE ${parts} ${BOWLINE_BACKEND_LINKS} Threads::Threads)
    target_link_options(${target} PRIVATE "LINKER:--version-script,${exports}")
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${exports}" SOVERSION 0 VERSION ${PROJECT_VERSION})
  elseif(APPLE OR ANDROID OR CMAKE_INTERPROCEDURAL_OPTIMIZATION OR NOT BOWLINE_SYSTEM STREQUAL "posix")
    # Only linkers of ELF make symbols of an object local, and lld of the Android NDK does not.
    # Objects for link-time optimization have no symbols that could be made local. Hidden ones can
    # clash with a program.
    add_library(${target} STATIC)
    foreach(part IN LISTS parts)
      target_sources(${target} PRIVATE "$<FILTER:$<TARGET_OBJECTS:${part}>,EXCLUDE,[.][gp]ch$>")
    endforeach()
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${target} PRIVATE ${BOWLINE_BACKEND_LINKS} Threads::Threads)
  else()
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${target}.o")
    bowline_merge_objects("${object}" PARTS ${parts} ARCHIVES ${archives})
    add_library(${target} STATIC "${object}")
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${target} PRIVATE ${names} Threads::Threads)
    # A shared library that links this library does not export its symbols.
    target_link_options(${target} INTERFACE "LINKER:--exclude-libs,${CMAKE_STATIC_LIBRARY_PREFIX}bowline${CMAKE_STATIC_LIBRARY_SUFFIX}")
  endif()
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${BOWLINE_PUBLIC_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${target} PUBLIC cxx_std_20)
endfunction()

# Mangled names of functions and member functions (with const and ref qualifiers) of namespace
# bowline.
set(BOWLINE_PUBLIC_SYMBOLS "_ZN7bowline*" "_ZNK7bowline*" "_ZNR7bowline*" "_ZNKR7bowline*" "_ZNO7bowline*" "_ZNKO7bowline*")
