// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"
#include "train/small_model.hpp"

#include <shardwright/io/checkpoint/save_training.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// Checkpoints of a model with frozen weights: as a whole, and of the trained parameters alone.

namespace {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using shardwright_test::Scratch;

template <class Element>
using Description = sw::Adapted<train_test::SmallModel<Element, sw::Frozen<sw::Zero3>>>;

template <class Element> struct Run {
  using Model = sw::SingleStageModel<Description<Element>>;
  using Batch = typename Model::Batch;
  Run(const sw::HostCommunicator& world, int tensor)
      : mesh(train_test::small_mesh(world, tensor)), model(mesh, {{}, {.rank = 2}}, 3),
        training(mesh, model, sw::AdamW()) {}

  std::vector<double> step(int count) {
    std::vector<double> out;
    for (int i = 0; i < count; ++i)
      out.push_back(training
                        .step(
                            [&](std::int64_t number) {
                              batches.assign(1,
                                             train_test::small_batch<Description<Element>>(mesh, number, 0));
                              batches.front().origin.sequences = 7;
                              return std::span<const Batch>(batches);
                            },
                            0.01)
                        ->loss);
    return out;
  }

  typename Description<Element>::Mesh mesh;
  Model model;
  sw::Training<Model> training;
  std::vector<Batch> batches;
};

[[nodiscard]] cp::Description about() {
  cp::Description out;
  out.configuration_hash = "0123";
  return out;
}
[[nodiscard]] cp::Reader newest(const Scratch& scratch, const char* name) {
  return cp::Reader(scratch.root() / name / "step-3");
}
/// How many tensors of a checkpoint are of adapters, of other weights, and of an optimizer of others.
struct Counts {
  std::ptrdiff_t adapters = 0, others = 0, states_of_others = 0;
};
[[nodiscard]] Counts counts_of(const cp::Reader& reader) {
  Counts out;
  for (const auto& [name, saved] : reader.manifest().tensors)
    ++(name.find(".lora.") != std::string::npos ? out.adapters
       : name.starts_with("optimizer/")         ? out.states_of_others
                                                : out.others);
  return out;
}

} // namespace

TEST_CASE("a run with frozen weights is saved and continues, and adapters alone continue over the base") {
  const Scratch scratch;
  CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
          Run<double> run(world, 2);
          static_cast<void>(run.step(3));
          cp::Saver whole(world, scratch.root() / "whole");
          cp::save(whole, run.training, about(), 1);
          cp::Saver alone(world, scratch.root() / "alone");
          sw::TrainedParameters adapters{run.model};
          cp::stage(adapters, run.training.optimizer(), alone.staging());
          cp::Description of_adapters = about();
          of_adapters.step = 3;
          cp::add_progress(of_adapters.more, run.training.progress());
          alone.start(of_adapters, 1);
          alone.finish();
          // Of eight layers: A and B, each with two moments and a number of steps.
          const Counts all = counts_of(newest(scratch, "whole")), some = counts_of(newest(scratch, "alone"));
          findings.expect(all.adapters == 8 * 2 * 4 && all.others == 8 && all.states_of_others == 0,
                          "whole: ", all.adapters, " ", all.others, " ", all.states_of_others);
          findings.expect(some.adapters == 8 * 2 * 4 && some.others == 0 && some.states_of_others == 0,
                          "alone: ", some.adapters, " ", some.others, " ", some.states_of_others);
          const std::vector<double> wanted = run.step(3);

          Run<double> same(world, 2);
          cp::load(world, newest(scratch, "whole"), same.training, "0123");
          findings.expect(same.step(3) == wanted, "from the whole");
          Run<double> over(world, 2);
          sw::TrainedParameters loaded{over.model};
          const cp::Reader reader = newest(scratch, "alone");
          cp::load(world, reader, loaded, over.training.optimizer());
          over.training.resume(cp::progress_of(reader.manifest().description.more));
          findings.expect(over.step(3) == wanted, "from the adapters");
          Run<double> elsewhere(world, 1); // on another mesh
          cp::load(world, newest(scratch, "whole"), elsewhere.training, "0123");
          const std::vector<double> near = elsewhere.step(3);
          for (std::size_t i = 0; i < near.size(); ++i)
            findings.expect(std::abs(near[i] - wanted[i]) < 1e-12, "on another mesh: ", near[i]);
        }) == "");
}

TEST_CASE("frozen low-precision weights are saved as they are, and need no master copy") {
  const Scratch scratch;
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          Run<sw::bfloat16> run(world, 2);
          run.model.for_each_parameter([&](auto& parameter) {
            constexpr bool trained = std::remove_reference_t<decltype(parameter)>::trained;
            findings.expect(parameter.master().has_value() == trained, parameter.name());
          });
          static_cast<void>(run.step(3));
          cp::Saver saver(world, scratch.root() / "whole");
          cp::save(saver, run.training, about(), 1);
          const std::vector<double> wanted = run.step(2);
          const cp::Reader reader = newest(scratch, "whole");
          findings.expect(reader.tensor("layers.1.up").dtype == sw::safetensors::Dtype::bf16, "the base");
          findings.expect(reader.tensor("layers.1.up.lora.a").dtype == sw::safetensors::Dtype::f32, "A");
          Run<sw::bfloat16> same(world, 2);
          cp::load(world, reader, same.training, "0123");
          findings.expect(same.step(2) == wanted, "the same steps");
        }) == "");
}
