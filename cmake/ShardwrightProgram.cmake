# SPDX-License-Identifier: Apache-2.0
# Flags of this repository's own tests, examples and benchmarks; users of the library never see them.

# shardwright_program_flags(<target>): warnings, and if requested the processor of this machine.
function(shardwright_program_flags target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE -Wno-sign-conversion) # g++'s -Wconversion is without it
  endif()
  if(SHARDWRIGHT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SHARDWRIGHT_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  # g++ collects its garbage often, as if memory were short: without that a unit takes a tenth less time and a sixth
  # more memory. nvcc does not know the option.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT TARGET shardwright::cuda)
    target_compile_options(${target} PRIVATE --param=ggc-min-expand=1000 --param=ggc-min-heapsize=2000000)
  endif()
endfunction()

# How clang++ precompiles headers, in place of CMake's own options. With -fpch-codegen the functions that the headers
# define are compiled once, in cmake/precompiled.cpp, instead of in every unit. With -relocatable-pch they are found
# relative to -isysroot, so that a compiler cache can give a clone in another folder what this one has precompiled. The
# extension is not .pch, because clang++ reads FILE.pch, if there is one, for `-include FILE`: an old file when it makes
# the new one.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(CMAKE_PCH_EXTENSION .ast)
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -fpch-codegen -Xclang -fno-pch-timestamp -Xclang
                                           -relocatable-pch "-Wp,-isysroot,${PROJECT_SOURCE_DIR}" -include <PCH_HEADER> -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE> -isysroot "${PROJECT_SOURCE_DIR}" -iquote
                                        "${PROJECT_SOURCE_DIR}" -include <PCH_HEADER>)
endif()

# shardwright_add_precompiled(<target>): gives a library whose objects programs link what the headers define.
function(shardwright_add_precompiled target)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    # Of a tree that CMake's own options built.
    file(REMOVE "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch")
    set(source "${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp")
    target_sources(${target} PRIVATE "${source}")
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-Xclang;-building-pch-with-obj")
  endif()
endfunction()

# shardwright_program(<name> <source>...): an executable against the whole library, which finds the transports compiled.
function(shardwright_program name)
  add_executable(${name} ${ARGN} ${shardwright_fast_kernels})
  target_link_libraries(${name} PRIVATE shardwright::compiled)
  shardwright_program_flags(${name})
endfunction()

# The host's kernels, optimised, for what a tree without optimisation builds: see tests/ShardwrightTests.cmake. Of a
# function that several files hold, the linker takes the first.
set(shardwright_fast_kernels $<$<TARGET_EXISTS:shardwright_test_kernels>:$<TARGET_OBJECTS:shardwright_test_kernels>>)

# shardwright_find_libraries_beside(): what examples and benchmarks use beside the library, installed for the MPI found:
# PkgConfig::hdf5, PkgConfig::scalapack, and PkgConfig::petsc, which fits if SHARDWRIGHT_PETSC_FITS.
function(shardwright_find_libraries_beside)
  find_package(PkgConfig QUIET)
  if(NOT PkgConfig_FOUND OR NOT TARGET shardwright::mpi)
    return()
  endif()
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_LIBRARIES shardwright::mpi)
  check_cxx_source_compiles("#include <mpi.h>
#ifndef OMPI_MAJOR_VERSION
#error another MPI
#endif
int main() {}" SHARDWRIGHT_MPI_IS_OPENMPI)
  set(mpi mpich)
  if(SHARDWRIGHT_MPI_IS_OPENMPI)
    set(mpi openmpi)
  endif()
  pkg_check_modules(hdf5 QUIET IMPORTED_TARGET hdf5-${mpi})
  pkg_search_module(scalapack QUIET IMPORTED_TARGET scalapack-${mpi} scalapack)
  pkg_check_modules(petsc QUIET IMPORTED_TARGET PETSc)
  if(TARGET PkgConfig::petsc)
    # Its headers refuse the mpi.h of another MPI.
    set(CMAKE_REQUIRED_LIBRARIES shardwright::mpi PkgConfig::petsc)
    check_cxx_source_compiles("#include <mpi.h>
#include <petscksp.h>
#include <type_traits>
static_assert(std::is_same<PetscScalar, double>::value, \"\");
int main(int argc, char** argv) { return PetscInitialize(&argc, &argv, nullptr, nullptr); }" SHARDWRIGHT_PETSC_FITS)
  endif()
endfunction()
