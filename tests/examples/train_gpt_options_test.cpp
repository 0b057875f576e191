// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/schedule/named_schedule.hpp>
#include <train_gpt/options.hpp>
#include <trainer/schedules.hpp>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

namespace {

using namespace shardwright_test;
using train_gpt::Environment;
using train_gpt::MeshAxis;
using train_gpt::Options;
using train_gpt::ParseResult;

const Environment by_hand{std::nullopt, "/sources"};

ParseResult parsed(std::initializer_list<const char*> words, const Environment& environment = by_hand) {
  std::vector<const char*> arguments{"train_gpt"};
  arguments.insert(arguments.end(), words);
  return train_gpt::parse(static_cast<int>(arguments.size()), arguments.data(), environment);
}

Options accepted(std::initializer_list<const char*> words, const Environment& environment = by_hand) {
  const ParseResult result = parsed(words, environment);
  INFO(result.message);
  REQUIRE(result.options);
  CHECK(result.exit_code == 0);
  return *result.options;
}

std::string refused(std::initializer_list<const char*> words, const Environment& environment = by_hand) {
  const ParseResult result = parsed(words, environment);
  REQUIRE_FALSE(result.options);
  CHECK(result.exit_code == 2);
  CHECK(result.message.find('\n') == std::string::npos);
  return result.message;
}

} // namespace

TEST_CASE("options: recomputation is for all layers or for the first ones, and dropout below one") {
  using shardwright::Recompute;
  CHECK(accepted({}).recompute.kind == Recompute::none);
  CHECK(accepted({"--recompute", "selective"}).recompute.of(1000) == Recompute::selective);
  const Options some = accepted({"--recompute", "full:3", "--dropout", "0.25"});
  CHECK(some.recompute.of(2) == Recompute::full);
  CHECK(some.recompute.of(3) == Recompute::none);
  CHECK(some.recompute_text() == "full:3");
  CHECK(some.dropout == 0.25);
  CHECK_THAT(refused({"--recompute", "ful"}),
             ContainsSubstring("none, selective or full, but it is 'ful'; did you mean full?"));
  CHECK_THAT(
      refused({"--recompute", "full:5"}),
      ContainsSubstring(
          "--recompute full:5 must name a number of the model's 4 layers after selective: or full: (give --recompute full:2)"));
  CHECK_THAT(refused({"--recompute", "full:"}), ContainsSubstring("give --recompute full:2"));
  CHECK_THAT(refused({"--recompute", "none:2"}), ContainsSubstring("give --recompute none"));
  CHECK_THAT(refused({"--dropout", "1"}), ContainsSubstring("--dropout 1 must be below 1"));
  CHECK_THAT(refused({"--dropout", "-0.1"}), ContainsSubstring("--dropout must be a number from 0 up"));
}

TEST_CASE("options: by default, one rank trains the small model on this repository") {
  const Options options = accepted({});
  CHECK(options.ranks == 1);
  CHECK(options.mesh == std::vector<MeshAxis>{{"dp", 1}});
  REQUIRE(options.data.size() == 1);
  CHECK(options.data[0] == "/sources");
  CHECK(options.batch == 12);
  CHECK(options.microbatch == 12);
  CHECK(options.accumulation == 1);
  CHECK(options.size.vocabulary == 256);
  CHECK(options.size.d_model == 192);
  CHECK(options.learning_rate > 0);
  CHECK(options.least_learning_rate < options.learning_rate);
  CHECK(options.warmup == 30);
  CHECK_FALSE(options.verify);
}

TEST_CASE("options: every preset is valid on one rank, on dp=2,tp=2 and with sequence parallelism") {
  REQUIRE(train_gpt::presets().size() >= 3);
  for (const auto& preset : train_gpt::presets()) {
    const std::string name(preset.name);
    CHECK(accepted({"--model", name.c_str()}).size == preset.size);
    CHECK(accepted({"--model", name.c_str(), "--mesh", "dp=2,tp=2", "--sequence-parallel"}).extent("tp") ==
          2);
  }
}

TEST_CASE("options: sizes given by hand replace the preset's") {
  const Options options =
      accepted({"--model", "tiny", "--layers", "3", "--d-model", "96", "--heads", "6", "--kv-heads", "3",
                "--hidden", "250", "--sequence", "33", "--tied", "--precision", "fp64"});
  CHECK(options.size == train_gpt::ModelSize{3, 96, 6, 3, 250, 33, 256});
  CHECK(options.tied);
  CHECK(options.precision == train_gpt::Precision::fp64);
}

