# Generates the FlatBuffers headers, the op enum and the op table from the schemas, and the code of
# formulas and formats.
find_program(BOWLINE_FLATC flatc REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(BOWLINE_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated_tree")
set(BOWLINE_SCHEMAS ops internal_ops model optimizers)

# The operators of the build (select_ops.py explains the entries). A path of from:FILE is absolute,
# or relative to the source folder of the project that is configured.
set(BOWLINE_OPS "all" CACHE STRING
  "Operators of the library: all, or a list of from:MODEL.bowline, operators, optimizers, dtypes and encodings")
set(BOWLINE_SELECTION "")
if(NOT BOWLINE_OPS STREQUAL "all")
  foreach(item IN LISTS BOWLINE_OPS)
    if(item MATCHES "^from:(.*)$")
      cmake_path(ABSOLUTE_PATH CMAKE_MATCH_1 BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE path)
      set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
      set(item "from:${path}")
    endif()
    list(APPEND BOWLINE_SELECTION "--only=${item}")
  endforeach()
  list(APPEND BOWLINE_SELECTION "--flatc=${BOWLINE_FLATC}")
endif()
cmake_dependent_option(BOWLINE_TRAINING "Build gradients and optimizers; without them Trainer::create() fails" ON
  "NOT BOWLINE_OPS STREQUAL all" ON)
if(NOT BOWLINE_TRAINING)
  list(APPEND BOWLINE_SELECTION --without-training)
endif()

option(BOWLINE_PROCESSES "Several processes can train one model; without it TrainOptions::processes is refused" ON)

# Calls generate_ops.py.
function(bowline_generate_code)
  execute_process(COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/cmake/generate_ops.py"
    --root "${PROJECT_SOURCE_DIR}" --out "${BOWLINE_GENERATED_DIR}" ${BOWLINE_SELECTION} ${ARGN}
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

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
    "${PROJECT_SOURCE_DIR}/tools/cmake/formats.py" "${PROJECT_SOURCE_DIR}/tools/cmake/kernel_tables.py"
    "${PROJECT_SOURCE_DIR}/tools/cmake/select_ops.py")
  bowline_generate_code()
  foreach(name IN LISTS BOWLINE_SCHEMAS)
    set(schema "${PROJECT_SOURCE_DIR}/schemas/${name}.fbs")
    if(NOT EXISTS "${schema}" OR (BOWLINE_SELECTION AND EXISTS "${out}/${name}.fbs"))
      set(schema "${out}/${name}.fbs")
    endif()
    # Newer than the header if the header was generated from the other schema.
    file(CONFIGURE OUTPUT "${out}/${name}.origin" CONTENT "${schema}\n")
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${schema}")
    set(header "${out}/${name}_generated.h")
    # Lists and texts of attributes are never null.
    set(empty "")
    if(NOT name STREQUAL model)
      set(empty --force-empty)
    endif()
    if("${schema}" IS_NEWER_THAN "${header}" OR "${out}/${name}.origin" IS_NEWER_THAN "${header}" OR "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" IS_NEWER_THAN "${header}")
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
  bowline_generate_code("--kernels=${backend}=${folders}")
  set(${out_var} "${BOWLINE_GENERATED_DIR}/generated/kernels_${backend}.cpp" PARENT_SCOPE)
endfunction()
