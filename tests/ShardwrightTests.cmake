# SPDX-License-Identifier: Apache-2.0
find_package(Catch2 3 QUIET)
if(NOT Catch2_FOUND)
  find_package(Catch2 2 QUIET)
endif()
if(NOT Catch2_FOUND)
  message(FATAL_ERROR "shardwright: the tests need Catch2 2.13 or 3 (install it, or set SHARDWRIGHT_BUILD_TESTS=OFF).")
endif()
message(STATUS "shardwright: Catch2 ${Catch2_VERSION}")
# A filter that matches no test is an error: the default of Catch2 3, a warning option of Catch2 2.
set(shardwright_no_tests_is_error)
if(Catch2_VERSION VERSION_LESS 3)
  set(shardwright_no_tests_is_error --warn NoTests)
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# At least five times what the longest one takes on an idle machine of two cores, so that a busy one breaks none.
set(SHARDWRIGHT_TEST_TIMEOUT 600 CACHE STRING "Seconds after which one test is ended")
set(SHARDWRIGHT_TEST_PREFIX "" CACHE STRING "Put before the names of the tests")
set(SHARDWRIGHT_TEST_LAYERS "" CACHE STRING "Test these layers alone, without the checks of the sources; empty: all")
set(SHARDWRIGHT_TEST_LAYERS_ELSEWHERE "" CACHE STRING "Layers that another build tree tests")

