// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model, its optimizer's state and the place in the run, saved and loaded in one call on any mesh.

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

/// @brief Begins to save a training after its last step, and returns when its share is copied: see
/// Saver::start(). Collective.
/// @param about equal on all ranks; its step and the place in the run are filled in here
/// @param keep checkpoints that stay
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

/// @brief The same, durable when it returns. Collective.
template <class Model, class Optimizer>
void save(Saver& saver, Training<Model, Optimizer>& training, Description about, std::size_t keep,
          SourceLocation where = SourceLocation::current()) {
  start_save(saver, training, std::move(about), keep, where);
  saver.finish(where);
}

/// @brief Fills the shares of all ranks, once names, shapes and elements are known to be those of the
/// checkpoint, of which no tensor may be left over. Collective.
/// @param convert whether another floating-point type may have been saved
/// @throws DataError on every rank, naming one that fails: the model is then as it was, unless data cannot
/// be read.
template <ParameterSet Model, class Optimizer>
void load(const HostCommunicator& world, const Reader& reader, Model& model, Optimizer& optimizer,
          bool convert = false, SourceLocation where = SourceLocation::current()) {
  std::vector<std::string> names;
  detail::agree(world, detail::sentence_of([&] { names = require_state(reader, model, optimizer, convert); }),
                where);
  require_same_names(world, reader, names, where);
  detail::agree(world, detail::sentence_of([&] { read_state(reader, model, optimizer, convert); }), where);
}

/// @brief Loads model and optimizer of a training that has made no step, which then goes on from the place
/// that was saved: the same steps on the same mesh to the bit, on another to rounding. Collective.
/// @param configuration_hash that the checkpoint must have; empty for any
/// @throws DataError as above, and where the checkpoint is of another configuration.
template <class Model, class Optimizer>
void load(const HostCommunicator& world, const Reader& reader, Training<Model, Optimizer>& training,
          const std::string& configuration_hash, bool convert = false,
          SourceLocation where = SourceLocation::current()) {
  const Description& about = reader.manifest().description;
  if (!configuration_hash.empty() && about.configuration_hash != configuration_hash)
    throw DataError(reader.path().string() +
                    ": the checkpoint must be of the configuration of this run, but it is of another one (" +
                    about.configuration_hash + " is not " + configuration_hash +
                    ": give the options that it was saved with)");
  const TrainingProgress progress = progress_of(about.more);
  load(world, reader, training.model(), training.optimizer(), convert, where);
  training.go_on_from(progress);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
