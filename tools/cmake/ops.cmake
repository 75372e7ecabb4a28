# Generates the FlatBuffers headers, the op enum and the op table from the schemas, and the code of
# formulas and formats.
find_program(BOWLINE_FLATC flatc REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(BOWLINE_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated_tree")
set(BOWLINE_SCHEMAS ops internal_ops model optimizers)

# Runs at configure time. Runs again when a schema, an op file or its cases are added or removed, or
# the head of an op file changes.
function(bowline_generate_ops)
  set(out "${BOWLINE_GENERATED_DIR}/generated")
  file(MAKE_DIRECTORY "${out}")
  set(formulas "${PROJECT_SOURCE_DIR}/runtime/ops/formulas")
  file(GLOB watched CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/ops/*.cpp"
    "${PROJECT_SOURCE_DIR}/tests/ops/*.cases" "${formulas}/*.h" "${formulas}/optimizers/*.h"
    "${PROJECT_SOURCE_DIR}/runtime/base/formats/*")
  file(GLOB heads "${PROJECT_SOURCE_DIR}/runtime/ops/*.cpp" "${formulas}/*.h" "${formulas}/optimizers/*.h"
    "${PROJECT_SOURCE_DIR}/runtime/base/formats/*.h" "${PROJECT_SOURCE_DIR}/runtime/base/formats/*.inc")
  set(generator "${PROJECT_SOURCE_DIR}/tools/cmake/generate_ops.py")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${heads}
    "${PROJECT_SOURCE_DIR}/runtime/device/program.h" "${generator}" "${PROJECT_SOURCE_DIR}/tools/cmake/optimizers.py"
    "${PROJECT_SOURCE_DIR}/tools/cmake/formats.py")
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${generator}" --root "${PROJECT_SOURCE_DIR}"
    --out "${BOWLINE_GENERATED_DIR}" COMMAND_ERROR_IS_FATAL ANY)
  foreach(name IN LISTS BOWLINE_SCHEMAS)
    set(schema "${PROJECT_SOURCE_DIR}/schemas/${name}.fbs")
    if(NOT EXISTS "${schema}")
      set(schema "${out}/${name}.fbs")
    endif()
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${schema}")
    set(header "${out}/${name}_generated.h")
    # Lists and texts of attributes are never null.
    set(empty "")
    if(NOT name STREQUAL model)
      set(empty --force-empty)
    endif()
    if("${schema}" IS_NEWER_THAN "${header}" OR "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" IS_NEWER_THAN "${header}")
      execute_process(COMMAND "${BOWLINE_FLATC}" --cpp --scoped-enums --gen-object-api ${empty}
        -o "${out}" "${schema}" COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()
  file(STRINGS "${out}/op_files.txt" files)
  set(BOWLINE_OP_FILES ${files} "${out}/optimizer_ops.cpp" PARENT_SCOPE)
endfunction()

# The kernel table of a backend, from the kernel files of its folders (see backends/README.md).
function(bowline_generate_kernels backend out_var)
  set(folders "")
  foreach(folder IN LISTS ARGN)
    file(GLOB watched CONFIGURE_DEPENDS "${folder}/*")
    foreach(file IN LISTS watched)
      if(NOT IS_DIRECTORY "${file}")
        set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
      endif()
    endforeach()
  endforeach()
  list(JOIN ARGN ";" folders)
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/cmake/generate_ops.py"
    --root "${PROJECT_SOURCE_DIR}" --out "${BOWLINE_GENERATED_DIR}" "--kernels=${backend}=${folders}"
    COMMAND_ERROR_IS_FATAL ANY)
  set(${out_var} "${BOWLINE_GENERATED_DIR}/generated/kernels_${backend}.cpp" PARENT_SCOPE)
endfunction()