# The runner of Catch2, compiled once.
add_library(shardwright_test_session OBJECT support/session.cpp)
target_include_directories(shardwright_test_session PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(shardwright_test_session PUBLIC Catch2::Catch2)
target_compile_features(shardwright_test_session PUBLIC cxx_std_20)
target_compile_options(shardwright_test_session PRIVATE -O0 -g0)

# What test files include first: catch.hpp for descriptions, and Kokkos too for runners. The runners' mains bring
# launch_ranks(), so that few test files compile the transports, and an operator new that counts.
function(shardwright_test_support name main)
  add_library(${name} OBJECT support/${main})
  target_include_directories(${name} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC Catch2::Catch2 ${ARGN})
  shardwright_program_flags(${name})
  shardwright_add_precompiled(${name})
endfunction()

shardwright_test_support(shardwright_test_main main.cpp shardwright::descriptions)
target_precompile_headers(shardwright_test_main PRIVATE <support/catch.hpp>)
shardwright_test_support(shardwright_runner_test_main runner_main.cpp shardwright::shardwright)
target_precompile_headers(shardwright_runner_test_main PRIVATE <support/catch.hpp> <Kokkos_Core.hpp>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang") # g++ is not faster with the library precompiled
  target_precompile_headers(shardwright_runner_test_main PRIVATE <shardwright/shardwright.hpp> <shardwright/models.hpp>)
endif()
target_sources(shardwright_runner_test_main PRIVATE support/launch_ranks.cpp support/heap_count.cpp)
if(TARGET shardwright::mpi)
  shardwright_test_support(shardwright_mpi_test_main mpi_main.cpp shardwright::shardwright)
  target_precompile_headers(shardwright_mpi_test_main REUSE_FROM shardwright_runner_test_main)
  target_sources(shardwright_mpi_test_main PRIVATE support/launch_ranks.cpp)
endif()

# In a tree without optimisation the host's kernels would take most of the time of the tests.
if(CMAKE_CXX_FLAGS_RELWITHDEBINFO MATCHES "-O0" AND "nn" IN_LIST SHARDWRIGHT_TEST_LAYERS)
  add_library(shardwright_test_kernels OBJECT "${PROJECT_SOURCE_DIR}/src/kernels.cpp")
  target_link_libraries(shardwright_test_kernels PRIVATE shardwright::shardwright)
  shardwright_program_flags(shardwright_test_kernels)
  target_compile_options(shardwright_test_kernels PRIVATE -O2)
endif()

function(shardwright_test_executable name main precompiled)
  set(kernels ${shardwright_fast_kernels})
  if(main STREQUAL "shardwright_test_main")
    set(kernels)
  endif()
  add_executable(${name} ${kernels} ${ARGN})
  target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${main} shardwright_test_session)
  target_sources(${name} PRIVATE $<TARGET_OBJECTS:${main}> $<TARGET_OBJECTS:shardwright_test_session>)
  target_precompile_headers(${name} REUSE_FROM ${precompiled})
  shardwright_program_flags(${name})
endfunction()

# shardwright_tested_here(<layer> <variable>): whether this build tree tests the layer.
function(shardwright_tested_here layer variable)
  set(${variable} ON PARENT_SCOPE)
  if((SHARDWRIGHT_TEST_LAYERS AND NOT layer IN_LIST SHARDWRIGHT_TEST_LAYERS)
     OR layer IN_LIST SHARDWRIGHT_TEST_LAYERS_ELSEWHERE)
    set(${variable} OFF PARENT_SCOPE)
  endif()
endfunction()

# shardwright_layer_tests(<layer> DESCRIPTION|RUNNER)
function(shardwright_layer_tests layer kind)
  shardwright_tested_here(${layer} here)
  if(NOT here)
    return()
  endif()
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_test.cpp")
  # The CUDA runtime over a fake of its library: the toolkit's headers suffice.
  set(cuda_files ${files})
  list(FILTER cuda_files INCLUDE REGEX "/cuda_[^/]*_test\\.cpp$")
  if(cuda_files)
    find_path(SHARDWRIGHT_CUDA_HEADERS cuda_runtime_api.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
              PATH_SUFFIXES include)
    mark_as_advanced(SHARDWRIGHT_CUDA_HEADERS)
    if(SHARDWRIGHT_CUDA_HEADERS)
      set_source_files_properties(${cuda_files} PROPERTIES COMPILE_OPTIONS "-isystem;${SHARDWRIGHT_CUDA_HEADERS}")
    else()
      message(STATUS "shardwright: no CUDA headers, so the tests over a fake of CUDA's library are left out")
      list(REMOVE_ITEM files ${cuda_files})
    endif()
  endif()
  set(mpi_files ${files})
  list(FILTER mpi_files INCLUDE REGEX "_mpi_test\\.cpp$")
  list(FILTER files EXCLUDE REGEX "_mpi_test\\.cpp$")
  # Of a function that several files hold, the linker takes the first: the files that are optimised go first.
  foreach(file IN LISTS shardwright_optimised_tests)
    if(file IN_LIST files)
      list(REMOVE_ITEM files "${file}")
      list(PREPEND files "${file}")
    endif()
  endforeach()
  if(files)
    set(main shardwright_test_main)
    if(kind STREQUAL "RUNNER")
      set(main shardwright_runner_test_main)
    endif()
    shardwright_test_executable(${layer}_test ${main} ${main} ${files})
    foreach(file IN LISTS files)
      get_filename_component(stem "${file}" NAME_WE)
      string(REGEX REPLACE "_test$" "" short "${stem}")
      # Catch2 tags every test case with its file's name; a file without a test case is an error. Hidden ones
      # are for hand.
      shardwright_add_check(
        ${layer}.${short} LABEL ${layer}
        COMMAND ${layer}_test --filenames-as-tags ${shardwright_no_tests_is_error} "[#${stem}]~[.]")
    endforeach()
  endif()
  if(mpi_files AND TARGET shardwright::mpi)
    shardwright_test_executable(${layer}_mpi_test shardwright_mpi_test_main shardwright_runner_test_main ${mpi_files})
    foreach(ranks IN ITEMS 1 2 3 4)
      shardwright_add_mpi_test(${layer}.mpi.${ranks} ${ranks} ${layer}_mpi_test)
    endforeach()
  endif()
endfunction()

# For Open MPI, as root and with more ranks than cores; other implementations do not read these.
set(shardwright_mpi_environment
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_btl_vader_single_copy_mechanism=none
    OMPI_MCA_mpi_yield_when_idle=1
    OMPI_MCA_btl_base_warn_component_unused=0
    OPENBLAS_NUM_THREADS=1
    ASAN_OPTIONS=detect_leaks=0) # Open MPI leaves memory behind

# shardwright_add_mpi_test(<name> <ranks> <target> [argument]...)
function(shardwright_add_mpi_test name ranks target)
  add_test(NAME ${name} COMMAND "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                                $<TARGET_FILE:${target}> ${MPIEXEC_POSTFLAGS} ${ARGN})
  set_tests_properties(
    ${name} PROPERTIES TIMEOUT ${SHARDWRIGHT_TEST_TIMEOUT} ENVIRONMENT "${shardwright_mpi_environment}" PROCESSORS 2 LABELS mpi)
endfunction()

# What the check scripts below pass to compilers: one flag per line, in descriptions.txt and runners.txt. Kokkos's
# headers stop a compiler that leaves out the OpenMP with which Kokkos was built.
set(shardwright_flags "${CMAKE_CURRENT_BINARY_DIR}/flags")
function(shardwright_generate_flags kind target)
  set(includes $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  set(definitions $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  set(openmp $<FILTER:$<TARGET_PROPERTY:${target},COMPILE_OPTIONS>,INCLUDE,-fopenmp>)
  file(
    GENERATE
    OUTPUT "${shardwright_flags}/${kind}.txt"
    CONTENT "$<$<BOOL:${includes}>:-isystem$<JOIN:${includes},\n-isystem>>\n$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},\n-D>>\n$<$<BOOL:${openmp}>:-fopenmp\n>"
    TARGET ${target})
endfunction()
shardwright_generate_flags(descriptions shardwright_test_main)
shardwright_generate_flags(runners shardwright_runner_test_main)

# The project's compiler, and the other one where it is installed.
find_program(SHARDWRIGHT_CLANG NAMES clang++)
find_program(SHARDWRIGHT_GCC NAMES g++)
mark_as_advanced(SHARDWRIGHT_CLANG SHARDWRIGHT_GCC)
set(shardwright_compilers --compiler "${CMAKE_CXX_COMPILER}")
foreach(compiler IN ITEMS "${SHARDWRIGHT_CLANG}" "${SHARDWRIGHT_GCC}")
  if(compiler)
    list(APPEND shardwright_compilers --compiler "${compiler}")
  endif()
endforeach()

# shardwright_add_check(<name> [LABEL <label>] [TIMEOUT <s>] [PROCESSORS <n>] COMMAND <word>...): exit status 77 skips.
function(shardwright_add_check name)
  cmake_parse_arguments(check "" "LABEL;TIMEOUT;PROCESSORS" "COMMAND" ${ARGN})
  # A semicolon in a definition for a script cuts it in two, and cmake silently ignores the second half.
  list(FIND check_COMMAND -P script)
  if(script GREATER 1)
    list(SUBLIST check_COMMAND 0 ${script} halves)
    list(POP_FRONT halves)
    list(FILTER halves EXCLUDE REGEX "^-")
    if(halves)
      message(FATAL_ERROR "${name}: its script would not see '${halves}': write its definition without a semicolon")
    endif()
  endif()
  add_test(NAME "${SHARDWRIGHT_TEST_PREFIX}${name}" COMMAND ${check_COMMAND})
  set(label check)
  set(timeout ${SHARDWRIGHT_TEST_TIMEOUT})
  set(processors 1)
  if(check_LABEL)
    set(label ${check_LABEL})
  endif()
  if(check_TIMEOUT)
    set(timeout ${check_TIMEOUT})
  endif()
  if(check_PROCESSORS)
    set(processors ${check_PROCESSORS})
  endif()
  set_tests_properties(
    "${SHARDWRIGHT_TEST_PREFIX}${name}" PROPERTIES TIMEOUT ${timeout} LABELS ${label} PROCESSORS ${processors}
                                                   SKIP_RETURN_CODE 77)
endfunction()

# tests/compile_fail/*.cpp, those with and those without Kokkos: scripts/compile_fail_cases.py explains the form of such a
# file. Together, as most of the time goes into reading headers.
function(shardwright_compile_fail_tests)
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/*.cpp")
  if(NOT TARGET shardwright::fftw)
    message(STATUS "shardwright: without FFTW the misuses of Fourier transforms are left out")
    list(FILTER files EXCLUDE REGEX "/fourier[.]cpp$")
  endif()
  foreach(kind IN ITEMS descriptions runners)
    shardwright_add_check(
      compile_fail.${kind} LABEL compile_fail TIMEOUT 1200 PROCESSORS 2
      COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_compile_fail" ${shardwright_compilers}
              --include "${PROJECT_SOURCE_DIR}/include" --flags "${shardwright_flags}"
              --work "${CMAKE_CURRENT_BINARY_DIR}/compile_fail" --kind ${kind} ${files})
  endforeach()
  shardwright_add_check(
    check_compile_fail COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_compile_fail_test.py"
                               ${shardwright_compilers})
endfunction()

# Layers, headers alone, form of the sources, and two units that include the same.
function(shardwright_source_checks)
  shardwright_add_check(layering COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_layering")
  shardwright_add_check(
    check_layering COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_layering_test.py")
  shardwright_add_check(tests COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_tests")
  shardwright_add_check(rooms COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_rooms")
  shardwright_add_check(
    check_rooms COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_rooms_test.py")
  shardwright_add_check(operations COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_operations")
  shardwright_add_check(
    check_operations COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_operations_test.py")
  shardwright_add_check(
    equal_mutants COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/mutate" --count 0)
  shardwright_add_check(mutate COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/mutate_test.py")
  shardwright_add_check(release COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_release")
  shardwright_add_check(
    check_release COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_release_test.py")
  shardwright_add_check(
    amalgamated COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/amalgamate"
                        "${CMAKE_CURRENT_BINARY_DIR}/amalgamated/shardwright_descriptions.hpp" --test "${CMAKE_CXX_COMPILER}")
  shardwright_add_check(format COMMAND "${PROJECT_SOURCE_DIR}/scripts/check_format")
  shardwright_add_check(
    gpu_check COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/gpu_check_test.py")
  shardwright_add_check(
    kokkos_cuda_headers COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/kokkos_cuda_headers_test.py")
  shardwright_add_check(
    cuda_headers TIMEOUT 1800 PROCESSORS 2
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_cuda_headers")
  foreach(set IN ITEMS descriptions runners)
    shardwright_add_check(
      headers_alone.${set} TIMEOUT 1200 PROCESSORS 2
      COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_headers" ${shardwright_compilers}
              --include "${PROJECT_SOURCE_DIR}/include" --flags "${shardwright_flags}"
              --work "${CMAKE_CURRENT_BINARY_DIR}/headers_alone" --set ${set})
  endforeach()

  add_executable(shardwright_odr_test odr/first.cpp odr/second.cpp)
  target_link_libraries(shardwright_odr_test PRIVATE shardwright::shardwright)
  shardwright_program_flags(shardwright_odr_test)
  shardwright_add_check(two_units COMMAND shardwright_odr_test)

  add_executable(shardwright_compiled_test odr/compiled.cpp odr/header_only.cpp
                                                  odr/launch_without_mpi.cpp)
  target_link_libraries(shardwright_compiled_test PRIVATE shardwright::compiled)
  shardwright_program_flags(shardwright_compiled_test)
  shardwright_add_check(compiled COMMAND shardwright_compiled_test)
endfunction()

# It uses most of the library, which clang++ compiles in half of the time: with the models, in their tree.
function(shardwright_checked_build_test)
  add_executable(shardwright_checked_test checked/checked_program.cpp)
  target_compile_definitions(shardwright_checked_test PRIVATE SHARDWRIGHT_CHECKED)
  target_link_libraries(shardwright_checked_test PRIVATE shardwright::shardwright)
  shardwright_program_flags(shardwright_checked_test)
  shardwright_add_check(checked_build COMMAND shardwright_checked_test)
endfunction()

# Projects of users: configured, built and run on their own, with the Kokkos of this build.
function(shardwright_consumer_tests)
  set(work "${CMAKE_CURRENT_BINARY_DIR}/consumer")
  set(settings "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DSHARDWRIGHT_SOURCE=${PROJECT_SOURCE_DIR}")
  foreach(name IN ITEMS CMAKE_CXX_COMPILER_LAUNCHER Kokkos_ROOT Kokkos_DIR FETCHCONTENT_SOURCE_DIR_KOKKOS)
    if(${name})
      list(APPEND settings "-D${name}=${${name}}")
    endif()
  endforeach()
  if(kokkos_SOURCE_DIR)
    list(APPEND settings "-DFETCHCONTENT_SOURCE_DIR_KOKKOS=${kokkos_SOURCE_DIR}")
  endif()
  set(prefixes ${CMAKE_PREFIX_PATH})

  # Without what an earlier version has installed elsewhere, which would be found as well.
  add_test(NAME consumer.empty_prefix COMMAND "${CMAKE_COMMAND}" -E rm -rf "${work}/prefix")
  set_tests_properties(consumer.empty_prefix PROPERTIES TIMEOUT 60 LABELS consumer FIXTURES_SETUP shardwright_empty_prefix)
  add_test(NAME consumer.install COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${work}/prefix")
  set_tests_properties(consumer.install PROPERTIES TIMEOUT 60 LABELS consumer FIXTURES_SETUP shardwright_prefix
                                                   FIXTURES_REQUIRED shardwright_empty_prefix)

  set(components)
  foreach(component IN ITEMS MPI BLAS FFTW)
    string(TOLOWER ${component} name)
    if(TARGET shardwright::${name})
      list(APPEND components ${component})
    endif()
  endforeach()
  string(REPLACE ";" "\\;" components "${components}")
  string(REPLACE ";" "\\;" prefixes "${work}/prefix;${prefixes}")
  set(find_package_settings "-DCMAKE_PREFIX_PATH=${prefixes}" "-DCONSUMER_COMPONENTS=${components}")

  # What a makefile would name: the directory and the library of Kokkos, and what its backend needs.
  if(SHARDWRIGHT_KOKKOS_CORE_LIBRARY AND NOT TARGET Kokkos::kokkos)
    set(kokkos_library "${SHARDWRIGHT_KOKKOS_CORE_LIBRARY}")
    set(kokkos_includes "${SHARDWRIGHT_KOKKOS_INCLUDE_DIR}")
  elseif(TARGET Kokkos::kokkoscore)
    set(kokkos_library $<TARGET_FILE:Kokkos::kokkoscore>)
    set(kokkos_includes "$<TARGET_PROPERTY:Kokkos::kokkoscore,INTERFACE_INCLUDE_DIRECTORIES>")
  endif()
  set(include_path_settings "-DSHARDWRIGHT_PKG_CONFIG=${work}/prefix/${CMAKE_INSTALL_DATADIR}/pkgconfig"
      "-DSHARDWRIGHT_VERSION=${PROJECT_VERSION}" "-DKOKKOS_LIBRARIES=${kokkos_library}" "-DKOKKOS_INCLUDES=${kokkos_includes}")
  if("OPENMP" IN_LIST Kokkos_DEVICES)
    list(APPEND include_path_settings "-DCMAKE_CXX_FLAGS=-fopenmp")
  endif()

  # The library of find_package is linked by the project that users copy.
  foreach(way IN ITEMS add_subdirectory fetch_content include_path descriptions)
    set(${way}_run --test-command "${work}/${way}/program")
  endforeach()
  foreach(way IN ITEMS add_subdirectory fetch_content find_package include_path descriptions)
    add_test(
      NAME consumer.${way}
      COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${CMAKE_CURRENT_SOURCE_DIR}/consumer/${way}" "${work}/${way}"
              --build-generator "${CMAKE_GENERATOR}" --build-makeprogram "${CMAKE_MAKE_PROGRAM}" --build-options ${settings}
              ${${way}_settings} ${${way}_run})
    set_tests_properties(consumer.${way} PROPERTIES TIMEOUT 900 LABELS consumer)
  endforeach()
  add_test(NAME consumer.first_ten_minutes COMMAND "${PROJECT_SOURCE_DIR}/scripts/first_ten_minutes" "${work}" -G "${CMAKE_GENERATOR}"
                                                   ${settings} "-DCMAKE_PREFIX_PATH=${work}/prefix;${CMAKE_PREFIX_PATH}")
  set_tests_properties(consumer.first_ten_minutes PROPERTIES TIMEOUT 900 LABELS consumer)
  set_tests_properties(consumer.find_package consumer.first_ten_minutes consumer.include_path
                       PROPERTIES FIXTURES_REQUIRED shardwright_prefix)
endfunction()
