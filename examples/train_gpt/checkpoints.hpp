// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The saves of a train_gpt run, the checkpoint that it goes on from, and the signals that end it.

#include "options.hpp"

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/train/training_progress.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace train_gpt {

/// @brief Turns the first SIGTERM or SIGINT of this process into a wish to stop, for as long as it lives; the
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

/// @brief The checkpoints of a run; without a directory it does nothing. Every rank has one, and calls it
/// together with the others.
class Checkpoints {
public:
  /// @throws DataError on every rank where --resume finds none, or one of another run; where a run that
  /// begins finds some; and where the directory cannot be written.
  Checkpoints(const shardwright::HostCommunicator& world, const Options& options, std::uint64_t data_hash);
  ~Checkpoints();

  /// @brief The checkpoint that the run goes on from, or the published model that it begins with; null where
  /// it begins with random numbers.
  [[nodiscard]] const shardwright::checkpoint::BlockSource* source() const;
  /// @brief The place in the run that was saved there.
  [[nodiscard]] shardwright::TrainingProgress place() const;
  /// @brief Throws on every rank where `work` does on one.
  void together(const std::function<void()>& work) const;
  /// @brief Throws on every rank unless the shares of all ranks name all tensors of the source.
  void require_names(const std::vector<std::string>& names) const;

  /// @brief Calls `tell` with a line about the save that goes on, every --save-progress seconds.
  void tell_progress(std::function<void(const std::string&)> tell);
  /// @brief After a step of that number, from 1: carries on the save that is under way, and agrees on what is
  /// next. @return whether to save
  [[nodiscard]] bool due(std::int64_t step);
  /// @brief Returns whether the run ends here, as due() found.
  [[nodiscard]] bool stopping() const;
  /// @brief The memory to copy into.
  [[nodiscard]] shardwright::checkpoint::Staging& staging();
  /// @brief Begins to save it.
  void start(const shardwright::TrainingProgress& progress);
  /// @brief Waits until everything is durable.
  void finish();
  /// @brief Returns whether the trained model is to be written.
  [[nodiscard]] bool exports() const;
  /// @brief Writes the model of which the ranks hold those blocks; rank 0 holds all of it meanwhile.
  void export_model(const shardwright::checkpoint::Staging& blocks);
  /// @brief The news since the last call, line by line.
  [[nodiscard]] std::vector<std::string> news();

private:
  struct State; // keeps JSON out of the files that train
  std::unique_ptr<State> state_;
};

} // namespace train_gpt
