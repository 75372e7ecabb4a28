# Builds the libraries that Bowline uses from their sources, for systems that have no packages of
# them, such as Android. BOWLINE_SOURCE_PACKAGES is a folder with the sources in <name>-<version>;
# `tools/setup --source-packages DIR` makes it. The build has them inside, as static libraries.
set(BOWLINE_SOURCE_PACKAGES "" CACHE PATH "(optional) Sources of the libraries, from tools/setup --source-packages")
if(NOT BOWLINE_SOURCE_PACKAGES)
  return()
endif()
enable_language(C)
set(made "${PROJECT_BINARY_DIR}/source_packages")
file(MAKE_DIRECTORY "${made}/include" "${made}/pcre2")

# bowline_source_package(<variable> <name> <file>) finds the folder of a package that has the file.
function(bowline_source_package variable name file)
  file(GLOB found "${BOWLINE_SOURCE_PACKAGES}/${name}-*/${file}")
  list(LENGTH found count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "${BOWLINE_SOURCE_PACKAGES} has ${count} files ${name}-*/${file}, not 1. "
      "`tools/setup --source-packages DIR` makes a folder with the sources.")
  endif()
  string(REGEX REPLACE "/${file}$" "" folder "${found}")
  set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

# Headers.
bowline_source_package(flatbuffers flatbuffers include/flatbuffers/flatbuffers.h)
bowline_source_package(highway highway hwy/highway.h)
bowline_source_package(json nlohmann-json3 include/nlohmann/json.hpp)
bowline_source_package(xxhash xxhash xxhash.h)
bowline_source_package(simdjson simdjson include/simdjson.h)
foreach(link IN ITEMS "${simdjson}/include/simdjson" "${simdjson}/include/simdjson.h" "${flatbuffers}/include/flatbuffers" "${highway}/hwy" "${json}/include/nlohmann" "${xxhash}/xxhash.h")
  cmake_path(GET link FILENAME name)
  file(CREATE_LINK "${link}" "${made}/include/${name}" SYMBOLIC)
endforeach()
include_directories(SYSTEM BEFORE "${made}/include")
set(BOWLINE_HIGHWAY_HEADERS "${made}/include" CACHE INTERNAL "")
# find_path() of the other headers.
list(APPEND CMAKE_FIND_ROOT_PATH "${made}")

# bowline_source_library(<name> INCLUDE <folder> SOURCES <file>...): a static library, without its
# warnings.
function(bowline_source_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "INCLUDE;SOURCES")
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_include_directories(${name} SYSTEM PUBLIC ${arg_INCLUDE})
  target_compile_options(${name} PRIVATE -w -fvisibility=hidden)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()

bowline_source_library(source_simdjson INCLUDE "${simdjson}/include" SOURCES "${simdjson}/src/simdjson.cpp")
target_include_directories(source_simdjson PRIVATE "${simdjson}/src")

bowline_source_package(utf8proc utf8proc utf8proc.c)
bowline_source_library(source_utf8proc INCLUDE "${utf8proc}" SOURCES "${utf8proc}/utf8proc.c")
target_compile_definitions(source_utf8proc PUBLIC UTF8PROC_STATIC)

# As its file NON-AUTOTOOLS-BUILD says. Some sources are included by others.
bowline_source_package(pcre2 pcre2 src/pcre2_compile.c)
configure_file("${pcre2}/src/pcre2.h.generic" "${made}/pcre2/pcre2.h" COPYONLY)
configure_file("${pcre2}/src/config.h.generic" "${made}/pcre2/config.h" COPYONLY)
configure_file("${pcre2}/src/pcre2_chartables.c.dist" "${made}/pcre2/pcre2_chartables.c" COPYONLY)
file(GLOB pcre2_sources "${pcre2}/src/pcre2_*.c")
list(FILTER pcre2_sources EXCLUDE REGEX "/pcre2_(chartables|dftables|fuzzsupport|jit_match|jit_misc|jit_test|printint|ucptables)[.]c$")
bowline_source_library(source_pcre2 INCLUDE "${made}/pcre2" SOURCES ${pcre2_sources} "${made}/pcre2/pcre2_chartables.c")
target_include_directories(source_pcre2 PRIVATE "${pcre2}/src")
target_compile_definitions(source_pcre2 PUBLIC PCRE2_STATIC PRIVATE HAVE_CONFIG_H SUPPORT_UNICODE PCRE2_CODE_UNIT_WIDTH=8)

# What the parts of Bowline look for.
set(BOWLINE_PCRE2_INCLUDE "${made}/pcre2" CACHE INTERNAL "")
set(BOWLINE_PCRE2 source_pcre2 CACHE INTERNAL "")
set(BOWLINE_UTF8PROC_INCLUDE "${utf8proc}" CACHE INTERNAL "")
set(BOWLINE_UTF8PROC source_utf8proc CACHE INTERNAL "")
foreach(package IN ITEMS simdjson nlohmann_json)
  if(package STREQUAL "simdjson")
    set(content "add_library(simdjson::simdjson INTERFACE IMPORTED)\ntarget_link_libraries(simdjson::simdjson INTERFACE source_simdjson)
target_include_directories(simdjson::simdjson INTERFACE \"${simdjson}/include\")\n")
  else()
    set(content "add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
target_include_directories(nlohmann_json::nlohmann_json INTERFACE \"${made}/include\")\n")
  endif()
  file(CONFIGURE OUTPUT "${made}/${package}/${package}Config.cmake" CONTENT "${content}")
  set(${package}_DIR "${made}/${package}" CACHE INTERNAL "")
endforeach()
