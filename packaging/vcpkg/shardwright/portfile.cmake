# SPDX-License-Identifier: Apache-2.0
# An overlay port of the checkout that holds it: vcpkg install shardwright --overlay-ports=packaging/vcpkg
# Kokkos, and MPI and a BLAS if wanted, are those of the system.
set(VCPKG_BUILD_TYPE release) # header-only
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DSHARDWRIGHT_WITH_KOKKOS=OFF) # what is installed is the same
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/shardwright)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
