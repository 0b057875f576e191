# SPDX-License-Identifier: Apache-2.0
# The program gpu measures a device; scripts/gpu_check runs it. Built for a host, it measures the host instead; use `gpu
# --small` to try it there.
file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
shardwright_host_sources("${CMAKE_CURRENT_LIST_DIR}/options.cpp" "${CMAKE_CURRENT_LIST_DIR}/report.cpp"
                         "${CMAKE_CURRENT_LIST_DIR}/../train_step/pytorch.cpp")
set_property(SOURCE "${CMAKE_CURRENT_LIST_DIR}/training.cpp"
             APPEND PROPERTY COMPILE_DEFINITIONS SHARDWRIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# Twice, so that one machine measures the library's own attention and cuDNN's; the first starts without cuDNN.
foreach(program IN ITEMS gpu gpu_cudnn)
  if(program STREQUAL "gpu_cudnn")
    if(TARGET shardwright::cuda AND NOT TARGET shardwright::cudnn)
      shardwright_find_cudnn(found)
    endif()
    if(NOT TARGET shardwright::cudnn)
      break()
    endif()
  endif()
  shardwright_program(benchmark_${program} ${sources} "${CMAKE_CURRENT_LIST_DIR}/../train_step/pytorch.cpp")
  target_include_directories(benchmark_${program} PRIVATE "${CMAKE_CURRENT_LIST_DIR}/..")
  set_target_properties(benchmark_${program} PROPERTIES OUTPUT_NAME ${program})
  target_compile_options(benchmark_${program} PRIVATE -O2) # some figures are times of the host
  if(program STREQUAL "gpu_cudnn")
    set_target_properties(benchmark_gpu_cudnn PROPERTIES EXCLUDE_FROM_ALL ON)
    target_link_libraries(benchmark_gpu_cudnn PRIVATE shardwright::cudnn)
  endif()
  if(NOT TARGET shardwright::cuda)
    set_target_properties(benchmark_${program} PROPERTIES EXCLUDE_FROM_ALL ON)
  elseif(TARGET CUDA::cupti)
    # CUPTI gives the times of single kernels, including those of cuBLAS.
    target_link_libraries(benchmark_${program} PRIVATE CUDA::cupti)
    target_compile_definitions(benchmark_${program} PRIVATE GPU_BENCHMARK_WITH_CUPTI=1)
  else()
    message(STATUS "shardwright: CUPTI not found, the device benchmarks do not list the kernels of a training step")
  endif()
endforeach()