TEST_CASE("options: several data paths, repeated or in a row") {
  const Options options = accepted({"--data", "a.txt", "b", "--steps", "5", "--data", "c"});
  CHECK(options.data == std::vector<std::filesystem::path>{"a.txt", "b", "c"});
  CHECK(options.steps == 5);
}

TEST_CASE("options: the mesh keeps its order, and determines the number of ranks") {
  const Options options = accepted({"--mesh", "tp=2,dp=3"});
  CHECK(options.mesh == std::vector<MeshAxis>{{"tp", 2}, {"dp", 3}});
  CHECK(options.mesh_text() == "tp=2,dp=3");
  CHECK(options.ranks == 6);
  CHECK(accepted({"--ranks", "4"}).mesh == std::vector<MeshAxis>{{"dp", 4}});
  CHECK(accepted({}, {3, "/sources"}).mesh == std::vector<MeshAxis>{{"dp", 3}});
}

TEST_CASE("options: a pipeline runs the passes of a step as microbatches, as many as there can be") {
  Options options =
      accepted({"--mesh", "pp=2,dp=2,tp=2", "--schedule", "zbv", "--batch", "16", "--microbatches", "8"});
  CHECK(options.extent("pp") == 2);
  CHECK(options.schedule == "zbv");
  CHECK(options.accumulation == 8);
  CHECK(options.microbatch == 1);
  options = accepted({"--mesh", "pp=2,dp=2", "--batch", "12"});
  CHECK(options.schedule == "1f1b");
  CHECK(options.accumulation == 6);
  CHECK(options.microbatch == 1);
  options = accepted({"--mesh", "pp=2", "--microbatch", "3", "--batch", "12"});
  CHECK(options.accumulation == 4);
  for (const std::string& name : shardwright::schedule_names())
    CHECK(trainer::schedule_of(accepted({"--mesh", "pp=4", "--batch", "8", "--schedule", name.c_str()}))
              .ranks() == 4);
  CHECK(trainer::schedule_of(
            accepted({"--mesh", "pp=2", "--batch", "8", "--schedule", "interleaved", "--chunks", "3"}))
            .stages() == 6);
}

TEST_CASE(
    "options: a schedule that does not allow the mesh or the microbatches names the nearest legal numbers") {
  CHECK_THAT(refused({"--schedule", "dualpip"}),
             ContainsSubstring("but it is 'dualpip'; did you mean dualpipe?"));
  CHECK_THAT(refused({"--mesh", "pp=3", "--schedule", "dualpipe"}),
             ContainsSubstring("--schedule dualpipe: the number of ranks must be even") &&
                 ContainsSubstring("2 and 4"));
  CHECK_THAT(refused({"--mesh", "pp=4", "--schedule", "dualpipev", "--batch", "6"}),
             ContainsSubstring(
                 "there are 6 microbatches on 4 ranks (the nearest legal numbers of microbatches are 8"));
  CHECK_THAT(refused({"--mesh", "pp=2", "--chunks", "3"}), ContainsSubstring("give --schedule interleaved"));
  CHECK_THAT(refused({"--mesh", "dp=2", "--schedule", "zbv"}),
             ContainsSubstring("--schedule zbv orders the passes of a pipeline, but the mesh dp=2 has pp=1"));
  CHECK_THAT(refused({"--mesh", "pp=2", "--schedule", "interleaved", "--chunks", "21"}),
             ContainsSubstring("there must be 2 to 20 chunks, but there are 21"));
}

