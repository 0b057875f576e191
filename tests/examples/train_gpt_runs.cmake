# SPDX-License-Identifier: Apache-2.0
# Short runs of train_gpt as its users start it, right and wrong ones.

# shardwright_train_gpt_run(<name> <exit code> [PROGRAM <other>] [TRAINING <name>...] [RANKS <n>] [FRESH <directory>] [FILE <path>]
# [HOLDS <regex>...] SAYS <regex>... OPTIONS <word>...): on MPI ranks if RANKS is given; omitted if the build leaves a
# TRAINING out (TRAIN_GPT_TRAININGS).
get_property(train_gpt_built GLOBAL PROPERTY shardwright_train_gpt_built)
function(shardwright_train_gpt_run name exit)
  cmake_parse_arguments(run "" "PROGRAM;RANKS;FILE;FRESH" "TRAINING;HOLDS;SAYS;OPTIONS" ${ARGN})
  foreach(training IN LISTS run_TRAINING)
    if(NOT training IN_LIST train_gpt_built)
      return()
    endif()
  endforeach()
  if(NOT run_PROGRAM)
    set(run_PROGRAM train_gpt)
  endif()
  set(command $<TARGET_FILE:${run_PROGRAM}> ${run_OPTIONS})
  if(run_RANKS)
    set(command "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${run_RANKS} ${MPIEXEC_PREFLAGS} ${command}
                ${MPIEXEC_POSTFLAGS})
  endif()
  # Lists would be split on the command line.
  foreach(list IN ITEMS command run_SAYS run_HOLDS)
    string(REPLACE ";" "|" ${list} "${${list}}")
  endforeach()
  shardwright_add_check(
    examples.train_gpt.${name} LABEL examples PROCESSORS 2
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${run_SAYS}" "-DFILE=${run_FILE}"
            "-DHOLDS=${run_HOLDS}" "-DFRESH=${run_FRESH}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
  if(run_RANKS)
    set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${name}"
                         PROPERTIES ENVIRONMENT "${shardwright_mpi_environment}")
  else()
    set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${name}" PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)
  endif()
endfunction()

set(any_batch --model tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2)
set(tiny ${any_batch} --batch 4)

