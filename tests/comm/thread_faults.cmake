# SPDX-License-Identifier: Apache-2.0
# A process of three thread ranks whose last one freezes or exits: how such a process ends is part of the contract.
add_executable(comm_thread_fault_program "${CMAKE_CURRENT_LIST_DIR}/thread_fault_program.cpp")
target_link_libraries(comm_thread_fault_program PRIVATE shardwright::shardwright)
shardwright_program_flags(comm_thread_fault_program)

# shardwright_thread_fault(<name> zero|nonzero <lines of the report> <regex>...)
function(shardwright_thread_fault name exit lines)
  # Lists would be split on the command line.
  string(REPLACE ";" "|" says "${ARGN}")
  string(REPLACE ";" "|" emulator "${CMAKE_CROSSCOMPILING_EMULATOR};")
  set(command "$<TARGET_FILE:comm_thread_fault_program>|${name}")
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    string(PREPEND command "${emulator}")
  endif()
  shardwright_add_check(
    comm.thread_fault.${name} LABEL comm TIMEOUT 90
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} -DLINES=${lines} "-DSAYS=${says}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/fault_check.cmake")
  # A process that ends here leaves threads behind, and a forked child the memory that they held: a sanitizer must not
  # report these.
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}comm.thread_fault.${name}"
                       PROPERTIES ENVIRONMENT "TSAN_OPTIONS=report_thread_leaks=0;ASAN_OPTIONS=detect_leaks=0")
endfunction()

shardwright_thread_fault(none zero 0 "launch returned")
shardwright_thread_fault(forks zero 0 "child ended with 0" "launch returned")
set(frozen "launch: the program must end on every rank within 0.5 s of the first failure, but it still runs on rank 2: ")
set(busy "${frozen}rank 2: its last operation was all_reduce #1 on group world at [^ ]*thread_fault_program.cpp:[0-9]+")
set(missed "rank 0: barrier: every rank of group world must enter barrier.. #2 at .* rank 2 did not arrive")
# Both other ranks have thrown: one of them first.
shardwright_thread_fault(spins nonzero 3 "${busy}" "the first failure: rank [01] failed: " "rank [01] failed: "
                         "rank 1 has words of its own" "${missed}")
shardwright_thread_fault(blocks nonzero 3 "${busy}" "the first failure: rank [01] failed: " "${missed}")
shardwright_thread_fault(holds_standard_error nonzero 3 "${busy}")
# Rank 0 or rank 1 is first; only the words of rank 1 do not say whose they are.
shardwright_thread_fault(ends_late nonzero any "launch threw: ")
set(exited "launch: the process must not exit while ranks run, but ")
shardwright_thread_fault(exits nonzero 1 "${exited}rank 2 called exit.. while ranks 0 and 1 went on: rank 2: its last operation was all_reduce #1")
shardwright_thread_fault(exits_with_code nonzero 1 "${exited}rank 2 called exit")
shardwright_thread_fault(quick_exits nonzero 1 "${exited}rank 2 called quick_exit.. while ranks 0 and 1 went on")
shardwright_thread_fault(thread_exits nonzero 1 "${exited}a thread that belongs to no rank called exit")
shardwright_thread_fault(all_exit nonzero 1 "${exited}rank [0-2] called exit.. while ranks ")
# No rank is cut off.
shardwright_thread_fault(all_leave_but_one zero 0)
