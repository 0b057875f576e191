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
  # Without the driver a program does not even start.
  set_tests_properties(
    cuda.${name} PROPERTIES TIMEOUT 300 LABELS cuda RUN_SERIAL ON SKIP_RETURN_CODE 77
                            SKIP_REGULAR_EXPRESSION "libcuda[.]so[.]1: cannot open shared object file")
endforeach()

# If cuDNN is found, this program uses it, whether the library is to use it or not.
if(NOT TARGET shardwright::cudnn)
  shardwright_find_cudnn(found)
endif()
if(TARGET shardwright::cudnn)
  target_link_libraries(cuda_cudnn_attention PRIVATE shardwright::cudnn)
endif()

# Users' projects that keep the host's compiler, built but not run. What find_package finds is installed first.
find_program(SHARDWRIGHT_HOST_COMPILER NAMES g++ clang++)
mark_as_advanced(SHARDWRIGHT_HOST_COMPILER)
if(NOT SHARDWRIGHT_HOST_COMPILER OR NOT Kokkos_DIR)
  return()
endif()
set(work "${CMAKE_CURRENT_BINARY_DIR}/consumer_cuda")
add_test(NAME consumer.cuda.install COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${work}/prefix")
set_tests_properties(
  consumer.cuda.install PROPERTIES TIMEOUT 60 LABELS "cuda;consumer" FIXTURES_SETUP shardwright_cuda_prefix)
foreach(way IN ITEMS find_package add_subdirectory)
  add_test(
    NAME consumer.cuda.${way}
    COMMAND
      "${CMAKE_CTEST_COMMAND}" --build-and-test "${CMAKE_CURRENT_SOURCE_DIR}/consumer/cuda" "${work}/${way}"
      --build-generator "${CMAKE_GENERATOR}" --build-makeprogram "${CMAKE_MAKE_PROGRAM}" --build-options
      "-DCMAKE_CXX_COMPILER=${SHARDWRIGHT_HOST_COMPILER}" "-DKokkos_ROOT=${Kokkos_DIR}/../../.."
      "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DSHARDWRIGHT_SOURCE=${PROJECT_SOURCE_DIR}" "-DCONSUMER_WAY=${way}"
      --test-command "${work}/${way}/host")
  set_tests_properties(consumer.cuda.${way} PROPERTIES TIMEOUT 600 LABELS "cuda;consumer"
                                                       FIXTURES_REQUIRED shardwright_cuda_prefix)
endforeach()
