// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Saves a model, its optimizer's state and the training progress in one call, and loads them on any
/// mesh.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/model_state.hpp>
#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/checkpoint/training_state.hpp>
#include <shardwright/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief Begins to save a training run as of its last step, and returns once this rank's share is copied:
/// see Saver::start(). Collective; cost: a copy of the share in memory, and what start() costs.
/// @param about equal on all ranks; the step and the progress are filled in here
/// @param keep number of checkpoints to keep
/// @throws as Saver::save().
template <class Model, class Optimizer>
void start_save(Saver& saver, Training<Model, Optimizer>& training, Description about, std::size_t keep,
                SourceLocation where = SourceLocation::current()) {
  stage(training.model(), training.optimizer(), saver.staging(where));
  const TrainingProgress progress = training.progress();
  about.step = static_cast<std::uint64_t>(progress.steps);
  add_progress(about.more, progress);
  saver.start(about, keep, where);
}

/// @brief The same, but durable on return. Collective.
template <class Model, class Optimizer>
void save(Saver& saver, Training<Model, Optimizer>& training, Description about, std::size_t keep,
          SourceLocation where = SourceLocation::current()) {
  start_save(saver, training, std::move(about), keep, where);
  saver.finish(where);
}

/// @brief Fills the shares of all ranks, after checking that names, shapes and element types match the
/// checkpoint and that it has no further tensors. Collective; cost: each rank reads its share once, and the
/// names of its tensors go to all ranks.
/// @param convert whether to accept tensors saved in another floating-point type
/// @throws DataError on every rank, naming a rank that failed; the model is then unchanged, unless it was the
/// data that could not be read.
template <ParameterSet Model, class Optimizer>
void load(const HostCommunicator& world, const Reader& reader, Model& model, Optimizer& optimizer,
          bool convert = false, SourceLocation where = SourceLocation::current()) {
  std::vector<std::string> names;
  detail::agree(world, detail::sentence_of([&] { names = require_state(reader, model, optimizer, convert); }),
                where);
  require_same_names(world, reader, names, where);
  detail::agree(world, detail::sentence_of([&] { read_state(reader, model, optimizer, convert); }), where);
}

/// @brief Loads model and optimizer into a training run that has made no step yet, which then continues from
/// the saved point: with bitwise identical steps on the same mesh, equal up to rounding on another.
/// Collective, at the same cost.
/// @param configuration_hash the hash that the checkpoint must have; empty for any
/// @throws DataError as above, and if the checkpoint has another configuration.
template <class Model, class Optimizer>
void load(const HostCommunicator& world, const Reader& reader, Training<Model, Optimizer>& training,
          const std::string& configuration_hash, bool convert = false,
          SourceLocation where = SourceLocation::current()) {
  const Description& about = reader.manifest().description;
  if (!configuration_hash.empty() && about.configuration_hash != configuration_hash)
    throw DataError(reader.path().string() +
                    ": the checkpoint must have the configuration of this run, but it has another one (" +
                    about.configuration_hash + " is not " + configuration_hash +
                    ": give the options that it was saved with)");
  const TrainingProgress progress = progress_of(about.more);
  load(world, reader, training.model(), training.optimizer(), convert, where);
  training.resume(progress);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