shardwright_train_gpt_run(
  verify 0 OPTIONS ${tiny} --steps 6 --mesh dp=2,tp=2 --sequence-parallel --verify --sample 8
  SAYS "131392 parameters on dp=2,tp=2" "validation loss [0-9.]+ nats per byte" "--- sample ---"
       "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  verify_double 0 TRAINING fp64 OPTIONS ${tiny} --steps 4 --mesh tp=2 --accumulation 2 --tied --precision fp64 --verify
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-08 is allowed")
# The predicted memory is the pool's peak.
set(predicted "memory at its fullest +pp 0 +pp 1" "  in all +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB"
    "memory: at most [0-9.]+ [KM]iB measured on a rank, [+-]0[.]00% from the prediction")
shardwright_train_gpt_run(
  verify_bf16 0 TRAINING bf16 OPTIONS ${tiny} --steps 6 --mesh pp=2,dp=2,tp=2 --sequence-parallel --microbatches 2 --tied --precision bf16
  --verify --sample 8
  SAYS "--- sample ---" "verify: passed: losses differ by [0-9.e+-]+ relative at most, 4e-03 is allowed")
shardwright_train_gpt_run(
  verify_bf16_zero3 0 TRAINING bf16_zero3 OPTIONS ${tiny} --steps 6 --mesh dp=2,cp=2 --zero 3 --recompute selective --precision bf16 --verify
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 4e-03 is allowed")
shardwright_train_gpt_run(
  verify_fp16 0 TRAINING fp16 OPTIONS ${tiny} --steps 6 --mesh dp=2,tp=2 --sequence-parallel --accumulation 2 --precision fp16 --verify
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 5e-04 is allowed")
shardwright_train_gpt_run(
  verify_recompute 0 OPTIONS ${tiny} --steps 4 --mesh pp=2,tp=2 --schedule zbh1 --sequence-parallel --recompute full:1
  --dropout 0.1 --verify
  SAYS ${predicted} "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  memory_zero3 0 TRAINING bf16_zero3 OPTIONS ${tiny} --steps 3 --mesh pp=2,dp=2 --zero 3 --precision bf16
  --recompute selective SAYS ${predicted})
set(expert_events "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_expert_events")
shardwright_train_gpt_run(
  verify_experts 0 TRAINING experts OPTIONS --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2 --batch 8 --steps 4
  --mesh dp=2,ep=2,tp=2,pp=2 --capacity 1.1 --check-replicas 2 --verify --sample 4 --metrics "${expert_events}/run.jsonl"
  --tensorboard "${expert_events}" FRESH "${expert_events}"
  SAYS "on dp=2,ep=2,tp=2,pp=2" "experts +busiest expert [0-9.]+% of a layer's choices, bias -0.0[0-9]+ to 0.0[0-9]+, [0-9.]*[1-9][0-9.]*% dropped"
       "and less in [0-9]+ other parameters" "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed"
  FILE "${expert_events}/run.jsonl"
  HOLDS "\"balance_loss\":0[.]0001" "\"busiest_share\"" "\"dropped_share\":0[.][0-9]+" "\"layers.1.mlp.router.load\":{\"0\":")
shardwright_train_gpt_run(
  verify_experts_zero3 0 TRAINING experts_zero3 OPTIONS --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2 --batch 8
  --steps 3 --mesh dp=2,ep=2 --zero 3 --pack --verify SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
# The loss of the global batch does not depend on the mesh or the microbatches, and not every schedule carries it.
set(balanced --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2 --batch 8 --steps 3 --accumulation 4
    --mesh dp=2,pp=2)
shardwright_train_gpt_run(
  balance_global 0 TRAINING experts OPTIONS ${balanced} --balance global --schedule gpipe --verify
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  balance_counting 0 TRAINING experts OPTIONS ${balanced} --balance global --counting-pass --verify
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  balance_refused 2 TRAINING experts OPTIONS ${balanced} --balance global
  SAYS "--schedule 1f1b must run all forward passes first, as --balance global counts the whole batch .give gpipe, or --counting-pass")
shardwright_train_gpt_run(
  balance_previous 0 TRAINING experts OPTIONS ${balanced} --balance previous --verify SAYS "verify: passed")
shardwright_train_gpt_run(
  balance_pass 2 OPTIONS --model moe-tiny --counting-pass SAYS "--counting-pass counts the batch for --balance global .add that, or leave it out")
shardwright_train_gpt_run(
  experts_only 2 OPTIONS --model tiny --mesh ep=2 SAYS "ep for experts, but --model tiny has none .give --model moe-small, or dp in place of ep")
foreach(schedule IN ITEMS gpipe interleaved zbv dualpipe)
  shardwright_train_gpt_run(
    verify_${schedule} 0 OPTIONS ${any_batch} --batch 8 --steps 4 --layers 4 --mesh pp=2,dp=2,tp=2 --schedule ${schedule}
    --microbatches 4 --tied --sequence-parallel --verify --sample 4 --check-replicas 2
    SAYS "on pp=2,dp=2,tp=2" "schedule ${schedule}: [24] stages on 2 ranks, 4 microbatches" "--- sample ---" "and less in [0-9]+ other parameters"
         "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
endforeach()
# Trainings on request, if the build holds them.
set(experts --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2 --batch 8 --steps 3 --verify)
shardwright_train_gpt_run(
  verify_experts_zero1 0 TRAINING experts experts_zero1 OPTIONS ${experts} --mesh dp=2,ep=2,tp=2 --zero 1
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  verify_experts_zero2 0 TRAINING experts experts_zero2 OPTIONS ${experts} --mesh dp=2,ep=2 --zero 2 --accumulation 2
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
shardwright_train_gpt_run(
  verify_bf16_experts 0 TRAINING bf16_experts OPTIONS ${experts} --mesh pp=2,ep=2,tp=2 --precision bf16
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 4e-03 is allowed")
shardwright_train_gpt_run(
  verify_bf16_experts_zero3 0 TRAINING bf16_experts bf16_experts_zero3 OPTIONS ${experts} --mesh dp=2,ep=2 --zero 3 --precision bf16
  SAYS "verify: passed: losses differ by [0-9.e+-]+ relative at most, 4e-03 is allowed")
set(reproducible ${any_batch} --batch 8 --steps 3 --reproducible --verify)
foreach(zero IN ITEMS 0 1 2 3)
  string(REPLACE "_zero0" "" training "reproducible_zero${zero}")
  shardwright_train_gpt_run(
    verify_${training} 0 TRAINING ${training} OPTIONS ${reproducible} --zero ${zero} --mesh pp=2,dp=2,tp=2 --schedule zbh1
    --accumulation 4 --dropout 0.1 SAYS "verify: passed: the same bits in 3 steps, losses, gradients, norms and weights: hash [0-9a-f]+")
endforeach()
set(narrow ${reproducible} --precision bf16 --mesh dp=2,tp=2 --sequence-parallel --tied)
shardwright_train_gpt_run(
  verify_reproducible_bf16 0 TRAINING reproducible_bf16 OPTIONS ${narrow} SAYS "verify: passed: the same bits in 3 steps")
shardwright_train_gpt_run(
  verify_reproducible_bf16_zero3 0 TRAINING reproducible_bf16_zero3 OPTIONS ${narrow} --zero 3
  SAYS "verify: passed: the same bits in 3 steps")
shardwright_train_gpt_run(
  verify_reproducible_ring 0 TRAINING reproducible_ring OPTIONS ${reproducible} --context ring --mesh dp=2,cp=2
  SAYS "verify: passed: the same bits in 3 steps")
shardwright_train_gpt_run(
  verify_reproducible_ring_pack 0 TRAINING reproducible_ring OPTIONS ${reproducible} --context ring --pack --mesh cp=4,tp=2
  --sequence-parallel SAYS "verify: passed: the same bits in 3 steps")
foreach(run IN ITEMS fp32:0 fp32:1 fp32:2 fp32:3 bf16:0 bf16:3)
  string(REPLACE ":" ";" run "${run}")
  list(GET run 0 precision)
  list(GET run 1 zero)
  set(training "reproducible_${precision}_experts_zero${zero}")
  string(REPLACE "_fp32" "" training "${training}")
  string(REPLACE "_zero0" "" training "${training}")
  shardwright_train_gpt_run(
    verify_${training} 0 TRAINING ${training} OPTIONS ${experts} --reproducible --precision ${precision} --zero ${zero}
    --mesh dp=2,ep=2,tp=2 SAYS "verify: passed: the same bits in 3 steps")
endforeach()
shardwright_train_gpt_run(
  reproducible_refused 2 OPTIONS ${tiny} --reproducible --precision fp64
  SAYS "--reproducible is for --precision fp32 or bf16 and --target host, and for adapters beside experts" "leave one of them out")
shardwright_train_gpt_run(
  reproducible_capacity 2 OPTIONS --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --reproducible --capacity 1.5
  SAYS "--reproducible gives the same bits for every --microbatch, but --capacity counts the tokens of each microbatch")
shardwright_train_gpt_run(
  record_hashes_alone 2 OPTIONS ${tiny} --record-hashes hashes.txt
  SAYS "--record-hashes compares runs that have the same bits, but this one is not reproducible .add --reproducible, or leave it out")
set(counted "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_dry_run")
shardwright_train_gpt_run(
  dry_run 0 OPTIONS --dry-run --mesh dp=256,tp=8,pp=8 --rank 0,17 --dry-run-json "${counted}.json"
  SAYS "16384 ranks as dp=256,tp=8,pp=8, model 405b" "  memory at its fullest +rank 0 +rank 17" "largest holders of rank 17"
       "  tp +all_reduce +float32 +128 +64.0 GiB +.*decoder.hpp:" "ranks 0 and 17 make the same [0-9a-z ]+ on world"
       "not compared, as no other rank of the group was run: rank 17, .*[0-9]+ calls on tp"
  FILE "${counted}.json" HOLDS "\"world\": *16384" "\"rank\": *17" "\"flops\"" "\"group\": *\"tp\"" "\"differences\": *\\[\\]")
shardwright_train_gpt_run(
  dry_run_bf16 0 TRAINING bf16_zero3 OPTIONS --dry-run --mesh dp=64,cp=2 --model tiny --batch 64 --zero 3 --precision bf16
  SAYS "  dp,cp gathers +all_gather +bfloat16" "  dp,cp reductions +reduce_scatter +float32")
shardwright_train_gpt_run(
  dry_run_rank 2 OPTIONS --dry-run --mesh dp=2 --rank 5 SAYS "--rank must name ranks from 0 to 1 of the mesh dp=2"
                                                            "give --rank 1")
shardwright_train_gpt_run(dry_run_missing 2 OPTIONS ${tiny} --rank 1 SAYS "--rank is only for dry runs" "add --dry-run, or leave it out")
shardwright_train_gpt_run(
  schedule_does_not_allow 2 OPTIONS ${tiny} --mesh pp=3 --schedule dualpipe
  SAYS "--schedule dualpipe: the number of ranks must be even, but there are 4 microbatches on 3 ranks")
set(timeline "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_timeline")
shardwright_train_gpt_run(
  timeline 0 OPTIONS ${tiny} --steps 2 --mesh pp=2,dp=2 --microbatches 2 --schedule zbh1 --timeline "${timeline}.json"
  SAYS "step 2/2" FILE "${timeline}.json"
  HOLDS "\"traceEvents\":" "\"name\":\"pipeline dp=1, tp=0\"" "\"name\":\"rank 1, stage 1\"" "\"name\":\"W1 s0\"")
shardwright_train_gpt_run(
  timeline_svg 0 OPTIONS ${tiny} --steps 2 --mesh pp=2 --microbatches 4 --timeline-svg "${timeline}.svg"
  SAYS "step 2/2" FILE "${timeline}.svg"
  HOLDS "1F1B: 2 ranks, 4 microbatches, planned and measured</text>" "measured</text>" "time in ms</text>" "</svg>\n$")
shardwright_train_gpt_run(
  timeline_unwritable 0 OPTIONS ${tiny} --steps 1 --mesh pp=2 --timeline /nowhere/run.json
  SAYS "timeline: /nowhere/run.json must be writable.*training continues without it" "validation loss")
set(metrics "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_metrics.jsonl")
shardwright_train_gpt_run(
  metrics 0 OPTIONS ${tiny} --steps 3 --mesh dp=2 --validate-every 2 --metrics "${metrics}" SAYS "step 3/3"
  FILE "${metrics}" HOLDS "\"step\":1[,}].*\"step\":2[,}].*\"step\":3[,}]" "\"validation_loss\":" "\"gradient_norm\":")
shardwright_train_gpt_run(
  patience 0 OPTIONS ${tiny} --steps 9 --mesh dp=2 --lr 1e-30 --validate-every 2 --patience 1 --verify
  SAYS "step 4  ends: the last 1 validations were not below the best.*step 4  validation loss.*verify: passed")
shardwright_train_gpt_run(
  metrics_unwritable 0 OPTIONS ${tiny} --steps 1 --metrics "${CMAKE_CURRENT_LIST_FILE}/run.jsonl"
  SAYS "metrics: .*cannot be opened.*training continues without metrics" "step 1/1" "measured on a rank\n")
if(EXISTS /dev/full)
  shardwright_train_gpt_run(
    metrics_full 0 OPTIONS ${tiny} --steps 2 --metrics /dev/full
    SAYS "metrics: /dev/full cannot be written, No space left on device; training continues without metrics" "step 2/2")
  shardwright_train_gpt_run(
    timeline_full 0 OPTIONS ${tiny} --steps 1 --mesh pp=2 --timeline /dev/full
    SAYS "timeline: /dev/full must be writable, but No space left on device.*training continues without it" "validation loss")
endif()
# TensorBoard itself reads the files of the run, if it is installed.
set(events "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_events")
shardwright_train_gpt_run(
  tensorboard 0 OPTIONS ${tiny} --steps 3 --mesh dp=2 --validate-every 2 --check-replicas 1 --tensorboard "${events}"
  --metrics "${events}/run.jsonl" SAYS "summary: 3 steps in" "communication +[0-9.]+% of the time" "dp all_reduce"
  FRESH "${events}" FILE "${events}/run.jsonl" HOLDS "\"summary\":{" "\"dp all_reduce\":{" "\"process_peak_bytes\":[0-9]")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(SHARDWRIGHT_TENSORBOARD_PYTHON "${Python3_EXECUTABLE}" CACHE FILEPATH "A Python that has TensorBoard, for three tests")
foreach(run IN ITEMS "tensorboard:tensorboard_reads:${events}" "verify_experts:tensorboard_reads_experts:${expert_events}")
  string(REGEX MATCH "(.*):(.*):(.*)" run "${run}")
  set(writer "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${CMAKE_MATCH_1}")
  set(reader "examples.train_gpt.${CMAKE_MATCH_2}")
  set(directory "${CMAKE_MATCH_3}")
  if(TEST "${writer}")
    shardwright_add_check(
      ${reader} LABEL examples
      COMMAND "${SHARDWRIGHT_TENSORBOARD_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/read_tensorboard.py" "${directory}" "${directory}/run.jsonl")
    set_tests_properties("${writer}" PROPERTIES FIXTURES_SETUP "${reader}")
    set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}${reader}" PROPERTIES FIXTURES_REQUIRED "${reader}")
  endif()
endforeach()
shardwright_train_gpt_run(
  tensorboard_unwritable 0 OPTIONS ${tiny} --steps 1 --tensorboard "${CMAKE_CURRENT_LIST_FILE}/runs"
  SAYS "TensorBoard: .*training continues without TensorBoard" "step 1/1")
shardwright_train_gpt_run(
  simulated_link 0 OPTIONS ${tiny} --steps 2 --mesh dp=2 --link-latency 100 --link-bandwidth 0.1
  SAYS "dp reductions all_reduce +[0-9]+ calls, [0-9.]+ [KM]iB: exposed [0-9.]+ ms")
if(NOT "zero1" IN_LIST train_gpt_built)
  list(JOIN TRAIN_GPT_TRAININGS "." names)
  shardwright_train_gpt_run(
    left_out 1 OPTIONS ${tiny} --steps 1 --mesh dp=2 --zero 1
    SAYS "--precision fp32 with --zero 1 was left out \\(to build it, run: cmake -B [^ ]+ -DTRAIN_GPT_TRAININGS=.${names}.zero1. -D")
endif()
if(NOT SHARDWRIGHT_WITH_CUDA)
  shardwright_train_gpt_run(
    no_cuda 1 OPTIONS ${tiny} --steps 1 --target cuda
    SAYS "--target cuda must be compiled in, but this build has no CUDA.*cmake --preset cuda")
endif()
shardwright_train_gpt_run(
  data_missing 1 OPTIONS --data /nowhere/at/all --steps 1 SAYS "train_gpt: Data: /nowhere/at/all must exist")
shardwright_train_gpt_run(
  data_device 1 OPTIONS --data /dev/zero --steps 1 SAYS "/dev/zero: it must be a regular file, not a pipe")
set(data "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_data")
file(WRITE "${data}_empty.txt" "")
string(REPEAT "words " 30 words)
file(WRITE "${data}_short.txt" "${words}")
shardwright_train_gpt_run(
  data_empty 1 OPTIONS --model tiny --batch 4 --data "${data}_empty.txt" SAYS "train_gpt_data_empty.txt: the file is empty")
shardwright_train_gpt_run(
  data_short 1 OPTIONS --model tiny --batch 4 --data "${data}_short.txt" --sequence 128
  SAYS "at least two windows of 129 bytes.*ends in .*train_gpt_data_short.txt at offset 180")
shardwright_train_gpt_run(
  data_of_fewer_samples 1 OPTIONS --model tiny --batch 8 --steps 1 --mesh dp=8 --data "${data}_short.txt" --sequence 32
  SAYS "at least 8 separate windows of 33 bytes, one for each data rank, but it holds [0-9].*train_gpt_data_short.txt at offset 180")
shardwright_train_gpt_run(
  deadline_beyond 2 OPTIONS --deadline 1e10 SAYS "--deadline must be a number above 0 and at most 1e[+]08, but it is '1e10'")
shardwright_train_gpt_run(
  layers_beyond 2 OPTIONS --layers 100000 SAYS "--layers must be a whole number from 1 to 4096, but it is '100000'")
# OpenBLAS would wait forever for the memory of the eighth rank.
if(SHARDWRIGHT_OPENBLAS_LIBRARY AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND TARGET shardwright::blas)
  shardwright_add_check(
    examples.train_gpt.memory_limit LABEL examples
    COMMAND "${CMAKE_COMMAND}"
            "-DCOMMAND=sh|-c|ulimit -v 1500000 && $<TARGET_FILE:train_gpt> --model tiny --batch 8 --steps 1 --mesh dp=8" -DEXIT=1
            "-DSAYS=8 thread ranks must find 1600 MiB of address space for the BLAS, but the process limit of 1464 MiB leaves less" -P
            "${CMAKE_CURRENT_LIST_DIR}/run_check.cmake")
endif()
shardwright_train_gpt_run(
  unknown_option 2 OPTIONS --stepz 4 SAYS "train_gpt: unknown option --stepz; did you mean --steps")
shardwright_train_gpt_run(
  mesh_contradicts_ranks 2 OPTIONS --mesh dp=2,tp=3 --ranks 4
  SAYS "--mesh dp=2,tp=3 is 6 ranks, but --ranks says 4 .give --ranks 6, or a mesh of 4")
shardwright_train_gpt_run(
  heads_do_not_divide 2 OPTIONS ${tiny} --mesh tp=4 SAYS "--kv-heads 2 must be divisible by tp=4 .give --kv-heads 4, or tp=2")
shardwright_train_gpt_run(
  diverges 1 OPTIONS ${tiny} --steps 20 --lr 1e30 --warmup 0 --clip 0 --mesh dp=2
  SAYS "step [0-9]+: loss and gradients must be finite, but not finite [a-z]+ the [a-z0-9 ._]+ on rank")
shardwright_train_gpt_run(
  diverges_skipping 1 OPTIONS ${tiny} --steps 20 --lr 1e30 --warmup 0 --clip 0 --mesh tp=2 --non-finite skip
  SAYS "step [0-9]+  skipped: loss and gradients must be finite" "the last of 10 skipped steps in a row")

# A run that stops and resumes writes bitwise the same files as one that never stopped.
# shardwright_train_gpt_resumed(<name> [TRAINING <name>] [RANKS <n>] OPTIONS <word>... [THEN <word>...]): the resumed run
# has the options THEN, if there are some, in place of OPTIONS.
function(shardwright_train_gpt_resumed name)
  cmake_parse_arguments(run "" "TRAINING;RANKS" "OPTIONS;THEN" ${ARGN})
  if(NOT run_THEN)
    set(run_THEN ${run_OPTIONS})
  endif()
  set(where)
  foreach(word IN ITEMS TRAINING RANKS)
    if(run_${word})
      list(APPEND where ${word} ${run_${word}})
    endif()
  endforeach()
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_${name}")
  set(options ${tiny} --steps 6 ${run_OPTIONS})
  set(prefix "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${name}")
  shardwright_train_gpt_run(${name}_whole 0 ${where} FRESH "${directory}_whole" OPTIONS ${options} --checkpoint "${directory}_whole"
                            --save-every 3 --save-progress 0 SAYS "step 3  saving: [0-9.]+ [KMi]*B of [0-9.]+ [KM]iB, [0-9.]+ [KMG]?i?B/s"
                            "step 3  saved: [0-9.]+ [KM]iB in [0-9.]+ s, [0-9.]+ [KMG]?i?B/s" "step 6  saved: ")
  shardwright_train_gpt_run(${name}_stopped 0 ${where} FRESH "${directory}" OPTIONS ${options} --checkpoint "${directory}" --save-every 2
                            --keep 1 --validate-every 2 --stop-after 3 --export "${directory}/model" FILE "${directory}/model/config.json"
                            HOLDS "\"model_type\"" SAYS "step 3  saved: " "step 2  validation loss" "[0-9.]+ at last\n")
  shardwright_train_gpt_run(${name}_resumed 0 ${where} OPTIONS ${tiny} --steps 6 ${run_THEN} --checkpoint "${directory}" --resume
                            SAYS "resume: from .*step-3, saved on " "step 6/6" "step 6  saved: ")
  if(NOT TEST "${prefix}_whole")
    return()
  endif()
  shardwright_add_check(
    examples.train_gpt.${name}_equal LABEL examples COMMAND checkpoint diff "${directory}_whole/step-6" "${directory}/step-6")
  set_tests_properties("${prefix}_whole" PROPERTIES FIXTURES_SETUP ${name}_whole)
  set_tests_properties("${prefix}_stopped" PROPERTIES FIXTURES_SETUP ${name}_stopped)
  set_tests_properties("${prefix}_resumed" PROPERTIES FIXTURES_REQUIRED ${name}_stopped FIXTURES_SETUP ${name}_resumed)
  set_tests_properties("${prefix}_equal" PROPERTIES FIXTURES_REQUIRED "${name}_whole;${name}_resumed")
endfunction()
shardwright_train_gpt_resumed(saved OPTIONS --mesh pp=2,dp=2 --tied --microbatches 2 --dropout 0.1)
shardwright_train_gpt_resumed(saved_bf16_zero3 TRAINING bf16_zero3 OPTIONS --mesh dp=2,cp=2 --zero 3 --precision bf16)
shardwright_train_gpt_resumed(saved_reproducible TRAINING reproducible OPTIONS --reproducible --mesh pp=2,dp=2 --microbatches 2
                              --schedule zbh1 THEN --reproducible --mesh cp=2,tp=2 --sequence-parallel)
# The checkpoint of the first on another mesh, and with other options.
set(saved "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_saved")
shardwright_train_gpt_run(
  saved_other_mesh 0 OPTIONS ${tiny} --steps 6 --mesh tp=2 --sequence-parallel --tied --dropout 0.1 --checkpoint "${saved}_whole" --resume
  SAYS "resume: from .*step-6, saved on pp=2,dp=2" "resume: all 6 steps of the run are done, so it is only validated"
       "summary: 0 steps in 0 us\n  loss +held out [1-9]" "memory: at most [0-9.]+ [KM]iB measured on a rank\n")
shardwright_train_gpt_run(
  saved_other_options 1 OPTIONS ${tiny} --steps 6 --tied --dropout 0.2 --checkpoint "${saved}_whole" --resume
  SAYS "--resume: .*step-6 must belong to this run, but it was saved with .--dropout 0.1[0-9]*. where this one has .--dropout 0.2[0-9]*. .give")
shardwright_train_gpt_run(
  saved_again 1 OPTIONS ${tiny} --steps 6 --checkpoint "${saved}_whole" SAYS "must not hold a checkpoint when a run begins, but it does .add --resume")
# A run holds its checkpoint's lock, even one that ends with an error.
foreach(name IN ITEMS saved_other_mesh saved_other_options saved_again)
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${name}" PROPERTIES FIXTURES_REQUIRED saved_whole RESOURCE_LOCK saved_whole)
endforeach()
set(experts --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2 --batch 4 --steps 2 --checkpoint "${saved}_experts")
shardwright_train_gpt_run(saved_experts 0 TRAINING experts FRESH "${saved}_experts" OPTIONS ${experts} SAYS "step 2  saved: ")
shardwright_train_gpt_run(
  saved_experts_other 1 TRAINING experts OPTIONS ${experts} --capacity 1.5 --resume
  SAYS "must belong to this run, but it was saved with .--capacity 0. where this one has .--capacity 1.5. .give")
if(TEST "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.saved_experts")
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.saved_experts" PROPERTIES FIXTURES_SETUP saved_experts)
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.saved_experts_other" PROPERTIES FIXTURES_REQUIRED saved_experts)
endif()
# The commands of checkpoint.
function(shardwright_checkpoint_run name exit)
  cmake_parse_arguments(run "" "" "SAYS;OPTIONS" ${ARGN})
  string(REPLACE ";" "|" says "${run_SAYS}")
  string(REPLACE ";" "|" words "${run_OPTIONS}")
  shardwright_add_check(
    examples.checkpoint.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=$<TARGET_FILE:checkpoint>|${words}" -DEXIT=${exit} "-DSAYS=${says}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.checkpoint.${name}" PROPERTIES FIXTURES_REQUIRED saved_whole RESOURCE_LOCK saved_whole)
endfunction()
shardwright_checkpoint_run(
  inspect 0 OPTIONS inspect "${saved}_whole"
  SAYS "step-6: step 6, saved on pp=2,dp=2, configuration [0-9a-f]+" "optimizer steps: 6"
       "layers[.]1[.]mlp[.]down +F32 +.[0-9]+, [0-9]+. +1 +[0-9.]+ KiB +Layout<2" "optimizer/second_moment/layers[.]0" "tensors in 4 parts")
shardwright_checkpoint_run(verify 0 OPTIONS verify "${saved}_whole" SAYS "step-3: whole, [0-9]+ tensors" "step-6: whole, [0-9]+ tensors")
shardwright_checkpoint_run(
  diff 1 OPTIONS diff "${saved}_whole/step-3" "${saved}_whole/step-6" --weights
  SAYS "layers[.]0[.]mlp[.]down: [0-9]+ of [0-9]+ elements differ, by at most [0-9.e+-]+, in the norm by" "differ in [0-9]+ tensors")
shardwright_checkpoint_run(
  reshard 0 OPTIONS reshard "${saved}_whole" "${saved}_whole.safetensors" --weights SAYS "wrote [0-9]+ tensors of .*step-6 into")
shardwright_checkpoint_run(two_paths 2 OPTIONS inspect a b SAYS "inspect takes one path .leave the second one out")
shardwright_checkpoint_run(no_path 2 OPTIONS inspct a SAYS "inspct.*did you mean inspect")
shardwright_checkpoint_run(nothing 1 OPTIONS verify "${CMAKE_CURRENT_LIST_DIR}" SAYS "must be a checkpoint or hold one, but it is neither")
shardwright_train_gpt_run(
  saved_nothing 1 FRESH "${saved}_nothing" OPTIONS ${tiny} --steps 6 --checkpoint "${saved}_nothing" --resume
  SAYS "--resume: .*saved_nothing must hold a complete checkpoint, but it has none .leave --resume out")
shardwright_train_gpt_run(
  saved_nowhere 2 OPTIONS ${tiny} --resume SAYS "--resume belongs to --checkpoint .add --checkpoint DIR, or leave it out")
# Killed in the middle of saves, on threads and, further below, on the processes of mpirun.
function(shardwright_train_gpt_killed name kills)
  shardwright_add_check(
    examples.train_gpt.${name} LABEL examples PROCESSORS 2
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kill_saves.py" ${kills} $<TARGET_FILE:checkpoint>
            "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_${name}" ${ARGN} $<TARGET_FILE:train_gpt> ${tiny} --steps 24 --mesh dp=2,tp=2
            --sequence-parallel)
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${name}" PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endfunction()
shardwright_train_gpt_killed(killed 12)
string(REPLACE ";" "|" endless "${tiny};--steps;1000000;--mesh;dp=2")
foreach(signal IN ITEMS SIGTERM SIGINT)
  shardwright_add_check(
    examples.train_gpt.stopped_by_${signal} LABEL examples PROCESSORS 2
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${Python3_EXECUTABLE}|${CMAKE_CURRENT_LIST_DIR}/stop_signal.py|${signal}|$<TARGET_FILE:train_gpt>|${endless}|--checkpoint|${saved}_${signal}"
            -DEXIT=0 "-DSAYS=saved: " "-DFRESH=${saved}_${signal}" -P "${CMAKE_CURRENT_LIST_DIR}/run_check.cmake")
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.stopped_by_${signal}"
                       PROPERTIES ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endforeach()

if(TARGET shardwright::mpi)
  shardwright_train_gpt_killed(killed_mpi 8 "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} 4 ${MPIEXEC_PREFLAGS})
  set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.killed_mpi" PROPERTIES ENVIRONMENT
                                                                                            "${shardwright_mpi_environment}")
  shardwright_train_gpt_resumed(saved_mpi RANKS 4 OPTIONS --mesh dp=2,tp=2 --sequence-parallel)
  shardwright_train_gpt_run(
    mpi_verify 0 RANKS 4 OPTIONS ${tiny} --steps 6 --mesh dp=2,tp=2 --sequence-parallel --verify
    SAYS "131392 parameters on dp=2,tp=2" "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
  shardwright_train_gpt_run(
    mpi_verify_reproducible 0 RANKS 4 TRAINING reproducible OPTIONS ${tiny} --steps 3 --mesh dp=2,tp=2 --sequence-parallel
    --reproducible --verify SAYS "verify: passed: the same bits in 3 steps")
  shardwright_train_gpt_run(
    mpi_verify_pipeline 0 RANKS 4 OPTIONS ${tiny} --steps 4 --mesh pp=2,tp=2 --schedule zbv --verify
    SAYS "schedule zbv: 4 stages on 2 ranks, 4 microbatches" "verify: passed: losses differ by")
  shardwright_train_gpt_run(
    mpi_verify_experts 0 TRAINING experts RANKS 4 OPTIONS --model moe-tiny --data "${PROJECT_SOURCE_DIR}/include" --validation-batches 2
    --batch 8 --steps 4 --mesh ep=2,tp=2 --microbatches 2 --check-replicas 2 --verify
    SAYS "on ep=2,tp=2" "verify: passed: losses differ by [0-9.e+-]+ relative at most, 1e-04 is allowed")
  shardwright_train_gpt_run(
    mpi_ranks_contradict_mesh 2 RANKS 3 OPTIONS ${tiny} --mesh dp=2,tp=2 SAYS "dp=2,tp=2 is 4 ranks, but the launcher started 3")
  shardwright_train_gpt_run(
    mpi_data_missing 1 RANKS 2 OPTIONS --data /nowhere/at/all --steps 1 SAYS "Data: /nowhere/at/all must exist")
endif()
# A model for other programs, and the commands that cannot start from it.
set(exported "${CMAKE_CURRENT_BINARY_DIR}/train_gpt_exported")
shardwright_train_gpt_run(
  export 0 FRESH "${exported}" OPTIONS ${tiny} --steps 2 --mesh pp=2,tp=2 --export "${exported}" SAYS "step 2/2" FILE "${exported}/config.json"
  HOLDS "\"model_type\": \"llama\"" "\"torch_dtype\": \"float32\"")
# Exported, it has a tokenizer and a template: it is adapted, and asked.
file(REMOVE "${exported}_chats.jsonl")
foreach(number RANGE 11)
  file(APPEND "${exported}_chats.jsonl" "{\"prompt\": \"${number}\", \"completion\": \"x\"}\n")
endforeach()
find_package(ICU QUIET COMPONENTS uc i18n)
if(TARGET ICU::uc)
  shardwright_train_gpt_run(
    finetune 0 PROGRAM finetune TRAINING lora FRESH "${exported}_adapters" OPTIONS --init "${exported}" --data "${exported}_chats.jsonl" --batch 4
    --mesh dp=2 --lora r=2,alpha=4 --lora-targets q_proj,embed_tokens,lm_head --sample-every 2 --export "${exported}_adapters"
    SAYS "memory: at most [0-9.]+ [KM]iB measured on a rank, [+-]0[.]00% from the prediction" "12 documents of [0-9]+ tokens.*template chatml" "step 0  validation loss.*step 0  asked '.*user 9.*assistant', answers '.*, not 'x"
         "step 2  asked.*step 3  validation loss.*step 3  asked" FILE "${exported}_adapters/adapter_config.json" HOLDS "\"r\": 2")
  # Asked, it reads 51 bytes of marks and question, and 32 of a system message of two letters.
  set(chat --model "${exported}" --chat 9)
  shardwright_train_gpt_run(chat 0 PROGRAM generate OPTIONS ${chat} --mesh tp=2 --tokens 2 SAYS "\n")
  shardwright_train_gpt_run(
    chat_too_long 1 PROGRAM generate OPTIONS ${chat} --system Hi --tokens 4000 SAYS "max_position_embeddings, [0-9]+, but they are 4083 tokens")
  # Adapters of the other trainings, against one rank.
  set(runs finetune chat chat_too_long)
  # shardwright_adapters_run(<name> <model> <one rank's training> <allowed> <word>...)
  function(shardwright_adapters_run name model alone allowed)
    set(says "losses differ by [0-9.e+-]+ relative at most, ${allowed} is allowed")
    if(allowed EQUAL 0)
      set(says "the same bits in 3 steps")
    endif()
    shardwright_train_gpt_run(
      verify_${name} 0 PROGRAM finetune TRAINING ${name} ${alone} OPTIONS --init ${model} --data "${exported}_chats.jsonl" --batch 12
      --steps 3 --lr 0.001 --verify ${ARGN} SAYS "verify: passed: ${says}")
  endfunction()
  shardwright_adapters_run(lora_zero3 "${exported}" lora 1e-04 --mesh dp=2,tp=2 --zero 3 --recompute full)
  shardwright_adapters_run(bf16_lora "${exported}" bf16_lora 4e-03 --mesh pp=2,tp=2 --precision bf16)
  shardwright_adapters_run(bf16_lora_zero3 "${exported}" bf16_lora 4e-03 --mesh dp=2,cp=2 --zero 3 --precision bf16)
  foreach(form IN ITEMS nf4 int8)
    set(quantized --quantize-base ${form})
    shardwright_adapters_run(lora_${form} "${exported}" lora_${form} 1e-04 --mesh pp=2,dp=2 ${quantized})
    shardwright_adapters_run(lora_${form}_zero3 "${exported}" lora_${form} 1e-04 --mesh dp=4 --zero 3 ${quantized})
    set(quantized ${quantized} --precision bf16)
    shardwright_adapters_run(bf16_lora_${form} "${exported}" bf16_lora_${form} 4e-03 --mesh pp=2,dp=2 ${quantized})
    shardwright_adapters_run(bf16_lora_${form}_zero3 "${exported}" bf16_lora_${form} 4e-03 --mesh dp=4 --zero 3 ${quantized})
    list(APPEND runs verify_lora_${form} verify_lora_${form}_zero3 verify_bf16_lora_${form} verify_bf16_lora_${form}_zero3)
  endforeach()
  shardwright_adapters_run(reproducible_lora "${exported}" reproducible_lora 0 --reproducible --mesh pp=2,dp=2,tp=2 --pack)
  shardwright_adapters_run(reproducible_bf16_lora_nf4_zero3 "${exported}" reproducible_bf16_lora_nf4_zero3 0 --reproducible --mesh dp=4
                           --zero 3 --precision bf16 --quantize-base nf4)
  list(APPEND runs verify_reproducible_lora verify_reproducible_bf16_lora_nf4_zero3)
  set(with_experts "${CMAKE_CURRENT_BINARY_DIR}/generate_model_experts")
  shardwright_adapters_run(experts_lora "${with_experts}" experts_lora 1e-04 --mesh pp=3,dp=2,tp=2)
  shardwright_adapters_run(experts_lora_zero3 "${with_experts}" experts_lora 1e-04 --mesh dp=2,ep=3 --zero 3)
  shardwright_adapters_run(bf16_experts_lora "${with_experts}" bf16_experts_lora 4e-03 --mesh ep=3,tp=2 --precision bf16)
  if(TARGET examples_test) # which writes the model
    shardwright_train_gpt_run(
      reproducible_experts_lora_zero3 2 PROGRAM finetune OPTIONS --init "${with_experts}" --data chats.jsonl --reproducible --zero 3
      SAYS "and for adapters beside experts with fp32 and --zero 0, in this program .leave one of them out")
  endif()
  foreach(run IN ITEMS verify_experts_lora verify_experts_lora_zero3 verify_bf16_experts_lora reproducible_experts_lora_zero3)
    if(TEST "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${run}")
      set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${run}" PROPERTIES FIXTURES_REQUIRED generate_model)
    endif()
  endforeach()
  foreach(run IN LISTS runs ITEMS verify_lora_zero3 verify_bf16_lora verify_bf16_lora_zero3)
    if(TEST "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${run}")
      set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.${run}" PROPERTIES FIXTURES_REQUIRED train_gpt_exported)
    endif()
  endforeach()
endif()
shardwright_train_gpt_run(
  init_sizes 2 OPTIONS --init "${exported}" --layers 2 SAYS "--layers is determined by the model that --init names")
shardwright_train_gpt_run(
  init_mesh 2 OPTIONS --init "${exported}" --mesh tp=4 SAYS "--init .*: num_key_value_heads 2 must be divisible by tp=4 .give tp=2")
shardwright_train_gpt_run(no_steps 2 OPTIONS ${tiny} --steps 0 SAYS "--steps 0 trains nothing")
set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.export" PROPERTIES FIXTURES_SETUP train_gpt_exported)
set_tests_properties("${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.init_sizes"
                     "${SHARDWRIGHT_TEST_PREFIX}examples.train_gpt.init_mesh"
                     PROPERTIES FIXTURES_REQUIRED train_gpt_exported)
