# SPDX-License-Identifier: Apache-2.0
# Short runs of train_models as its users start it.

function(shardwright_train_models_run name says)
  string(REPLACE ";" "|" command "$<TARGET_FILE:train_models>;${ARGN}")
  shardwright_add_check(
    models.train_models.${name} LABEL examples PROCESSORS 2
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=0 "-DSAYS=${says}" -P
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

if(TARGET shardwright::mpi)
  shardwright_add_mpi_test(models.train_models.mpi.4 4 train_models --model encoder --mesh dp=2,tp=2 --steps 2)
endif()
