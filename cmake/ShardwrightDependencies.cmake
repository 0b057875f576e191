# SPDX-License-Identifier: Apache-2.0
# The dependencies of the headers, found in the same way here and in a project that uses the installed package.
include_guard(DIRECTORY)
include("${CMAKE_CURRENT_LIST_DIR}/ShardwrightKokkos.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/ShardwrightBlas.cmake")

# Leaves out the C++ bindings that MPI dropped in 2012.
macro(shardwright_find_mpi found_var)
  if(NOT TARGET shardwright::mpi)
    set(_shardwright_mpi_skip "${MPI_CXX_SKIP_MPICXX}")
    set(MPI_CXX_SKIP_MPICXX TRUE)
    find_package(MPI QUIET COMPONENTS CXX)
    set(MPI_CXX_SKIP_MPICXX "${_shardwright_mpi_skip}")
    if(MPI_CXX_FOUND)
      add_library(shardwright::mpi INTERFACE IMPORTED)
      target_link_libraries(shardwright::mpi INTERFACE MPI::MPI_CXX)
      target_compile_definitions(shardwright::mpi INTERFACE SHARDWRIGHT_WITH_MPI=1 OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
      list(GET MPI_CXX_LIBRARIES 0 _shardwright_mpi_library)
      message(STATUS "shardwright: MPI ${MPI_CXX_VERSION}, ${_shardwright_mpi_library}")
    endif()
  endif()
  if(TARGET shardwright::mpi)
    set(${found_var} TRUE)
  else()
    set(${found_var} FALSE)
  endif()
endmacro()

# FFTW in both precisions.
macro(shardwright_find_fftw found_var)
  set(${found_var} FALSE)
  set(_shardwright_fftw_hints ${FFTW_ROOT} $ENV{FFTW_ROOT})
  find_path(SHARDWRIGHT_FFTW_INCLUDE_DIR fftw3.h HINTS ${_shardwright_fftw_hints} PATH_SUFFIXES include)
  find_library(SHARDWRIGHT_FFTW_LIBRARY NAMES fftw3 HINTS ${_shardwright_fftw_hints} PATH_SUFFIXES lib lib64)
  find_library(SHARDWRIGHT_FFTWF_LIBRARY NAMES fftw3f HINTS ${_shardwright_fftw_hints} PATH_SUFFIXES lib lib64)
  mark_as_advanced(SHARDWRIGHT_FFTW_INCLUDE_DIR SHARDWRIGHT_FFTW_LIBRARY SHARDWRIGHT_FFTWF_LIBRARY)
  if(SHARDWRIGHT_FFTW_INCLUDE_DIR AND SHARDWRIGHT_FFTW_LIBRARY AND SHARDWRIGHT_FFTWF_LIBRARY)
    if(NOT TARGET shardwright::fftw)
      add_library(shardwright::fftw INTERFACE IMPORTED)
      set_target_properties(
        shardwright::fftw
        PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${SHARDWRIGHT_FFTW_INCLUDE_DIR}"
                   INTERFACE_LINK_LIBRARIES "${SHARDWRIGHT_FFTW_LIBRARY};${SHARDWRIGHT_FFTWF_LIBRARY}"
                   INTERFACE_COMPILE_DEFINITIONS SHARDWRIGHT_WITH_FFTW=1)
      message(STATUS "shardwright: FFTW ${SHARDWRIGHT_FFTW_LIBRARY}")
    endif()
    set(${found_var} TRUE)
  endif()
endmacro()

# Folders of CUDA's libraries that pip has installed, such as site-packages/nvidia/cublas.
function(shardwright_pip_cuda_folders folders_var)
  execute_process(
    COMMAND python3 -c "import glob, nvidia; print(*(f for p in nvidia.__path__ for f in glob.glob(p + '/*')), sep=';')"
    OUTPUT_VARIABLE folders ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE TIMEOUT 30)
  set(${folders_var} "${folders}" PARENT_SCOPE)
endfunction()

# The version that a header defines by macros whose names match, in the order of major, minor and patch.
function(shardwright_version_of header macros version_var)
  file(STRINGS "${header}" lines REGEX "^#define ${macros} +[0-9]+")
  list(TRANSFORM lines REPLACE "^#define [A-Z_]+ +" "")
  list(JOIN lines "." version)
  set(${version_var} "${version}" PARENT_SCOPE)
endfunction()

# cuBLASLt for single products and cuBLAS for grouped ones.
macro(shardwright_find_cublas)
  string(REGEX MATCH "^[0-9]+" _shardwright_cuda_major "${CUDAToolkit_VERSION}")
  set(_shardwright_folders "")
  if(NOT TARGET CUDA::cublasLt OR NOT TARGET CUDA::cublas)
    shardwright_pip_cuda_folders(_shardwright_folders)
  endif()
  foreach(_shardwright_name IN ITEMS cublasLt cublas)
    if(NOT TARGET CUDA::${_shardwright_name})
      string(TOUPPER "SHARDWRIGHT_${_shardwright_name}" _shardwright_variable)
      find_path(SHARDWRIGHT_CUBLAS_INCLUDE_DIR cublasLt.h HINTS ${_shardwright_folders} PATH_SUFFIXES include)
      find_library(${_shardwright_variable}_LIBRARY
                   NAMES ${_shardwright_name} lib${_shardwright_name}.so.${_shardwright_cuda_major}
                   HINTS ${_shardwright_folders} PATH_SUFFIXES lib lib64)
      mark_as_advanced(SHARDWRIGHT_CUBLAS_INCLUDE_DIR ${_shardwright_variable}_LIBRARY)
      if(SHARDWRIGHT_CUBLAS_INCLUDE_DIR AND ${_shardwright_variable}_LIBRARY)
        add_library(CUDA::${_shardwright_name} UNKNOWN IMPORTED)
        set_target_properties(CUDA::${_shardwright_name} PROPERTIES
          IMPORTED_LOCATION "${${_shardwright_variable}_LIBRARY}"
          INTERFACE_INCLUDE_DIRECTORIES "${SHARDWRIGHT_CUBLAS_INCLUDE_DIR}")
      endif()
    endif()
  endforeach()
endmacro()

macro(shardwright_find_cuda found_var)
  set(${found_var} FALSE)
  find_package(CUDAToolkit QUIET)
  if(NOT Kokkos_ENABLE_CUDA AND NOT "CUDA" IN_LIST Kokkos_DEVICES)
    message(STATUS "shardwright: this Kokkos has no Cuda backend, which the component CUDA needs (name one that has it with "
                   "Kokkos_ROOT, or its sources with FETCHCONTENT_SOURCE_DIR_KOKKOS)")
  elseif(CUDAToolkit_FOUND)
    if(NOT TARGET shardwright::cuda)
      add_library(shardwright::cuda INTERFACE IMPORTED)
      target_link_libraries(shardwright::cuda INTERFACE CUDA::cudart)
      target_compile_definitions(shardwright::cuda INTERFACE SHARDWRIGHT_WITH_CUDA=1)
      shardwright_find_cublas()
      if(TARGET CUDA::cublasLt AND TARGET CUDA::cublas)
        target_link_libraries(shardwright::cuda INTERFACE CUDA::cublasLt CUDA::cublas)
        target_compile_definitions(shardwright::cuda INTERFACE SHARDWRIGHT_WITH_CUBLAS=1)
      else()
        message(STATUS "shardwright: cuBLAS not found, matrix products on the device are much slower without it")
      endif()
      if(TARGET CUDA::cufft)
        target_link_libraries(shardwright::cuda INTERFACE CUDA::cufft)
        target_compile_definitions(shardwright::cuda INTERFACE SHARDWRIGHT_WITH_CUFFT=1)
      endif()
    endif()
    message(STATUS "shardwright: CUDA ${CUDAToolkit_VERSION}")
    set(${found_var} TRUE)
  endif()
endmacro()

# NCCL is where NCCL_ROOT says, in the system's directories, or beside the CUDA toolkit. Its header needs CUDA's.
macro(shardwright_find_nccl found_var)
  set(${found_var} FALSE)
  find_package(CUDAToolkit QUIET)
  shardwright_pip_cuda_folders(_shardwright_folders)
  set(_shardwright_nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_LIBRARY_ROOT}
                              ${_shardwright_folders})
  find_path(SHARDWRIGHT_NCCL_INCLUDE_DIR nccl.h HINTS ${_shardwright_nccl_hints} ${CUDAToolkit_INCLUDE_DIRS}
            PATH_SUFFIXES include)
  find_library(SHARDWRIGHT_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_shardwright_nccl_hints} ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64)
  mark_as_advanced(SHARDWRIGHT_NCCL_INCLUDE_DIR SHARDWRIGHT_NCCL_LIBRARY)
  if(CUDAToolkit_FOUND AND SHARDWRIGHT_NCCL_INCLUDE_DIR AND SHARDWRIGHT_NCCL_LIBRARY)
    shardwright_version_of("${SHARDWRIGHT_NCCL_INCLUDE_DIR}/nccl.h" "NCCL_(MAJOR|MINOR|PATCH)" _shardwright_nccl_version)
    if(_shardwright_nccl_version VERSION_LESS 2.18.1)
      message(STATUS "shardwright: NCCL ${_shardwright_nccl_version} in ${SHARDWRIGHT_NCCL_INCLUDE_DIR} is older than 2.18.1")
    else()
      if(NOT TARGET shardwright::nccl)
        add_library(shardwright::nccl INTERFACE IMPORTED)
        set_target_properties(
          shardwright::nccl
          PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${SHARDWRIGHT_NCCL_INCLUDE_DIR}"
                     INTERFACE_LINK_LIBRARIES "${SHARDWRIGHT_NCCL_LIBRARY};CUDA::cudart"
                     INTERFACE_COMPILE_DEFINITIONS SHARDWRIGHT_WITH_NCCL=1)
      endif()
      message(STATUS "shardwright: NCCL ${_shardwright_nccl_version}, ${SHARDWRIGHT_NCCL_LIBRARY}")
      set(${found_var} TRUE)
    endif()
  endif()
