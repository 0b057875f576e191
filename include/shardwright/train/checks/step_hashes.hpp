// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Hashes of all that a step computes, the same on every mesh if the bits are.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/hashed_value.hpp>
#include <shardwright/train/checks/mesh_hash.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/step/record.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Hashes of each step of a Training: the loss of each microbatch, loss, gradients, gradient norm and
/// weights after the step, in this order.
///
/// On a host. `watch(options)` before the Training is made, then take() after each of its steps. A gradient
/// is the reduced one, before clipping; the weights of a parameter with a master copy are that. Cost of a
/// step: each rank reads its gradients and weights once; three all_reduces, of a number for each parameter
/// twice and for each microbatch once, and one of a single number.
template <ParameterSet Model> class StepHashes {
public:
  /// @param world all ranks that hold a part of the model
  StepHashes(Model& model, HostCommunicator world) : model_(&model), world_(std::move(world)) {}
  StepHashes(const StepHashes&) = delete;
  StepHashes& operator=(const StepHashes&) = delete;

  /// @brief Makes a Training with these options tell its steps to this object, which must outlive it.
  void watch(TrainingOptions& options) {
    options.on_loss = [this](int microbatch, double loss) {
      const auto at = static_cast<std::size_t>(microbatch);
      losses_.resize(std::max(losses_.size(), at + 1));
      losses_[at] = loss;
    };
    options.on_gradients = [this](const GradientSummary& summary) {
      summary_ = summary;
      gradients_ = parts([](const auto& parameter) { return mesh_hash_part(parameter.gradient()); });
    };
  }

  /// @brief The values of the step that has ended, the same on every rank, in an order of names
  /// that depends on the mesh. Collective; cost: as above.
  [[nodiscard]] std::vector<HashedValue> take() {
    if (names_.empty())
      learn_names();
    std::vector<HashedValue> out;
    const std::vector<double> losses = losses_of_all();
    for (std::size_t i = 0; i < losses.size(); ++i)
      out.push_back({"loss of microbatch " + std::to_string(i) + " of " + std::to_string(losses.size()),
                     std::bit_cast<std::uint64_t>(losses[i])});
    out.push_back({"loss", std::bit_cast<std::uint64_t>(summary_.loss.value)});
    add("gradient of ", gradients_, out);
    out.push_back({"gradient norm", std::bit_cast<std::uint64_t>(summary_.gradient_norm)});
    add("weights of ", parts([](const auto& parameter) {
          return parameter.master() ? mesh_hash_part(*parameter.master())
                                    : mesh_hash_part(parameter.stored());
        }),
        out);
    losses_.clear();
    return out;
  }

private:
  /// This rank's part of a hash of each parameter that it holds; copies count once.
  template <class Hash> [[nodiscard]] std::vector<std::uint64_t> parts(const Hash& hash) const {
    std::vector<std::uint64_t> out;
    for_each_trained_parameter(
        *model_, [&](auto& parameter) { out.push_back(parameter.first_copy() ? hash(parameter) : 0); });
    return out;
  }
  /// The names of all ranks' parameters, and where this rank's are among them.
  void learn_names() {
    std::vector<std::string> own;
    for_each_trained_parameter(*model_, [&](auto& parameter) { own.push_back(parameter.name()); });
    for (const auto& rank : gather_texts(world_, own))
      for (const std::string& name : rank)
        if (std::find(names_.begin(), names_.end(), name) == names_.end())
          names_.push_back(name);
    for (const std::string& name : own)
      places_.push_back(
          static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin()));
  }
  void add(const std::string& what, const std::vector<std::uint64_t>& own, std::vector<HashedValue>& out) {
    std::vector<std::uint64_t> all(names_.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      all[places_[i]] += own[i];
    world_.all_reduce_in_place(std::span<std::uint64_t>(all));
    for (std::size_t i = 0; i < all.size(); ++i)
      out.push_back({what + names_[i], all[i]});
  }
  /// Ranks without the last stage know none.
  [[nodiscard]] std::vector<double> losses_of_all() {
    auto count = static_cast<std::int64_t>(losses_.size());
    world_.all_reduce_in_place(std::span<std::int64_t>(&count, 1), ReduceOp::maximum);
    std::vector<double> out = losses_;
    out.resize(static_cast<std::size_t>(count));
    world_.all_reduce_in_place(std::span<double>(out));
    return out;
  }

  Model* model_;
  HostCommunicator world_;
  GradientSummary summary_;
  std::vector<double> losses_; // of this rank's tokens, by microbatch; 0 on replicas of a rank
  std::vector<std::uint64_t> gradients_;
  std::vector<std::string> names_;
  std::vector<std::size_t> places_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
