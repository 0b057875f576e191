# SPDX-License-Identifier: Apache-2.0
# Pipelines under mpiexec whose last rank fails in mid-run: the job ends, says why, and leaves no process.
add_executable(train_pipeline_mpi_fault_program "${CMAKE_CURRENT_LIST_DIR}/pipeline_mpi_fault_program.cpp")
target_include_directories(train_pipeline_mpi_fault_program PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(train_pipeline_mpi_fault_program PRIVATE shardwright::shardwright)
shardwright_program_flags(train_pipeline_mpi_fault_program)

# shardwright_pipeline_mpi_fault(<name> zero|nonzero <regex>...): on 3 ranks.
function(shardwright_pipeline_mpi_fault name exit)
  # Lists would be split on the command line.
  string(REPLACE ";" "|" says "${ARGN}")
  set(command "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} 3 ${MPIEXEC_PREFLAGS}
              $<TARGET_FILE:train_pipeline_mpi_fault_program> ${MPIEXEC_POSTFLAGS} ${name})
  string(REPLACE ";" "|" command "${command}")
  add_test(NAME train.pipeline_mpi_fault.${name}
           COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${says}" -P
                   "${CMAKE_CURRENT_SOURCE_DIR}/comm/fault_check.cmake")
  set_tests_properties(
    train.pipeline_mpi_fault.${name} PROPERTIES TIMEOUT 90 ENVIRONMENT "${shardwright_mpi_environment}" LABELS mpi)
endfunction()

shardwright_pipeline_mpi_fault(none zero "rank 0 is done" "rank 1 is done" "rank 2 is done")
shardwright_pipeline_mpi_fault(throws nonzero "rank 2 failed: the stage is on fire" "rank [01] woke by rank 2")
shardwright_pipeline_mpi_fault(killed nonzero "pid [0-9]+" "signal 9")
shardwright_pipeline_mpi_fault(freezes nonzero "rank [01] missed rank 2")
