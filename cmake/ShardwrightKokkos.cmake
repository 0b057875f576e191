# SPDX-License-Identifier: Apache-2.0
# Finds Kokkos 3.4 or newer. In this order: a target Kokkos::kokkos that exists already; an installed package that
# compiles and links a small program; the distribution's headers and libraries; a pinned release.
include_guard(DIRECTORY)

set(SHARDWRIGHT_KOKKOS_VERSION 4.7.01)
set(SHARDWRIGHT_KOKKOS_SHA256 404cf33e76159e83b8b4ad5d86f6899d442b5da4624820ab457412116cdcd201)
set(SHARDWRIGHT_KOKKOS_PROBE "${CMAKE_CURRENT_LIST_DIR}/kokkos_probe")

# Some distributions ship a Kokkos package whose include path does not exist, and whose configuration writes
# global settings. So a package is first loaded, compiled against and linked in a separate project and
# process.
function(shardwright_probe_kokkos_package found_var directory_var reason_var)
  set(work "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/shardwright_kokkos_probe")
  set(settings)
  foreach(name IN ITEMS Kokkos_DIR Kokkos_ROOT KOKKOS_ROOT CMAKE_PREFIX_PATH CMAKE_FIND_ROOT_PATH CMAKE_CXX_COMPILER
                        CMAKE_CXX_FLAGS CMAKE_TOOLCHAIN_FILE CMAKE_CXX_STANDARD CMAKE_EXE_LINKER_FLAGS)
    if(DEFINED ${name} AND NOT "${${name}}" STREQUAL "")
      string(APPEND settings "set(${name} [==[${${name}}]==] CACHE STRING \"\" FORCE)\n")
    endif()
  endforeach()
  string(SHA256 key "${settings}|$ENV{Kokkos_ROOT}|$ENV{KOKKOS_ROOT}|$ENV{CMAKE_PREFIX_PATH}")
  if(NOT SHARDWRIGHT_KOKKOS_PROBE_KEY STREQUAL key)
    file(REMOVE_RECURSE "${work}")
    file(WRITE "${work}/settings.cmake" "${settings}")
    execute_process(
      COMMAND "${CMAKE_COMMAND}" -G "${CMAKE_GENERATOR}" -C "${work}/settings.cmake" -S "${SHARDWRIGHT_KOKKOS_PROBE}"
              -B "${work}" "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}"
      RESULT_VARIABLE result OUTPUT_FILE "${work}/log.txt" ERROR_FILE "${work}/log.txt" TIMEOUT 120)
    set(directory "")
    set(reason "no package found")
    if(EXISTS "${work}/found.txt")
      file(READ "${work}/found.txt" directory)
      set(reason "the package in ${directory} does not configure; see ${work}/log.txt")
    endif()
    if(result EQUAL 0 AND directory)
      execute_process(
        COMMAND "${CMAKE_COMMAND}" --build "${work}"
        RESULT_VARIABLE result OUTPUT_FILE "${work}/log.txt" ERROR_FILE "${work}/log.txt" TIMEOUT 300)
      if(result EQUAL 0)
        set(reason "")
      else()
        set(reason "a program does not build with the package in ${directory}; see ${work}/log.txt")
      endif()
    endif()
    set(SHARDWRIGHT_KOKKOS_PROBE_KEY "${key}" CACHE INTERNAL "What the Kokkos probe was run for")
    set(SHARDWRIGHT_KOKKOS_PROBE_DIRECTORY "${directory}" CACHE INTERNAL "The Kokkos package that was found")
    set(SHARDWRIGHT_KOKKOS_PROBE_REASON "${reason}" CACHE INTERNAL "Why that package is unusable; empty: it is usable")
  endif()
  if(SHARDWRIGHT_KOKKOS_PROBE_DIRECTORY AND NOT SHARDWRIGHT_KOKKOS_PROBE_REASON)
    set(${found_var} TRUE PARENT_SCOPE)
  else()
    set(${found_var} FALSE PARENT_SCOPE)
  endif()
  set(${directory_var} "${SHARDWRIGHT_KOKKOS_PROBE_DIRECTORY}" PARENT_SCOPE)
  set(${reason_var} "${SHARDWRIGHT_KOKKOS_PROBE_REASON}" PARENT_SCOPE)
endfunction()