TEST_CASE("options: a custom schedule is read from a file, and proven before anything runs") {
  const Scratch scratch;
  const auto file = [&scratch](const std::string& name, const std::string& text) {
    return scratch.write(name, text).string();
  };
  const std::string sound = file("train_gpt_sound.csv", "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n");
  const Options options = accepted({"--mesh", "pp=2", "--microbatches", "2", "--schedule", sound.c_str()});
  CHECK(trainer::schedule_of(options).microbatches() == 2);
  CHECK_THAT(refused({"--mesh", "pp=2", "--microbatches", "3", "--schedule", sound.c_str()}),
             ContainsSubstring("it is for pp=2 and 2 microbatches, but the run has pp=2 and 3"));
  const std::string lacking = file("train_gpt_lacking.csv", "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n");
  CHECK_THAT(refused({"--mesh", "pp=2", "--microbatches", "2", "--schedule", lacking.c_str()}),
             ContainsSubstring("0B1 is missing on rank 0"));
  const std::string cyclic = file("train_gpt_cyclic.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  CHECK_THAT(refused({"--mesh", "pp=2", "--microbatches", "2", "--schedule", cyclic.c_str()}),
             ContainsSubstring("ranks wait for one another: rank 0") &&
                 ContainsSubstring("rank 1 at step 0"));
  const std::string garbled = file("train_gpt_garbled.csv", "0F0,0X0\n1F0,1B0\n");
  CHECK_THAT(refused({"--mesh", "pp=2", "--microbatches", "1", "--schedule", garbled.c_str()}),
             ContainsSubstring("line 1, cell 2 is '0X0'"));
  CHECK_THAT(refused({"--mesh", "pp=2", "--schedule", "/nowhere.csv"}),
             ContainsSubstring("must be readable"));
}

TEST_CASE("options: a ring works where all-to-all has too few heads, and says what it needs") {
  CHECK_FALSE(accepted({"--mesh", "cp=2"}).ring);
  CHECK(accepted({"--mesh", "cp=2", "--context", "ring"}).ring);
  CHECK(accepted({"--mesh", "cp=4", "--kv-heads", "1", "--context", "ring"}).ring);
  CHECK_THAT(refused({"--mesh", "cp=4", "--kv-heads", "1"}),
             ContainsSubstring(
                 "--kv-heads 1 must be divisible by tp x cp=4 (give --kv-heads 4, or --context ring)"));
  CHECK_THAT(refused({"--mesh", "cp=4", "--sequence", "36", "--context", "ring"}),
             ContainsSubstring("--sequence 36 must be divisible by 2 x cp=8 (give --sequence 32 or 40)"));
  CHECK_THAT(refused({"--mesh", "dp=2", "--context", "ring"}), ContainsSubstring("--mesh cp=2"));
  CHECK_THAT(refused({"--mesh", "cp=2", "--context", "ring", "--zero", "1"}),
             ContainsSubstring("give --context all-to-all"));
  CHECK_THAT(refused({"--mesh", "cp=2,tp=2", "--context", "ring"}),
             ContainsSubstring("--context ring needs --sequence-parallel with tp=2"));
}

TEST_CASE("options: experts have a separate axis, which splits the batch, and sizes that must fit") {
  const Options options = accepted({"--model", "moe-small", "--mesh", "dp=2,ep=2,tp=2,pp=2"});
  CHECK(options.ranks == 16);
  CHECK(options.data_ranks() == 4);
  CHECK(options.sequence_parallel);
  CHECK(options.accumulation == 3);
  CHECK(options.wide_axes() == "pp,dp,ep,tp");
  CHECK_FALSE(accepted({"--model", "moe-small", "--mesh", "ep=4"}).sequence_parallel);
  const Options more = accepted({"--model", "moe-tiny", "--experts", "16", "--chosen", "4", "--expert-hidden",
                                 "32", "--dense-layers", "0", "--capacity", "1.25"});
  CHECK(more.size == train_gpt::ModelSize{2, 64, 4, 2, 192, 64, 256, 16, 4, 32, 0});
  CHECK(more.capacity == 1.25);
  CHECK(more.configuration_text() != accepted({"--model", "moe-tiny"}).configuration_text());

  CHECK_THAT(
      refused({"--mesh", "ep=2"}),
      ContainsSubstring(
          "--mesh ep=2 has ep for experts, but --model small has none (give --model moe-small, or dp in place of ep)"));
  CHECK_THAT(refused({"--experts", "4"}), ContainsSubstring("--experts is for a model with experts, but"));
  CHECK_THAT(refused({"--capacity", "1"}), ContainsSubstring("--capacity is for a model with experts"));
  CHECK_THAT(refused({"--model", "moe-tiny", "--chosen", "5"}), ContainsSubstring("give --chosen 4 or less"));
  CHECK_THAT(
      refused({"--model", "moe-tiny", "--dense-layers", "2"}),
      ContainsSubstring("--dense-layers 2 must be fewer than --layers 2 (give --dense-layers 1 or less)"));
  CHECK_THAT(
      refused({"--model", "moe-tiny", "--precision", "fp64"}),
      ContainsSubstring("which this program trains with --precision fp32, or bf16 with --zero 0 or 3"));
  CHECK(accepted({"--model", "moe-tiny", "--mesh", "dp=2", "--zero", "2"}).kind().experts);
  CHECK(
      accepted({"--model", "moe-tiny", "--mesh", "dp=2", "--zero", "3", "--precision", "bf16"}).kind().zero ==
      3);
  CHECK_THAT(refused({"--model", "moe-tiny", "--mesh", "dp=2", "--zero", "1", "--precision", "bf16"}),
             ContainsSubstring("or bf16 with --zero 0 or 3"));
  CHECK_THAT(refused({"--model", "moe-tiny", "--mesh", "dp=2,ep=2", "--batch", "6"}),
             ContainsSubstring("must be divisible by dp x ep=4"));
}

