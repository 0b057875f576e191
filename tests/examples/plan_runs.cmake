# SPDX-License-Identifier: Apache-2.0
# The output of plan, and its messages for wrong input.

# shardwright_plan_run(<name> <exit code> SAYS <regex>... OPTIONS <word>...)
function(shardwright_plan_run name exit)
  cmake_parse_arguments(run "" "" "SAYS;OPTIONS" ${ARGN})
  set(command $<TARGET_FILE:plan> ${run_OPTIONS})
  foreach(list IN ITEMS command run_SAYS)
    string(REPLACE ";" "|" ${list} "${${list}}")
  endforeach()
  shardwright_add_check(
    examples.plan.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=${exit} "-DSAYS=${run_SAYS}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
endfunction()

set(plan_files "${CMAKE_CURRENT_BINARY_DIR}")
shardwright_plan_run(
  deepseek 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M
  SAYS "15360 sequences of 4096 tokens" "plan .*microbatch=" "tokens/s per chip, MFU" "memory  .* of 80 GB: parameters"
       "what binds" "the usual recipe" "decided by" "the best without a pipeline" "where the pipeline ends")
shardwright_plan_run(
  fixed 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --fix tp=8,pp=16,schedule=zbv
  SAYS "plan    tp=8 .*pp=16 .zbv. " "its schedule is in this library, torch.distributed.pipelining and" "took [0-9.]+ s")
shardwright_plan_run(
  faster_recipe 0 OPTIONS --model llama-3.1-8b --cluster h100x64 --sequences 512 --fix pp=16
  SAYS "MFU [^\n]*\n  [0-9.]+ % less time, but less simple, or without what --fix asks for")
shardwright_plan_run(
  second_copies 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --fix schedule=dualpipe,pp=16
  SAYS "DualPipe keeps every stage on two ranks: [0-9.]+ GB of parameters and gradients are second copies"
       "its schedule is in this library and DeepSeek.s DualPipe" "s .what helps: ")
shardwright_plan_run(
  fixed_chunks 0 OPTIONS --model llama-3.1-405b --cluster h100x1024 --sequences 256 --sequence 8192 --fix tp=8,pp=16,chunks=8
  SAYS "plan    tp=8 .*, 8 chunks.")
shardwright_plan_run(
  too_many_chunks 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix chunks=21
  SAYS "--fix chunks=21: chunks must be at most 20")
shardwright_plan_run(
  chunks_of_a_v 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix chunks=8,schedule=zbv
  SAYS "--fix chunks=8: only interleaved schedules have several, but schedule is zbv .take interleaved or interleavedzb")
shardwright_plan_run(
  chunks_of_the_layers 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix pp=8,chunks=5
  SAYS "--fix chunks=5: pp x chunks must be at most the 32 layers of llama-2-7b, its embedding and its output matrix together")
shardwright_plan_run(
  launched 0 OPTIONS --model llama-3.1-8b --cluster h100x64 --sequences 512 --fix tp=2,pp=4,schedule=interleaved,chunks=2,zero=3,recomputation=full
  SAYS "launch  mpirun -n 64 train_gpt --target cuda --mesh pp=4,dp=[0-9,cp=]+,tp=2 --schedule interleaved --chunks 2 --layers 32 .*--zero 3 --sequence-parallel --recompute full")
shardwright_plan_run(
  not_launched 0 OPTIONS --model qwen3-235b-a22b --cluster h100x256 --sequences 2048 --dispatch all-to-all
  SAYS "launch  not by train_gpt of this library: its layers have no experts")
shardwright_plan_run(
  policy 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --recompute save_qkv_proj --fix recomputation=selective
                   --gathered-bytes 1 --reduced-bytes 2 --overlap-tensor --attention unfused
  SAYS "recomputation=attention.norm.act.moe.out_proj.up_proj")
shardwright_plan_run(
  no_policy 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --recompute save_everything
  SAYS "--recompute must list some of .* or name a policy such as save_qkv_proj, but has 'save_everything'")
shardwright_plan_run(
  prime_batch 0 OPTIONS --model llama-3.1-8b --cluster h100x64 --sequences 127
  SAYS "batch   127 sequences and 64 chips: .*\n        128: [0-9.]+ % less time per token, with dp=64 [^\n]*\nlaunch")
shardwright_plan_run(
  few_divisors 0 OPTIONS --model llama-3.1-8b --cluster h100x64 --sequences 1984
  SAYS "batch   1984 sequences have few divisors: 2048 would take [0-9.]+ % less time per token, with dp=64")
shardwright_plan_run(
  json 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --json --fix pp=1
  SAYS "\"pp\": 1,.*\"step_seconds\": [0-9.]+,.*\"bytes\"")
file(WRITE "${plan_files}/small.json"
     "{\"name\": \"small\", \"layers\": 8, \"hidden\": 1024, \"heads\": 8, \"feed_forward\": 4096, \"vocabulary\": 32000}\n")
file(WRITE "${plan_files}/pair.json"
     "{\"chip\": \"h100\", \"domains\": [{\"chips\": 2, \"bandwidth\": 450e9}, {\"chips\": 4, \"bandwidth\": 50e9}]}\n")
shardwright_plan_run(
  own 0 OPTIONS --model "${plan_files}/small.json" --cluster "${plan_files}/pair.json" --sequences 16
  SAYS "small on .*pair.json, 16 sequences")
file(WRITE "${plan_files}/own_chip.json"
     "{\"chip\": {\"name\": \"mine\", \"peak_bf16\": 5e14, \"memory_bytes\": 64e9, \"memory_bandwidth\": 2e12},\n \"domains\": [{\"chips\": 4, \"bandwidth\": 300e9}, {\"chips\": 16, \"bandwidth\": 25e9}]}\n")
shardwright_plan_run(
  own_chip 0 OPTIONS --model llama-2-7b --cluster "${plan_files}/own_chip.json" --sequences 64
  SAYS "of the peak of 500 TFLOP/s in bf16" "memory .* of 64 GB")
file(WRITE "${plan_files}/half_chip.json" "{\"chip\": {\"peak_bf16\": 5e14,\n \"memory_bytes\": 64e9}, \"domains\": []}\n")
shardwright_plan_run(
  half_chip 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/half_chip.json" --sequences 64
  SAYS "half_chip.json, line 1: chip.memory_bandwidth must be given, in FLOP/s, bytes or bytes/s")
shardwright_plan_run(
  batch_and_chips 0 OPTIONS --model llama-3.1-70b --cluster h100x1280 --sequences 2048
  SAYS "batch   2048 sequences and 1280 chips: neither divides the other. the nearest numbers that do:\n        1280: [0-9.]+ % .* time per token, with .*\n        2560: [0-9.]+ % less time per token, with ")
file(WRITE "${plan_files}/wrong.json" "{\"layers\": 8,\n \"hiden\": 1024}\n")
shardwright_plan_run(
  wrong_field 2 OPTIONS --model "${plan_files}/wrong.json" --cluster h100x8 --sequences 8
  SAYS "wrong.json, line 2: hiden is no field here. did you mean hidden")
file(WRITE "${plan_files}/every.json"
     "{\"layers\": 9, \"hidden\": 1024, \"heads\": 8, \"feed_forward\": 4096, \"vocabulary\": 9,\n \"experts\": {\"count\": 8, \"active\": 1, \"width\": 64, \"every\": 2}}\n")
shardwright_plan_run(
  every_second 2 OPTIONS --model "${plan_files}/every.json" --cluster h100x8 --sequences 8
  SAYS "every.json, line 2: every must divide the layers that are not leading dense ones")
file(WRITE "${plan_files}/broken.json" "{\"layers\": 8,\n \"hidden\" 1024}\n")
shardwright_plan_run(
  broken 2 OPTIONS --model "${plan_files}/broken.json" --cluster h100x8 --sequences 8
  SAYS "broken.json, line 2: the file must be JSON")
string(REPEAT "[" 100000 plan_deep)
file(WRITE "${plan_files}/deep.json" "{\"layers\": ${plan_deep}")
shardwright_plan_run(
  deep 2 OPTIONS --model "${plan_files}/deep.json" --cluster h100x8 --sequences 8
  SAYS "deep.json: objects and lists must be nested at most 16 deep")
file(WRITE "${plan_files}/beyond_double.json" "{\"layers\": 8,\n \"hidden\": 1e999}\n")
shardwright_plan_run(
  beyond_double 2 OPTIONS --model "${plan_files}/beyond_double.json" --cluster h100x8 --sequences 8
  SAYS "beyond_double.json, line 2: a number must be within those of a double")
file(WRITE "${plan_files}/twice.json" "{\"layers\": 8, \"layers\": 9}\n")
shardwright_plan_run(
  field_twice 2 OPTIONS --model "${plan_files}/twice.json" --cluster h100x8 --sequences 8
  SAYS "twice.json: an object must name a field once, but 'layers' appears twice")
file(WRITE "${plan_files}/endless.json"
     "{\"layers\": 2000000000, \"hidden\": 1024, \"heads\": 8, \"feed_forward\": 9, \"vocabulary\": 9}\n")
shardwright_plan_run(
  endless 2 OPTIONS --model "${plan_files}/endless.json" --cluster h100x8 --sequences 8
  SAYS "endless.json, line 1: layers must be a whole number from 1 to 100000000")
file(WRITE "${plan_files}/tall.json"
     "{\"layers\": 100000000, \"hidden\": 1024, \"heads\": 8, \"feed_forward\": 9, \"vocabulary\": 9}\n")
shardwright_plan_run(
  tall 1 OPTIONS --model "${plan_files}/tall.json" --cluster h100x8 --sequences 8 SAYS "a chip has too little memory")
shardwright_plan_run(
  missing_model 2 OPTIONS --model /dev/zero.json --cluster h100x8 --sequences 8 SAYS "/dev/zero.json: the file must exist")
shardwright_plan_run(evaluate_device 1 OPTIONS --evaluate /dev/zero SAYS "/dev/zero: it must be a regular file")
shardwright_plan_run(
  too_many_sequences 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 1099511627776 --simulate
  SAYS "--sequences must be a whole number from 1 to 16777216")
shardwright_plan_run(
  too_many_tokens 2 OPTIONS --model llama-2-7b --cluster h100x8 --tokens 900T SAYS "--tokens must be at most 16777216 sequences")
shardwright_plan_run(
  too_long_to_simulate 1 OPTIONS --model llama-3.1-405b --cluster h100x1024 --sequences 1048576 --simulate
  SAYS "there must be at most 2097152 forward passes")
file(WRITE "${plan_files}/empty_domain.json" "{\"chip\": \"h100\", \"domains\": [\n {\"chips\": 0, \"bandwidth\": 1e9}]}\n")
shardwright_plan_run(
  empty_domain 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/empty_domain.json" --sequences 8
  SAYS "empty_domain.json, line 2: domains.chips must be a whole number from 1")
file(WRITE "${plan_files}/second_domain.json"
     "{\"chip\": \"h100\", \"domains\": [\n {\"chips\": 8, \"bandwidth\": 1e9},\n {\"chips\": 12, \"bandwidth\": 1e9}]}\n")
shardwright_plan_run(
  second_domain 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/second_domain.json" --sequences 8
  SAYS "second_domain.json, line 3: domains.chips must be a multiple of those of the domain inside it")
file(WRITE "${plan_files}/unknown_chip.json" "{\"chip\": \"h1000\", \"domains\": []}\n")
shardwright_plan_run(
  unknown_chip 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/unknown_chip.json" --sequences 8
  SAYS "unknown_chip.json, line 1: chip must be of the catalogue, or an object that defines one, but it is 'h1000' .did you mean h100")
file(WRITE "${plan_files}/no_width.json" "{\"layers\": 8, \"hidden\": 1024, \"heads\": 8, \"vocabulary\": 9}\n")
shardwright_plan_run(
  no_width 2 OPTIONS --model "${plan_files}/no_width.json" --cluster h100x8 --sequences 8
  SAYS "no_width.json, line 1: feed_forward must be given")
file(WRITE "${plan_files}/odd_heads.json"
     "{\"layers\": 8, \"hidden\": 1024,\n \"heads\": 7, \"feed_forward\": 9, \"vocabulary\": 9}\n")
shardwright_plan_run(
  odd_heads 2 OPTIONS --model "${plan_files}/odd_heads.json" --cluster h100x8 --sequences 8
  SAYS "odd_heads.json, line 2: heads must divide hidden, unless head_width is given")
shardwright_plan_run(
  sweep_and_drawing 2 OPTIONS --model llama-2-7b --cluster h100x16 --sequences 16 --sweep chips --svg schedule.svg
  SAYS "--sweep prints a table and cannot be combined with --svg")
shardwright_plan_run(
  evaluate_and_model 2 OPTIONS --evaluate runs.csv --model llama-2-7b SAYS "cannot be combined with --model")
shardwright_plan_run(
  unknown_model 2 OPTIONS --model deepseek-v4 --cluster h800x2048 --sequences 8 SAYS "did you mean deepseek-v3")
shardwright_plan_run(
  cluster_of_zero 2 OPTIONS --model llama-2-7b --cluster h100x0 --sequences 8 SAYS "a number above 0")
shardwright_plan_run(
  impossible_batch 1 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix pp=8,schedule=dualpipe
  SAYS "there is no plan .* 8 sequences .* the sequences of a step must divide into dp.* .leave out some of what --fix asks for")
shardwright_plan_run(
  fixed_batch 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 7 --fix dp=8
  SAYS "--fix dp=8: dp must divide the 7 sequences of a step")
shardwright_plan_run(
  batch_at_once 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix dp=8,microbatch=2
  SAYS "--fix: dp and microbatch take 16 sequences at once, which must divide the 8 of a step")
shardwright_plan_run(
  all_extents_fixed 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix tp=2,cp=1,pp=1,dp=2
  SAYS "--fix: tp, cp, pp and dp take 4 chips together, but h100x8 has 8 .leave one of them out")
shardwright_plan_run(
  chip_alone 2 OPTIONS --model llama-2-7b --cluster h100 --sequences 8 SAYS "it is 'h100' .write h100x16 for 16 of these chips")
shardwright_plan_run(
  chip_unknown 2 OPTIONS --model llama-2-7b --cluster h101x16 --sequences 8 SAYS "it is 'h101x16' .for <chip> did you mean h100")
file(WRITE "${plan_files}/slow_domain.json" "{\"chip\": \"h100\", \"domains\": [\n {\"chips\": 8, \"bandwidth\": 450}]}\n")
shardwright_plan_run(
  slow_domain 2 OPTIONS --model llama-2-7b --cluster "${plan_files}/slow_domain.json" --sequences 8
  SAYS "slow_domain.json, line 2: domains.bandwidth must be a number from .* bytes/s .100 Gbit/s are 12.5e9., but it is 450")
shardwright_plan_run(
  no_experts 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --dispatch padded
  SAYS "--dispatch is about experts, but llama-2-7b has none")
shardwright_plan_run(
  flag_with_value 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --simulate=often
  SAYS "--simulate = often cannot be read: a flag takes no value")
shardwright_plan_run(
  no_memory 1 OPTIONS --model deepseek-v3 --cluster h800x8 --sequences 8
  SAYS "a chip has too little memory .80 GB, of which 8 % stay free. the least is [0-9.]+ GB, with ")
shardwright_plan_run(
  bad_fix 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix tq=2 SAYS "--fix has the unknown part 'tq=2'")
shardwright_plan_run(
  evaluate 0 OPTIONS --evaluate "${PROJECT_SOURCE_DIR}/data/published_runs.csv"
  SAYS "predicted [0-9.]+ s, measured [0-9.]+ s" "not compared:" "described in a way that breaks a rule, and not counted:" "would not fit" "by source:" "by chip:" "all: [0-9]+ rows, median error")
file(WRITE "${plan_files}/short.csv" "id,source,model,chip,n_chips\na,b,c,d\n")
shardwright_plan_run(
  short_row 1 OPTIONS --evaluate "${plan_files}/short.csv" SAYS "short.csv: Runs, line 2: there must be 5 cells")
set(plan_own_runs "id,source,model,chip,n_chips,seq_len,global_batch_seqs,tp,pp,step_time_s")
file(WRITE "${plan_files}/own_runs.csv" "${plan_own_runs}\na,b,llama-2-7b,H100-80GB-SXM,8,4096,64,1,1,3\n")
set(plan_measured --model llama-2-7b --cluster h100x8 --sequences 64 --measured)
shardwright_plan_run(
  measured 0 OPTIONS ${plan_measured} "${plan_files}/own_runs.csv"
  SAYS "times are scaled by [0-9.]+, from 1 run of .*own_runs.csv\n" "four of five other runs of one program lie within")
foreach(program IN ITEMS mine NeMo) # with the kernels of attention that the row is assumed to have
  file(WRITE "${plan_files}/own_${program}.csv"
       "${plan_own_runs},zero_stage,microbatch_size,recompute,program\n"
       "a,b,llama-2-7b,H100-80GB-SXM,8,16384,64,8,1,77,1,1,none,${program}\n")
  shardwright_plan_run(
    measured_${program} 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --sequence 16384
    --fix tp=8,pp=1,zero=1,microbatch=1,recomputation=none --measured "${plan_files}/own_${program}.csv"
    SAYS "step    77 s a step")
endforeach()
shardwright_plan_run(
  measured_json 0 OPTIONS ${plan_measured} "${plan_files}/own_runs.csv" --json
  SAYS "\"measured\": {[^}]*\"runs\": 1,[^}]*\"factor\": [0-9.]+")
shardwright_plan_run(
  unknown_program 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --program mine
  SAYS "times are scaled by 1[.][0-9]+, as of programs that are not named\n")
shardwright_plan_run(
  no_program 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64
  SAYS "with a program that was not tuned for its chips: usually [0-9.]+ s, four of five within")
shardwright_plan_run(
  no_program_json 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --json
  SAYS "\"unnamed_program\": {\n *\"step_seconds\": [0-9.]+,"
       "\"bandwidth inside a domain\",\n *\"unit\": \"GB/s\",\n[^{]*},\n *{\n *\"resource\": \"FLOP/s per chip\"")
shardwright_plan_run(
  misspelled_program 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --program nem
  SAYS "--program nem is not known. did you mean nemo")
shardwright_plan_run(
  program_and_simulated 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --program mine --simulate
  SAYS "--program mine scales predicted times and cannot be combined with --simulate")
shardwright_plan_run(
  program_and_measured 2 OPTIONS ${plan_measured} "${plan_files}/own_runs.csv" --program nemo
  SAYS "--measured says how long the program takes: --program must be left out")
file(WRITE "${plan_files}/untimed_runs.csv" "${plan_own_runs}\na,b,llama-2-7b,H100-80GB-SXM,8,4096,64,1,1,\n")
shardwright_plan_run(
  measured_without_a_time 2 OPTIONS ${plan_measured} "${plan_files}/untimed_runs.csv"
  SAYS "untimed_runs.csv: every run must be described and timed so that it can be compared, but 'a' is not: neither a step time")
shardwright_plan_run(
  measured_and_simulated 2 OPTIONS ${plan_measured} "${plan_files}/own_runs.csv" --simulate
  SAYS "--measured scales predicted times and cannot be combined with --simulate")
shardwright_plan_run(
  many_passes 0 OPTIONS --model llama-3.1-405b --cluster gb200x256 --tokens 125.8M
  SAYS "configurations costed, the last candidates simulated")

# Sweeps, and their requirements.
shardwright_plan_run(
  sweep_bandwidth 0 OPTIONS --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --sweep bandwidth --fix schedule=1f1b
  SAYS "over bandwidth between domains" " GB/s +pp +s +MFU % +without +best plan" "\n +50 [*] +[0-9]+ +[0-9.]+ .*pp="
       "no pipeline is needed from [0-9]+ GB/s on\n")
shardwright_plan_run(
  sweep_chips 0 OPTIONS --model gpt3-175b --cluster h100x64 --sequences 1024 --sweep chips
  SAYS "\n +chips +pp" "\n +4 +- .*a chip has too little memory" "\n +64 [*] +[0-9]" "\n1024 +[0-9]" "a pipeline is needed up to the last of them")
shardwright_plan_run(
  sweep_json 0 OPTIONS --model llama-2-7b --cluster h100x64 --sequences 64 --sweep domain --json
  SAYS "\"resource\": \"chips of a domain\"" "\"amount\": 8.0,.*\"mfu_causal\": 0[.][0-9]+")
shardwright_plan_run(
  sweep_one_domain 2 OPTIONS --model kimi-k2 --cluster tpu7x-pod --sequences 18432 --sweep bandwidth
  SAYS "--sweep bandwidth varies the network between domains, but tpu7x-pod is one domain .--sweep scale-up")
shardwright_plan_run(
  sweep_of_what 2 OPTIONS --model kimi-k2 --cluster tpu7x-pod --sequences 18432 --sweep chip SAYS "did you mean chips")
shardwright_plan_run(
  sequences_that_divide 1 OPTIONS --model deepseek-v3 --cluster gb200x2016 --sequences 16384
  SAYS "there is no plan .* 16384 sequences .* must divide .* .16128 sequences do.")
shardwright_plan_run(
  part_of_a_domain 2 OPTIONS --model deepseek-v3 --cluster gb200x1000 --sequences 16384
  SAYS "--cluster gb200x1000: its chips must fill domains of 72, but there are 1000 .take 936 or 1008")
shardwright_plan_run(
  most_of_each_rack 0 OPTIONS --model llama-3.1-405b --cluster gb200x256 --sequences 256 --fix tp=64
  SAYS "plan    tp=64 ")
shardwright_plan_run(
  fix_of_all_chips 2 OPTIONS --model llama-2-7b --cluster h100x16 --sequences 16 --fix tp=8,pp=4
  SAYS "--fix: tp, cp, pp and dp take 32 chips together, which must divide the 16 chips of h100x16")
shardwright_plan_run(
  no_fp8 2 OPTIONS --model llama-2-7b --cluster a100x8 --sequences 8 --precision fp8
  SAYS "--precision fp8: the chip must have it, but A100-80GB-SXM has none .take bf16.")
shardwright_plan_run(
  headroom 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --headroom 0.3 --optimizer-bytes 8 --stack plain
  SAYS "are left free, of which a plan must leave 30" "runners-up, and what they lose:")
shardwright_plan_run(
  reproducible 0 OPTIONS --model llama-2-7b --cluster h100x16 --sequences 64 --reproducible --json
  SAYS "\"gradient\": 8" "its reproducible training runs on hosts")
shardwright_plan_run(
  reproducible_extent 2 OPTIONS --model llama-2-7b --cluster h100x16 --sequences 64 --fix tp=16 --reproducible
  SAYS "--fix tp=16: with --reproducible tp must be 1, 2, 4 or 8")
shardwright_plan_run(
  evaluate_json 0 OPTIONS --evaluate "${PROJECT_SOURCE_DIR}/data/further_runs.csv" --json
  SAYS "\"predicted_seconds\": [0-9.]+" "\"summary\": {")
shardwright_plan_run(
  own_domains 0 OPTIONS --model llama-2-7b --cluster gb200x256 --domain 64 --sequences 256 SAYS "plan    .*dp=")
shardwright_plan_run(
  less_than_a_sequence 2 OPTIONS --model llama-2-7b --cluster h100x8 --tokens 100
  SAYS "--tokens must be at least one sequence of 4096 tokens, but it is 100")
shardwright_plan_run(
  fix_of_the_chips 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix pp=3
  SAYS "--fix pp=3: pp must divide the 8 chips of h100x8")
shardwright_plan_run(
  shard_ranks 0 OPTIONS --model llama-2-7b --cluster h100x64 --sequences 64 --fix zero=3,shard_ranks=8,pp=1
  SAYS "plan    .*ZeRO-3 shard_ranks=8 microbatch=" "it shards over all data-parallel ranks")
shardwright_plan_run(
  shard_ranks_without_zero 2 OPTIONS --model llama-2-7b --cluster h100x64 --sequences 64 --fix shard_ranks=8
  SAYS "--fix shard_ranks=8: without ZeRO nothing is sharded")
shardwright_plan_run(
  shard_ranks_beside_tensors 2 OPTIONS --model llama-2-7b --cluster h100x64 --sequences 64
  --fix zero=3,shard_ranks=16,tp=8 SAYS "--fix shard_ranks=16: shard_ranks must divide the 8 ranks that dp and")
shardwright_plan_run(
  shard_ranks_of_experts 2 OPTIONS --model mixtral-8x7b --cluster h100x64 --sequences 64 --fix zero=3,shard_ranks=8
  SAYS "--fix shard_ranks=8: mixtral-8x7b has experts .leave shard_ranks out.")
shardwright_plan_run(
  fix_of_the_experts 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix ep=2
  SAYS "--fix ep=2: llama-2-7b has no experts .leave ep out.")
shardwright_plan_run(
  fix_of_the_sequences 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --fix microbatch=3
  SAYS "--fix microbatch=3: microbatch must divide the 64 sequences of a step")
shardwright_plan_run(
  fix_twice 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix tp=2,tp=4
  SAYS "--fix has tp twice .name each value once.")
shardwright_plan_run(
  fix_of_a_pipeline 0 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 64 --fix schedule=zbv
  SAYS "schedule=zbv is for a pipeline, and this plan has none" "bandwidth inside a domain: .*\n  FLOP/s per chip")
shardwright_plan_run(
  tokens_and_sequences 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --tokens 4M
  SAYS "either --tokens or --sequences must be given, but not both")
shardwright_plan_run(
  fix_of_the_heads 2 OPTIONS --model gpt-oss-120b --cluster h100x24 --sequences 24 --fix tp=24
  SAYS "--fix tp=24: tp must divide the 64 heads of gpt-oss-120b")
shardwright_plan_run(
  fix_of_the_schedule 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix schedule=zvb SAYS "did you mean zbv")
shardwright_plan_run(
  tokens_of_two 0 OPTIONS --model llama-2-7b --cluster h100x8 --tokens 4Mi SAYS "1024 sequences of 4096 tokens")
shardwright_plan_run(
  settled 0 OPTIONS --model llama-3.1-70b --cluster h100x256 --sequences 512 --fix pp=4 SAYS "pipeline ends:\n  pp is settled")

# The simulated step.
set(plan_simulated --model llama-2-7b --cluster h100x16 --sequences 64 --fix tp=2,pp=4 --simulate)
shardwright_plan_run(
  simulate 0 OPTIONS ${plan_simulated}
  SAYS "simulated step, 16 chips in 4 classes of ranks" "even stages, no shared links +[0-9.]+ s" "who waits longest")
shardwright_plan_run(
  simulate_straggler 0 OPTIONS ${plan_simulated} --straggler rank=5,factor=2 --oversubscription 2 --trace "${plan_files}/step.json"
                               --timeline-svg "${plan_files}/step.svg"
  SAYS "and what was asked for +[0-9.]+ s, .[0-9.]+ %" "a chip that is 2 times as slow" "step.json" "step.svg")
shardwright_plan_run(
  simulate_json 0 OPTIONS ${plan_simulated} --jitter 0.01 --json SAYS "\"simulation\": {.*\"step_seconds\": [0-9.]+")
shardwright_plan_run(
  straggler_unknown 2 OPTIONS ${plan_simulated} --straggler rang=5,factor=2 SAYS "--straggler has the unknown part 'rang=5'")
shardwright_plan_run(
  straggler_fast 2 OPTIONS ${plan_simulated} --straggler rank=5,factor=0.5 SAYS "from 1 to a million after factor=")
shardwright_plan_run(
  straggler_outside 2 OPTIONS ${plan_simulated} --straggler rank=16,factor=2 SAYS "a rank below 16, the chips of h100x16")
shardwright_plan_run(
  trace_alone 2 OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --trace "${plan_files}/none.json"
  SAYS "--trace is about the simulated step: --simulate must be given")
shardwright_plan_run(
  oversubscription_low 2 OPTIONS ${plan_simulated} --oversubscription 0.5 SAYS "must be a number from 1 up")

# shardwright_plan_page(<name> [BROWSER] OPTIONS <word>...): the page of a run and its JSON agree, as the page is
# written; with BROWSER, also as a browser shows it.
function(shardwright_plan_page name)
  cmake_parse_arguments(page "BROWSER" "" "OPTIONS" ${ARGN})
  set(command "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plan_page.py" $<TARGET_FILE:plan>
              $<TARGET_FILE:plan_page>)
  shardwright_add_check(examples.plan.page.${name} LABEL examples COMMAND ${command} ${page_OPTIONS})
  if(page_BROWSER)
    shardwright_add_check(
      examples.plan.page.${name}.browser LABEL examples COMMAND ${command} --browser ${page_OPTIONS})
  endif()
endfunction()

shardwright_plan_page(dense OPTIONS --model llama-3.1-405b --cluster h100x1024 --sequences 250 --sequence 8192)
shardwright_plan_page(experts BROWSER OPTIONS --model qwen3-235b-a22b --cluster h100x256 --sequences 1024)
shardwright_plan_page(one_domain OPTIONS --model llama-2-70b --cluster v5px64 --sequences 256)
shardwright_plan_page(no_memory BROWSER OPTIONS --model deepseek-v3 --cluster h800x64 --sequences 1024)
shardwright_plan_page(measured OPTIONS ${plan_measured} "${plan_files}/own_runs.csv")
shardwright_plan_page(impossible OPTIONS --model llama-2-7b --cluster h100x8 --sequences 8 --fix pp=8,schedule=dualpipe)
file(WRITE "${plan_files}/hostile.json"
     "{\"name\": \"<script>alert('x')</script>&\\\"<b>\", \"layers\": 16, \"hidden\": 2048, \"heads\": 16, \"feed_forward\": 8192, \"vocabulary\": 64000}\n")
shardwright_plan_page(
  hostile_name BROWSER OPTIONS --model "${plan_files}/hostile.json" --cluster h100x32 --sequences 256 --fix pp=4)

# shardwright_plan_page_fails(<name> <command> <regex>): a command that plan_page ends with an error.
function(shardwright_plan_page_fails name command says)
  shardwright_add_check(
    examples.plan.page.${name} LABEL examples
    COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${command}" -DEXIT=1 "-DSAYS=${says}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run_check.cmake")
endfunction()

# shardwright_plan_page_refuses(<name> <text> <regex>): a file that is not a study of plan.
function(shardwright_plan_page_refuses name text says)
  file(WRITE "${plan_files}/${name}.json" "${text}")
  shardwright_plan_page_fails(${name} "$<TARGET_FILE:plan_page>|${plan_files}/${name}.json" "${says}")
endfunction()

# shardwright_plan_page_refuses_edited(<name> <sed script> <regex>): a study that was edited.
function(shardwright_plan_page_refuses_edited name script says)
  set(study "${plan_files}/${name}")
  set(plan "$<TARGET_FILE:plan> --model llama-2-7b --cluster h100x8 --sequences 64 --fix pp=2,schedule=zbv --json")
  shardwright_plan_page_fails(
    ${name}
    "sh|-c|${plan} >'${study}.whole.json' && sed '${script}' '${study}.whole.json' >'${study}.json' && $<TARGET_FILE:plan_page> '${study}.json'"
    "${name}.json: it must be what plan --json prints for a run .${says}")
endfunction()

shardwright_plan_page_refuses(not_json "{\"plan\": " "not_json.json, line 1: the file must be JSON")
shardwright_plan_page_refuses(not_a_study "{\"plan\": 1}" "not_a_study.json: it must be what plan --json prints for a run")
shardwright_plan_page_refuses_edited(
  no_pipeline_ranks "s/\"pp\": 2,/\"pp\": 0,/" "/plan/pp must be at least 1, but it is 0")
shardwright_plan_page_refuses_edited(
  unknown_schedule "s/\"schedule\": \"zbv\"/\"schedule\": \"zvb\"/" "/plan/schedule must name a schedule, but it is 'zvb'")
# 64 MiB and a byte, in a file without blocks.
set(plan_long "${plan_files}/long.json")
shardwright_plan_page_fails(
  long_input "sh|-c|dd of='${plan_long}' bs=1 count=0 seek=67108865 && $<TARGET_FILE:plan_page> <'${plan_long}'"
  "standard input: it must hold at most 67108864 bytes")
