# SPDX-License-Identifier: Apache-2.0
# The target shardwright::launch: launch() compiled once, with the compiler, the flags and the components of
# the project that links to it. If nothing links to it, nothing is built.
include_guard(DIRECTORY)

# shardwright_host_sources(<source>...): nvcc_wrapper compiles these sources of the current directory with the
# host's compiler alone, which saves nvcc's passes. They must include neither Kokkos nor CUDA, and no definition
# on the command line may be a string, because the wrapper removes its quotes.
function(shardwright_host_sources)
  if(CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper$")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS --host-only)
  endif()
endfunction()

function(shardwright_add_launch source)
  if(TARGET shardwright_launch)
    return()
  endif()
  shardwright_host_sources("${source}")
  add_library(shardwright_launch STATIC EXCLUDE_FROM_ALL "${source}")
  add_library(shardwright::launch ALIAS shardwright_launch)
  target_link_libraries(shardwright_launch PUBLIC shardwright::shardwright)
  target_compile_definitions(shardwright_launch INTERFACE SHARDWRIGHT_COMPILED_LAUNCH)
  set_target_properties(shardwright_launch PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
