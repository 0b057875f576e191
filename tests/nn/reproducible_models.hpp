// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief GPT-2 and a decoder with experts on a Reproducible target, and the meshes on which they are
/// compared.

#include "nn/reproducible_training.hpp"

#include "models/gpt2.hpp"

#include <shardwright/nn/decoder/moe.hpp>

#include <vector>

namespace nn_test {

using Ordered = sw::Reproducible<sw::DefaultTarget>;

template <class Element> using Gpt2 = models::Gpt2<sw::ModelPlan<Element, sw::Zero3, Ordered>>;
/// tp shards the hidden dimension of each expert, unless its ranks own experts.
template <class Element, class Owners = sw::AxisList<ep>>
using Experts =
    sw::MoeDecoder<sw::MoeLayouts<sw::DataParallelOver<sw::MoeZeroAxes>, Owners>, Element, Ordered>;

/// In the style of DeepSeek-V3, with latent attention.
inline sw::MoeConfig experts_config() {
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

inline std::vector<Cut> expert_cuts_of_four() {
  std::vector<Cut> cuts = cuts_of_four();
  cuts.push_back({.inside = {.ep = 4}, .microbatches = 2});
  cuts.push_back({.inside = {.dp = 2, .ep = 2}});
  cuts.push_back({.inside = {.tp = 2, .ep = 2}, .microbatches = 4});
  cuts.push_back({.inside = {.cp = 2, .ep = 2}, .microbatches = 2});
  cuts.push_back({.pp = 2, .inside = {.ep = 2}, .microbatches = 4});
  return cuts;
}

/// Other meshes for it.
inline std::vector<Cut> other_expert_cuts() {
  return {{.microbatches = 8},
          {.inside = {.dp = 2}, .microbatches = 4},
          {.inside = {.ep = 2}, .microbatches = 2},
          {.inside = {.tp = 2}, .microbatches = 4},
          {.inside = {.tp = 4, .ep = 2}},
          {.inside = {.ep = 8}},
          {.inside = {.dp = 2, .cp = 2, .ep = 2}, .microbatches = 2},
          {.inside = {.cp = 2, .tp = 2, .ep = 2}},
          {.pp = 2, .inside = {.dp = 2, .ep = 2}, .microbatches = 2}};
}

} // namespace nn_test
