# SPDX-License-Identifier: Apache-2.0
# Output to a full disk is lost, and the exit code says so.
if(NOT EXISTS /dev/full)
  return()
endif()

# shardwright_full_output_run(<name> <program> <words>)
function(shardwright_full_output_run name program words)
  if(NOT TARGET ${program})
    return()
  endif()
  shardwright_add_check(
    examples.${program}.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=sh|-c|$<TARGET_FILE:${program}> ${words} >/dev/full" -DEXIT=1
            "-DSAYS=${program}: standard output must accept all output, but a part was lost" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.${program}.${name}" PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endfunction()

foreach(program IN ITEMS schedule_viewer plan train_gpt train_models)
  shardwright_full_output_run(full_output_of_help ${program} --help)
endforeach()
foreach(program IN ITEMS quickstart power_iteration heat conjugate_gradient sparse_solver)
  shardwright_full_output_run(full_output ${program} "")
endforeach()
shardwright_full_output_run(full_output schedule_viewer "")
shardwright_full_output_run(full_output plan "--model llama-2-7b --cluster h100x8 --sequences 64")
shardwright_full_output_run(full_output train_gpt "--dry-run --model tiny")
shardwright_full_output_run(full_output train_models "--model mlp --steps 1")
