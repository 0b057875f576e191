# SPDX-License-Identifier: Apache-2.0
# Jobs under mpiexec whose last rank fails in one way each: how such a job ends is part of the contract.
add_executable(comm_mpi_fault_program "${CMAKE_CURRENT_LIST_DIR}/mpi_fault_program.cpp")
target_link_libraries(comm_mpi_fault_program PRIVATE shardwright::shardwright)
shardwright_program_flags(comm_mpi_fault_program)

# MPICH's launcher kills all ranks as soon as one is gone or aborts, before they can say more.
set(launcher_kills_at_once FALSE)
if(MPI_CXX_LIBRARIES MATCHES "mpich")
  set(launcher_kills_at_once TRUE)
endif()

# shardwright_mpi_fault(<name> zero|nonzero|gone <lines of the first cause>|any <regex>... [NOT <regex>] [RANKS <n>]): on
# 3 ranks by default. "gone": nonzero, because a process has ended without a message.
function(shardwright_mpi_fault name exit lines)
  cmake_parse_arguments(PARSE_ARGV 3 fault "" "NOT;RANKS" "")
  if(NOT fault_RANKS)
    set(fault_RANKS 3)
  endif()
  if(exit STREQUAL "gone")
    set(exit nonzero)
    if(launcher_kills_at_once)
      set(lines any)
      set(fault_UNPARSED_ARGUMENTS "pid [0-9]+")
    endif()
  endif()
  # Lists would be split on the command line.
  string(REPLACE ";" "|" says "${fault_UNPARSED_ARGUMENTS}")
  set(command "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${fault_RANKS} ${MPIEXEC_PREFLAGS}
              $<TARGET_FILE:comm_mpi_fault_program> ${MPIEXEC_POSTFLAGS} ${name})
  string(REPLACE ";" "|" command "${command}")
  add_test(NAME comm.mpi_fault.${name}
           COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} -DLINES=${lines} "-DSAYS=${says}"
                   "-DSAYS_NOT=${fault_NOT}" -P
                   "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/fault_check.cmake")
  # One processor is enough: these jobs wait.
  set_tests_properties(
    comm.mpi_fault.${name} PROPERTIES TIMEOUT 90 ENVIRONMENT "${shardwright_mpi_environment}" LABELS mpi)
endfunction()

shardwright_mpi_fault(none zero 0 "pid [0-9]+")
shardwright_mpi_fault(steady zero 0 "steady on 3 ranks")
shardwright_mpi_fault(forks zero 0 "child ended with 0")
shardwright_mpi_fault(endless zero 0 "pid [0-9]+")
shardwright_mpi_fault(lifecycle zero 0 "before init: " "double init: " "after finalise: " "init after finalise: "
                      "launch after finalise: ")
# The thread that initialised MPI makes all calls; another one is told at each.
foreach(level IN ITEMS single funneled)
  set(says)
  string(TOUPPER ${level} provided)
  foreach(call IN ITEMS barrier split ready)
    list(APPEND says "level_${level} ${call}: [a-z]+: calls must come from the thread that initialised MPI, because MPI provides MPI_THREAD_${provided}")
  endforeach()
  shardwright_mpi_fault(level_${level} zero 0 ${says})
endforeach()
# Each of the others learns which rank failed, why, and in which of its own calls.
foreach(rank IN ITEMS 0 1)
  list(
    APPEND
    woken
    "rank ${rank} woke by rank 2: all_reduce: [^\n]*the disk is on fire[^\n]* .rank ${rank}, group world, all_reduce #2, at [^\n]*mpi_fault_program.cpp:[0-9]+"
  )
endforeach()
shardwright_mpi_fault(throws nonzero 1 "rank 2 failed: the disk is on fire" ${woken})
# launch throws on the rank that failed, whose main then returns, continues for minutes, or finalises MPI.
set(caught)
if(NOT launcher_kills_at_once)
  set(caught
      "caught: broadcast: the root must be .*rank 2, group world, broadcast #2, at [^\n]*mpi_fault_program.cpp:[0-9]+"
      "destroyed.*caught")
