# SPDX-License-Identifier: Apache-2.0
# cmake -DMPIEXEC=... -DPROGRAM=... -P: two jobs at once on one machine, one of which fails without affecting the other.
cmake_policy(VERSION 3.25)
# The shell runs both at once. As two commands of one execute_process() they would be a pipeline, and a job may end
# with the reader of its output.
set(both [["$1" -n 3 "$2" steady </dev/null & "$1" -n 3 "$2" throws </dev/null; echo "throws ended with $?"
          wait $!; echo "steady ended with $?"]])
foreach(attempt RANGE 2)
  execute_process(
    COMMAND sh -c "${both}" two_jobs "${MPIEXEC}" "${PROGRAM}"
    TIMEOUT 150
    RESULT_VARIABLE code
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  message("${code}: ${output}")
  if(NOT output MATCHES "steady ended with 0")
    message(FATAL_ERROR "a job beside one that fails must end with 0")
  endif()
  if(output MATCHES "throws ended with 0" OR NOT output MATCHES "rank 2 failed: the disk is on fire")
    message(FATAL_ERROR "a job beside a healthy one must fail with its own cause")
  endif()
endforeach()
