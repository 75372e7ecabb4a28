# The API reference: the target bowline_reference writes it to <build>/reference/html, and a test
# fails on warnings of Doxygen and on public types and functions without a comment.
find_program(BOWLINE_DOXYGEN doxygen)
if(BOWLINE_DOXYGEN)
  set(reference "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/install/reference.py" --doxygen "${BOWLINE_DOXYGEN}"
    --root "${PROJECT_SOURCE_DIR}" --version "${PROJECT_VERSION}")
  add_custom_target(bowline_reference COMMAND ${reference} --out "${PROJECT_BINARY_DIR}/reference" USES_TERMINAL)
  if(BOWLINE_TESTS)
    add_test(NAME check.reference COMMAND ${reference} --out "${PROJECT_BINARY_DIR}/reference_test" --check)
  endif()
endif()