TEST_CASE("options: an invalid mesh is rejected") {
  CHECK_THAT(refused({"--mesh", "dp=2,tq=2"}), ContainsSubstring("unknown axis 'tq'; did you mean tp?"));
  CHECK_THAT(refused({"--mesh", "dp=2,dp=2"}), ContainsSubstring("names the axis dp twice"));
  CHECK_THAT(refused({"--mesh", "dp=0"}), ContainsSubstring("at least 1, but has dp=0"));
  CHECK_THAT(refused({"--mesh", "tp=-4"}), ContainsSubstring("at least 1, but has tp=-4"));
  CHECK_THAT(refused({"--mesh", "dp=99999999999999999999"}), ContainsSubstring("more than 2147483647 ranks"));
  CHECK_THAT(refused({"--mesh", "dp=65536,tp=65536"}), ContainsSubstring("more than 2147483647 ranks"));
  CHECK_THAT(refused({"--mesh", "dp"}), ContainsSubstring("whole number after dp="));
  CHECK_THAT(refused({"--mesh", "dp=two"}), ContainsSubstring("but has 'two'"));
  CHECK_THAT(refused({"--mesh", "dp=2,"}), ContainsSubstring("must not end empty"));
  CHECK_THAT(refused({"--mesh", "=2"}), ContainsSubstring("without a name"));
}

TEST_CASE("options: if mesh and ranks disagree, the error names the product and meshes that fit") {
  CHECK_THAT(refused({"--ranks", "3", "--mesh", "dp=2,tp=2"}),
             ContainsSubstring("--mesh dp=2,tp=2 is 4 ranks, but --ranks says 3") &&
                 ContainsSubstring("give --ranks 4, or a mesh of 3 such as dp=3,tp=1 or dp=1,tp=3"));
  CHECK_THAT(refused({"--mesh", "dp=2"}, {4, ""}),
             ContainsSubstring("the launcher started 4") && ContainsSubstring("dp=2,tp=2"));
  CHECK_THAT(refused({"--ranks", "2"}, {4, ""}),
             ContainsSubstring("--ranks says 2, but the launcher started 4"));
  CHECK_THAT(refused({"--transport", "threads"}, {4, ""}),
             ContainsSubstring("the launcher started 4 processes"));
  CHECK_THAT(refused({"--transport", "mpi", "--mesh", "dp=2"}), ContainsSubstring("mpirun -n 2"));
}

TEST_CASE("options: the error about an unknown option suggests the nearest one") {
  CHECK_THAT(refused({"--stpes", "3"}), ContainsSubstring("unknown option --stpes; did you mean --steps?"));
  CHECK_THAT(refused({"--stpes=3"}), ContainsSubstring("unknown option --stpes; did you mean --steps?"));
  CHECK_THAT(refused({"--kvheads", "3"}), ContainsSubstring("did you mean --kv-heads?"));
  CHECK_THAT(refused({"--zzzzzzzzz"}),
             ContainsSubstring("unknown option --zzzzzzzzz") && !ContainsSubstring("did you mean"));
  CHECK_THAT(refused({"book.txt"}), ContainsSubstring("--data book.txt"));
}

