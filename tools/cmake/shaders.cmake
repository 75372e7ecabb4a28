# Compute shaders, compiled in the build.
#
#   bowline_find_shader_compiler(<variable>)   sets it to TRUE, or to a sentence about the missing
#       tool
#   bowline_compile_shaders(<target>)          compiles shaders/*.comp in their variants and adds
#       the embedded index (vulkan_shaders.h, vulkan_shaders.cpp) to the target
#
# Variants and the operators of a family file are declared in the head of the shader:
# compile_shaders.py.

set(BOWLINE_SHADER_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/compile_shaders.py)
set(BOWLINE_MATRIX_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/cooperative_matrix.py)  # which it imports
get_filename_component(BOWLINE_SHADER_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../shaders ABSOLUTE)

function(bowline_find_shader_compiler variable)
  find_program(BOWLINE_GLSLANG NAMES glslangValidator glslang)
  find_program(BOWLINE_SPIRV_VAL NAMES spirv-val)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT BOWLINE_GLSLANG)
    set(${variable} "glslangValidator is not installed (package glslang-tools)" PARENT_SCOPE)
  elseif(NOT BOWLINE_SPIRV_VAL)
    set(${variable} "spirv-val is not installed (package spirv-tools)" PARENT_SCOPE)
  elseif(NOT Python3_Interpreter_FOUND)
    set(${variable} "python3 is not installed" PARENT_SCOPE)
  else()
    set(${variable} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(bowline_compile_shaders target)
  set(root ${BOWLINE_SHADER_ROOT})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/shaders)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB sources CONFIGURE_DEPENDS ${root}/*.comp ${BOWLINE_GENERATED_DIR}/generated/*.comp)
  file(GLOB headers CONFIGURE_DEPENDS ${root}/lib/*.glsl)
  # Finds the real interpreter: the wrapper of a version manager takes longer to start than a shader
  # to compile.
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
    OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  # The heads are read at configure time, so a changed head configures again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources} ${BOWLINE_SHADER_SCRIPT})
  file(MAKE_DIRECTORY ${out})
  execute_process(
    COMMAND ${python} ${BOWLINE_SHADER_SCRIPT} list --left-out ${BOWLINE_GENERATED_DIR}/generated/left_out_vulkan.txt
            --sources ${CMAKE_CURRENT_SOURCE_DIR} ${sources}
    OUTPUT_VARIABLE listing RESULT_VARIABLE failed ERROR_VARIABLE message OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "${message}")
  endif()
  string(REPLACE "\n" ";" lines "${listing}")
  set(binaries)
  set(absent)
  foreach(line IN LISTS lines)
    string(REPLACE "|" ";" fields "${line}")
    list(POP_FRONT fields name source)
    if(NOT source)
      list(APPEND absent --absent ${name})
      continue()
    endif()
    set(defines)
    foreach(define IN LISTS fields)
      list(APPEND defines --define ${define})
    endforeach()
    add_custom_command(
      OUTPUT ${out}/${name}.spv
      COMMAND ${python} ${BOWLINE_SHADER_SCRIPT} build --source ${source} --library ${root}/lib
              --library ${BOWLINE_GENERATED_DIR}/generated --library ${PROJECT_SOURCE_DIR}/runtime/ops/formulas
              --output ${out}/${name}.spv --depfile ${out}/${name}.d --glslang ${BOWLINE_GLSLANG}
              --spirv-val ${BOWLINE_SPIRV_VAL} ${defines}
      DEPENDS ${source} ${BOWLINE_SHADER_SCRIPT} ${BOWLINE_MATRIX_SCRIPT}
      DEPFILE ${out}/${name}.d
      COMMENT "Shader ${name}"
      VERBATIM)
    list(APPEND binaries ${out}/${name}.spv)
  endforeach()
  add_custom_command(
    OUTPUT ${out}/vulkan_shaders.h ${out}/vulkan_shaders.cpp
    COMMAND ${python} ${BOWLINE_SHADER_SCRIPT} index --output ${out}/vulkan_shaders
            --namespace bowline::detail::vulkan ${absent} ${binaries}
    DEPENDS ${binaries} ${BOWLINE_SHADER_SCRIPT}
    COMMENT "Shader index"
    VERBATIM)
  target_sources(${target} PRIVATE ${out}/vulkan_shaders.cpp ${out}/vulkan_shaders.h)
  target_include_directories(${target} PRIVATE ${out})
endfunction()
