# SPDX-License-Identifier: Apache-2.0
# A few cases of scripts/chaos from one seed, with the faults whose outcome does not depend on a race; a nightly run
# covers many more, with all faults.
add_executable(shardwright_chaos "${CMAKE_CURRENT_LIST_DIR}/chaos.cpp")
target_link_libraries(shardwright_chaos PRIVATE shardwright::shardwright)
shardwright_program_flags(shardwright_chaos)
set(shardwright_chaos_transport threads)
if(TARGET shardwright::mpi)
  set(shardwright_chaos_transport both)
endif()
shardwright_add_check(
  chaos PROCESSORS 2
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/chaos" --program $<TARGET_FILE:shardwright_chaos>
          --transport ${shardwright_chaos_transport} --seed 1 --cases 12 --slower 1
          --faults none late throw mismatch abort return freeze kill stop leave)
