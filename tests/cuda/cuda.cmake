# SPDX-License-Identifier: Apache-2.0
# tests/cuda/<name>.cpp is the program cuda_<name>, which compares the device with the host and needs no Catch2; without a
# GPU its test is skipped.
if(NOT TARGET shardwright::cuda)
  return()
endif()
file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cpp")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  shardwright_program(cuda_${name} "${file}")
  target_include_directories(cuda_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  add_test(NAME cuda.${name} COMMAND cuda_${name})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT 300 LABELS cuda SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endforeach()