endmacro()

# cuDNN and its header-only frontend, each where its root says, in the system's directories, beside the CUDA
# toolkit, or where pip puts them: the frontend's headers are in site-packages/include, beside the folder of
# the libraries.
macro(shardwright_find_cudnn found_var)
  set(${found_var} FALSE)
  find_package(CUDAToolkit QUIET)
  shardwright_pip_cuda_folders(_shardwright_folders)
  set(_shardwright_cudnn_hints ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${_shardwright_folders} ${CUDAToolkit_TARGET_DIR}
                               ${CUDAToolkit_LIBRARY_ROOT})
  set(_shardwright_frontend_hints ${CUDNN_FRONTEND_ROOT} $ENV{CUDNN_FRONTEND_ROOT})
  foreach(_shardwright_folder IN LISTS _shardwright_folders)
    list(APPEND _shardwright_frontend_hints "${_shardwright_folder}/../..")
  endforeach()
  find_path(SHARDWRIGHT_CUDNN_INCLUDE_DIR cudnn.h HINTS ${_shardwright_cudnn_hints} ${CUDAToolkit_INCLUDE_DIRS}
            PATH_SUFFIXES include)
  find_library(SHARDWRIGHT_CUDNN_LIBRARY NAMES libcudnn.so.9 cudnn HINTS ${_shardwright_cudnn_hints} ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64)
  find_path(SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${_shardwright_frontend_hints}
            PATH_SUFFIXES include)
  mark_as_advanced(SHARDWRIGHT_CUDNN_INCLUDE_DIR SHARDWRIGHT_CUDNN_LIBRARY SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR)
  # The frontend calls NVRTC and the driver.
  if(TARGET CUDA::nvrtc AND TARGET CUDA::cuda_driver AND SHARDWRIGHT_CUDNN_INCLUDE_DIR AND SHARDWRIGHT_CUDNN_LIBRARY
     AND SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR)
    shardwright_version_of("${SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h"
                           "CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION" _shardwright_cudnn_version)
    if(_shardwright_cudnn_version VERSION_LESS 1.14)
      message(STATUS "shardwright: cuDNN's frontend ${_shardwright_cudnn_version} in "
                     "${SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR} is older than 1.14")
    else()
      if(NOT TARGET shardwright::cudnn)
        add_library(shardwright::cudnn INTERFACE IMPORTED)
        set_target_properties(
          shardwright::cudnn
          PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                     "${SHARDWRIGHT_CUDNN_FRONTEND_INCLUDE_DIR};${SHARDWRIGHT_CUDNN_INCLUDE_DIR}"
                     INTERFACE_LINK_LIBRARIES
                     "${SHARDWRIGHT_CUDNN_LIBRARY};CUDA::nvrtc;CUDA::cuda_driver;CUDA::cudart"
                     INTERFACE_COMPILE_DEFINITIONS SHARDWRIGHT_WITH_CUDNN=1)
      endif()
      message(STATUS "shardwright: cuDNN with its frontend ${_shardwright_cudnn_version}, ${SHARDWRIGHT_CUDNN_LIBRARY}")
      set(${found_var} TRUE)
    endif()
  endif()
