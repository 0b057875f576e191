# SPDX-License-Identifier: Apache-2.0
# Short runs of train_models as its users start it.

# shardwright_train_models_run(<name> <regex>|... <word>... [FRESH <directory>])
function(shardwright_train_models_run name says)
  cmake_parse_arguments(run "" "FRESH" "" ${ARGN})
  string(REPLACE ";" "|" command "$<TARGET_FILE:train_models>;${run_UNPARSED_ARGUMENTS}")
  shardwright_add_check(
    models.train_models.${name} LABEL examples PROCESSORS 2
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=0 "-DSAYS=${says}" "-DFRESH=${run_FRESH}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../examples/run_check.cmake")
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}models.train_models.${name}" PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endfunction()

shardwright_train_models_run(help "--recompute KIND" --help)
shardwright_train_models_run(
  mixed "step 2 loss [0-9.e+-]+ gradient norm|33056 parameters, norm [0-9.e+-]+, hash [0-9a-f]+" --model decoder --mesh
  pp=2,dp=2,tp=2 --schedule zbv --microbatches 4 --precision bf16 --steps 2)
shardwright_train_models_run(
  dump "52416 parameters" --model gpt2 --precision fp64 --steps 2 --dump "${CMAKE_CURRENT_BINARY_DIR}/train_models_dump")

shardwright_train_models_run(
  experts "busiest expert [0-9.]+% of a layer's choices, bias -0.02 to 0.02, 0.00% dropped" --model moe --mesh
  pp=2,ep=2,tp=2 --microbatches 2 --steps 2)

# What every training has: a repetition on one rank, a dry run, and checkpoints that resume bit by bit.
shardwright_train_models_run(
  verify "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-08 is allowed" --model encoder --precision fp64
  --mesh cp=2,dp=2 --steps 4 --verify)
shardwright_train_models_run(
  dry_run "4 ranks as pp=2,dp=2, model gpt2, batch 24|make the same [0-9a-z ]+ on world" --model gpt2 --precision fp64 --mesh
  pp=2,dp=2 --microbatches 4 --dry-run --rank 0,1)
set(saved "${CMAKE_CURRENT_BINARY_DIR}/train_models_saved")
set(saving --model moe --mesh ep=2,pp=2 --microbatches 2 --steps 4 --checkpoint)
shardwright_train_models_run(saved_whole "step 4  saved: " ${saving} "${saved}_whole" FRESH "${saved}_whole")
shardwright_train_models_run(saved_stopped "step 2  saved: " ${saving} "${saved}" --stop-after 2 FRESH "${saved}")
shardwright_train_models_run(saved_resumed "resume: from .*step-2, saved on ep=2,pp=2|step 4 loss" ${saving} "${saved}" --resume)
shardwright_add_check(
  models.train_models.saved_equal LABEL examples COMMAND checkpoint diff "${saved}_whole/step-4" "${saved}/step-4")
set(prefix "${SHARDWRIGHT_TEST_PREFIX}models.train_models.saved")
set_tests_properties("${prefix}_whole" PROPERTIES FIXTURES_SETUP train_models_whole)
set_tests_properties("${prefix}_stopped" PROPERTIES FIXTURES_SETUP train_models_stopped)
set_tests_properties("${prefix}_resumed" PROPERTIES FIXTURES_REQUIRED train_models_stopped FIXTURES_SETUP train_models_resumed)
set_tests_properties("${prefix}_equal" PROPERTIES FIXTURES_REQUIRED "train_models_whole;train_models_resumed")
string(REPLACE ";" "|" endless "--model;mlp;--mesh;dp=2;--steps;1000000;--checkpoint;${saved}_by_signal")
shardwright_add_check(
  models.train_models.stopped_by_signal LABEL examples PROCESSORS 2
  COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${Python3_EXECUTABLE}|${CMAKE_CURRENT_LIST_DIR}/../examples/stop_signal.py|SIGTERM|$<TARGET_FILE:train_models>|${endless}|--dump|${saved}_dump"
          -DEXIT=0 "-DSAYS=stopped before its last step, so nothing was written to .*train_models_saved_dump"
          "-DFRESH=${saved}_by_signal" -P "${CMAKE_CURRENT_LIST_DIR}/../examples/run_check.cmake")
set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}models.train_models.stopped_by_signal" PROPERTIES ENVIRONMENT
                                                                                                  OPENBLAS_NUM_THREADS=1)

if(TARGET shardwright::mpi)
  shardwright_add_mpi_test(models.train_models.mpi.4 4 train_models --model encoder --mesh dp=2,tp=2 --steps 2)
endif()
