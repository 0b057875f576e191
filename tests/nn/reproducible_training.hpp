// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs of a model on a Reproducible target, on meshes that must not show in its bits.

#include <shardwright/core/hash.hpp>
#include <shardwright/io/hash_record.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/checks/step_hashes.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace nn_test {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

struct Cut {
  int pp = 1;
  sw::DecoderExtents inside{};
  int microbatches = 1;
  std::string schedule = "1f1b";

  [[nodiscard]] int ranks() const { return pp * inside.dpr * inside.dp * inside.ep * inside.cp * inside.tp; }
  [[nodiscard]] std::string text() const {
    return "pp=" + std::to_string(pp) + " dpr=" + std::to_string(inside.dpr) +
           " dp=" + std::to_string(inside.dp) + " ep=" + std::to_string(inside.ep) +
           " cp=" + std::to_string(inside.cp) + " tp=" + std::to_string(inside.tp) + ", " +
           std::to_string(microbatches) + " microbatches, " + schedule;
  }
};

/// A fault that a test plants.
enum class Fault : std::uint8_t { none, weight, token };

/// What all runs do that are compared, but for the faults.
struct Work {
  std::int64_t sequences = 8; ///< Of a step.
  int steps = 2;
  Fault fault = Fault::none;
};

/// Whether adapters of a model can be merged: not into quantized weights.
template <class Whole> inline constexpr bool merges = requires(typename Whole::Config config) {
  config.adapters;
  requires std::is_void_v<typename sw::detail::FormOf<typename Whole::Plan::matrix_zero>::type>;
};

/// The frozen weights with the adapters merged into them, the same on every rank. Collective.
template <class Model> sw::HashedValue merged_weights(Model& model, sw::HostCommunicator world) {
  sw::merge_adapters(model);
  std::uint64_t hash = 0;
  model.for_each_parameter([&]<class P>(P& parameter) {
    if (!P::trained && parameter.first_copy())
      hash += (sw::detail::key_of(parameter.name()) | 1) * sw::mesh_hash_part(parameter.stored());
  });
  world.all_reduce_in_place(std::span<std::uint64_t>(&hash, 1));
  return {"merged weights", hash};
}

/// The steps of a run, the same on every rank. Collective.
template <class Whole>
sw::HashRecord train(const sw::HostCommunicator& world, const Cut& cut, const typename Whole::Config& config,
                     const Work& work) {
  using Model = sw::PipelineModel<Whole>;
  using Ids = typename Model::Batch::Ids;
  const auto whole = sw::decoder_pipeline_mesh(world, cut.pp, cut.inside);
  const auto mesh = sw::stage_mesh(whole);
  const sw::HostCommunicator pipeline = whole.template communicator<pp>();
  const sw::Schedule schedule = sw::make_schedule(cut.schedule, cut.pp, cut.microbatches);
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(config.layers), schedule.stages()), config, 5);
  sw::StepHashes<Model> hashes(model, world);
  sw::TrainingOptions options;
  hashes.watch(options);
  sw::Training<Model> training(mesh, model, world, pipeline, schedule, sw::AdamW({.max_norm = 0.5}), options);
  sw::HashRecord out;
  for (int step = 0; step < work.steps; ++step) {
    const auto batches = [&](std::int64_t) {
      std::vector<typename Model::Batch> made;
      const std::int64_t rows = work.sequences / cut.microbatches;
      for (int pass = 0; pass < cut.microbatches; ++pass) {
        const auto read = [&](std::int64_t row, std::span<std::int32_t> ids, int shift) {
          for (std::size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<std::int32_t>(
                (sw::detail::mixed(static_cast<std::uint64_t>(step * work.sequences + row), i / 2) + i +
                 static_cast<std::size_t>(shift)) %
                16);
          if (work.fault == Fault::token && step == 1 && row == 5)
            ids[7] ^= 1;
        };
        Ids ids(mesh, {rows, config.sequence}), targets(mesh, {rows, config.sequence});
        sw::load_rows(
            ids, [&](std::int64_t row, std::span<std::int32_t> to) { read(row, to, 0); }, pass * rows);
        sw::load_rows(
            targets, [&](std::int64_t row, std::span<std::int32_t> to) { read(row, to, 1); }, pass * rows);
        made.push_back(
            {ids.share(),
             targets.share(),
             sw::BatchOrigin{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(pass * rows)},
             {}});
      }
      return made;
    };
    static_cast<void>(training.step(batches, 0.01));
    if (work.fault == Fault::weight && step == 1)
      sw::for_each_trained_parameter(model, [&](auto& parameter) {
        if (parameter.name() == "layers.2.mlp_norm")
          parameter.update_weights([&](auto& weights) {
            if (world.rank() == world.size() - 1 && weights.local_size() > 0) {
              auto* const last =
                  reinterpret_cast<unsigned char*>(weights.mutable_data() + weights.local_size() - 1);
              *last ^= 1U;
            }
          });
      });
    out[step + 1] = hashes.take();
  }
  if constexpr (merges<Whole>)
    out[work.steps].push_back(merged_weights(model, world));
  return out;
}

