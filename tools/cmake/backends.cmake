# One loop over backends/*/: a backend is a folder, and nothing else names it.
#
# A folder's CMakeLists.txt calls either
#   bowline_add_backend(<name> SOURCES ... [LINKS ...])   one OBJECT library; it defines
#                                                         const device::Backend& backend_<name>()
#   bowline_skip_backend(<name> "reason")                 it cannot be built here
set_property(GLOBAL PROPERTY BOWLINE_BACKENDS "")
set_property(GLOBAL PROPERTY BOWLINE_SKIPPED "")
set_property(GLOBAL PROPERTY BOWLINE_LINKS "")

function(bowline_add_backend name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(bowline_backend_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(bowline_backend_${name} PRIVATE bowline_options ${arg_LINKS})
  target_include_directories(bowline_backend_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  set_property(GLOBAL APPEND PROPERTY BOWLINE_BACKENDS ${name})
  set_property(GLOBAL APPEND PROPERTY BOWLINE_LINKS ${arg_LINKS})
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
  get_property(BOWLINE_BACKEND_NAMES GLOBAL PROPERTY BOWLINE_BACKENDS)
  get_property(BOWLINE_BACKEND_LINKS GLOBAL PROPERTY BOWLINE_LINKS)
  set(BOWLINE_BACKEND_OBJECTS "")
  set(declarations "")
  set(rows "")
  foreach(name IN LISTS BOWLINE_BACKEND_NAMES)
    list(APPEND BOWLINE_BACKEND_OBJECTS bowline_backend_${name})
    string(APPEND declarations "const Backend& backend_${name}();\n")
    string(APPEND rows "      &backend_${name}(),\n")
  endforeach()
  list(LENGTH BOWLINE_BACKEND_NAMES backend_count)
  file(CONFIGURE OUTPUT "${BOWLINE_GENERATED_DIR}/generated/backends.cpp" CONTENT
"// Generated from the folders of backends/ by tools/cmake/backends.cmake.
#include <array>

#include \"device/device.h\"

namespace bowline::device {

@declarations@
std::span<const Backend* const> backends() {
  static const std::array<const Backend*, @backend_count@> all = {
@rows@  };
  return all;
}

}  // namespace bowline::device
" @ONLY)
  target_sources(bowline_runtime PRIVATE "${BOWLINE_GENERATED_DIR}/generated/backends.cpp")
endmacro()

function(bowline_print_summary)
  get_property(names GLOBAL PROPERTY BOWLINE_BACKENDS)
  get_property(skipped GLOBAL PROPERTY BOWLINE_SKIPPED)
  list(JOIN names ", " text)
  message(STATUS "Bowline ${PROJECT_VERSION}, backends: ${text}")
  foreach(line IN LISTS skipped)
    message(STATUS "  left out: ${line}")
  endforeach()
endfunction()
