# bowline_conformance: the runner as a library for bowline-conform and the tests. The top-level
# CMakeLists.txt includes this file, so that bowline-conform also builds without the tests.
set(conformance_folder "${CMAKE_CURRENT_LIST_DIR}")
set(conformance_generated "${PROJECT_BINARY_DIR}/conformance_tree")
set(gap_files "")
set(gap_names "")
get_property(gap_backends GLOBAL PROPERTY BOWLINE_BACKENDS)
foreach(name IN LISTS gap_backends)
  if(EXISTS "${PROJECT_SOURCE_DIR}/backends/${name}/conformance.cpp")
    list(APPEND gap_files "${PROJECT_SOURCE_DIR}/backends/${name}/conformance.cpp")
    list(APPEND gap_names ${name})
  endif()
endforeach()
file(GLOB case_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/ops/*.cases" "${PROJECT_SOURCE_DIR}/schemas/*.fbs"
  "${PROJECT_SOURCE_DIR}/runtime/ops/formulas/*.h")
list(JOIN gap_names "," gap_names)
add_custom_command(
  OUTPUT "${conformance_generated}/generated/cases.cpp" "${conformance_generated}/generated/gaps.h"
  COMMAND "${Python3_EXECUTABLE}" "${conformance_folder}/embed.py" --root "${PROJECT_SOURCE_DIR}"
    --out "${conformance_generated}" "--backends=${gap_names}"
  COMMAND "${CMAKE_COMMAND}" -E touch "${conformance_generated}/generated/cases.cpp"
  DEPENDS "${conformance_folder}/embed.py" ${case_files} ${gap_files}
  COMMENT "Embedding the conformance cases" VERBATIM)

file(GLOB conformance_sources CONFIGURE_DEPENDS "${conformance_folder}/*.cpp"
  "${conformance_folder}/random/*.cpp")
list(FILTER conformance_sources EXCLUDE REGEX "_test\\.cpp$")
add_library(bowline_conformance STATIC EXCLUDE_FROM_ALL ${conformance_sources} ${gap_files}
  "${conformance_generated}/generated/cases.cpp" "${conformance_generated}/generated/gaps.h")
target_compile_options(bowline_conformance PRIVATE ${BOWLINE_WARNINGS} -fno-exceptions -fno-rtti)
bowline_hot(bowline_conformance)
target_compile_definitions(bowline_conformance PUBLIC BOWLINE_ORACLES)
target_include_directories(bowline_conformance PUBLIC "${PROJECT_SOURCE_DIR}/tests" PRIVATE "${conformance_generated}")
target_precompile_headers(bowline_conformance PRIVATE <cmath> <conformance/suite.h>)
target_link_libraries(bowline_conformance PUBLIC bowline_recipes bowline_checked)
