# SPDX-License-Identifier: Apache-2.0
# Device programs of tests/cuda whose kernels are interpreted: ptx_<name> is tests/cuda/<name>.cpp with its PTX, linked
# with stand-ins of CUDA's runtime library, cuBLAS and Kokkos' library. They need nvcc and the headers of a Kokkos with the
# Cuda backend: those that KOKKOS_CUDA_ROOT names, or those that apt can fetch.
#
# The kernels run in every test run; SHARDWRIGHT_PTX_PROGRAMS adds other programs, also with warps in random order, and
# planted faults, with the label ptx_programs.
option(SHARDWRIGHT_PTX_PROGRAMS "Interpret all device programs, not only the kernels" OFF)
find_program(SHARDWRIGHT_NVCC nvcc PATHS /usr/local/cuda/bin)
find_path(SHARDWRIGHT_CUDA_HEADERS cuda_runtime_api.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
          PATH_SUFFIXES include)
# The host's half of a program takes clang++ without optimisation a third of the time of g++ with it.
find_program(SHARDWRIGHT_PTX_HOST_COMPILER clang++)
mark_as_advanced(SHARDWRIGHT_NVCC SHARDWRIGHT_CUDA_HEADERS SHARDWRIGHT_PTX_HOST_COMPILER)
if(NOT SHARDWRIGHT_CUDA_HEADERS OR NOT EXISTS "${SHARDWRIGHT_CUDA_HEADERS}/cublasLt.h")
  message(STATUS "shardwright: no headers of CUDA and cuBLAS, so no device program is interpreted")
  return()
endif()
if(NOT TARGET ptx_interpreter)
  add_subdirectory(ptx)
endif()

# The stand-ins, and their own test. One file knows Kokkos, so it is compiled like the programs.
add_library(ptx_runtime STATIC ptx/runtime/cublas.cpp ptx/runtime/cudart.cpp ptx/runtime/runtime.cpp
                               ptx/runtime/stream_order.cpp)
target_link_libraries(ptx_runtime PUBLIC ptx_interpreter)
target_include_directories(ptx_runtime PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_include_directories(ptx_runtime SYSTEM PUBLIC "${SHARDWRIGHT_CUDA_HEADERS}")
shardwright_program_flags(ptx_runtime)
target_compile_options(ptx_runtime PRIVATE -O2)
shardwright_test_executable(ptx_runtime_test shardwright_test_main shardwright_test_main ptx/runtime/runtime_test.cpp)
target_link_libraries(ptx_runtime_test PRIVATE ptx_runtime)
shardwright_add_check(ptx.runtime LABEL ptx COMMAND ptx_runtime_test)

# The target refuses a Kokkos that does not build with CUDA 13. An empty header is enough to ask it.
set(shardwright_empty_kokkos "${CMAKE_CURRENT_BINARY_DIR}/ptx/empty_kokkos")
file(WRITE "${shardwright_empty_kokkos}/Kokkos_Core.hpp" "")
foreach(version IN ITEMS 40699 40700)
  add_test(NAME ptx.kokkos_${version}
           COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -E -w -DKOKKOS_VERSION=${version} -I "${shardwright_empty_kokkos}" -I
                   "${PROJECT_SOURCE_DIR}/include" -isystem "${SHARDWRIGHT_CUDA_HEADERS}" -o /dev/null
                   "${PROJECT_SOURCE_DIR}/include/shardwright/mesh/cuda_target.hpp")
  set_tests_properties(ptx.kokkos_${version} PROPERTIES TIMEOUT 60 LABELS ptx)
endforeach()
set_tests_properties(ptx.kokkos_40699 PROPERTIES PASS_REGULAR_EXPRESSION "the CUDA target needs Kokkos 4.7 or newer")

if(NOT SHARDWRIGHT_NVCC)
  message(STATUS "shardwright: no nvcc, so no device program is interpreted")
  return()
endif()
# An installed Kokkos whose library holds its kernels as text (built with NVCC_APPEND_FLAGS=--no-compress) is linked.
# Otherwise only the headers of a Kokkos 5 are used, and a stand-in takes the place of its library.
set(shardwright_ptx_kokkos "$ENV{KOKKOS_CUDA_ROOT}/include")
set(shardwright_ptx_version)
if(EXISTS "${shardwright_ptx_kokkos}/KokkosCore_config.h")
  file(STRINGS "${shardwright_ptx_kokkos}/KokkosCore_config.h" shardwright_ptx_version
       REGEX "^#define KOKKOS_VERSION_MAJOR 5|^#define KOKKOS_ENABLE_CUDA$")
endif()
list(LENGTH shardwright_ptx_version shardwright_ptx_version)
file(GLOB shardwright_ptx_library "$ENV{KOKKOS_CUDA_ROOT}/lib/libkokkoscore.a")
if(shardwright_ptx_library)
  file(STRINGS "${shardwright_ptx_library}" shardwright_ptx_text REGEX "^\\.version [0-9]" LIMIT_COUNT 1)
  if(NOT shardwright_ptx_text)
    set(shardwright_ptx_library)
  endif()
endif()
if(NOT shardwright_ptx_library AND NOT shardwright_ptx_version EQUAL 2)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/kokkos_cuda_headers"
            "${PROJECT_BINARY_DIR}/kokkos_cuda_headers"
    RESULT_VARIABLE shardwright_ptx_result OUTPUT_VARIABLE shardwright_ptx_kokkos OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT shardwright_ptx_result EQUAL 0)
    message(STATUS "shardwright: no device program is interpreted (${shardwright_ptx_kokkos})")
    return()
  endif()
