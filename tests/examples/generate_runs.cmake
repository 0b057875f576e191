# SPDX-License-Identifier: Apache-2.0
# generate compared with Python's transformers and tokenizers, and its messages for wrong input.
shardwright_add_check(
  examples.generate.transformers LABEL examples TIMEOUT 1200 PROCESSORS 2
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/generate_transformers.py" $<TARGET_FILE:generate>
          $<TARGET_FILE:train_gpt>)

shardwright_add_check(
  examples.generate.adapters LABEL examples TIMEOUT 1200 PROCESSORS 2
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/adapters_peft.py" $<TARGET_FILE:generate>
          $<TARGET_FILE:train_gpt>)

shardwright_add_check(
  examples.generate.real LABEL examples TIMEOUT 600
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/generate_real.py" $<TARGET_FILE:generate>)

if(TARGET examples_test)
  shardwright_add_check(
    examples.generate.tokenizers LABEL examples TIMEOUT 1200
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/generate_tokenizers.py" $<TARGET_FILE:examples_test>
            "${PROJECT_SOURCE_DIR}")
  shardwright_add_check(
    examples.chat_templates LABEL examples TIMEOUT 600
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/chat_templates.py" $<TARGET_FILE:examples_test>)
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
  no_directory 1 OPTIONS --model /no/such --prompt-ids 1 SAYS "/no/such/config.json: the file must exist")
shardwright_generate_run(
  data_axis 2 OPTIONS --model x --prompt a --mesh dp=2 SAYS "axis dp, which splits a batch .generate shares every sequence")
shardwright_generate_run(
  dump_of_several 2 OPTIONS --model x --prompt a --prompt b --dump y SAYS "--dump writes the logits of one prompt")
shardwright_generate_run(
  two_kinds 2 OPTIONS --model x --prompt a --chat b SAYS "one of --prompt, --chat and --prompt-ids must say what to continue")
shardwright_generate_run(
  system_alone 2 OPTIONS --model x --prompt a --system b SAYS "--system and --chat-template are for questions .give --chat")
shardwright_generate_run(
  bad_ids 2 OPTIONS --model x --prompt-ids 1,b SAYS "--prompt-ids needs token ids such as 1,2,3, but has 'b'")

# A small model, and the text that plain loops generate with it: threads and processes must print the same.
if(TARGET examples_test)
  set(generate_model "${CMAKE_CURRENT_BINARY_DIR}/generate_model")
  set(generate_tokens "19,19,19,19,19,19,19,22,6,19,19,19,19,22,6,19,19,19,19,19")
  shardwright_add_check(examples.generate.model LABEL examples COMMAND examples_test "[.model]")
  set_tests_properties(
    "${SHARDWRIGHT_TEST_PREFIX}examples.generate.model"
    PROPERTIES FIXTURES_SETUP generate_model
               ENVIRONMENT "SHARDWRIGHT_MODEL_DIRECTORY=${generate_model};SHARDWRIGHT_MODEL_TOKENS=${generate_tokens}")
  set(options --model "${generate_model}" --prompt-ids 3,17,28,0,11,11,5 --tokens 20)
  shardwright_generate_run(threads 0 OPTIONS ${options} --mesh pp=3,tp=2 --ignore-end SAYS "^${generate_tokens}\n")
  # Together longer than the 12 positions of the longest one.
  shardwright_generate_run(
    several 0 OPTIONS --model "${generate_model}" --tokens 5 --prompt-ids 3,17,28,0,11,11,5 --prompt-ids 3,17
    --prompt-ids 3,17,28,0,11,11,5 --mesh tp=2 SAYS "^19,19,19,19,19\n[0-9,]+\n19,19,19,19,19\n")
  shardwright_generate_run(to_the_end 0 OPTIONS ${options} SAYS "^19,19,19,19,19,19,19,22,6\n")
  shardwright_generate_run(too_long 1 OPTIONS --model "${generate_model}" --prompt-ids 3,17,28,0,11,11,5 --tokens 60 SAYS "at most max_position_embeddings, 64, but they are 67")
  shardwright_generate_run(too_many_ranks 1 OPTIONS ${options} --mesh tp=4 SAYS "2 key and value heads must be a multiple of the 4")
  shardwright_generate_run(seed 0 OPTIONS ${options} --temperature 2 --top-p 0.9 SAYS "^[0-9,]+\n")
  shardwright_generate_run(more_stages_than_layers 0 OPTIONS ${options} --mesh pp=5 --ignore-end SAYS "^${generate_tokens}\n")
  shardwright_generate_run(no_experts 1 OPTIONS ${options} --mesh ep=2 SAYS "ep=2 must be 1, as the model has no experts")
  shardwright_generate_run(
    onto_itself 1 OPTIONS ${options} --export "${generate_model}" SAYS "--export .* must have no model in it yet, but has '")
  shardwright_generate_run(
    dump_onto_model 1 OPTIONS ${options} --dump "${generate_model}/config.json" SAYS "--dump .* must not be a file of the model")
  set(runs threads several to_the_end too_long too_many_ranks seed more_stages_than_layers no_experts onto_itself dump_onto_model)
  if(TARGET shardwright::mpi)
    shardwright_add_mpi_test(examples.generate.mpi 4 generate ${options} --mesh pp=2,tp=2 --ignore-end)
    set_tests_properties(examples.generate.mpi PROPERTIES PASS_REGULAR_EXPRESSION "${generate_tokens}\n")
    list(APPEND runs mpi)
  endif()
  foreach(run IN LISTS runs)
    set_tests_properties(examples.generate.${run} PROPERTIES FIXTURES_REQUIRED generate_model)
  endforeach()
endif()
