# SPDX-License-Identifier: Apache-2.0
# What plan prints, and its answers to mistakes.

# shardwright_plan_run(<name> <exit code> SAYS <regex>... OPTIONS <word>...)
function(shardwright_plan_run name exit)
  cmake_parse_arguments(run "" "" "SAYS;OPTIONS" ${ARGN})
  set(command $<TARGET_FILE:plan> ${run_OPTIONS})
  foreach(list IN ITEMS command run_SAYS)
    string(REPLACE ";" "|" ${list} "${${list}}")
  endforeach()
  shardwright_add_check(
    examples.plan.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${run_SAYS}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
endfunction()

set(plan_files "${CMAKE_CURRENT_BINARY_DIR}")
shardwright_plan_run(
  deepseek 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M
  SAYS "15360 sequences of 4096 tokens" "plan .*microbatch=" "tokens/s per chip, MFU" "memory  .* of 80 GB: parameters"
       "what binds" "the usual recipe" "decided by" "the best without a pipeline" "where the pipeline ends")
shardwright_plan_run(
  fixed 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --fix tp=8,pp=16,schedule=zbv
  SAYS "plan    tp=8 pp=16 .zbv. ")
shardwright_plan_run(
  json 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --json --fix pp=1
  SAYS "\"pp\": 1,.*\"step_seconds\": [0-9.]+,.*\"bytes\"")
file(WRITE "${plan_files}/small.json"
     "{\"name\": \"small\", \"layers\": 8, \"hidden\": 1024, \"heads\": 8, \"feed_forward\": 4096, \"vocabulary\": 32000}\n")
file(WRITE "${plan_files}/pair.json"
     "{\"chip\": \"h100\", \"domains\": [{\"chips\": 2, \"bandwidth\": 450e9}, {\"chips\": 4, \"bandwidth\": 50e9}]}\n")
shardwright_plan_run(
  own 0 OPTIONS --model "${plan_files}/small.json" --cluster "${plan_files}/pair.json" --sequences 16
  SAYS "small on .*pair.json, 16 sequences")
file(WRITE "${plan_files}/wrong.json" "{\"layers\": 8,\n \"hiden\": 1024}\n")
shardwright_plan_run(
  wrong_field 2 OPTIONS --model "${plan_files}/wrong.json" --cluster h100x8 --sequences 8
  SAYS "wrong.json, line 2: hiden is no field here. did you mean hidden")
file(WRITE "${plan_files}/broken.json" "{\"layers\": 8,\n \"hidden\" 1024}\n")
shardwright_plan_run(
  broken 2 OPTIONS --model "${plan_files}/broken.json" --cluster h100x8 --sequences 8
  SAYS "broken.json, line 2: the file must be JSON")
file(WRITE "${plan_files}/empty_domain.json" "{\"chip\": \"h100\", \"domains\": [\n {\"chips\": 0, \"bandwidth\": 1}]}\n")
shardwright_plan_run(
  empty_domain 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/empty_domain.json" --sequences 8
  SAYS "empty_domain.json, line 2: domains.chips must be a whole number from 1")
shardwright_plan_run(
  unknown_model 2 OPTIONS --model deepseek-v4 --cluster h800x2048 --sequences 8 SAYS "did you mean deepseek-v3")
shardwright_plan_run(
  cluster_of_zero 2 OPTIONS --model llama-2-7b --cluster h100x0 --sequences 8 SAYS "a number above 0")
shardwright_plan_run(
  impossible_batch 1 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 7 --fix dp=8
  SAYS "there is no plan .* 7 sequences .* the sequences of a step must divide into dp")
shardwright_plan_run(
  no_memory 1 OPTIONS --model deepseek-v3 --cluster h800x8 --sequences 8
  SAYS "a chip has too little memory .80 GB. the least is [0-9.]+ GB, with ")
shardwright_plan_run(
  bad_fix 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix tq=2 SAYS "--fix has the unknown part 'tq=2'")
shardwright_plan_run(
  evaluate 0 OPTIONS --evaluate "${PROJECT_SOURCE_DIR}/data/published_runs.csv"
  SAYS "predicted [0-9.]+ s, measured [0-9.]+ s" "not compared:" "by source:" "by chip:" "all: [0-9]+ rows, median error")
file(WRITE "${plan_files}/short.csv" "id,source,model,chip,n_chips\na,b,c,d\n")
shardwright_plan_run(
  short_row 1 OPTIONS --evaluate "${plan_files}/short.csv" SAYS "Runs, line 2: there must be 5 cells")
