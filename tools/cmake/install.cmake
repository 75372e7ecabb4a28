# cmake --install: the library, its header, bowline::text with its own where it is built, and find_package(bowline CONFIG).
include_guard(GLOBAL)  # tests/consumer comes here first, for its second flavour of the library
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# What a consumer of a static library links besides it: names that a linker finds, and targets of BOWLINE_PACKAGES.
function(bowline_link_names out_var)
  get_property(packaged GLOBAL PROPERTY BOWLINE_PACKAGED_LINKS)
  set(names "")
  foreach(link IN LISTS ARGN)
    if(link IN_LIST packaged)
      # A target of a package that bowlineConfig.cmake finds.
    elseif(TARGET ${link})
      get_target_property(type ${link} TYPE)
      if(type STREQUAL "INTERFACE_LIBRARY")
        get_target_property(inner ${link} INTERFACE_LINK_LIBRARIES)
        bowline_link_names(link ${inner})
      else()
        get_target_property(file ${link} LOCATION)
        get_filename_component(link "${file}" NAME)
        string(REGEX REPLACE "^lib(.*)\\.(a|so)[.0-9]*$" "\\1" link "${link}")
      endif()
    elseif(IS_ABSOLUTE "${link}")
      get_filename_component(link "${link}" NAME)
      string(REGEX REPLACE "^lib(.*)\\.(a|so)[.0-9]*$" "\\1" link "${link}")
    endif()
    list(APPEND names ${link})
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${out_var} "${names}" PARENT_SCOPE)
endfunction()

# Installs `target` as the package bowline.
function(bowline_install target component)
  get_target_property(type ${target} TYPE)
  set(names "")
  if(type STREQUAL "STATIC_LIBRARY")
    bowline_link_names(names ${BOWLINE_BACKEND_LINKS} ${CMAKE_DL_LIBS})
  endif()
  # In this build the objects come with the target; a consumer sees the library alone.
  get_target_property(inner ${target} INTERFACE_LINK_LIBRARIES)
  set(interface "")
  foreach(link IN LISTS inner)
    list(APPEND interface "$<BUILD_INTERFACE:${link}>")
  endforeach()
  foreach(name IN LISTS names)
    list(APPEND interface "$<INSTALL_INTERFACE:${name}>")
  endforeach()
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND interface "$<INSTALL_INTERFACE:Threads::Threads>")
  endif()
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${interface}" EXPORT_NAME bowline)

  set(dependencies "")
  if(type STREQUAL "STATIC_LIBRARY")
    get_property(packages GLOBAL PROPERTY BOWLINE_PACKAGES)
    foreach(package IN LISTS packages)
      string(APPEND dependencies "find_dependency(${package})\n")
    endforeach()
  endif()
  set(config "${PROJECT_BINARY_DIR}/package/${component}")
  set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/${component}")  # find_package(bowline) looks into bowline*
  file(CONFIGURE OUTPUT "${config}/bowlineConfig.cmake" CONTENT
"# Targets: bowline::bowline, and bowline::text where it was built and its libraries are found.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
@dependencies@include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineTargets.cmake\")
if(EXISTS \"\${CMAKE_CURRENT_LIST_DIR}/bowlineTextTargets.cmake\")
  find_package(simdjson QUIET)
  if(simdjson_FOUND)
    include(\"\${CMAKE_CURRENT_LIST_DIR}/bowlineTextTargets.cmake\")
  endif()
endif()
" @ONLY)
  write_basic_package_version_file("${config}/bowlineConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(TARGETS ${target} EXPORT ${component} COMPONENT ${component} ${ARGN}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    NAMELINK_COMPONENT ${component})
  install(FILES "${PROJECT_SOURCE_DIR}/runtime/bowline.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/bowline"
    COMPONENT ${component} ${ARGN})
  install(FILES "${config}/bowlineConfig.cmake" "${config}/bowlineConfigVersion.cmake" DESTINATION "${folder}"
    COMPONENT ${component} ${ARGN})
  install(EXPORT ${component} NAMESPACE bowline:: FILE bowlineTargets.cmake DESTINATION "${folder}"
    COMPONENT ${component} ${ARGN})
  if(TARGET bowline_text)
    set_target_properties(bowline_text PROPERTIES EXPORT_NAME text)
    install(TARGETS bowline_text EXPORT ${component}_text COMPONENT ${component} ${ARGN}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(FILES "${PROJECT_SOURCE_DIR}/runtime/text/bowline_text.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/bowline"
      COMPONENT ${component} ${ARGN})
    install(EXPORT ${component}_text NAMESPACE bowline:: FILE bowlineTextTargets.cmake DESTINATION "${folder}"
      COMPONENT ${component} ${ARGN})
  endif()
endfunction()

bowline_install(bowline bowline)
