# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMMAND=... -DEXIT=code -DSAYS=regex [-DFILE=path -DHOLDS=regex] [-DFRESH=directory] -P: runs a program and
# checks its exit code, its output and the file that it writes. FRESH is removed first. Items of lists are separated by
# |.
cmake_policy(VERSION 3.25)
string(REPLACE "|" ";" COMMAND "${COMMAND}")
string(REPLACE "|" ";" SAYS "${SAYS}")
string(REPLACE "|" ";" HOLDS "${HOLDS}")
if(FILE)
  file(REMOVE "${FILE}")
endif()
if(FRESH)
  file(REMOVE_RECURSE "${FRESH}")
endif()
execute_process(
  COMMAND ${COMMAND}
  TIMEOUT 300
  RESULT_VARIABLE code
  OUTPUT_VARIABLE output
  ERROR_VARIABLE errors)
message("${output}${errors}")
if(NOT code STREQUAL EXIT)
  message(FATAL_ERROR "the exit code is ${code}, but it must be ${EXIT}")
endif()
foreach(wanted IN LISTS SAYS)
  if(NOT "${output}${errors}" MATCHES "${wanted}")
    message(FATAL_ERROR "the program must say: ${wanted}")
  endif()
endforeach()
if(FILE)
  file(READ "${FILE}" text)
  foreach(wanted IN LISTS HOLDS)
    if(NOT "${text}" MATCHES "${wanted}")
      message(FATAL_ERROR "${FILE} must hold: ${wanted}\nbut holds:\n${text}")
    endif()
  endforeach()
endif()
