// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_training.hpp"

#include "models/gpt2.hpp"

#include <shardwright/nn/decoder/moe.hpp>

// GPT-2 and a decoder with experts on a Reproducible target: the same bits on every mesh.

namespace {

using namespace nn_test;

using Ordered = sw::Reproducible<sw::DefaultTarget>;

template <class Model> void check(const typename Model::Config& config, const std::vector<Cut>& cuts) {
  const sw::HashRecord one = on_mesh<Model>({}, config);
  for (const Cut& cut : cuts) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Model>(cut, config)) == "");
  }
}

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
  out.expert_hidden = 12;
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

} // namespace

TEST_CASE("GPT-2 of bfloat16 has the same bits on every mesh", "[reproducible]") {
  using Model = models::Gpt2<sw::ModelPlan<sw::bfloat16, sw::Zero3, Ordered>>;
  check<Model>({.layers = 2, .vocabulary = 16},
               {Cut{.inside = {.dp = 4}}, Cut{.inside = {.tp = 4}, .microbatches = 2},
                Cut{.inside = {.dp = 2, .cp = 2}}, Cut{.pp = 2, .inside = {.tp = 2}, .microbatches = 4}});
}

TEST_CASE("a decoder with experts has the same bits on every mesh", "[reproducible]") {
  using Layouts = sw::MoeLayouts<sw::DataParallelOver<sw::MoeZeroAxes>, sw::AxisList<ep, tp>>;
  using Model = sw::MoeDecoder<Layouts, float, Ordered>;
  check<Model>(experts_config(),
               {Cut{.inside = {.dp = 4}}, Cut{.inside = {.ep = 4}, .microbatches = 2},
                Cut{.inside = {.tp = 2, .ep = 2}}, Cut{.inside = {.dp = 2, .cp = 2, .ep = 2}},
                Cut{.pp = 2, .inside = {.ep = 2}, .microbatches = 4}});
}
