// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The saves of a run, the checkpoint that it resumes from, and the signals that end it.

#include "initial_weights.hpp"
#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/train/step/progress.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trainer {

/// @brief While it exists, turns the first SIGTERM or SIGINT of this process into a request to stop; the
/// second one ends the process at once, and so does a stop that takes longer than its limit, with code 1.
class StopSignals {
public:
  explicit StopSignals(const RunOptions& options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

private:
  bool on_;
};

/// @brief Calls `work`. Collective: throws on every rank if it throws on one.
void together(const shardwright::HostCommunicator& world, const std::function<void()>& work);

/// @brief The checkpoints of a run; does nothing without a directory. Every rank has one, and all ranks call
/// it together.
class Checkpoints {
public:
  /// @param configuration every setting that affects the numbers of a run, one per line; mesh, schedule and
  /// sharding do not
  /// @throws DataError on every rank if --resume finds none, or one of another run; if a new run finds any;
  /// or if the directory cannot be written.
  /// @param needs_initial whether a checkpoint holds only a part of the model
  Checkpoints(const shardwright::HostCommunicator& world, const RunOptions& options,
              std::string configuration, const InitialWeights& initial, bool needs_initial);
  ~Checkpoints();

  /// @brief The checkpoint that the run resumes from; null if it begins.
  [[nodiscard]] const shardwright::checkpoint::BlockSource* saved() const;
  /// @brief The weights that it starts from; null if they are random, or not needed beside a checkpoint.
  [[nodiscard]] const shardwright::checkpoint::BlockSource* initial() const;
  /// @brief The training progress of the checkpoint, if there is one.
  [[nodiscard]] shardwright::TrainingProgress place() const;
  void together(const std::function<void()>& work) const;
  /// @brief Throws on every rank unless the ranks' shares together cover all tensors of the source.
  void require_names(const std::vector<std::string>& names) const;

  /// @brief Calls `tell` with a line about the save in progress, every --save-progress seconds.
  void tell_progress(std::function<void(const std::string&)> tell);
  /// @brief Called after each step with its number, from 1: advances the save in progress, and agrees with
  /// the other ranks on what to do next.
  /// @return whether to save
  [[nodiscard]] bool due(std::int64_t step);
  /// @brief Returns whether due() decided that the run ends here.
  [[nodiscard]] bool stopping() const;
  /// @brief The memory to copy into.
  [[nodiscard]] shardwright::checkpoint::Staging& staging();
  /// @brief Begins to save it.
  void start(const shardwright::TrainingProgress& progress);
  /// @brief Waits until everything is durable.
  void finish();
  /// @brief The messages since the last call, line by line.
  [[nodiscard]] std::vector<std::string> news();

private:
  struct State; // keeps JSON out of the training's translation units
  std::unique_ptr<State> state_;
};

} // namespace trainer
