# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMMAND=... -DJOIN=... -DRANKS=n -DSAYS=regex -DPYTHON=... -P: runs a job that fails, joins the files of its
# flight recorders, and reads the pickles with Python, and with PyTorch's fr_trace if that Python has it. Items of lists
# are separated by |.
cmake_policy(VERSION 3.25)
string(REPLACE "|" ";" COMMAND "${COMMAND}")
string(REPLACE "|" ";" SAYS "${SAYS}")
string(RANDOM LENGTH 12 name)
set(directory "${CMAKE_CURRENT_BINARY_DIR}/flight-${name}")
file(MAKE_DIRECTORY "${directory}")
set(ENV{SHARDWRIGHT_FLIGHT_RECORDER} "${directory}")
execute_process(COMMAND ${COMMAND} TIMEOUT 60 RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(code STREQUAL "0" OR code MATCHES "timeout")
  message(FATAL_ERROR "the job must fail, and end: ${code}\n${output}")
endif()
execute_process(
  COMMAND "${JOIN}" join "${directory}"
  RESULT_VARIABLE code
  OUTPUT_VARIABLE joined
  ERROR_VARIABLE joined)
message("${joined}")
if(NOT code STREQUAL "0")
  message(FATAL_ERROR "the dumps must be joined: ${code}\n${output}")
endif()
foreach(wanted IN LISTS SAYS)
  if(NOT joined MATCHES "${wanted}")
    message(FATAL_ERROR "the joined dumps must say: ${wanted}")
  endif()
endforeach()
execute_process(COMMAND "${JOIN}" trace "${directory}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND "${PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/flight_pickles.py" "${directory}" "${RANKS}"
  RESULT_VARIABLE code
  OUTPUT_VARIABLE read
  ERROR_VARIABLE read)
message("${read}")
if(NOT code STREQUAL "0")
  message(FATAL_ERROR "Python must read the pickles")
endif()
file(REMOVE_RECURSE "${directory}")