endif()
message(STATUS "shardwright: device programs are interpreted, with Kokkos' headers in ${shardwright_ptx_kokkos} "
               "${shardwright_ptx_library}")

# shardwright_ptx_object(<variable> <source> [<flag>...]): compiles a source with its kernels as PTX.
file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/ptx")
set(shardwright_ptx_host)
if(SHARDWRIGHT_PTX_HOST_COMPILER)
  set(shardwright_ptx_host -ccbin "${SHARDWRIGHT_PTX_HOST_COMPILER}" -Xcompiler -Wno-gnu-designator)
endif()
function(shardwright_ptx_object object_var source)
  get_filename_component(name "${source}" NAME_WE)
  get_filename_component(folder "${source}" DIRECTORY)
  get_filename_component(folder "${folder}" NAME)
  get_filename_component(source "${source}" ABSOLUTE)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/ptx/${folder}.${name}.o")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND
      ${CMAKE_CXX_COMPILER_LAUNCHER} "${SHARDWRIGHT_NVCC}" -std=c++20 -x cu -O0 ${shardwright_ptx_host} -lineinfo
      --no-compress -gencode arch=compute_90,code=compute_90 --extended-lambda --diag-error 20011,20012,20013,20014,20015
      -DSHARDWRIGHT_WITH_CUDA=1 -DSHARDWRIGHT_WITH_CUBLAS=1 -DSHARDWRIGHT_STATE_BYTES
      "-DSHARDWRIGHT_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"" "-DSHARDWRIGHT_BINARY_DIR=\"${PROJECT_BINARY_DIR}\""
      "-DSHARDWRIGHT_TRAININGS=\"fp32\"" "-I${PROJECT_SOURCE_DIR}/include"
      "-I${CMAKE_CURRENT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/examples" "-I${PROJECT_SOURCE_DIR}/benchmarks" -isystem
      "${shardwright_ptx_kokkos}" ${ARGN} -MD -MF "${object}.d" -c "${source}" -o "${object}"
    MAIN_DEPENDENCY "${source}"
    DEPFILE "${object}.d"
    COMMENT "nvcc: ${source} with PTX"
    VERBATIM)
  set(${object_var} "${object}" PARENT_SCOPE)
endfunction()
# What every program links to.
add_library(ptx_program INTERFACE)
shardwright_ptx_object(shardwright_ptx_objects "${PROJECT_SOURCE_DIR}/src/device_kernels.cpp")
if(NOT shardwright_ptx_library)
  shardwright_ptx_object(shardwright_ptx_core ptx/runtime/kokkos_core.cpp)
  list(APPEND shardwright_ptx_objects "${shardwright_ptx_core}")
endif()
add_custom_target(ptx_common_objects DEPENDS ${shardwright_ptx_objects})
add_dependencies(ptx_program ptx_common_objects)
target_link_libraries(ptx_program INTERFACE ${shardwright_ptx_objects} ${shardwright_ptx_library} ptx_runtime pthread
                                            ${CMAKE_DL_LIBS})

