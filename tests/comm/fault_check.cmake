# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMMAND=... -DEXIT=zero|nonzero -DSAYS=regex -DLINES=n -P: runs a job, and looks at its exit code, at what it
# says, at the number of lines by which it tells of failures, and that none of its processes is left.
# Lists come with | between their items.
cmake_policy(VERSION 3.25)
string(REPLACE "|" ";" COMMAND "${COMMAND}")
string(REPLACE "|" ";" SAYS "${SAYS}")
execute_process(
  COMMAND ${COMMAND}
  TIMEOUT 60
  RESULT_VARIABLE code
  OUTPUT_VARIABLE output
  ERROR_VARIABLE errors)
message("${output}${errors}")
# To CMake it would separate the items of a list.
string(REPLACE ";" "," output "${output}")
string(REPLACE ";" "," errors "${errors}")
if(code MATCHES "timeout")
  message(FATAL_ERROR "the job hung")
endif()
if(EXIT STREQUAL "zero" AND NOT code STREQUAL "0" OR EXIT STREQUAL "nonzero" AND code STREQUAL "0")
  message(FATAL_ERROR "the exit code is ${code}, but it must be ${EXIT}")
endif()
foreach(wanted IN LISTS SAYS)
  if(NOT "${output}${errors}" MATCHES "${wanted}")
    message(FATAL_ERROR "the job must say: ${wanted}")
  endif()
endforeach()
if(DEFINED LINES)
  string(REGEX MATCHALL "shardwright: [^\n]*" told "${errors}")
  list(LENGTH told lines)
  if(NOT lines EQUAL LINES)
    message(FATAL_ERROR "the failure must be told in ${LINES} lines, but there are ${lines}: first causes, no echoes")
  endif()
endif()
string(REGEX MATCHALL "pid [0-9]+" pids "${output}")
foreach(attempt RANGE 20)
  set(left)
  foreach(pid IN LISTS pids)
    string(REPLACE "pid " "" pid "${pid}")
    if(EXISTS "/proc/${pid}/status")
      file(STRINGS "/proc/${pid}/status" state REGEX "^State:")
      if(NOT state MATCHES "Z|X")
        list(APPEND left "${pid}")
      endif()
    endif()
  endforeach()
  if(NOT left)
    return()
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E sleep 0.1)
endforeach()
message(FATAL_ERROR "processes of the job are left: ${left}")
