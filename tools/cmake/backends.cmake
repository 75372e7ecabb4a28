# Loops over backends/*/. A backend is a folder; no list names it.
#
# A folder's CMakeLists.txt calls, per backend in it, either
#   bowline_add_backend(<name> SOURCES ... [LINKS ...] [FOR_TESTS] [NEEDS_HARDWARE])
#       one OBJECT library; it defines const device::Backend& backend_<name>()
#       LINKS           targets of static libraries, which become part of the library, and names of
#           system libraries
#       FOR_TESTS       used by programs that compare with the oracles, not by the library
#       NEEDS_HARDWARE  ctest runs no conformance on it unless BOWLINE_CONFORM_DEVICES says so
#   bowline_skip_backend(<name> "reason")                 it cannot be built here
foreach(list IN ITEMS BACKENDS TEST_BACKENDS TESTED SKIPPED LINKS TEST_LINKS)
  set_property(GLOBAL PROPERTY BOWLINE_${list} "")
endforeach()

function(bowline_add_backend name)
  cmake_parse_arguments(arg "FOR_TESTS;NEEDS_HARDWARE" "" "SOURCES;LINKS" ${ARGN})
  add_library(bowline_backend_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(bowline_backend_${name} PRIVATE bowline_options ${arg_LINKS})
  target_include_directories(bowline_backend_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  if(arg_FOR_TESTS)
    set_property(GLOBAL APPEND PROPERTY BOWLINE_TEST_BACKENDS ${name})
    set_property(GLOBAL APPEND PROPERTY BOWLINE_TEST_LINKS ${arg_LINKS})
  else()
    set_property(GLOBAL APPEND PROPERTY BOWLINE_BACKENDS ${name})
    set_property(GLOBAL APPEND PROPERTY BOWLINE_LINKS ${arg_LINKS})
  endif()
  if(NOT arg_NEEDS_HARDWARE)
    set_property(GLOBAL APPEND PROPERTY BOWLINE_TESTED ${name})
  endif()
endfunction()

function(bowline_skip_backend name reason)
  set_property(GLOBAL APPEND PROPERTY BOWLINE_SKIPPED "${name}: ${reason}")
endfunction()

macro(bowline_add_backends)
  file(GLOB backend_lists CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/backends/*/CMakeLists.txt")
  foreach(backend_list IN LISTS backend_lists)
    get_filename_component(backend_folder "${backend_list}" DIRECTORY)
    get_filename_component(backend_name "${backend_folder}" NAME)
    string(TOUPPER "${backend_name}" backend_upper)
    option(BOWLINE_${backend_upper} "Build the ${backend_name} backend" ON)
    if(BOWLINE_${backend_upper})
      add_subdirectory("${backend_folder}")
    else()
      bowline_skip_backend(${backend_name} "switched off by -DBOWLINE_${backend_upper}=OFF")
    endif()
  endforeach()
  get_property(BOWLINE_BACKEND_LINKS GLOBAL PROPERTY BOWLINE_LINKS)
  get_property(BOWLINE_TEST_BACKEND_LINKS GLOBAL PROPERTY BOWLINE_TEST_LINKS)
  get_property(backend_names GLOBAL PROPERTY BOWLINE_BACKENDS)
  get_property(test_backend_names GLOBAL PROPERTY BOWLINE_TEST_BACKENDS)
  bowline_list_backends(backends BOWLINE_BACKEND_OBJECTS ${backend_names})
  bowline_list_backends(backends_checked BOWLINE_CHECKED_BACKEND_OBJECTS ${backend_names} ${test_backend_names})
endmacro()

# Writes <list>.cpp, the table of the backends `ARGN`, and gives the OBJECT libraries of the table
# and of the backends.
function(bowline_list_backends list objects_var)
  set(file "${BOWLINE_GENERATED_DIR}/generated/${list}.cpp")
  set(objects bowline_${list})
  set(declarations "")
  set(rows "")
  foreach(name IN LISTS ARGN)
    list(APPEND objects bowline_backend_${name})
    string(APPEND declarations "const Backend& backend_${name}();\n")
    string(APPEND rows "      &backend_${name}(),\n")
  endforeach()
  list(LENGTH ARGN backend_count)
  file(CONFIGURE OUTPUT "${file}" CONTENT
"// Generated from the folders of backends/ by tools/cmake/backends.cmake.
#include <array>

#include \"device/device.h\"

namespace bowline::detail::device {

@declarations@
std::span<const Backend* const> backends() {
  static const std::array<const Backend*, @backend_count@> all = {
@rows@  };
  return all;
}

}  // namespace bowline::detail::device
" @ONLY)
  add_library(bowline_${list} OBJECT "${file}")
  target_link_libraries(bowline_${list} PRIVATE bowline_options)
  set(${objects_var} "${objects}" PARENT_SCOPE)
endfunction()

function(bowline_print_summary)
  get_property(names GLOBAL PROPERTY BOWLINE_BACKENDS)
  get_property(test_names GLOBAL PROPERTY BOWLINE_TEST_BACKENDS)
  get_property(skipped GLOBAL PROPERTY BOWLINE_SKIPPED)
  list(JOIN names ", " text)
  message(STATUS "Bowline ${PROJECT_VERSION}, backends: ${text}")
  foreach(name IN LISTS test_names)
    message(STATUS "  for tests: ${name}")
  endforeach()
  foreach(line IN LISTS skipped)
    message(STATUS "  left out: ${line}")
  endforeach()
endfunction()
