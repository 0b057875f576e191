# SPDX-License-Identifier: Apache-2.0
# The toolchain of the presets for GPUs: Kokkos' nvcc_wrapper, which compiles for sm_70 if no architecture is named.
# CUDA 13 has dropped sm_70, so the first tests of the compiler, by CMake and by Kokkos itself, would fail. Therefore
# the compiler is a copy in the build folder with another default: for an installed Kokkos, the architecture in its
# settings; for one that is built with the project, SHARDWRIGHT_CUDA_ARCHITECTURE, else this machine's first GPU, else
# 80, as in ShardwrightKokkos.cmake.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SHARDWRIGHT_CUDA_ARCHITECTURE SHARDWRIGHT_NVCC_WRAPPER)
if(CMAKE_CXX_COMPILER OR NOT DEFINED SHARDWRIGHT_NVCC_WRAPPER) # already chosen: this is a project that tests the compiler
  return()
endif()
if(NOT EXISTS "${SHARDWRIGHT_NVCC_WRAPPER}")
  message(FATAL_ERROR "shardwright: KOKKOS_CUDA_ROOT must name an installed Kokkos, or KOKKOS_SOURCE its sources, for the preset "
                      "takes their nvcc_wrapper, but '${SHARDWRIGHT_NVCC_WRAPPER}' is not there (correct the path).")
endif()
set(_shardwright_capability "${SHARDWRIGHT_CUDA_ARCHITECTURE}")
set(_shardwright_settings "$ENV{Kokkos_ROOT}/include/KokkosCore_config.h")
if(DEFINED ENV{Kokkos_ROOT} AND EXISTS "${_shardwright_settings}")
  file(STRINGS "${_shardwright_settings}" _shardwright_lines REGEX "^#define KOKKOS_ARCH_[A-Z]+[0-9]+")
  if(_shardwright_lines MATCHES "KOKKOS_ARCH_(VOLTA|TURING|AMPERE|ADA|HOPPER|BLACKWELL)([0-9]+)")
    set(_shardwright_capability "${CMAKE_MATCH_2}")
  endif()
endif()
if(NOT _shardwright_capability)
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE _shardwright_capability ERROR_QUIET
    RESULT_VARIABLE _shardwright_result)
  string(REGEX MATCH "^[0-9]+[.][0-9]" _shardwright_capability "${_shardwright_capability}")
  string(REPLACE "." "" _shardwright_capability "${_shardwright_capability}")
  if(NOT _shardwright_result EQUAL 0 OR NOT _shardwright_capability)
    set(_shardwright_capability 80)
  endif()
endif()
file(READ "${SHARDWRIGHT_NVCC_WRAPPER}" _shardwright_script)
string(REGEX REPLACE "\ndefault_arch=\"[^\"]*\"" "\ndefault_arch=\"sm_${_shardwright_capability}\"" _shardwright_script
                     "${_shardwright_script}")
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/nvcc_wrapper" CONTENT "@_shardwright_script@" @ONLY)
file(CHMOD "${CMAKE_BINARY_DIR}/nvcc_wrapper" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE)
set(CMAKE_CXX_COMPILER "${CMAKE_BINARY_DIR}/nvcc_wrapper")
