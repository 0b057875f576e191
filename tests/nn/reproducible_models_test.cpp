// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_training.hpp"

#include "models/gpt2.hpp"

#include <shardwright/nn/decoder/moe.hpp>

// GPT-2, a decoder with experts and its adapters on a Reproducible target: the same bits on every mesh.

namespace {

using namespace nn_test;

using Ordered = sw::Reproducible<sw::DefaultTarget>;

using Gpt2 = models::Gpt2<sw::ModelPlan<sw::bfloat16, sw::Zero3, Ordered>>;
using Experts = sw::MoeDecoder<sw::MoeLayouts<>, float, Ordered>; // tp shards their hidden dimension

using Tuned = sw::Adapted<sw::MoeDecoder<sw::FrozenLayouts<sw::MoeLayouts<>>, float, Ordered>>;

/// In the style of DeepSeek-V3, with latent attention.
sw::MoeConfig experts_config() {
  sw::MoeConfig out;
  out.layers = 2;
  out.width = 32;
  out.heads = 4;
  out.kv_heads = 4;
  out.head_elements = 4;
  out.latent = sw::LatentAttentionSizes{
      .query_rank = 12, .key_value_rank = 8, .plain_width = 8, .rotary_width = 4, .value_width = 8};
  out.hidden = 24;
  out.vocabulary = 16;
  out.sequence = 16;
  out.dense_layers = 1;
  out.experts = 8;
  out.expert_hidden = 16;
  out.shared_hidden = 8;
  out.batch_sequences = 8;
  out.routing = {.chosen = 2,
                 .scores = sw::RouterScores::sigmoid,
                 .scale = 1.5,
                 .groups = 4,
                 .kept_groups = 2,
                 .group_score = sw::GroupScore::two_largest};
  out.bias = {.rate = 0.01};
  out.balance = 0.01;
  out.z_loss = 0.001;
  return out;
}
/// Adapters of it, or of a decoder with one product for queries, keys and values.
Tuned::Config tuned_config(bool latent) {
  Tuned::Config out{experts_config(), {.rank = 3, .alpha = 5, .tables = true}};
  if (!latent) {
    out.latent.reset();
    out.head_elements = 0;
  }
  return out;
}

} // namespace

TEST_CASE("GPT-2 of bfloat16 has the same bits on every mesh", "[reproducible]") {
  check<Gpt2>({.layers = 2, .vocabulary = 16}, other_cuts());
}

TEST_CASE("GPT-2 of bfloat16 has the same bits on four threads or processes",
          "[reproducible][four_processes]") {
  check_four<Gpt2>({.layers = 2, .vocabulary = 16}, cuts_of_four());
  check_four<Gpt2>({.layers = 2, .vocabulary = 16, .sequence = 64}, {{.inside = {.cp = 2, .tp = 2}}},
                   {.sequences = 2});
}

TEST_CASE("a decoder with experts has the same bits on every mesh", "[reproducible]") {
  check<Experts>(experts_config(), {{.microbatches = 8},
                                    {.inside = {.dp = 2}, .microbatches = 4},
                                    {.inside = {.ep = 2}, .microbatches = 2},
                                    {.inside = {.tp = 2}, .microbatches = 4},
                                    {.inside = {.tp = 4, .ep = 2}},
                                    {.inside = {.ep = 8}},
                                    {.inside = {.dp = 2, .cp = 2, .ep = 2}, .microbatches = 2},
                                    {.inside = {.cp = 2, .tp = 2, .ep = 2}},
                                    {.pp = 2, .inside = {.dp = 2, .ep = 2}, .microbatches = 2}});
}

TEST_CASE("a decoder with experts has the same bits on four threads or processes",
          "[reproducible][four_processes]") {
  std::vector<Cut> cuts = cuts_of_four();
  cuts.push_back({.inside = {.ep = 4}, .microbatches = 2});
  cuts.push_back({.inside = {.dp = 2, .ep = 2}});
  cuts.push_back({.inside = {.tp = 2, .ep = 2}, .microbatches = 4});
  cuts.push_back({.inside = {.cp = 2, .ep = 2}, .microbatches = 2});
  cuts.push_back({.pp = 2, .inside = {.ep = 2}, .microbatches = 4});
  check_four<Experts>(experts_config(), cuts);
}

TEST_CASE("three ranks may own experts, as no sum is split over them", "[reproducible]") {
  sw::MoeConfig config = experts_config();
  config.experts = 6;
  config.routing.groups = 3;
  config.batch_sequences = 6;
  check<Experts>(config, {{.inside = {.ep = 3}}, {.inside = {.tp = 2, .ep = 3}, .microbatches = 2}},
                 {.sequences = 6});
}

TEST_CASE("adapters of a decoder with experts have the same bits on every mesh, merged, too",
          "[reproducible]") {
  check<Tuned>(tuned_config(false), {{.microbatches = 8},
                                     {.inside = {.dp = 2}, .microbatches = 4},
                                     {.inside = {.tp = 2}, .microbatches = 4},
                                     {.inside = {.tp = 4}},
                                     {.inside = {.ep = 4}},
                                     {.inside = {.dp = 2, .cp = 2, .ep = 2}, .microbatches = 2},
                                     {.inside = {.cp = 2, .tp = 2, .ep = 2}},
                                     {.pp = 2, .inside = {.dp = 2, .tp = 2}, .microbatches = 2}});
  check<Tuned>(tuned_config(true), {{.inside = {.dp = 2, .tp = 2}, .microbatches = 2}});
}

TEST_CASE("adapters have the same bits on four threads or processes", "[reproducible][four_processes]") {
  check_four<Tuned>(tuned_config(false), {{.inside = {.dp = 2, .tp = 2}, .microbatches = 2},
                                          {.pp = 2, .inside = {.ep = 2}, .microbatches = 4}});
}

TEST_CASE("the rows of an expert from leaves of several tokens have the same sum",
          "[reproducible][four_processes]") {
  sw::MoeConfig config = experts_config();
  config.sequence = 128;
  config.batch_sequences = 2;
  check_four<Experts>(config,
                      {{.inside = {.cp = 2, .ep = 2}},
                       {.inside = {.tp = 2, .ep = 2}},
                       {.inside = {.cp = 2, .tp = 2}, .microbatches = 2}},
                      {.sequences = 2});
}
