// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/hash.hpp>
#include <shardwright/io/hash_record.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/checks/step_hashes.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A decoder on a Reproducible target: losses, gradients, norms and weights have the same bits on every mesh.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr int steps = 3;
constexpr std::int64_t batch = 8;

struct Cut {
  int pp = 1;
  sw::DecoderExtents inside{};
  int microbatches = 1;
  std::string schedule = "1f1b";

  [[nodiscard]] int ranks() const { return pp * inside.dpr * inside.dp * inside.cp * inside.tp; }
  [[nodiscard]] std::string text() const {
    return "pp=" + std::to_string(pp) + " dpr=" + std::to_string(inside.dpr) +
           " dp=" + std::to_string(inside.dp) + " cp=" + std::to_string(inside.cp) +
           " tp=" + std::to_string(inside.tp) + ", " + std::to_string(microbatches) + " microbatches, " +
           schedule;
  }
};

/// A fault that a test plants.
enum class Fault : std::uint8_t { none, weight, token };

sw::DecoderConfig config() {
  sw::DecoderConfig out;
  out.layers = 4;
  out.width = 32;
  out.heads = 4;
  out.kv_heads = 4;
  out.hidden = 24;
  out.vocabulary = 16;
  out.sequence = 16;
  out.tied_embedding = true;
  out.dropout = 0.1;
  return out;
}

/// The steps of a run, the same on every rank. Collective.
template <class Layouts, class Element>
sw::HashRecord train(const sw::HostCommunicator& world, const Cut& cut, Fault fault) {
  using Model = sw::PipelineModel<sw::Decoder<Layouts, Element, sw::Reproducible<sw::DefaultTarget>>>;
  using Ids = typename Model::Batch::Ids;
  const auto whole = sw::decoder_pipeline_mesh(world, cut.pp, cut.inside);
  const auto mesh = sw::stage_mesh(whole);
  const sw::HostCommunicator pipeline = whole.template communicator<pp>();
  const sw::Schedule schedule = sw::make_schedule(cut.schedule, cut.pp, cut.microbatches);
  Model model(mesh, pipeline, schedule.placement(),
              sw::LayerPartition(static_cast<int>(config().layers), schedule.stages()), config(), 5);
  sw::StepHashes<Model> hashes(model, world);
  sw::TrainingOptions options;
  hashes.watch(options);
  sw::Training<Model> training(mesh, model, world, pipeline, schedule, sw::AdamW({.max_norm = 0.5}), options);
  sw::HashRecord out;
  for (int step = 0; step < steps; ++step) {
    const auto batches = [&](std::int64_t) {
      std::vector<typename Model::Batch> made;
      const std::int64_t rows = batch / cut.microbatches;
      for (int pass = 0; pass < cut.microbatches; ++pass) {
        const auto read = [&](std::int64_t row, std::span<std::int32_t> ids, int shift) {
          for (std::size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<std::int32_t>(
                (sw::detail::mixed(static_cast<std::uint64_t>(step * batch + row), i / 2) + i +
                 static_cast<std::size_t>(shift)) %
                16);
          if (fault == Fault::token && step == 1 && row == 5)
            ids[7] ^= 1;
        };
        Ids ids(mesh, {rows, config().sequence}), targets(mesh, {rows, config().sequence});
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
    if (fault == Fault::weight && step == 1)
      model.for_each_parameter([&](auto& parameter) {
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
  return out;
}

template <class Layouts, class Element> sw::HashRecord on_mesh(const Cut& cut, Fault fault = Fault::none) {
  sw::HashRecord out;
  CHECK(on_ranks(cut.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
          sw::HashRecord own = train<Layouts, Element>(world, cut, fault);
          findings.expect(own.size() == steps, "steps");
          if (world.rank() == 0)
            out = std::move(own);
        }) == "");
  return out;
}

std::string text_of(const sw::HashRecord& left, const sw::HashRecord& right) {
  const auto difference = sw::first_difference(left, right);
  return difference ? difference->text() : "";
}

using Single = sw::DecoderLayouts<true, sw::Zero2>; // the stream is split over tp
using Narrow = sw::DecoderLayouts<false, sw::Zero3>;

} // namespace

TEST_CASE("a decoder has the same bits on every mesh, schedule and microbatch", "[reproducible]") {
  const sw::HashRecord one = on_mesh<Single, float>({});
  for (const Cut& cut :
       {Cut{.inside = {.dp = 8}}, Cut{.inside = {.dpr = 2, .dp = 2}, .microbatches = 2},
        Cut{.microbatches = 8}, Cut{.inside = {.tp = 2}}, Cut{.inside = {.dp = 2, .tp = 4}},
        Cut{.inside = {.cp = 2}, .microbatches = 4}, Cut{.inside = {.dp = 2, .cp = 2, .tp = 2}},
        Cut{.pp = 2, .inside = {.dp = 2, .tp = 2}, .microbatches = 4},
        Cut{.pp = 2, .inside = {.cp = 2}, .microbatches = 4, .schedule = "zbv"},
        Cut{.pp = 2, .inside = {.dp = 2}, .microbatches = 4, .schedule = "dualpipe"}}) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Single, float>(cut)) == "");
  }
}

TEST_CASE("a decoder of bfloat16 with float masters, too", "[reproducible]") {
  const sw::HashRecord one = on_mesh<Narrow, sw::bfloat16>({});
  for (const Cut& cut :
       {Cut{.inside = {.dp = 4}}, Cut{.inside = {.tp = 4}, .microbatches = 2},
        Cut{.inside = {.dp = 2, .cp = 2}}, Cut{.inside = {.cp = 2, .tp = 2}, .microbatches = 2},
        Cut{.pp = 4, .inside = {.dp = 2}, .microbatches = 4},
        Cut{.pp = 2, .inside = {.tp = 2}, .microbatches = 4, .schedule = "dualpipe"}}) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Narrow, sw::bfloat16>(cut)) == "");
  }
}

TEST_CASE("a difference of one bit is named, with its step, tensor and microbatch", "[reproducible]") {
  const Cut cut{.pp = 2, .inside = {.dp = 2}, .microbatches = 4};
  const sw::HashRecord one = on_mesh<Single, float>({.microbatches = 4});
  CHECK(text_of(one, on_mesh<Single, float>(cut, Fault::weight)) == "step 2: weights of layers.2.mlp_norm");
  const std::string token = text_of(one, on_mesh<Single, float>(cut, Fault::token));
  CHECK(token.starts_with("step 2: loss of microbatch 2 of 4; then "));
}
