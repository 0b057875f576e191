# SPDX-License-Identifier: Apache-2.0
# Tests every reader with inputs that were not written for it. The corpus of each is replayed as a plain test; with
# SHARDWRIGHT_FUZZ, clang's libFuzzer also searches for new inputs, for a minute each, and random models are trained
# that no other run has trained: ctest -L '^fuzz$'.
option(SHARDWRIGHT_FUZZ "Build the fuzzers with clang++, and add their runs to the tests under the label fuzz" OFF)
set(SHARDWRIGHT_FUZZ_SECONDS 60 CACHE STRING "Seconds that each fuzzer runs for")
if(SHARDWRIGHT_FUZZ AND NOT SHARDWRIGHT_CLANG)
  message(FATAL_ERROR "shardwright: SHARDWRIGHT_FUZZ must have a clang++ with libFuzzer (install clang, or leave it off).")
endif()

# shardwright_fuzz(<reader> [<source of an example>...] [LIBRARIES <target>...]): tests/fuzz/<reader>_fuzz.cpp on
# tests/fuzz/corpus/<reader>.
function(shardwright_fuzz reader)
  cmake_parse_arguments(fuzz "" "" "LIBRARIES" ${ARGN})
  set(sources "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${reader}_fuzz.cpp")
  foreach(source IN LISTS fuzz_UNPARSED_ARGUMENTS)
    list(APPEND sources "${PROJECT_SOURCE_DIR}/examples/${source}")
  endforeach()
  set(corpus "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/corpus/${reader}")

  set(replayed ${sources})
  if(TARGET plan_parts) # if examples are built
    list(FILTER replayed EXCLUDE REGEX "/examples/plan/")
  endif()
  add_executable(fuzz_${reader}_replay ${replayed} "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/replay.cpp")
  if(NOT replayed STREQUAL sources)
    target_link_libraries(fuzz_${reader}_replay PRIVATE plan_parts)
  endif()
  target_include_directories(fuzz_${reader}_replay PRIVATE "${PROJECT_SOURCE_DIR}/examples")
  target_link_libraries(fuzz_${reader}_replay PRIVATE shardwright::descriptions)
  if(fuzz_UNPARSED_ARGUMENTS)
    target_link_libraries(fuzz_${reader}_replay PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json ${fuzz_LIBRARIES})
  endif()
  shardwright_program_flags(fuzz_${reader}_replay)
  shardwright_add_check(corpus.${reader} LABEL corpus COMMAND fuzz_${reader}_replay "${corpus}")

  if(NOT SHARDWRIGHT_FUZZ)
    return()
  endif()
  set(fuzzer "${CMAKE_CURRENT_BINARY_DIR}/fuzz/${reader}") # not named as its target, which Ninja takes for a file
  list(TRANSFORM fuzz_LIBRARIES REPLACE "(.+)" "$<TARGET_LINKER_FILE:\\1>")
  set(headers $<TARGET_PROPERTY:fuzz_${reader}_replay,INCLUDE_DIRECTORIES>)
  add_custom_command(
    OUTPUT "${fuzzer}"
    COMMAND "${SHARDWRIGHT_CLANG}" -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined,float-cast-overflow
            -fno-sanitize-recover=all "$<$<BOOL:${headers}>:-I$<JOIN:${headers},;-I>>" ${sources} ${fuzz_LIBRARIES} -o "${fuzzer}"
    DEPENDS ${sources} ${shardwright_headers}
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(fuzz_${reader} ALL DEPENDS "${fuzzer}")
  # New inputs go into a directory of the build; the corpus grows by hand.
  file(MAKE_DIRECTORY "${fuzzer}_found")
  math(EXPR timeout "5 * ${SHARDWRIGHT_FUZZ_SECONDS} + 300")
  shardwright_add_check(
    fuzz.${reader} LABEL fuzz TIMEOUT ${timeout}
    COMMAND "${fuzzer}" -max_total_time=${SHARDWRIGHT_FUZZ_SECONDS} -timeout=25 -rss_limit_mb=3072 -max_len=4096
            "-artifact_prefix=${fuzzer}_" "${fuzzer}_found" "${corpus}")
endfunction()

find_package(CLI11 QUIET)
find_package(nlohmann_json QUIET)
shardwright_fuzz(schedule_csv)
shardwright_fuzz(published_runs)
shardwright_fuzz(data_files)
shardwright_fuzz(matrix_market)
if(TARGET shardwright::safetensors)
  foreach(reader IN ITEMS safetensors checkpoint_manifest)
    shardwright_fuzz(${reader})
    target_link_libraries(fuzz_${reader}_replay PRIVATE shardwright::safetensors)
  endforeach()
endif()
if(CLI11_FOUND AND nlohmann_json_FOUND)
  shardwright_fuzz(plan_json plan/json_text.cpp plan/specifications.cpp)
  shardwright_fuzz(command_line plan/json_text.cpp plan/options.cpp plan/simulation.cpp plan/specifications.cpp
                   schedule_viewer/options.cpp)
  find_package(ICU QUIET COMPONENTS uc i18n)
  if(TARGET ICU::uc)
    shardwright_fuzz(published_model pretrained/adapter_settings.cpp pretrained/settings.cpp pretrained/settings_text.cpp
                     pretrained/tokenizer.cpp LIBRARIES ICU::i18n ICU::uc)
  endif()
endif()
if(SHARDWRIGHT_FUZZ AND TARGET nn_test)
  math(EXPR timeout "5 * ${SHARDWRIGHT_FUZZ_SECONDS} + 300")
  shardwright_add_check(
    fuzz.random_models LABEL fuzz TIMEOUT ${timeout} PROCESSORS 2
    COMMAND "${CMAKE_COMMAND}" -E env "SHARDWRIGHT_RANDOM_MODELS=seconds=${SHARDWRIGHT_FUZZ_SECONDS}"
            $<TARGET_FILE:nn_test> "[random_models]")
endif()

# Random communication programs, on threads and between processes: the same ones in every run, as many as the time
# allows; with SHARDWRIGHT_FUZZ, new ones for the time of the other fuzzers.
set(SHARDWRIGHT_COMMUNICATION_SECONDS 20 CACHE STRING "Seconds of random communication in every run of the tests")
add_executable(fuzz_communication "${CMAKE_CURRENT_LIST_DIR}/communication.cpp")
target_link_libraries(fuzz_communication PRIVATE shardwright::shardwright)
target_include_directories(fuzz_communication PRIVATE "${PROJECT_SOURCE_DIR}/tests")
shardwright_program_flags(fuzz_communication)

# shardwright_fuzz_communication(<prefix> <label> <timeout> <word>...)
function(shardwright_fuzz_communication prefix label timeout)
  shardwright_add_check(${prefix}.threads LABEL ${label} TIMEOUT ${timeout} PROCESSORS 2
                        COMMAND fuzz_communication ${ARGN})
  if(TARGET shardwright::mpi)
    shardwright_add_mpi_test(${prefix}.mpi 4 fuzz_communication ${ARGN})
    set_tests_properties(${prefix}.mpi PROPERTIES TIMEOUT ${timeout} LABELS "mpi;${label}")
  endif()
endfunction()

shardwright_fuzz_communication(communication communication 300 --seed 1
                               --seconds ${SHARDWRIGHT_COMMUNICATION_SECONDS})
# Their time is fixed whatever else runs: so they take one place beside other tests.
foreach(name IN ITEMS communication.threads communication.mpi)
  if(TEST ${SHARDWRIGHT_TEST_PREFIX}${name})
    set_tests_properties(${SHARDWRIGHT_TEST_PREFIX}${name} PROPERTIES PROCESSORS 1)
  endif()
endforeach()
if(SHARDWRIGHT_FUZZ)
  math(EXPR timeout "${SHARDWRIGHT_FUZZ_SECONDS} + 600")
  shardwright_fuzz_communication(fuzz.communication fuzz ${timeout} --seconds ${SHARDWRIGHT_FUZZ_SECONDS})
endif()