TEST_CASE("options: 16-bit precisions are limited to those that the program is compiled for") {
  CHECK(accepted({"--precision", "bf16"}).precision == train_gpt::Precision::bf16);
  CHECK(accepted({"--precision", "fp16", "--mesh", "dp=2"}).precision == train_gpt::Precision::fp16);
  CHECK(accepted({"--precision", "bf16", "--zero", "3", "--mesh", "dp=2,tp=2", "--sequence-parallel"}).zero ==
        3);
  CHECK_THAT(refused({"--precision", "bf16", "--zero", "1"}),
             ContainsSubstring("--zero 1 is for --precision fp32 in this program, but bf16 was given"));
  CHECK_THAT(refused({"--precision", "fp16", "--zero", "3"}),
             ContainsSubstring("--zero 3 is for --precision fp32 or bf16 in this program, but fp16"));
  CHECK_THAT(refused({"--precision", "bf16", "--mesh", "tp=2"}),
             ContainsSubstring("--precision bf16 needs --sequence-parallel with tp=2"));
}

TEST_CASE("options: invalid values are rejected with the option and the value") {
  CHECK_THAT(refused({"--steps"}), ContainsSubstring("--steps needs exactly one value"));
  CHECK_THAT(refused({"--steps", "3", "--steps", "4"}), ContainsSubstring("--steps needs exactly one value"));
  CHECK_THAT(refused({"--data"}), ContainsSubstring("--data needs at least one path"));
  for (const char* word : {"abc", "-3", "1e3", "3.5", "99999999999999999999", ""})
    CHECK_THAT(refused({"--steps", word}), ContainsSubstring("--steps must be a whole number from 0 to") &&
                                               ContainsSubstring("'" + std::string(word) + "'"));
  for (const char* word : {"nan", "inf", "0", "-1", "1x", "1e999"})
    CHECK_THAT(refused({"--lr", word}), ContainsSubstring("--lr must be a number above 0"));
  CHECK_THAT(refused({"--precision", "fp8"}), ContainsSubstring("fp32, fp64, bf16 or fp16, but it is 'fp8'"));
  CHECK_THAT(refused({"--model", "smal"}), ContainsSubstring("did you mean small?"));
  CHECK(accepted({"--seed", "18446744073709551615"}).seed == 18446744073709551615ULL);
  CHECK(accepted({"--lr", "1e-3"}).learning_rate == 1e-3);
}

TEST_CASE("options: if sizes do not divide, the error names both numbers and the nearest that do") {
  CHECK_THAT(refused({"--mesh", "tp=4", "--heads", "6"}),
             ContainsSubstring("--heads 6 must be divisible by tp=4") &&
                 ContainsSubstring("--heads 4 or 8, or tp=3"));
  CHECK_THAT(refused({"--mesh", "tp=4", "--model", "tiny"}),
             ContainsSubstring("--kv-heads 2 must be divisible by tp=4"));
  CHECK_THAT(refused({"--heads", "5"}), ContainsSubstring("--d-model 192 must be divisible by --heads 5") &&
                                            ContainsSubstring("--d-model 190 or 195"));
  CHECK_THAT(refused({"--d-model", "198", "--heads", "6"}), ContainsSubstring("heads of 33"));
  CHECK_THAT(refused({"--kv-heads", "4"}), ContainsSubstring("--heads 6 must be divisible by --kv-heads 4"));
  // The hidden dimension and the vocabulary are divided as evenly as possible.
  CHECK(accepted({"--mesh", "tp=3", "--kv-heads", "3", "--hidden", "511", "--vocabulary", "257"})
            .size.vocabulary == 257);
}

TEST_CASE("options: the batch is dp x microbatch x accumulation") {
  Options options = accepted({"--mesh", "dp=2", "--batch", "24", "--microbatch", "3"});
  CHECK(options.accumulation == 4);
  options = accepted({"--mesh", "dp=2", "--batch", "24", "--accumulation", "3"});
  CHECK(options.microbatch == 4);
  options = accepted({"--mesh", "dp=2", "--microbatch", "5", "--accumulation", "3"});
  CHECK(options.batch == 30);
  CHECK_THAT(refused({"--mesh", "dp=5"}),
             ContainsSubstring("--batch 12, the default, must be divisible by dp=5") &&
                 ContainsSubstring("--batch 10 or 15"));
  CHECK_THAT(refused({"--batch", "8", "--microbatch", "3"}),
             ContainsSubstring("--batch 8 must be divisible by dp=1 x --microbatch 3 = 3"));
  CHECK_THAT(refused({"--batch", "8", "--microbatch", "2", "--accumulation", "3"}),
             ContainsSubstring("must be dp=1 x --microbatch 2 x --accumulation 3 = 6") &&
                 ContainsSubstring("--batch 6"));
  CHECK_THAT(refused({"--microbatch", "1000000", "--accumulation", "1000000"}),
             ContainsSubstring("not be more than 2147483647"));
}

