# The library. BOWLINE_SOURCE_URL and BOWLINE_SOURCE_SHA512 are those of the release that is
# packaged; without them, the port builds the checkout that it is in.
if(DEFINED ENV{BOWLINE_SOURCE_URL})
  vcpkg_download_distfile(archive URLS "$ENV{BOWLINE_SOURCE_URL}" FILENAME "bowline-${VERSION}.tar.gz"
    SHA512 "$ENV{BOWLINE_SOURCE_SHA512}")
  vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${archive}")
else()
  get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
endif()

vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES text BOWLINE_TEXT vulkan BOWLINE_VULKAN)
vcpkg_find_acquire_program(PYTHON3)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${features}
  -DBOWLINE_TESTS=OFF -DBOWLINE_TOOLS=OFF -DBOWLINE_C=OFF -DBOWLINE_CUDA=OFF
  "-DPython3_EXECUTABLE=${PYTHON3}"
  "-DBOWLINE_FLATC=${CURRENT_HOST_INSTALLED_DIR}/tools/flatbuffers/flatc${VCPKG_HOST_EXECUTABLE_SUFFIX}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/bowline)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