/// A run on thread ranks.
template <class Whole>
sw::HashRecord on_mesh(const Cut& cut, const typename Whole::Config& config, const Work& work = {}) {
  sw::HashRecord out;
  CHECK(on_ranks(cut.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
          sw::HashRecord own = train<Whole>(world, cut, config, work);
          findings.expect(own.size() == static_cast<std::size_t>(work.steps), "steps");
          if (world.rank() == 0)
            out = std::move(own);
        }) == "");
  return out;
}

/// Empty if all that both runs must have is equal.
inline std::string text_of(const sw::HashRecord& left, const sw::HashRecord& right) {
  const sw::HashComparison found = sw::compare_hashes(left, right);
  return found.difference ? found.difference->text() : found.unmatched;
}

/// Compares runs on thread ranks with that of one rank.
template <class Whole>
void check(const typename Whole::Config& config, const std::vector<Cut>& cuts, const Work& work = {}) {
  const sw::HashRecord one = on_mesh<Whole>({}, config, work);
  for (const Cut& cut : cuts) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Whole>(cut, config, work)) == "");
  }
}

/// Compares runs on four ranks, threads or processes, with that of one rank.
template <class Whole>
void check_four(const typename Whole::Config& config, const std::vector<Cut>& cuts, const Work& work = {}) {
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          const bool compares = world.rank() == 0; // all ranks have the same hashes
          const sw::HostCommunicator alone = world.split(world.rank(), 0, "alone");
          const sw::HashRecord one = compares ? train<Whole>(alone, {}, config, work) : sw::HashRecord();
          for (const Cut& cut : cuts) {
            const sw::HashRecord record = train<Whole>(world, cut, config, work);
            const std::string difference = compares ? text_of(one, record) : "";
            findings.expect(difference.empty(), cut.text(), ": ", difference);
          }
        }) == "");
}

/// Meshes of four ranks for a model of two layers and four heads.
inline std::vector<Cut> cuts_of_four() {
  return {{.inside = {.dp = 4}, .microbatches = 2},
          {.inside = {.dpr = 2, .dp = 2}, .microbatches = 4},
          {.inside = {.tp = 4}, .microbatches = 2},
          {.inside = {.cp = 4}, .microbatches = 8},
          {.inside = {.dp = 2, .tp = 2}},
          {.inside = {.dp = 2, .cp = 2}, .microbatches = 2},
          {.inside = {.cp = 2, .tp = 2}, .microbatches = 4},
          {.pp = 2, .inside = {.tp = 2}, .microbatches = 8},
          {.pp = 2, .inside = {.cp = 2}, .microbatches = 2, .schedule = "gpipe"},
          {.pp = 2, .inside = {.dp = 2}, .microbatches = 4, .schedule = "dualpipe"}};
}

/// Other meshes for such a model.
inline std::vector<Cut> other_cuts() {
  return {{.microbatches = 8},
          {.inside = {.dp = 2}, .microbatches = 4},
          {.inside = {.dp = 8}},
          {.inside = {.tp = 2}},
          {.inside = {.cp = 2}, .microbatches = 2},
          {.pp = 2, .microbatches = 8},
          {.inside = {.dp = 2, .tp = 4}, .microbatches = 4},
          {.inside = {.dp = 2, .cp = 2, .tp = 2}},
          {.pp = 2, .inside = {.dp = 2, .tp = 2}, .microbatches = 4}};
}

} // namespace nn_test