TEST_CASE("options: contradictions are named") {
  CHECK_THAT(refused({"--sequence-parallel", "--ranks", "4"}), ContainsSubstring("--sequence-parallel") &&
                                                                   ContainsSubstring("tp=1") &&
                                                                   ContainsSubstring("--mesh dp=1,tp=4"));
  CHECK_THAT(refused({"--mesh", "tp=2", "--sequence-parallel", "--sequence", "65"}),
             ContainsSubstring("--sequence 65 must be divisible by tp=2"));
  CHECK_THAT(refused({"--prompt", "once"}), ContainsSubstring("add --sample 200"));
  CHECK_THAT(refused({"--lr", "1e-3", "--min-lr", "1e-2"}),
             ContainsSubstring("--min-lr 0.01 must not be above"));
  CHECK_THAT(refused({"--steps", "10", "--warmup", "11"}),
             ContainsSubstring("--warmup 11 must not be longer than the run, which has 10 steps"));
  CHECK_THAT(refused({"--patience", "2"}), ContainsSubstring("add --validate-every 50, or leave it out"));
  CHECK(accepted({"--patience", "2", "--validate-every", "5"}).patience == 2);
}

TEST_CASE("options: the help explains every option and exits with code 0") {
  const ParseResult result = parsed({"--help"});
  CHECK_FALSE(result.options);
  CHECK(result.exit_code == 0);
  for (const char* part : {"--data",           "--mesh",
                           "--ranks",          "--transport",
                           "--deadline",       "--model",
                           "--layers",         "--d-model",
                           "--heads",          "--kv-heads",
                           "--hidden",         "--sequence",
                           "--vocabulary",     "--tied",
                           "--precision",      "--sequence-parallel",
                           "--recompute",      "--dropout",
                           "--batch",          "--microbatch",
                           "--accumulation",   "--steps",
                           "--seed",           "--lr",
                           "--warmup",         "--min-lr",
                           "--weight-decay",   "--clip",
                           "--validate-every", "--validation-batches",
                           "--sample",         "--temperature",
                           "--prompt",         "--metrics",
                           "--tensorboard",    "--non-finite",
                           "--check-replicas", "--link-latency",
                           "--verify",         "Default: 300",
                           "Default: small",   "Examples:",
                           "mpirun -n 4"})
    CHECK_THAT(result.message, ContainsSubstring(part));
  std::size_t longest = 0, begin = 0;
  for (std::size_t end = 0; (end = result.message.find('\n', begin)) != std::string::npos; begin = end + 1)
    longest = std::max(longest, end - begin);
  CHECK(longest <= 100);
  CHECK(parsed({"--verify", "-h"}).exit_code == 0);
}

TEST_CASE("options: the configuration text contains the settings that must agree, and only those") {
  const std::string text = accepted({}).configuration_text();
  CHECK(accepted({"--seed", "2"}).configuration_text() != text);
  CHECK(accepted({"--lr", "0.5"}).configuration_text() != text);
  CHECK(accepted({"--steps", "299", "--warmup", "30"}).configuration_text() != text);
  const std::string all = accepted({"--recompute", "full"}).configuration_text();
  const std::string three = accepted({"--recompute", "full:3"}).configuration_text();
  CHECK((all != text && three != all));
  CHECK(accepted({"--recompute", "full:2"}).configuration_text() != three);
  CHECK(accepted({"--recompute", "full:4"}).configuration_text() == all); // of 4 layers
  CHECK(accepted({"--non-finite", "skip"}).configuration_text() != text);
  CHECK(accepted({"--check-replicas", "5"}).configuration_text() != text);
  CHECK(accepted({"--metrics", "here.jsonl"}).configuration_text() == text);
  CHECK(accepted({"--tensorboard", "runs"}).configuration_text() == text);
}

TEST_CASE("options: a link is given in microseconds and gigabytes per second, and invalid values are named") {
  const Options options = accepted(
      {"--link-latency", "50", "--link-bandwidth", "2.5", "--non-finite", "skip", "--mesh", "tp=2,dp=1"});
  CHECK(options.link.latency_seconds == Approx(5e-5));
  CHECK(options.link.bytes_per_second == 2.5e9);
  CHECK(options.non_finite == shardwright::NonFinite::skip);
  CHECK(options.wide_axes() == "tp");
  CHECK(accepted({"--mesh", "tp=2,dp=2,pp=1"}).wide_axes() == "dp,tp");
  CHECK_THAT(refused({"--non-finite", "ignore"}), ContainsSubstring("--non-finite"));
  CHECK_THAT(refused({"--link-latency", "-1"}), ContainsSubstring("--link-latency"));
}

