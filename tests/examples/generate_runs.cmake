# SPDX-License-Identifier: Apache-2.0
# generate against Python's transformers and tokenizers, and its answers to mistakes.
shardwright_add_check(
  examples.generate.transformers LABEL examples TIMEOUT 1200 PROCESSORS 2
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/generate_transformers.py" $<TARGET_FILE:generate>)

if(TARGET examples_test)
  shardwright_add_check(
    examples.generate.tokenizers LABEL examples TIMEOUT 1200
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/generate_tokenizers.py" $<TARGET_FILE:examples_test>
            "${PROJECT_SOURCE_DIR}")
endif()

# shardwright_generate_run(<name> <exit code> SAYS <regex>... OPTIONS <word>...)
function(shardwright_generate_run name exit)
  cmake_parse_arguments(run "" "" "SAYS;OPTIONS" ${ARGN})
  set(command $<TARGET_FILE:generate> ${run_OPTIONS})
  foreach(list IN ITEMS command run_SAYS)
    string(REPLACE ";" "|" ${list} "${${list}}")
  endforeach()
  shardwright_add_check(
    examples.generate.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${run_SAYS}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
endfunction()

shardwright_generate_run(help 0 OPTIONS --help SAYS "--prompt TEXT" "--top-p X")
shardwright_generate_run(no_model 2 OPTIONS --prompt a SAYS "--model must name the directory of a model")
shardwright_generate_run(
  no_directory 1 OPTIONS --model /no/such --prompt-ids 1 SAYS "/no/such/config.json.*cannot be opened")
shardwright_generate_run(
  data_axis 2 OPTIONS --model x --prompt a --mesh dp=2 SAYS "axis dp, which splits a batch .generate has one sequence")
shardwright_generate_run(
  bad_ids 2 OPTIONS --model x --prompt-ids 1,b SAYS "--prompt-ids needs numbers of tokens such as 1,2,3, but has 'b'")
