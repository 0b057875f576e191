# SPDX-License-Identifier: Apache-2.0
# Jobs that are killed at each of the seven steps of a save, on thread ranks and, if it is available, under mpiexec.
add_executable(io_commit_kill_program "${CMAKE_CURRENT_LIST_DIR}/commit_kill_program.cpp")
target_link_libraries(io_commit_kill_program PRIVATE shardwright::compiled)
shardwright_program_flags(io_commit_kill_program)

function(shardwright_commit_kills name)
  shardwright_add_check(
    io.${name} LABEL io
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/commit_kills.py" "${CMAKE_CURRENT_BINARY_DIR}/${name}" ${ARGN}
            $<TARGET_FILE:io_commit_kill_program>)
endfunction()

shardwright_commit_kills(commit_kills)
if(TARGET shardwright::mpi)
  shardwright_commit_kills(commit_kills_mpi "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} 3 ${MPIEXEC_PREFLAGS})
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}io.commit_kills_mpi" PROPERTIES ENVIRONMENT "${shardwright_mpi_environment}" LABELS mpi)
endif()