TEST_CASE("options: a GPU supports the trainings that are compiled for it") {
  CHECK(accepted({}).target == train_gpt::Device::host);
  const Options options = accepted({"--target", "cuda", "--precision", "bf16", "--zero", "3", "--cuda-graph",
                                    "--model", "gpt2", "--tied", "--mesh", "dp=2"});
  CHECK(options.target == train_gpt::Device::cuda);
  CHECK(options.cuda_graph);
  CHECK(options.size == train_gpt::ModelSize{12, 768, 12, 12, 2048, 1024, 50304});
  CHECK(options.configuration_text() != accepted({}).configuration_text());
  CHECK_THAT(refused({"--target", "gpu"}), ContainsSubstring("--target"));
  CHECK_THAT(refused({"--cuda-graph"}), ContainsSubstring("add --target cuda"));
  CHECK(options.gpus == 1);
  CHECK(accepted({"--target", "cuda", "--gpus", "2", "--mesh", "dp=4"}).gpus == 2);
  CHECK_THAT(refused({"--gpus", "2"}), ContainsSubstring("add --target cuda"));
  CHECK_THAT(refused({"--target", "cuda", "--precision", "fp64"}),
             ContainsSubstring("--target cuda is for --precision fp32 with --zero 0, or bf16"));
  CHECK_THAT(refused({"--target", "cuda", "--mesh", "dp=2", "--zero", "1"}),
             ContainsSubstring("--target cuda is for"));
  CHECK_THAT(refused({"--target", "cuda", "--mesh", "tp=2"}),
             ContainsSubstring("--target cuda needs --sequence-parallel with tp=2"));
  CHECK_THAT(refused({"--target", "cuda", "--cuda-graph", "--dropout", "0.1"}),
             ContainsSubstring("--cuda-graph replays one step, but --dropout 0.1"));
  CHECK(accepted({"--target", "cuda", "--pack"}).pack);
  CHECK(accepted({"--pack"}).continued_text(1) != accepted({}).continued_text(1));
}

TEST_CASE("options: checkpoints and exports are not inside the data") {
  for (const char* name : {"--checkpoint", "--export"}) {
    for (const char* inside : {"notes/run", "notes/../notes/a/b", "./notes", "notes/"})
      CHECK_THAT(
          refused({"--data", "books", "notes/", name, inside}),
          ContainsSubstring(std::string(name) + " " + inside + " must not be inside --data notes/, ") &&
              ContainsSubstring(std::string("(give ") + name + " a directory outside it)"));
    for (const char* outside : {"run", "notes2", "notes/../run", "books.run", "../notes/run"})
      CHECK(accepted({"--data", "books", "notes/", name, outside}).data.size() == 2);
  }
  CHECK(accepted({"--checkpoint", "/sources/run"}).checkpoint.on()); // the default data: this repository
}

TEST_CASE("options: options of checkpoints need a directory") {
  CHECK_FALSE(accepted({}).checkpoint.on());
  const Options options = accepted({"--checkpoint", "run", "--save-every", "5", "--keep", "3", "--resume",
                                    "--save-progress", "0", "--stop-limit", "2.5"});
  CHECK((options.checkpoint.on() && options.checkpoint.directory == "run" && options.checkpoint.resume));
  CHECK((options.checkpoint.every == 5 && options.checkpoint.keep == 3));
  CHECK((options.checkpoint.progress_seconds == 0 && options.checkpoint.stop_limit_seconds == 2.5));
  CHECK(options.configuration_text() != accepted({}).configuration_text());
  for (const char* name : {"--save-every", "--keep", "--stop-after", "--save-progress", "--stop-limit"})
    CHECK_THAT(refused({name, "2"}),
               ContainsSubstring(std::string(name) + " belongs to --checkpoint (add --checkpoint DIR"));
  CHECK_THAT(refused({"--checkpoint", "run", "--keep", "0"}), ContainsSubstring("--keep"));
  CHECK_THAT(refused({"--checkpoint", "run", "--resume", "--verify"}),
             ContainsSubstring("--verify repeats a whole run, which --resume and --stop-after are not"));
}
