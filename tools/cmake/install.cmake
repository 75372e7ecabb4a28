# cmake --install: the library with its headers; bowline::text, bowline::import and bowline::c where
# they are built; find_package(bowline CONFIG), pkg-config files, the operator reference, the
# notices of third parties and the bill of materials; the command with its man pages and completion;
# and bowline-conform.
include_guard(GLOBAL)  # tests/consumer includes this file, too, for its second variant of the library
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(BOWLINE_INSTALL_SCRIPTS "${PROJECT_SOURCE_DIR}/tools/install")

# Runs a script of tools/install with the arguments when `component` is installed.
function(bowline_install_run component script excluded)
  set(words "")
  foreach(word IN LISTS ARGN)
    string(APPEND words " \"${word}\"")
  endforeach()
  install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${BOWLINE_INSTALL_SCRIPTS}/${script}\"${words} COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT ${component} ${excluded})
endfunction()

# The objects of the targets, one per line, for notices.py.
function(bowline_list_objects file)
  set(lines "")
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      list(APPEND lines "$<TARGET_OBJECTS:${target}>" "$<TARGET_PROPERTY:${target},INTERFACE_SOURCES>")
    endif()
  endforeach()
  foreach(link IN LISTS BOWLINE_BACKEND_LINKS)
    if(TARGET ${link})
      list(APPEND lines "$<TARGET_FILE:${link}>")
    endif()
  endforeach()
  file(GENERATE OUTPUT "${file}" CONTENT "$<JOIN:${lines},\n>\n")
endfunction()

