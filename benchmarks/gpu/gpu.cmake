# SPDX-License-Identifier: Apache-2.0
# The program gpu measures a device; scripts/gpu_check runs it. Built for a host, it measures the host instead; use `gpu
# --small` to try it there.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
shardwright_program(benchmark_gpu ${sources} "${CMAKE_CURRENT_LIST_DIR}/../train_step/pytorch.cpp")
shardwright_host_sources("${CMAKE_CURRENT_LIST_DIR}/options.cpp" "${CMAKE_CURRENT_LIST_DIR}/report.cpp"
                         "${CMAKE_CURRENT_LIST_DIR}/../train_step/pytorch.cpp")
target_include_directories(benchmark_gpu PRIVATE "${CMAKE_CURRENT_LIST_DIR}/..")
set_property(SOURCE "${CMAKE_CURRENT_LIST_DIR}/training.cpp"
             APPEND PROPERTY COMPILE_DEFINITIONS SHARDWRIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
set_target_properties(benchmark_gpu PROPERTIES OUTPUT_NAME gpu)
target_compile_options(benchmark_gpu PRIVATE -O2) # some figures are times of the host
if(NOT TARGET shardwright::cuda)
  set_target_properties(benchmark_gpu PROPERTIES EXCLUDE_FROM_ALL ON)
elseif(TARGET CUDA::cupti)
  # CUPTI gives the times of single kernels, including those of cuBLAS.
  target_link_libraries(benchmark_gpu PRIVATE CUDA::cupti)
  target_compile_definitions(benchmark_gpu PRIVATE GPU_BENCHMARK_WITH_CUPTI=1)
else()
  message(STATUS "shardwright: CUPTI not found, the device benchmarks do not list the kernels of a training step")
endif()
