# SPDX-License-Identifier: Apache-2.0
# Dumps of thread ranks and of processes: with a rank that does not arrive, and with one that has ended.

# shardwright_flight_test(<name> <regex of the verdict> <command>...)
function(shardwright_flight_test name says)
  string(REPLACE ";" "|" command "${ARGN}")
  shardwright_add_check(
    comm.flight_recorder.${name} LABEL comm TIMEOUT 90
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" "-DJOIN=$<TARGET_FILE:flight_recorder>" -DRANKS=3
            "-DPYTHON=${Python3_EXECUTABLE}" "-DSAYS=${says}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/flight_check.cmake")
endfunction()

set(last "its last operation was all_reduce #1 on group world at [^ ]*_fault_program.cpp:[0-9]+")
shardwright_flight_test(threads "rank 0: waiting in barrier #2 .* waits for 2|rank 2 stopped first, .*: ${last}"
                        $<TARGET_FILE:comm_thread_fault_program> spins)
if(TARGET comm_mpi_fault_program)
  # The others meet a frozen rank in their second call. Of two ranks beside a killed one, the first to wait in that call
  # ends the job, perhaps before the other has begun it.
  set(waiting_beside_freezes "rank 0: waiting in all_reduce #2 .*rank 1: waiting in all_reduce #2 ")
  set(waiting_beside_killed "rank [01]: waiting in all_reduce #2 ")
  foreach(fault IN ITEMS freezes killed)
    shardwright_flight_test(
      mpi_${fault} "rank 2 stopped first.* ${last}|${waiting_beside_${fault}}"
      "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} 3 ${MPIEXEC_PREFLAGS} $<TARGET_FILE:comm_mpi_fault_program>
      ${MPIEXEC_POSTFLAGS} ${fault})
    set_tests_properties(comm.flight_recorder.mpi_${fault} PROPERTIES ENVIRONMENT "${shardwright_mpi_environment}"
                                                                      PROCESSORS 2 LABELS mpi)
  endforeach()
endif()

shardwright_add_check(
  comm.flight_recorder.no_dumps LABEL comm
  COMMAND
    "${CMAKE_COMMAND}" "-DCOMMAND=$<TARGET_FILE:flight_recorder>|join|${CMAKE_CURRENT_BINARY_DIR}/no_dumps" -DEXIT=1
    "-DSAYS=flight_recorder: .*no_dumps must be a directory of dumps, but No such file or directory"
    -P "${CMAKE_CURRENT_LIST_DIR}/../examples/run_check.cmake")
