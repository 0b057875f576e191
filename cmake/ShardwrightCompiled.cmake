# SPDX-License-Identifier: Apache-2.0
# The target shardwright::compiled: code without template arguments compiled once, with the compiler, the flags and the
# components of the project that links to it: launch(), host kernels, and checkpoints where nlohmann-json and xxHash are
# found. If nothing links to it, nothing is built.
include_guard(DIRECTORY)

# shardwright_host_sources(<source>...): nvcc_wrapper compiles these sources of the current directory with the
# host's compiler alone, which saves nvcc's passes. They must include neither Kokkos nor CUDA, and no definition
# on the command line may be a string, because the wrapper removes its quotes.
function(shardwright_host_sources)
  if(CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper$")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS --host-only)
  endif()
endfunction()

function(shardwright_add_compiled folder)
  if(TARGET shardwright_compiled)
    return()
  endif()
  set(sources "${folder}/compiled.cpp" "${folder}/definitions.cpp" "${folder}/kernels.cpp")
  find_package(nlohmann_json QUIET)
  find_path(SHARDWRIGHT_XXHASH_INCLUDE xxhash.h)
  mark_as_advanced(SHARDWRIGHT_XXHASH_INCLUDE)
  if(nlohmann_json_FOUND AND SHARDWRIGHT_XXHASH_INCLUDE)
    list(APPEND sources "${folder}/checkpoints.cpp")
  endif()
  shardwright_host_sources("${folder}/compiled.cpp")
  add_library(shardwright_compiled STATIC EXCLUDE_FROM_ALL ${sources})
  add_library(shardwright::compiled ALIAS shardwright_compiled)
  target_link_libraries(shardwright_compiled PUBLIC shardwright::shardwright)
  target_compile_definitions(shardwright_compiled INTERFACE SHARDWRIGHT_COMPILED)
  if(nlohmann_json_FOUND AND SHARDWRIGHT_XXHASH_INCLUDE)
    target_link_libraries(shardwright_compiled PUBLIC nlohmann_json::nlohmann_json)
    target_include_directories(shardwright_compiled SYSTEM PRIVATE "${SHARDWRIGHT_XXHASH_INCLUDE}")
    target_compile_definitions(shardwright_compiled INTERFACE SHARDWRIGHT_COMPILED_CHECKPOINTS)
  endif()
  set_target_properties(shardwright_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # clang would replace a constructor of complete objects, for which programs ask, by that of base objects.
  target_compile_options(shardwright_compiled PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -mno-constructor-aliases>")
endfunction()
