// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The experts of a layer, some of them on each rank of ep.

#include "parts.hpp"

#include <shardwright/nn/experts/route.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace generate {

/// @brief The sum of each token's experts and the shared MLP: an expert reads only the rows routed to it.
class Experts {
public:
  Experts(Weights& weights, std::int64_t layer)
      : settings_(weights.settings().experts), router_(weights.load<Whole>({Part::router, layer})),
        mine_(Range::of(settings_.count, weights.mesh().coordinate<ep>(), weights.mesh().extent<ep>())) {
    if (settings_.sigmoid)
      bias_.emplace(weights.load<Vector>({Part::router_bias, layer}).share());
    for (std::int64_t expert = mine_.begin; expert < mine_.end; ++expert)
      experts_.push_back({weights.load<GateUp>({Part::expert_gate_up, layer, expert}),
                          weights.load<Rows>({Part::expert_down, layer, expert})});
    if (settings_.shared_hidden > 0)
      shared_.emplace(Mlp{weights.load<GateUp>({Part::shared_gate_up, layer}),
                          weights.load<Rows>({Part::shared_down, layer})});
    adds_shared_ = weights.mesh().coordinate<ep>() == 0;
  }

  [[nodiscard]] Tensor<ExpertSum> operator()(const Tensor<Tokens>& x) const {
    std::vector<Choice> choices = choose(x);
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
    Tensor<ExpertSum> out(x.resources(), x.shape());
    Element* const sum = out.mutable_data();
    std::fill_n(sum, out.local_size(), Element(0));
    const auto width = static_cast<std::size_t>(x.shape()[2]);
    for (auto begin = choices.begin(), end = begin; begin != choices.end(); begin = end) {
      end = std::find_if(begin, choices.end(),
                         [&](const Choice& each) { return each.expert != begin->expert; });
      if (!mine_.has(begin->expert))
        continue;
      Tensor<Tokens> rows(x.resources(), {1, end - begin, x.shape()[2]});
      Element* to = rows.mutable_data();
      for (auto choice = begin; choice != end; ++choice)
        to = std::copy_n(x.data() + choice->token * width, width, to);
      const auto result = experts_[static_cast<std::size_t>(begin->expert - mine_.begin)](rows);
      const Element* from = result.data();
      for (auto choice = begin; choice != end; ++choice)
        for (std::size_t i = 0; i < width; ++i)
          sum[choice->token * width + i] += choice->gate * *from++;
    }
    if (shared_ && adds_shared_) {
      const auto beside = (*shared_)(x);
      std::transform(sum, sum + out.local_size(), beside.data(), sum, std::plus<>());
    }
    return out;
  }

private:
  struct Choice {
    std::int64_t expert;
    std::size_t token;
    Element gate;
  };

  /// The experts of every token and their weights, the same on every rank.
  [[nodiscard]] std::vector<Choice> choose(const Tensor<Tokens>& x) const {
    const auto logits = sw::matmul(x, router_);
    const sw::RouterOptions rule{.chosen = settings_.chosen,
                                 .scores = settings_.sigmoid ? sw::RouterScores::sigmoid
                                                             : sw::RouterScores::chosen_softmax,
                                 .groups = settings_.groups,
                                 .kept_groups = settings_.kept_groups,
                                 .group_score = sw::GroupScore::two_largest};
    const auto experts = sw::choose_experts(logits, rule, {.bias = bias_, .padding = {}});
    const auto chosen = static_cast<std::size_t>(settings_.chosen);
    std::vector<Choice> out;
    for (std::size_t token = 0; token < experts.local_size() / chosen; ++token) {
      const Element* const row = logits.data() + token * static_cast<std::size_t>(settings_.count);
      const std::int32_t* const of_token = experts.data() + token * chosen;
      double total = 0;
      for (std::size_t i = 0; i < chosen; ++i) {
        const double logit = row[of_token[i]];
        const double score =
            settings_.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit - double(row[of_token[0]]));
        total += score;
        out.push_back({of_token[i], token, static_cast<Element>(score)});
      }
      const double factor = settings_.scale / (settings_.sums_to_one ? total : 1);
      for (std::size_t i = out.size() - chosen; i < out.size(); ++i)
        out[i].gate = static_cast<Element>(factor * double(out[i].gate));
    }
    return out;
  }

  pretrained::ExpertSettings settings_;
  const Tensor<Whole>& router_;
  Range mine_; // of all experts
  std::optional<sw::ShardedTensor<Vector, const Element>> bias_;
  std::vector<Mlp> experts_;
  std::optional<Mlp> shared_;
  bool adds_shared_ = false;
};

} // namespace generate