# A Kokkos without a usable package: Debian and Ubuntu install one beneath include/trilinos.
function(shardwright_find_plain_kokkos found_var)
  find_path(SHARDWRIGHT_KOKKOS_INCLUDE_DIR Kokkos_Core.hpp PATH_SUFFIXES trilinos kokkos)
  find_library(SHARDWRIGHT_KOKKOS_CORE_LIBRARY NAMES trilinos_kokkoscore kokkoscore)
  mark_as_advanced(SHARDWRIGHT_KOKKOS_INCLUDE_DIR SHARDWRIGHT_KOKKOS_CORE_LIBRARY)
  set(${found_var} FALSE PARENT_SCOPE)
  if(NOT SHARDWRIGHT_KOKKOS_INCLUDE_DIR OR NOT SHARDWRIGHT_KOKKOS_CORE_LIBRARY)
    return()
  endif()
  set(config "${SHARDWRIGHT_KOKKOS_INCLUDE_DIR}/KokkosCore_config.h")
  if(NOT EXISTS "${config}")
    return()
  endif()
  file(STRINGS "${config}" version_line REGEX "^#define KOKKOS_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" version "${version_line}")
  if(NOT version OR version LESS 30400)
    return()
  endif()
  file(STRINGS "${config}" openmp REGEX "^#define KOKKOS_ENABLE_OPENMP$")
  math(EXPR major "${version} / 10000")
  math(EXPR minor "${version} / 100 % 100")
  math(EXPR patch "${version} % 100")

  add_library(shardwright::kokkos INTERFACE IMPORTED)
  set_target_properties(
    shardwright::kokkos
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${SHARDWRIGHT_KOKKOS_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES "${SHARDWRIGHT_KOKKOS_CORE_LIBRARY};${CMAKE_DL_LIBS}")
  if(openmp)
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(shardwright::kokkos INTERFACE OpenMP::OpenMP_CXX)
  endif()
  message(STATUS "shardwright: Kokkos ${major}.${minor}.${patch} of the system, "
                 "${SHARDWRIGHT_KOKKOS_INCLUDE_DIR}, ${SHARDWRIGHT_KOKKOS_CORE_LIBRARY}")
  set(${found_var} TRUE PARENT_SCOPE)
endfunction()

# Restore cache entries that a Kokkos package or project overwrites.
macro(shardwright_remember_cache)
  foreach(_shardwright_name IN ITEMS ${ARGN})
    unset(_shardwright_${_shardwright_name}_before)
    if(DEFINED CACHE{${_shardwright_name}})
      set(_shardwright_${_shardwright_name}_before "$CACHE{${_shardwright_name}}")
    endif()
  endforeach()
endmacro()
macro(shardwright_restore_cache)
  foreach(_shardwright_name IN ITEMS ${ARGN})
    if(DEFINED _shardwright_${_shardwright_name}_before)
      set_property(CACHE ${_shardwright_name} PROPERTY VALUE "${_shardwright_${_shardwright_name}_before}")
    else()
      unset(${_shardwright_name} CACHE)
    endif()
  endforeach()
endmacro()

# Chooses the GPU for which a Kokkos built with the project is compiled, unless a Kokkos_ARCH_<name> is set:
# SHARDWRIGHT_CUDA_ARCHITECTURE, a compute capability such as 90, else that of the first GPU here, else 80, whose code
# newer GPUs translate at startup.
function(shardwright_choose_cuda_architecture)
  get_cmake_property(names CACHE_VARIABLES)
  list(FILTER names INCLUDE REGEX "^Kokkos_ARCH_(VOLTA|TURING|AMPERE|ADA|HOPPER|BLACKWELL)[0-9]+$")
  foreach(name IN LISTS names)
    if(${name})
      return()
    endif()
  endforeach()
  set(capability "${SHARDWRIGHT_CUDA_ARCHITECTURE}")
  if(NOT capability)
    execute_process(
      COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE capability ERROR_QUIET
      RESULT_VARIABLE result)
    string(REGEX MATCH "^[0-9]+[.][0-9]" capability "${capability}")
    string(REPLACE "." "" capability "${capability}")
    if(NOT result EQUAL 0 OR NOT capability)
      set(capability 80)
    endif()
  endif()
  set(known VOLTA70 VOLTA72 TURING75 AMPERE80 AMPERE86 AMPERE87 ADA89 HOPPER90 BLACKWELL100 BLACKWELL120)
  list(FILTER known INCLUDE REGEX "[A-Z]${capability}$")
  if(NOT known)
    message(FATAL_ERROR "shardwright: SHARDWRIGHT_CUDA_ARCHITECTURE must be a compute capability such as 80 or 90, but is "
                        "'${capability}' (or set the Kokkos_ARCH_<name> that Kokkos knows for it).")
  endif()
  message(STATUS "shardwright: Kokkos is built for compute capability ${capability}")
  set(Kokkos_ARCH_${known} ON CACHE BOOL "Chosen by shardwright" FORCE)
endfunction()

# A function, so that the variables of the Kokkos project stay local. With `cuda` Kokkos gets its Cuda backend.
function(shardwright_fetch_kokkos cuda)
  include(FetchContent)
  if(cuda)
    execute_process(
      COMMAND "${CMAKE_CXX_COMPILER}" --version OUTPUT_VARIABLE compiler ERROR_VARIABLE compiler RESULT_VARIABLE result)
    if(NOT compiler MATCHES "nvcc|Cuda compiler driver|NVIDIA" AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      # The Kokkos project would put a launcher before every compilation of the surrounding one.
      message(FATAL_ERROR "shardwright: to build Kokkos with its Cuda backend, the C++ compiler of the project must accept "
                          "CUDA, but is ${CMAKE_CXX_COMPILER} (configure with -DCMAKE_CXX_COMPILER=KOKKOS/bin/nvcc_wrapper, or "
                          "install Kokkos first and name it with Kokkos_ROOT).")
    endif()
    shardwright_choose_cuda_architecture()
    foreach(name IN ITEMS CUDA SERIAL)
      set(Kokkos_ENABLE_${name} ON CACHE BOOL "Needed by shardwright's component CUDA")
    endforeach()
  endif()
  message(STATUS "shardwright: no Kokkos is installed, so release ${SHARDWRIGHT_KOKKOS_VERSION} is built with the project "
                 "(FETCHCONTENT_SOURCE_DIR_KOKKOS names a source tree to use instead)")
  # Cache entries that the Kokkos project overwrites are restored below.
  shardwright_remember_cache(CMAKE_BUILD_TYPE BUILD_SHARED_LIBS BUILD_TESTING CMAKE_CXX_EXTENSIONS)
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_EXTENSIONS OFF)
  FetchContent_Declare(
    kokkos
    URL "https://github.com/kokkos/kokkos/releases/download/${SHARDWRIGHT_KOKKOS_VERSION}/kokkos-${SHARDWRIGHT_KOKKOS_VERSION}.tar.gz"
    URL_HASH SHA256=${SHARDWRIGHT_KOKKOS_SHA256}
    DOWNLOAD_EXTRACT_TIMESTAMP FALSE
    SYSTEM)
  FetchContent_MakeAvailable(kokkos)
  shardwright_restore_cache(CMAKE_BUILD_TYPE BUILD_SHARED_LIBS BUILD_TESTING CMAKE_CXX_EXTENSIONS)
endfunction()

# Defines the target shardwright::kokkos, or stops with advice. With `cuda` a Kokkos that is built with the project gets
# its Cuda backend.
macro(shardwright_find_kokkos cuda)
  if(NOT TARGET shardwright::kokkos)
    if(TARGET Kokkos::kokkos)
      add_library(shardwright::kokkos INTERFACE IMPORTED)
      target_link_libraries(shardwright::kokkos INTERFACE Kokkos::kokkos)
      message(STATUS "shardwright: Kokkos of the surrounding project")
    else()
      set(_shardwright_kokkos_found FALSE)
      if(NOT FETCHCONTENT_SOURCE_DIR_KOKKOS)
        shardwright_probe_kokkos_package(_shardwright_kokkos_found _shardwright_kokkos_directory
                                         _shardwright_kokkos_reason)
        if(_shardwright_kokkos_found)
          # With separable_compilation a package that has the Cuda backend puts no launcher before the compilations of a
          # project whose compiler is not nvcc_wrapper; kokkos_compilation(TARGET ...) does so for single targets.
          unset(_shardwright_extensions)
          if(DEFINED CMAKE_CXX_EXTENSIONS)
            set(_shardwright_extensions "${CMAKE_CXX_EXTENSIONS}")
          endif()
          set(CMAKE_CXX_EXTENSIONS OFF) # or the package would write that into the cache
          find_package(Kokkos CONFIG REQUIRED QUIET OPTIONAL_COMPONENTS separable_compilation
                       PATHS "${_shardwright_kokkos_directory}" NO_DEFAULT_PATH)
          unset(CMAKE_CXX_EXTENSIONS)
          if(DEFINED _shardwright_extensions)
            set(CMAKE_CXX_EXTENSIONS "${_shardwright_extensions}")
          endif()
          add_library(shardwright::kokkos INTERFACE IMPORTED)
          target_link_libraries(shardwright::kokkos INTERFACE Kokkos::kokkos)
          message(STATUS "shardwright: Kokkos ${Kokkos_VERSION}, ${_shardwright_kokkos_directory}")
        else()
          if(Kokkos_ROOT OR Kokkos_DIR OR DEFINED ENV{Kokkos_ROOT})
            message(FATAL_ERROR "shardwright: the Kokkos that Kokkos_ROOT or Kokkos_DIR names must be usable, but "
                                "${_shardwright_kokkos_reason} (correct the path, or leave it out).")
          endif()
          message(STATUS "shardwright: no Kokkos by find_package: ${_shardwright_kokkos_reason}")
          shardwright_find_plain_kokkos(_shardwright_kokkos_found)
        endif()
      endif()
      if(NOT _shardwright_kokkos_found)
        shardwright_fetch_kokkos(${cuda})
        add_library(shardwright::kokkos INTERFACE IMPORTED)
        target_link_libraries(shardwright::kokkos INTERFACE Kokkos::kokkos)
      endif()
    endif()
  endif()
endmacro()