endif()
foreach(way IN ITEMS caught caught_goes_on caught_finalises)
  shardwright_mpi_fault(${way} nonzero 1 ${caught} "rank 2 failed: broadcast: the root must .*mpi_fault_program.cpp:[0-9]+")
endforeach()
# As the ranks of three nodes, which share no memory.
shardwright_mpi_fault(throws_on_a_node_of_its_own nonzero 1 "rank 2 failed: the disk is on fire" ${woken})
set_property(TEST comm.mpi_fault.throws_on_a_node_of_its_own APPEND PROPERTY ENVIRONMENT
                                                                             SHARDWRIGHT_MPI_RANKS_PER_NODE=1)
shardwright_mpi_fault(killed gone 1 "pid [0-9]+" "signal 9"
                      "rank 2 left: its process ended without a message .*, its last operation was all_reduce #1 on group world at [^ ]*mpi_fault_program.cpp:[0-9]+"
)
# Amid messages, and amid reads of its memory, at any moment and in the middle of a block.
shardwright_mpi_fault(
  killed_inside gone 1 "pid [0-9]+" "signal 9"
  "rank 2 left: its process ended without a message .* all_reduce #[0-9]+ on group world at [^ ]*mpi_fault_program.cpp:[0-9]+")
shardwright_mpi_fault(
  killed_inside_reads gone 1 "pid [0-9]+" "signal 9"
  "rank 2 left: its process ended without a message .* all_to_all #[0-9]+ on group world at [^ ]*mpi_fault_program.cpp:[0-9]+")
shardwright_mpi_fault(
  killed_amid_a_read gone 1 "pid [0-9]+" "signal 9"
  "rank 2 left: its process ended without a message .* all_to_all #3 on group world at [^ ]*mpi_fault_program.cpp:[0-9]+"
  NOT "must be readable")
# The others do not communicate, so none of them would notice.
shardwright_mpi_fault(killed_while_busy gone 1 "pid [0-9]+" "signal 9" "rank 2 left: its process ended without a message")
shardwright_mpi_fault(
  freezes nonzero 1
  "must enter all_reduce.sum, 1048576 float32. #2 at [^ ]*mpi_fault_program.cpp:[0-9]+ within 1.5 s, but rank 2 did not arrive: rank 2: its process is stopped .by a signal or a debugger., its last operation was all_reduce #1 on group world at [^ ]*mpi_fault_program.cpp:[0-9]+"
  "missed rank 2")
# One of four ranks halts at a random moment amid calls of every kind: no other rank is to blame.
set(innocent "missed the innocent|missed nobody|wait in a cycle")
shardwright_mpi_fault(stops_1_5 nonzero 1 "missed the stopped rank" NOT "${innocent}" RANKS 4)
shardwright_mpi_fault(stops_2_6 nonzero 1 "missed the stopped rank" NOT "${innocent}" RANKS 4)
shardwright_mpi_fault(spins_3_7 nonzero 1 "missed the stopped rank" NOT "${innocent}" RANKS 4)
# While one rank works, inside launch() or after it, the others wait longer than the deadline.
shardwright_mpi_fault(works_on_inside zero any "its work is done"
                      "rank [01] has waited 1 s at the end of launch\\(\\) for ranks? [0-2, ]+, still running")
shardwright_mpi_fault(works_on_after zero any "its work is done"
                      "rank [01] has waited 1 s at the end of the process for ranks? [0-2, ]+, still running")
shardwright_mpi_fault(stops_at_the_end nonzero 1 "rank [01] failed: launch: the program must end on every rank"
                      "rank 2: its process is stopped")
