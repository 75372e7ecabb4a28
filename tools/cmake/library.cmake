# The library as programs link it. Nothing of it but the public API can meet what a program brings
# of its own, such as another FlatBuffers: the namespaces of what is compiled in are renamed, all
# that the public headers do not declare is hidden, and what templates leave (symbols of std) is
# local.
include_guard(GLOBAL)

# Namespaces of header libraries that programs may use too, in other versions.
set(BOWLINE_RENAMED flatbuffers=bowline_flatbuffers hwy=bowline_hwy)
# Symbols that the dynamic linker keeps one of per process would keep the library loaded after
# dlclose().
set(BOWLINE_HIDDEN -fvisibility=hidden -fvisibility-inlines-hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND BOWLINE_HIDDEN -fno-gnu-unique)
endif()

# Adds the library `target`, STATIC or SHARED, of the objects of the runtime, the operators and the
# backends.
function(bowline_add_library target type)
  set(parts bowline_runtime bowline_ops ${BOWLINE_BACKEND_OBJECTS})
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
  else()
    # One object of all, in which everything but the public API is local.
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${target}.o")
    set(objects "")
    foreach(part IN LISTS parts)
      list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:${part}>,EXCLUDE,[.]gch$>" "$<TARGET_PROPERTY:${part},INTERFACE_SOURCES>")
    endforeach()
    set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}.objects")
    file(GENERATE OUTPUT "${list}" CONTENT "$<JOIN:${objects};${archives},\n>\n")
    list(TRANSFORM BOWLINE_PUBLIC_SYMBOLS PREPEND "--keep-global-symbol=" OUTPUT_VARIABLE public)
    add_custom_command(OUTPUT "${object}"
      COMMAND "${CMAKE_LINKER}" -r --force-group-allocation -o "${object}" "@${list}"
      COMMAND "${CMAKE_OBJCOPY}" --localize-hidden --wildcard ${public} "${object}"
      DEPENDS ${objects} "${list}" COMMENT "One object of the library, with local symbols" COMMAND_EXPAND_LISTS VERBATIM)
    add_library(${target} STATIC "${object}")
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${target} PRIVATE ${names} Threads::Threads)
    # A shared library that has this one inside does not export it.
    target_link_options(${target} INTERFACE "LINKER:--exclude-libs,${CMAKE_STATIC_LIBRARY_PREFIX}bowline${CMAKE_STATIC_LIBRARY_SUFFIX}")
  endif()
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${BOWLINE_PUBLIC_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(${target} PUBLIC cxx_std_20)
endfunction()

# Functions, and members that are const or for one kind of value alone, of namespace bowline.
set(BOWLINE_PUBLIC_SYMBOLS "_ZN7bowline*" "_ZNK7bowline*" "_ZNR7bowline*" "_ZNKR7bowline*" "_ZNO7bowline*" "_ZNKO7bowline*")
