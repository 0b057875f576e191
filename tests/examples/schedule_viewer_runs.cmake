# SPDX-License-Identifier: Apache-2.0
# The output and the files of schedule_viewer, and its messages for wrong input.

# shardwright_schedule_viewer_run(<name> <exit code> [FILE <path> HOLDS <regex>...] SAYS <regex>... OPTIONS <word>...)
function(shardwright_schedule_viewer_run name exit)
  cmake_parse_arguments(run "" "FILE" "HOLDS;SAYS;OPTIONS" ${ARGN})
  set(command $<TARGET_FILE:schedule_viewer> ${run_OPTIONS})
  foreach(list IN ITEMS command run_SAYS run_HOLDS)
    string(REPLACE ";" "|" ${list} "${${list}}")
  endforeach()
  shardwright_add_check(
    examples.schedule_viewer.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${run_SAYS}" "-DFILE=${run_FILE}"
            "-DHOLDS=${run_HOLDS}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
endfunction()

set(viewer_files "${CMAKE_CURRENT_BINARY_DIR}")
shardwright_schedule_viewer_run(
  text 0 OPTIONS --schedule 1f1b --ranks 2 --microbatches 3
  SAYS "1F1B: 2 ranks, 3 microbatches" "makespan 12, bubble 3 .25 % of the makespan., peak 2 microbatches in flight"
       "rank 0  F0 F1 [.]  [.]  B0--- F2 B1--- [.]  B2---\nrank 1  [.]  F0 B0--- F1 B1--- F2 B2--- [.]  [.]\n"
       "rank 0 +0 +9 +3 +25 +2")
shardwright_schedule_viewer_run(
  svg 0 OPTIONS --schedule dualpipev --ranks 4 --microbatches 10 --svg "${viewer_files}/viewer.svg"
  SAYS "wrote .*viewer.svg" FILE "${viewer_files}/viewer.svg"
  HOLDS "^<svg xmlns=.http://www.w3.org/2000/svg" "DualPipeV: 4 ranks, 2 stages each, 10 microbatches</text>"
        "<title>F0, stage 0, 0 to 1</title>" "<title>B9, stage 7, " "peak 9</text>" "overlapped</text>" "</svg>\n$")
shardwright_schedule_viewer_run(
  to_csv 0 OPTIONS --schedule zbv --ranks 2 --microbatches 2 --to-csv "${viewer_files}/viewer.csv"
  SAYS "wrote .*viewer.csv" FILE "${viewer_files}/viewer.csv" HOLDS "^0F0,0F1,3F0,3I0,3W0,.*\n1F0,2F0,.*1W1\n$")
shardwright_schedule_viewer_run(
  costs 0 OPTIONS --schedule zbh1 --ranks 2 --microbatches 4 --costs F=2,I=3,W=1,send=0.5 --columns 80
  SAYS "at F=2,I=3,W=1,send=0.5")
file(WRITE "${viewer_files}/own.csv" "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
shardwright_schedule_viewer_run(
  csv 0 OPTIONS --csv "${viewer_files}/own.csv"
  SAYS "own: 2 ranks, 2 microbatches" "rank 0  F0 F1 [.]  [.]  B0--- [.]  B1---")
file(WRITE "${viewer_files}/exported.csv" "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n")
shardwright_schedule_viewer_run(
  csv_exported 0 OPTIONS --csv "${viewer_files}/exported.csv"
  SAYS "exported.csv: 6 cells that are not passes, the first .0UNSHARD. on line 1, ignored" "exported: 2 ranks, 1 microbatch"
       "rank 0  F0 [.]  [.]  [.]  B0---")
shardwright_schedule_viewer_run(
  few_for_zbh2 0 OPTIONS --schedule zbh2 --ranks 8 --microbatches 8
  SAYS "makespan 34" "ZB-H1 takes less: makespan 31, .*with fewer than 15 microbatches on 8 ranks")
shardwright_schedule_viewer_run(
  interleaved_zb 0 OPTIONS --schedule interleavedzb --ranks 8 --microbatches 8 --chunks 3
  SAYS "Interleaved zero bubble: 8 ranks, 3 stages each, 8 microbatches" "makespan 79, bubble 7 ")
file(WRITE "${viewer_files}/incomplete.csv" "0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n")
shardwright_schedule_viewer_run(
  csv_incomplete 1 OPTIONS --csv "${viewer_files}/incomplete.csv" SAYS "1F1 is missing on rank 1")
shardwright_schedule_viewer_run(
  csv_missing 1 OPTIONS --csv /nowhere/own.csv SAYS "--csv /nowhere/own.csv: the file must exist .correct its name")
shardwright_schedule_viewer_run(
  unwritable 1 OPTIONS --svg /nowhere/own.svg SAYS "/nowhere/own.svg must be writable, but No such file")
shardwright_schedule_viewer_run(
  csv_device 1 OPTIONS --csv /dev/zero SAYS "--csv /dev/zero: it must be a regular file, not a pipe")
file(WRITE "${viewer_files}/far.csv" "999999999F0")
shardwright_schedule_viewer_run(
  csv_far 1 OPTIONS --csv "${viewer_files}/far.csv" SAYS "at most 2097152 forward passes, but 1000000000 stages")
shardwright_schedule_viewer_run(
  too_many_passes 1 OPTIONS --ranks 1048576 --microbatches 1048576 SAYS "1f1b: there must be at most 2097152 forward passes")
shardwright_schedule_viewer_run(
  costs_apart 1 OPTIONS --costs F=1e9 SAYS "as text it must have at most 67108864 characters, but 4 ranks and 5500000011 columns")
shardwright_schedule_viewer_run(costs_beyond 2 OPTIONS --costs F=2e9 SAYS "--costs needs a number from 0 to 1e[+]09 after F=")
shardwright_schedule_viewer_run(unknown_schedule 2 OPTIONS --schedule zvb SAYS "did you mean zbv?")
shardwright_schedule_viewer_run(unknown_option 2 OPTIONS --rank 3 SAYS "unknown option --rank; did you mean --ranks?")
shardwright_schedule_viewer_run(
  too_few_microbatches 1 OPTIONS --schedule dualpipe --microbatches 7
  SAYS "dualpipe: the number of microbatches must be even and at least twice the number of ranks" "are 8[)]")
shardwright_schedule_viewer_run(
  costs_of_b 2 OPTIONS --costs B=2 SAYS "--costs has the unknown part 'B=2'; a B is an I and a W together")
shardwright_schedule_viewer_run(
  help 0 OPTIONS --help SAYS "--schedule NAME" "--ranks N" "--microbatches N" "--chunks N" "--csv FILE" "--costs LIST"
                             "--svg FILE" "--to-csv FILE" "--text" "dualpipev")