# shardwright_ptx_program(<name> <source>...): the executable ptx_<name>.
function(shardwright_ptx_program name)
  set(objects)
  foreach(source IN LISTS ARGN)
    shardwright_ptx_object(object "${source}" -DSHARDWRIGHT_COMPILED_DEVICE)
    list(APPEND objects "${object}")
  endforeach()
  # Without a target of their own they would wait for the libraries that the program links to, and end the build.
  add_custom_target(ptx_${name}_objects DEPENDS ${objects})
  add_executable(ptx_${name} ${objects})
  set_target_properties(ptx_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(ptx_${name} PRIVATE ptx_program)
endfunction()

# shardwright_ptx_tests(<name> <label> <setting>...): a test of a program for each setting, such as forward-issue or
# random-wait-7: order of the warps, arrival of asynchronous copies, seed, argument of the program.
set(shardwright_ptx_coverage)
function(shardwright_ptx_tests name label)
  foreach(setting IN LISTS ARGN)
    string(REGEX MATCH "^([a-z]+)-([a-z]+)-?([0-9]*)-?([a-z_]*)$" matched "${setting}")
    set(order "${CMAKE_MATCH_1}")
    set(arrival "${CMAKE_MATCH_2}")
    set(seed "${CMAKE_MATCH_3}")
    if(seed STREQUAL "")
      set(seed 1)
    endif()
    set(argument ${CMAKE_MATCH_4})
    set(coverage "${CMAKE_CURRENT_BINARY_DIR}/ptx/${name}.${setting}.coverage")
    add_test(NAME ptx.${name}.${setting} COMMAND ptx_${name} ${argument})
    set_tests_properties(
      ptx.${name}.${setting}
      PROPERTIES
        TIMEOUT 600 LABELS ${label} FIXTURES_SETUP ptx_${label}
        ENVIRONMENT
        "PTX_ORDER=${order};PTX_ARRIVAL=${arrival};PTX_SEED=${seed};PTX_UNINITIALIZED=1;PTX_COVERAGE=${coverage};PTX_TRAFFIC=${coverage}.json"
    )
    list(APPEND shardwright_ptx_coverage "${coverage}")
  endforeach()
  set(shardwright_ptx_coverage ${shardwright_ptx_coverage} PARENT_SCOPE)
endfunction()

foreach(name IN ITEMS narrow_kernels kernels experts collectives)
  shardwright_ptx_program(${name} cuda/${name}.cpp)
  shardwright_ptx_tests(${name} ptx forward-issue backward-wait)
endforeach()
# Only attention of 16-bit elements copies asynchronously.
shardwright_ptx_tests(narrow_kernels ptx forward-wait-attention backward-issue-attention)
add_test(NAME ptx.coverage
         COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/ptx_coverage" --least 96 --open 400
                 --reasons "${CMAKE_CURRENT_SOURCE_DIR}/ptx/unreached.txt" ${shardwright_ptx_coverage})
set_tests_properties(ptx.coverage PROPERTIES TIMEOUT 60 LABELS ptx FIXTURES_REQUIRED ptx_ptx)
# Only the stand-in of Kokkos' library says which memory is a workspace.
if(NOT shardwright_ptx_library)
  set(shardwright_ptx_traffic ${shardwright_ptx_coverage})
  list(FILTER shardwright_ptx_traffic INCLUDE REGEX "/(narrow_kernels|kernels|experts)[.]forward-issue")
  list(TRANSFORM shardwright_ptx_traffic APPEND .json)
  add_test(NAME ptx.kernel_bytes COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/ptx/kernel_bytes.py"
                                         ${shardwright_ptx_traffic})
  set_tests_properties(ptx.kernel_bytes PROPERTIES TIMEOUT 60 LABELS ptx FIXTURES_REQUIRED ptx_ptx)
endif()
if(SHARDWRIGHT_PTX_PROGRAMS)
  # In every run, double and float16 would take 60 s more to compile.
  foreach(name IN ITEMS double_kernels half_kernels)
    shardwright_ptx_program(${name} cuda/${name}.cpp)
    shardwright_ptx_tests(${name} ptx_programs forward-issue backward-wait)
  endforeach()
  add_test(NAME ptx.coverage_of_all
           COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/ptx_coverage" --least 96 --open 6800
                   --reasons "${CMAKE_CURRENT_SOURCE_DIR}/ptx/unreached.txt" ${shardwright_ptx_coverage})
  set_tests_properties(ptx.coverage_of_all PROPERTIES TIMEOUT 60 LABELS ptx_programs
                                                      FIXTURES_REQUIRED "ptx_ptx;ptx_ptx_programs")
  foreach(name IN ITEMS narrow_kernels half_kernels kernels double_kernels experts collectives)
    shardwright_ptx_tests(${name} ptx_programs forward-wait backward-issue random-wait-7)
  endforeach()
  foreach(name IN ITEMS operations ranks reductions training_bfloat16 training_double training_float training_graph)
    shardwright_ptx_program(${name} cuda/${name}.cpp)
    shardwright_ptx_tests(${name} ptx_programs forward-issue backward-wait random-wait-7)
  endforeach()
  include(ptx/train_gpt.cmake)
  # What a device's benchmarks print means nothing here, but they must run.
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/gpu/*.cpp")
  shardwright_ptx_program(benchmark_gpu ${sources} "${PROJECT_SOURCE_DIR}/benchmarks/train_step/pytorch.cpp")
  add_test(NAME ptx.benchmark_gpu COMMAND ptx_benchmark_gpu --small)
  set_tests_properties(ptx.benchmark_gpu PROPERTIES TIMEOUT 600 LABELS ptx_programs ENVIRONMENT "PTX_UNINITIALIZED=1")
  add_test(NAME ptx.planted_faults COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/ptx/planted_faults.py"
                                           $<TARGET_FILE_DIR:ptx_narrow_kernels>)
  set_tests_properties(ptx.planted_faults PROPERTIES TIMEOUT 600 LABELS ptx_programs)
endif()