shardwright_mpi_fault(stops_after nonzero any "every rank must reach its end, but rank 2: its process is stopped")
shardwright_mpi_fault(killed_after nonzero any "signal 9")
# One rank is stopped before it opens the memory of its node.
shardwright_mpi_fault(stops_before_the_memory nonzero any
                      "rank [01] failed: MPI_Ibarrier: .* but rank 2 did not open the memory .* rank 2 is stopped")
# One rank is stopped when all have met for a split, and MPI cannot be interrupted.
shardwright_mpi_fault(
  stops_in_split nonzero 1
  "MPI_Comm_create_group: all ranks of the new group must arrive within the deadline of 1.5 s, but rank 2 did not: rank 2: its process is stopped .* the process ends"
)
# The failure begins a line, whatever the ranks have written before, and cannot control the terminal.
shardwright_mpi_fault(throws_controls nonzero 1 "rank 2 failed: the disk.x1b.2J is .x07 on.x0dfire")
shardwright_mpi_fault(exits nonzero 1 "rank 2 left: it called exit")
if(NOT launcher_kills_at_once) # MPICH's may then even return 0
  shardwright_mpi_fault(leaves nonzero 1 "pid [0-9]+" "rank 2 left: its process ended without a message")
endif()
shardwright_mpi_fault(returns nonzero 1 "rank 2 left: its program returned while other ranks of the group continued, its last operation was all_reduce #1")
# One line for each of the two waits, by one of the ranks that wait, and some for the end.
shardwright_mpi_fault(
  late zero any
  "rank [01] has waited 1 s for rank 2 in barrier\\(\\) #2 at [^ ]*mpi_fault_program.cpp:[0-9]+ on group world, rank 2: its last operation was barrier #1"
  "rank 0 has waited 1 s for rank 2 in receive\\(4 float32, from rank 2, tag 3\\) #1 at ")
# Variables of a launcher in a plain shell: one that means nothing by itself, and a set that MPI does not know.
add_test(NAME comm.mpi_fault.stray_variable COMMAND comm_mpi_fault_program none)
set_tests_properties(
  comm.mpi_fault.stray_variable
  PROPERTIES TIMEOUT 90 ENVIRONMENT PMIX_RANK=0 LABELS mpi PASS_REGULAR_EXPRESSION
             "PMIX_RANK=0 is set, but PMIX_NAMESPACE is not, .* its ranks are threads.*pid [0-9]+")
add_test(NAME comm.mpi_fault.left_over_variables
         COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=$<TARGET_FILE:comm_mpi_fault_program>|none" -DEXIT=nonzero
                 "-DSAYS=PMI_SIZE=4 and MPI's number of ranks is 1" -P "${CMAKE_CURRENT_LIST_DIR}/fault_check.cmake")
set_tests_properties(
  comm.mpi_fault.left_over_variables
  PROPERTIES TIMEOUT 90 ENVIRONMENT "${shardwright_mpi_environment};PMI_RANK=0;PMI_SIZE=4" LABELS mpi)
# Before MPI has started: the last rank exits, is stopped, or sleeps.
set(starts "within 2 s, but rank 0 of 3 .[A-Za-z ]+, process [0-9]+ on [^ ]+. still waits there")
shardwright_mpi_fault(starts_not nonzero 1 "${starts}: of rank 2 there is no longer a process")
shardwright_mpi_fault(starts_frozen nonzero 1 "${starts}: rank 2 is stopped")
shardwright_mpi_fault(starts_late nonzero 1 "${starts} .look for a rank that has exited")
add_test(NAME comm.mpi_fault.two_jobs
         COMMAND "${CMAKE_COMMAND}" "-DMPIEXEC=${MPIEXEC_EXECUTABLE}" -DPROGRAM=$<TARGET_FILE:comm_mpi_fault_program>
                 -P "${CMAKE_CURRENT_LIST_DIR}/two_jobs_check.cmake")
set_tests_properties(comm.mpi_fault.two_jobs PROPERTIES TIMEOUT 480 ENVIRONMENT "${shardwright_mpi_environment}"
                                                        PROCESSORS 2 LABELS mpi)
