# SPDX-License-Identifier: Apache-2.0
# The target shardwright::compiled: code without template arguments compiled once, with the compiler, flags and components of
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

function(shardwright_add_compiled source)
  if(TARGET shardwright_compiled)
    return()
  endif()
  shardwright_host_sources("${source}")
  add_library(shardwright_compiled STATIC EXCLUDE_FROM_ALL "${source}")
  add_library(shardwright::compiled ALIAS shardwright_compiled)
  target_link_libraries(shardwright_compiled PUBLIC shardwright::shardwright)
  target_compile_definitions(shardwright_compiled INTERFACE SHARDWRIGHT_COMPILED)
  set_target_properties(shardwright_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