# A pkg-config file. The folders are relative to it, so that an installed tree can be moved.
function(bowline_write_pc file name description requires libs)
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  file(CONFIGURE OUTPUT "${file}" CONTENT
"prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Requires: ${requires}
Cflags: -I\${includedir}
Libs: -L\${libdir} ${libs}
" @ONLY)
endfunction()

# Installs `target` as the package bowline. `ARGN` is EXCLUDE_FROM_ALL or empty.
function(bowline_install target component)
  set(excluded ${ARGN})
  macro(bowline_install_files destination)
    install(FILES ${ARGN} DESTINATION "${destination}" COMPONENT ${component} ${excluded})
  endmacro()
  set_target_properties(${target} PROPERTIES EXPORT_NAME bowline)
  get_target_property(type ${target} TYPE)
  set(libs -lbowline)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND libs -Wl,--exclude-libs,libbowline.a -pthread)
    foreach(link IN LISTS BOWLINE_BACKEND_LINKS)
      if(NOT TARGET ${link})
        list(APPEND libs -l${link})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES libs)
  endif()
  list(JOIN libs " " libs)

  set(made "${PROJECT_BINARY_DIR}/package/${component}")
  set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/${component}")  # find_package(bowline) looks into bowline*
  bowline_write_pc("${made}/bowline.pc" bowline "Runs and fine-tunes neural networks" "" "${libs}")
  get_property(onnx_missing GLOBAL PROPERTY BOWLINE_ONNX_MISSING)
  set(needs_protobuf TRUE)
  if(onnx_missing)
    set(needs_protobuf FALSE)
  endif()
  file(CONFIGURE OUTPUT "${made}/bowlineConfig.cmake" CONTENT
"# Targets: bowline::bowline; bowline::c, the C interface, where it was built; and bowline::text and
# bowline::import where they were built and their libraries are found.
# find_package(bowline CONFIG REQUIRED COMPONENTS text import) asks for the last two.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineTargets.cmake\")
include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineCTargets.cmake\" OPTIONAL)
set(bowline_text_missing \"\")
if(EXISTS \"\${CMAKE_CURRENT_LIST_DIR}/bowlineTextTargets.cmake\")
  find_package(simdjson QUIET)
  find_library(bowline_PCRE2 pcre2-8)
  find_library(bowline_UTF8PROC utf8proc)
  if(NOT simdjson_FOUND)
    set(bowline_text_missing \"simdjson is not found (Debian: libsimdjson-dev)\")
  elseif(NOT bowline_PCRE2)
    set(bowline_text_missing \"pcre2-8 is not found (Debian: libpcre2-dev)\")
  elseif(NOT bowline_UTF8PROC)
    set(bowline_text_missing \"utf8proc is not found (Debian: libutf8proc-dev)\")
  else()
    include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineTextTargets.cmake\")
  endif()
else()
  set(bowline_text_missing \"this Bowline was built without it (-DBOWLINE_TEXT=OFF)\")
endif()
set(bowline_import_missing \"\${bowline_text_missing}\")
if(NOT EXISTS \"\${CMAKE_CURRENT_LIST_DIR}/bowlineImportTargets.cmake\")
  set(bowline_import_missing \"this Bowline was built without it (-DBOWLINE_IMPORT=OFF)\")
elseif(NOT bowline_import_missing)
  if(@needs_protobuf@)
    find_package(Protobuf QUIET)
    if(NOT TARGET protobuf::libprotobuf-lite)
      set(bowline_import_missing \"protobuf is not found (Debian: libprotobuf-dev)\")
    endif()
  endif()
  if(NOT bowline_import_missing)
    include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineImportTargets.cmake\")
    target_link_libraries(bowline::import INTERFACE bowline::text)
  endif()
endif()
foreach(bowline_part text import)
  if(bowline_\${bowline_part}_missing)
    set(bowline_\${bowline_part}_FOUND FALSE)
    if(bowline_FIND_REQUIRED_\${bowline_part})
      set(bowline_FOUND FALSE)
      set(bowline_NOT_FOUND_MESSAGE \"bowline::\${bowline_part} cannot be used: \${bowline_\${bowline_part}_missing}.\")
    elseif(NOT bowline_FIND_QUIETLY)
      message(STATUS \"bowline::\${bowline_part} is left out: \${bowline_\${bowline_part}_missing}.\")
    endif()
  else()
    set(bowline_\${bowline_part}_FOUND TRUE)
  endif()
endforeach()
" @ONLY)
  write_basic_package_version_file("${made}/bowlineConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  set(import_parts "")
  if(BOWLINE_IMPORT)
    set(import_parts bowline_gguf bowline_import bowline_onnx bowline_import_api)
  endif()
  bowline_list_objects("${made}/objects" bowline_base bowline_runtime bowline_ops ${BOWLINE_BACKEND_OBJECTS} bowline_text bowline_c
    ${import_parts})
  bowline_install_run(${component} operators.py "${excluded}" --root "${PROJECT_SOURCE_DIR}" --out "${made}/operators.md")
  bowline_install_run(${component} notices.py "${excluded}" --build "${PROJECT_BINARY_DIR}" --source "${PROJECT_SOURCE_DIR}"
    --objects "${made}/objects" --compiler "${CMAKE_CXX_COMPILER}" --out "${made}/third-party-notices.txt"
    --uses "${BOWLINE_LICENCES}/uses.txt")

  install(TARGETS ${target} EXPORT ${component} COMPONENT ${component} ${excluded}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    NAMELINK_COMPONENT ${component})
  bowline_install_files("${CMAKE_INSTALL_INCLUDEDIR}" "${PROJECT_SOURCE_DIR}/runtime/bowline.h")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/bowline" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT ${component} ${excluded} FILES_MATCHING PATTERN "*.h")
  bowline_install_files("${folder}" "${made}/bowlineConfig.cmake" "${made}/bowlineConfigVersion.cmake")
  bowline_install_files("${CMAKE_INSTALL_LIBDIR}/pkgconfig" "${made}/bowline.pc")
  bowline_install_files("${CMAKE_INSTALL_DATADIR}/bowline" "${PROJECT_SOURCE_DIR}/schemas/ops.fbs" "${BOWLINE_INSTALL_SCRIPTS}/tsan.supp")
  bowline_install_files("${CMAKE_INSTALL_DOCDIR}" "${PROJECT_SOURCE_DIR}/LICENSE" "${made}/operators.md" "${made}/third-party-notices.txt"
    "${BOWLINE_LICENCES}/bowline.spdx.json")
  install(EXPORT ${component} NAMESPACE bowline:: FILE bowlineTargets.cmake DESTINATION "${folder}"
    COMPONENT ${component} ${excluded})
  if(TARGET bowline_text)
    bowline_write_pc("${made}/bowline-text.pc" bowline-text "Tokenizers, chat formats and generation for bowline"
      "bowline = ${PROJECT_VERSION} simdjson libpcre2-8 libutf8proc" -lbowline_text)
    set_target_properties(bowline_text PROPERTIES EXPORT_NAME text)
    install(TARGETS bowline_text EXPORT ${component}_text COMPONENT ${component} ${excluded}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    bowline_install_files("${CMAKE_INSTALL_INCLUDEDIR}" "${PROJECT_SOURCE_DIR}/runtime/text/bowline_text.h")
    bowline_install_files("${CMAKE_INSTALL_LIBDIR}/pkgconfig" "${made}/bowline-text.pc")
    install(EXPORT ${component}_text NAMESPACE bowline:: FILE bowlineTextTargets.cmake DESTINATION "${folder}"
      COMPONENT ${component} ${excluded})
  endif()
  if(BOWLINE_IMPORT)  # tests add the readers without it
    set(import_requires "bowline-text = ${PROJECT_VERSION}")
    if(needs_protobuf)
      string(APPEND import_requires " protobuf-lite")
    endif()
    bowline_write_pc("${made}/bowline-import.pc" bowline-import "Imports models from Hugging Face, GGUF, ONNX and PEFT for bowline"
      "${import_requires}" "-lbowline_import -Wl,--exclude-libs,libbowline_import.a")
    set_target_properties(bowline_import_library PROPERTIES EXPORT_NAME import)
    install(TARGETS bowline_import_library EXPORT ${component}_import COMPONENT ${component} ${excluded}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    bowline_install_files("${CMAKE_INSTALL_INCLUDEDIR}" "${PROJECT_SOURCE_DIR}/tools/import/bowline_import.h")
    bowline_install_files("${CMAKE_INSTALL_LIBDIR}/pkgconfig" "${made}/bowline-import.pc")
    install(EXPORT ${component}_import NAMESPACE bowline:: FILE bowlineImportTargets.cmake DESTINATION "${folder}"
      COMPONENT ${component} ${excluded})
  endif()
  if(TARGET bowline_c)
    bowline_write_pc("${made}/bowline-c.pc" bowline-c "The C interface of bowline, as one shared library" "" -lbowline_c)
    set_target_properties(bowline_c PROPERTIES EXPORT_NAME c)
    install(TARGETS bowline_c EXPORT ${component}_c COMPONENT ${component} ${excluded}
      LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_COMPONENT ${component})
    bowline_install_files("${CMAKE_INSTALL_INCLUDEDIR}" "${PROJECT_SOURCE_DIR}/runtime/c/bowline_c.h")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/c/bowline_c" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
      COMPONENT ${component} ${excluded} FILES_MATCHING PATTERN "*.h")
    bowline_install_files("${CMAKE_INSTALL_LIBDIR}/pkgconfig" "${made}/bowline-c.pc")
    install(EXPORT ${component}_c NAMESPACE bowline:: FILE bowlineCTargets.cmake DESTINATION "${folder}"
      COMPONENT ${component} ${excluded})
  endif()
endfunction()

# Installs a program: its man pages, its third-party notices, and what else manual.py writes for it.
# `ARGN` are the targets of its objects.
function(bowline_install_program target manual)
  string(REGEX REPLACE "^bowline_" "" name "${target}")
  set(made "${PROJECT_BINARY_DIR}/package/${name}")
  set(uses "")
  if(target STREQUAL bowline_command)
    set(uses --uses "${BOWLINE_LICENCES}/uses.txt")
  endif()
  bowline_list_objects("${made}/objects" bowline_base bowline_runtime ${target} bowline_program ${ARGN})
  bowline_install_run(${target} manual.py "" ${manual} --version "${PROJECT_VERSION}" --man "${made}/man"
    --conform "$<TARGET_FILE:bowline_conform>" --emulator ${CMAKE_CROSSCOMPILING_EMULATOR})
  bowline_install_run(${target} notices.py "" --build "${PROJECT_BINARY_DIR}" --source "${PROJECT_SOURCE_DIR}"
    --objects "${made}/objects" --compiler "${CMAKE_CXX_COMPILER}" --out "${made}/third-party-notices-${name}.txt" ${uses})
  install(TARGETS ${target} COMPONENT ${target})
  install(DIRECTORY "${made}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT ${target})
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${made}/third-party-notices-${name}.txt" "${BOWLINE_LICENCES}/bowline.spdx.json"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT ${target})
endfunction()

bowline_install(bowline bowline)
if(TARGET bowline_command)
  set(completion "${PROJECT_BINARY_DIR}/package/command/completion")
  bowline_install_program(bowline_command "--command;$<TARGET_FILE:bowline_command>;--completion;${completion}/bowline"
    bowline_ops ${BOWLINE_BACKEND_OBJECTS} bowline_text bowline_import bowline_gguf bowline_onnx bowline_import_api bowline_data)
  install(DIRECTORY "${completion}/" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT bowline_command)
  bowline_install_program(bowline_conform ""
    bowline_ops_oracles ${BOWLINE_CHECKED_BACKEND_OBJECTS} bowline_conformance bowline_recipes)
endif()
