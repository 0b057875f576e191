// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder/config.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/nn/decoder/moe_config.hpp>

#include <cstdint>
#include <string>

namespace {

using namespace shardwright;
using shardwright_test::ContainsSubstring;
using shardwright_test::failure_of;

/// The sentence about a changed configuration on `tensor_ranks` ranks.
template <class Change>
std::string sentence(std::int64_t tensor_ranks, bool sequence_parallel, Change change) {
  DecoderConfig config; // width 128, 4 heads and kv heads, hidden 384, vocabulary 256, sequence 128
  change(config);
  try {
    check_decoder(config, tensor_ranks, sequence_parallel);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "fits";
}

/// arXiv 2412.19437, section 4.2.
MoeConfig deepseek_v3() {
  MoeConfig out;
  out.layers = 61, out.width = 7168, out.heads = out.kv_heads = 128, out.head_elements = 64;
  out.hidden = 18432, out.vocabulary = 129280, out.sequence = 4096, out.dense_layers = 3;
  out.experts = 256, out.expert_hidden = out.shared_hidden = 2048, out.routing.chosen = 8;
  out.batch_sequences = 1;
  out.latent = LatentAttentionSizes{
      .query_rank = 1536, .key_value_rank = 512, .plain_width = 128, .rotary_width = 64, .value_width = 128};
  return out;
}

} // namespace

TEST_CASE("sizes that fit one another and the mesh pass") {
  CHECK(sentence(1, true, [](DecoderConfig&) {}) == "fits");
  CHECK(sentence(4, true, [](DecoderConfig&) {}) == "fits");
  CHECK(sentence(4, false, [](DecoderConfig& config) { config.sequence = 127; }) == "fits");
  CHECK(sentence(2, false, [](DecoderConfig& config) { config.kv_heads = 2; }) == "fits");
  CHECK(sentence(4, true, [](DecoderConfig& config) {
          config.width = 130;
          config.head_elements = 64;
        }) == "fits");
}

TEST_CASE("published models have the stated numbers of parameters") {
  DecoderConfig qwen2; // 0.5B
  qwen2.layers = 24, qwen2.width = 896, qwen2.heads = 14, qwen2.kv_heads = 2, qwen2.hidden = 4864;
  qwen2.vocabulary = 151936, qwen2.tied_embedding = true, qwen2.qkv_bias = true;
  CHECK(qwen2.parameters() == 494'032'768);
  DecoderConfig qwen3; // 0.6B
  qwen3.layers = 28, qwen3.width = 1024, qwen3.heads = 16, qwen3.kv_heads = 8, qwen3.hidden = 3072;
  qwen3.vocabulary = 151936, qwen3.tied_embedding = true, qwen3.head_norms = true, qwen3.head_elements = 128;
  CHECK(qwen3.parameters() == 596'049'920);
  CHECK(deepseek_v3().parameters() == 671'026'404'352);
}

TEST_CASE("sizes that do not fit are errors with both numbers and a fix") {
  const auto check = [](std::int64_t ranks, auto change, const std::string& part) {
    CHECK_THAT(sentence(ranks, true, change), ContainsSubstring(part));
  };
  check(
      1, [](DecoderConfig& config) { config.width = 130; }, "width 130 must be a multiple of heads 4");
  check(
      1, [](DecoderConfig& config) { config.kv_heads = 3; }, "heads 4 must be a multiple of kv_heads 3");
  check(
      1, [](DecoderConfig& config) { config.width = 132; }, "width / heads = 33 must be even");
  check(
      1, [](DecoderConfig& config) { config.head_elements = 33; }, "head_elements = 33 must be even");
  check(
      1, [](DecoderConfig& config) { config.head_elements = -2; }, "head_elements must be at least 1");
  check(
      3, [](DecoderConfig&) {}, "kv_heads 4 must be a multiple of the tensor-parallel ranks, tp = 3");
  check(
      3, [](DecoderConfig&) {}, "split tp into two axes");
  check(
      2, [](DecoderConfig& config) { config.sequence = 127; },
      "sequence 127 must be a multiple of the tensor-parallel ranks under sequence parallelism, tp = 2");
}

TEST_CASE("sizes split over context ranks must divide evenly, as each form requires") {
  const auto check = [](const ContextExtents& context, bool sequence_parallel, auto change) {
    DecoderConfig config;
    change(config);
    try {
      check_decoder(config, 2, sequence_parallel, context);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("fits");
  };
  const auto nothing = [](DecoderConfig&) {};
  const auto short_sequence = [](DecoderConfig& config) { config.sequence = 6; };
  CHECK(check(AllToAllContext::extents(2), true, nothing) == "fits");
  CHECK(check(AllToAllContext::extents(2), false, short_sequence) == "fits");
  CHECK(check(RingContext::extents(4), true, nothing) == "fits");
  CHECK_THAT(check(AllToAllContext::extents(4), false, nothing),
             ContainsSubstring(
                 "kv_heads 4 must be a multiple of the tensor times context-parallel ranks, tp * cp = 8"));
  CHECK_THAT(check(RingContext::extents(2), false, short_sequence),
             ContainsSubstring("sequence 6 must be a multiple of twice the context-parallel ranks"));
  CHECK_THAT(
      check(AllToAllContext::extents(2), true, short_sequence),
      ContainsSubstring("sequence of a context rank 3 must be a multiple of the tensor-parallel ranks"));
}

TEST_CASE("sizes below one are errors that name them") {
  const auto check = [](auto change, const std::string& part) {
    CHECK_THAT(sentence(1, false, change), ContainsSubstring(part));
  };
  check([](DecoderConfig& config) { config.layers = 0; }, "layers must be at least 1, but is 0");
  check([](DecoderConfig& config) { config.width = 0; }, "width must be at least 1, but is 0");
  check([](DecoderConfig& config) { config.heads = -1; }, "heads must be at least 1, but is -1");
  check([](DecoderConfig& config) { config.kv_heads = 0; }, "kv_heads must be at least 1, but is 0");
  check([](DecoderConfig& config) { config.hidden = 0; }, "hidden must be at least 1, but is 0");
  check([](DecoderConfig& config) { config.vocabulary = 0; }, "vocabulary must be at least 1, but is 0");
  check([](DecoderConfig& config) { config.sequence = 0; }, "sequence must be at least 1, but is 0");
}

TEST_CASE("parameters and operations agree with counts by hand") {
  DecoderConfig config;
  config.layers = 3;
  config.width = 8;
  config.heads = 4;
  config.kv_heads = 2;
  config.hidden = 12;
  config.vocabulary = 10;
  config.sequence = 16;
  // A layer: qkv 8 x (4 + 2 + 2) x 2, out 8 x 8, gate and up 2 x 8 x 12, down 12 x 8, two gains of 8.
  const std::int64_t matrices = 8 * 16 + 64 + 192 + 96;
  CHECK(config.parameters() == 3 * (matrices + 16) + 8 + 2 * 80);
  // The input table is looked up, not multiplied; attention meets 16 / 2 keys on average: 12 x 8 x 8 per
  // layer.
  CHECK(config.flops_per_token() == 6.0 * (3 * matrices + 80) + 3 * 12 * 8 * 8);
  CHECK(config.flops_per_token(4) == 4.0 * (3 * matrices + 80) + 3 * 12 * 8 * 8);
  config.tied_embedding = true;
  CHECK(config.parameters() == 3 * (matrices + 16) + 8 + 80);
  CHECK(config.flops_per_token() == 6.0 * (3 * matrices + 80) + 3 * 12 * 8 * 8);
}

TEST_CASE("the counts of latent attention are those of its matrices and keys, and its sizes must fit") {
  MoeConfig config = deepseek_v3();
  config.layers = 1;
  config.dense_layers = 0;
  MoeConfig grouped = config;
  grouped.latent.reset();
  const double in_grouped = 4.0 * 7168 * 128 * 64;
  const double in_latent =
      7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * 576 + 512.0 * 128 * 256 + 16384.0 * 7168;
  // A key of 192 and a value of 128 elements in place of 64 and 64, for 2048 keys on average and 128 heads.
  CHECK(config.flops_per_token() - grouped.flops_per_token() ==
        6 * (in_latent - in_grouped) + 6.0 * 128 * 2048 * (192 + 128 - 64 - 64));
  config.latent.reset();
  CHECK(config.flops_per_token() == grouped.flops_per_token());
  CHECK(config.parameters() == grouped.parameters());
  check_moe(config);

  const auto refused = [](auto change, const char* part) {
    MoeConfig other = deepseek_v3();
    check_moe(other);
    change(other);
    CHECK_THAT(failure_of<InvalidArgument>([&] { check_moe(other); }), ContainsSubstring(part));
  };
  refused([](MoeConfig& c) { c.latent->query_rank = 0; }, "query_rank must be at least 1");
  refused([](MoeConfig& c) { c.latent->plain_width = 0; }, "plain_width must be at least 1");
  refused([](MoeConfig& c) { c.kv_heads = 64; }, "kv_heads must be the 128 heads");
  refused([](MoeConfig& c) { c.head_elements = 192; }, "head_elements must be the rotary width, 64");
  refused([](MoeConfig& c) { c.frequencies = {1.0}; }, "a frequency for each of the 32 rotated pairs");
}

TEST_CASE("the sizes of a decoder with experts: counts, room for rows, and invalid sizes") {
  MoeConfig config;
  config.layers = 3;
  config.dense_layers = 1;
  config.width = 10;
  config.hidden = 30;
  config.experts = 6;
  config.expert_hidden = 7;
  config.shared_hidden = 5;
  config.heads = config.kv_heads = 1;
  config.vocabulary = 20;
  config.sequence = 4;
  config.batch_sequences = 5;
  // Two tables, three times attention and two norms, the last norm; a SwiGLU; twice router, experts, shared.
  CHECK(config.parameters() == 400 + 3 * 420 + 10 + 900 + 2 * (60 + 6 * 210 + 150));
  const double chosen_only = 6.0 * (200 + 3 * 400 + 900 + 2 * (60 + 2 * 210 + 150)) + 6.0 * 3 * 10 * 4;
  CHECK(config.flops_per_token() == chosen_only);

  // Four ranks split the batch, two of which own experts together: 2 sequences each, of 4 tokens.
  CHECK(most_expert_rows(config, 2, 2, 4, 1) == 2 * 2 * 4 * 2);
  CHECK(most_expert_rows(config, 6, 2, 4, 2) == 2 * 2 * 2 * 1); // one expert on a rank: a row for each token
  config.room = 1.25;
  CHECK(most_expert_rows(config, 2, 2, 4, 1) == 20); // 16 on average
  config.room = 100;
  CHECK(most_expert_rows(config, 2, 2, 4, 1) == 32);
  check_moe(config);

  const auto refused = [&](auto change, const char* part) {
    MoeConfig other = config;
    change(other);
    CHECK_THAT(failure_of<InvalidArgument>([&] { check_moe(other); }), ContainsSubstring(part));
  };
  refused([](MoeConfig& c) { c.dense_layers = 3; }, "dense_layers must leave at least one of the 3 layers");
  refused([](MoeConfig& c) { c.experts = 0; }, "must be at least 1 and shared_hidden at least 0");
  refused([](MoeConfig& c) { c.batch_sequences = 0; }, "set it to the sequences of a microbatch");
  refused([](MoeConfig& c) { c.capacity = -1; }, "must not be negative");
}

TEST_CASE(
    "a mesh with experts has their axis between data and context ranks, and it splits the batch like data") {
  constexpr DecoderExtents extents{.dp = 2, .tp = 2, .ep = 2};
  CHECK(extents.data_ranks() == 4);
  CHECK(extents.text() == "dp=2,ep=2,tp=2");
  CHECK(shardwright_test::on_ranks(16, [&](const HostCommunicator& world,
                                           shardwright_test::Findings& findings) {
          const DecoderPipelineMesh whole = decoder_pipeline_mesh(world, 2, extents);
          const DecoderMesh stage = stage_mesh(whole);
          findings.expect(stage.size() == extents.ranks() && stage.rank() == world.rank() % 8, "stages");
          findings.expect(stage.coordinate<axis::ep>() == world.rank() / 2 % 2, "place of ep");
          const DecoderMesh alone = decoder_mesh(whole.communicator<axis::dp, axis::ep, axis::tp>(), extents);
          findings.expect(alone.coordinate<axis::dp>() == stage.coordinate<axis::dp>(), "one stage");
        }) == "");
}
