# SPDX-License-Identifier: Apache-2.0
# cmake -DMPIEXEC=... -DPROGRAM=... -P: two jobs at once on one machine, of which one fails and the other one does not
# learn of it.
cmake_policy(VERSION 3.25)
foreach(attempt RANGE 2)
  # Both run at once, as the parts of a pipeline do.
  execute_process(
    COMMAND ${MPIEXEC} -n 3 ${PROGRAM} steady
    COMMAND ${MPIEXEC} -n 3 ${PROGRAM} throws
    TIMEOUT 60
    RESULTS_VARIABLE codes
    OUTPUT_VARIABLE output
    ERROR_VARIABLE errors)
  message("${codes}: ${output}${errors}")
  list(GET codes 0 healthy)
  list(GET codes 1 failed)
  if(NOT healthy STREQUAL "0")
    message(FATAL_ERROR "a job beside one that fails must end with 0, but it ended with ${healthy}")
  endif()
  if(failed STREQUAL "0" OR NOT errors MATCHES "rank 2 failed: the disk is on fire")
    message(FATAL_ERROR "a job beside a healthy one must fail with its own cause, but it ended with ${failed}")
  endif()
endforeach()