endmacro()

# shardwright_find_dependencies(<variable> COMPONENTS [MPI|OPTIONAL_MPI] [BLAS|OPTIONAL_BLAS] [FFTW|OPTIONAL_FFTW]
# [CUDA] [NCCL] [CUDNN]): the targets to link to. A component that is required but missing is listed in <variable>_MISSING
# and stops a project that does not check it; a missing optional one is only reported.
macro(shardwright_find_dependencies variable)
  cmake_parse_arguments(_shardwright "KEEP_GOING" "" "COMPONENTS" ${ARGN})
  find_package(Threads REQUIRED)
  if("CUDA" IN_LIST _shardwright_COMPONENTS)
    shardwright_find_kokkos(TRUE)
  else()
    shardwright_find_kokkos(FALSE)
  endif()
  set(${variable} shardwright::kokkos Threads::Threads)
  set(${variable}_MISSING)
  foreach(_shardwright_component IN ITEMS MPI BLAS FFTW CUDA NCCL CUDNN)
    if(_shardwright_component IN_LIST _shardwright_COMPONENTS
       OR OPTIONAL_${_shardwright_component} IN_LIST _shardwright_COMPONENTS)
      string(TOLOWER ${_shardwright_component} _shardwright_name)
      cmake_language(CALL shardwright_find_${_shardwright_name} _shardwright_found)
      if(_shardwright_found)
        list(APPEND ${variable} shardwright::${_shardwright_name})
      elseif(_shardwright_component IN_LIST _shardwright_COMPONENTS)
        list(APPEND ${variable}_MISSING ${_shardwright_component})
      else()
        message(STATUS "shardwright: ${_shardwright_component} not found, built without it")
      endif()
    else()
      message(STATUS "shardwright: ${_shardwright_component} is off")
    endif()
  endforeach()
  if(${variable}_MISSING AND NOT _shardwright_KEEP_GOING)
    message(FATAL_ERROR "shardwright: the following must be installed, or switched off with "
                        "SHARDWRIGHT_WITH_<name>=OFF: ${${variable}_MISSING}")
  endif()
endmacro()
