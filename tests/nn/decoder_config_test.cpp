// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/nn/decoder_config.hpp>

#include <cstdint>
#include <string>

namespace {

using namespace shardwright;
using shardwright_test::ContainsSubstring;

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

} // namespace

TEST_CASE("sizes that fit one another and the mesh pass") {
  CHECK(sentence(1, true, [](DecoderConfig&) {}) == "fits");
  CHECK(sentence(4, true, [](DecoderConfig&) {}) == "fits");
  CHECK(sentence(4, false, [](DecoderConfig& config) { config.sequence = 127; }) == "fits");
  CHECK(sentence(2, false, [](DecoderConfig& config) { config.kv_heads = 2; }) == "fits");
}

TEST_CASE("sizes that do not fit name both numbers and the way out") {
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
      3, [](DecoderConfig&) {}, "kv_heads 4 must be a multiple of the tensor-parallel ranks 3");
  check(
      3, [](DecoderConfig&) {}, "split tp into two axes");
  check(
      2, [](DecoderConfig& config) { config.hidden = 385; },
      "hidden 385 must be a multiple of the tensor-parallel ranks 2 (round hidden up)");
  check(
      2, [](DecoderConfig& config) { config.vocabulary = 257; },
      "vocabulary 257 must be a multiple of the tensor-parallel ranks 2 (pad the vocabulary)");
  check(
      2, [](DecoderConfig& config) { config.sequence = 127; },
      "sequence 127 must be a multiple of the tensor-parallel ranks under sequence parallelism 2");
}

TEST_CASE("what context ranks share must divide, each way in its own way") {
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
             ContainsSubstring("kv_heads 4 must be a multiple of the tensor times context-parallel ranks 8"));
  CHECK_THAT(check(RingContext::extents(2), false, short_sequence),
             ContainsSubstring("sequence 6 must be a multiple of twice the context-parallel ranks"));
  CHECK_THAT(
      check(AllToAllContext::extents(2), true, short_sequence),
      ContainsSubstring("sequence of a context rank 3 must be a multiple of the tensor-parallel ranks"));
}

TEST_CASE("sizes below one are named") {
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

TEST_CASE("parameters and operations are counted as written out by hand") {
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
  config.tied_embedding = true;
  CHECK(config.parameters() == 3 * (matrices + 16) + 8 + 80);
  CHECK(config.flops_per_token() == 6.0 * (3 * matrices + 80) + 3 * 12 * 8 * 8);
}
