# SPDX-License-Identifier: Apache-2.0
# The installed package holds the headers, bare targets and the source of shardwright::compiled; its configuration finds
# the dependencies on the machine where it is used.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_directory "${CMAKE_INSTALL_DATADIR}/cmake/shardwright") # nothing in it is for one architecture
install(
  TARGETS shardwright shardwright_descriptions
  EXPORT shardwrightTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(
  EXPORT shardwrightTargets
  NAMESPACE shardwright::
  DESTINATION "${package_directory}")

# Requested without components, the package offers those that it was configured with, as far as they are found again;
# without Kokkos none was looked for.
set(SHARDWRIGHT_DEFAULT_COMPONENTS)
foreach(component IN ITEMS MPI BLAS FFTW CUDA NCCL CUDNN)
  string(TOLOWER ${component} name)
  if(shardwright::${name} IN_LIST shardwright_dependencies
     OR (NOT SHARDWRIGHT_WITH_KOKKOS AND shardwright_components MATCHES "(^|[;_])${component}(;|$)"))
    list(APPEND SHARDWRIGHT_DEFAULT_COMPONENTS ${component})
  endif()
endforeach()
configure_package_config_file(
  cmake/shardwrightConfig.cmake.in "${PROJECT_BINARY_DIR}/shardwrightConfig.cmake"
  INSTALL_DESTINATION "${package_directory}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/shardwrightConfigVersion.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(
  FILES "${PROJECT_BINARY_DIR}/shardwrightConfig.cmake" "${PROJECT_BINARY_DIR}/shardwrightConfigVersion.cmake"
        cmake/ShardwrightDependencies.cmake cmake/ShardwrightKokkos.cmake cmake/ShardwrightBlas.cmake
        cmake/ShardwrightCompiled.cmake src/compiled.cpp src/definitions.cpp src/kernels.cpp src/checkpoints.cpp
  DESTINATION "${package_directory}")
install(DIRECTORY cmake/kokkos_probe DESTINATION "${package_directory}")
# For makefiles and other build systems: it finds its prefix from its own place, so that a tree may be moved. Packagers
# may name folders in full, outside the prefix.
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}")
  set(SHARDWRIGHT_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH SHARDWRIGHT_PC_PREFIX "/prefix/${CMAKE_INSTALL_DATADIR}/pkgconfig" "/prefix")
  string(PREPEND SHARDWRIGHT_PC_PREFIX "\${pcfiledir}/")
endif()
cmake_path(APPEND SHARDWRIGHT_PC_INCLUDEDIR "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}") # a full path stays as it is
configure_file(cmake/shardwright.pc.in "${PROJECT_BINARY_DIR}/shardwright.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/shardwright.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
