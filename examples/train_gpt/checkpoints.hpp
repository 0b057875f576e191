// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The saves of a train_gpt run, the checkpoint that it resumes from, and the signals that end it.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/train/step/progress.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief While it exists, turns the first SIGTERM or SIGINT of this process into a request to stop; the
/// second one ends the process at once, and so does a stop that takes longer than its limit, with code 1.
class StopSignals {
public:
  explicit StopSignals(const CheckpointOptions& options);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

private:
  bool on_;
};

/// @brief The checkpoints of a run; does nothing without a directory. Every rank has one, and all ranks call
/// it together.
class Checkpoints {
public:
  /// @throws DataError on every rank if --resume finds none, or one of another run; if a new run finds any;
  /// or if the directory cannot be written.
  Checkpoints(const shardwright::HostCommunicator& world, const Options& options, std::uint64_t data_hash);
  ~Checkpoints();

  /// @brief The checkpoint that the run resumes from, or the published model that it starts from; null if it
  /// starts from random weights.
  [[nodiscard]] const shardwright::checkpoint::BlockSource* source() const;
  /// @brief The training progress saved there.
  [[nodiscard]] shardwright::TrainingProgress place() const;
  /// @brief Throws on every rank if `work` throws on one.
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
  /// @brief Returns whether the trained model is to be written.
  [[nodiscard]] bool exports() const;
  /// @brief Writes the model whose blocks the ranks hold; rank 0 temporarily holds all of it.
  void export_model(const shardwright::checkpoint::Staging& blocks);
  /// @brief The messages since the last call, line by line.
  [[nodiscard]] std::vector<std::string> news();

private:
  struct State; // keeps JSON out of the training's translation units
  std::unique_ptr<State> state_;
};

} // namespace train_gpt
