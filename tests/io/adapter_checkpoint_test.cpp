// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"
#include "train/small_model.hpp"

#include <shardwright/io/checkpoint/save_training.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Checkpoints of a model with frozen weights: as a whole, and of the trained parameters alone.

namespace {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using shardwright_test::Scratch;

template <class Element>
using Description = sw::Adapted<train_test::SmallModel<Element, sw::Frozen<sw::Zero3>>>;

template <class Element> struct Run {
  using Model = sw::SingleStageModel<Description<Element>>;
  using Batch = typename Model::Batch;
  Run(const sw::HostCommunicator& world, int tensor)
      : mesh(train_test::small_mesh(world, tensor)), model(mesh, {{}, {.rank = 2}}, 3),
        training(mesh, model, sw::AdamW(of_one_group())) {}

  [[nodiscard]] static sw::AdamWOptions of_one_group() {
    sw::AdamWOptions out;
    out.groups = {{.matches = [](const sw::ParameterInfo&) { return true; }}};
    return out;
  }
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
          run.training.optimizer().set_factor(0, 0.3); // saved with the run
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

TEST_CASE("without conversion, frozen low-precision weights are not read from another type") {
  const Scratch scratch;
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          const auto mesh = train_test::small_mesh(world, 2);
          using Weight = sw::Layout<2, sw::Shard<1, sw::axis::tp>>;
          const auto layer = [&]<class Element>(Element, double deviation) {
            sw::Linear<sw::Layout<2>, Weight, sw::ModelPlan<Element, sw::Frozen<sw::Zero3>>> out(
                mesh, {3, 4}, sw::Initial::normal(deviation));
            sw::initialize(out, 1);
            return out;
          };
          auto wide = layer(float{}, 1);
          auto narrow = layer(sw::bfloat16{}, 2);
          sw::AdamW optimizer;
          cp::Saver saver(world, scratch.root() / "wide");
          cp::stage(wide, optimizer, saver.staging());
          cp::Description of_wide = about();
          of_wide.step = 3;
          saver.start(of_wide, 1);
          saver.finish();
          const cp::Reader reader = newest(scratch, "wide");
          const auto stored = [&] {
            const auto& all = narrow.weight().stored();
            std::vector<float> out;
            for (std::size_t i = 0; i < all.local_size(); ++i)
              out.push_back(static_cast<float>(all.data()[i]));
            return out;
          };
          const std::vector<float> before = stored();
          const std::string text =
              failure_of<sw::DataError>([&] { cp::read_state(reader, narrow, optimizer); });
          findings.expect(has(text, "BF16 [3, 4], but F32 [3, 4] was saved"), text);
          findings.expect(stored() == before, "nothing has changed");
          cp::read_state(reader, narrow, optimizer, true);
          std::vector<float> rounded;
          for (std::size_t i = 0; i < wide.weight().stored().local_size(); ++i)
            rounded.push_back(static_cast<float>(sw::bfloat16(wide.weight().stored().data()[i])));
          findings.expect(stored() == rounded && stored() != before, "rounded on request");
        }) == "");
}

TEST_CASE("a model with merged adapters is neither saved nor read") {
  const Scratch scratch;
  CHECK(
      on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
        Run<double> run(world, 2);
        static_cast<void>(run.step(3));
        cp::Saver saver(world, scratch.root() / "whole");
        cp::save(saver, run.training, about(), 1);
        const std::vector<double> wanted = run.step(2);
        sw::merge_adapters(run.model);
        const auto expect_refused = [&](const std::string& text) {
          findings.expect(has(text, "the adapters of a model must not be merged while it is saved or read") &&
                              has(text, "(call unmerge_adapters first)"),
                          text);
        };
        sw::TrainedParameters adapters{run.model};
        expect_refused(failure_of<sw::LifecycleError>([&] { cp::save(saver, run.training, about(), 1); }));
        expect_refused(failure_of<sw::LifecycleError>(
            [&] { cp::stage(adapters, run.training.optimizer(), saver.staging()); }));
        const cp::Reader reader = newest(scratch, "whole");
        expect_refused(failure_of<sw::LifecycleError>(
            [&] { cp::read_state(reader, run.model, run.training.optimizer()); }));
        expect_refused(
            failure_of<sw::DataError>([&] { cp::load(world, reader, run.model, run.training.optimizer()); }));
        sw::unmerge_adapters(run.model);
        cp::load(world, reader, run.model, run.training.optimizer());
        const std::vector<double> again = run.step(2);
        findings.expect(again.size() == wanted.size() && again != wanted, "other batches, and no error");
      }) == "");
}

namespace {

/// Frozen weights, with or without an adapter, and the load of experts, which every step changes.
struct Routed {
  using Logits = sw::Layout<2, sw::Shard<0, sw::axis::dp>>;
  template <class Mesh>
  Routed(const Mesh& mesh, bool adapted, double bias)
      : up(mesh, {3, 4}, sw::Initial::normal(1)), load(mesh, 2) {
    if (adapted)
      sw::adapt(up, {.rank = 2}, "up");
    sw::initialize(*this, 1);
    load.set_state({{"bias", {bias, 2}}, {"counts", {1, 2, 4}}});
  }
  auto members() { return sw::members("up", up, "load", load); }

  sw::Linear<Logits, sw::Layout<2>, sw::ModelPlan<double, sw::Frozen<sw::Zero3>>> up;
  sw::ExpertLoad<Logits> load;
};
/// The same in a stage, as models of a pipeline are.
struct Staged {
  struct Stage {
    Routed& of;
    [[nodiscard]] std::vector<std::vector<sw::detail::ListedPart>> parts() const {
      std::vector<std::vector<sw::detail::ListedPart>> out(1);
      sw::detail::list_parts(of, {}, out.front());
      return out;
    }
  };
  Routed& of;
  template <class Visitor> void for_each_parameter(Visitor&& visit) { sw::for_each_parameter(of, visit); }
  template <class Visitor> void for_each_stage(Visitor&& visit) {
    Stage stage{of};
    visit(stage);
  }
};

} // namespace

TEST_CASE("checkpoints of trained parameters hold the load of experts, once") {
  for (const auto& [adapted, staged] :
       {std::pair{true, false}, std::pair{false, false}, std::pair{true, true}, std::pair{false, true}}) {
    const Scratch scratch;
    const bool has_adapter = adapted, in_stage = staged;
    CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
            const auto mesh = train_test::small_mesh(world, 2);
            Routed model(mesh, has_adapter, 0.25), other(mesh, has_adapter, 1);
            sw::AdamW optimizer;
            const auto with = [&](Routed& of, const auto& use) {
              Staged stages{of};
              sw::TrainedParameters in_stages{stages};
              sw::TrainedParameters plain{of};
              if (in_stage)
                use(in_stages);
              else
                use(plain);
            };
            cp::Saver saver(world, scratch.root() / "alone");
            cp::Staging& staging = saver.staging();
            with(model, [&](auto& trained) { cp::stage(trained, optimizer, staging); });
            double copies = 0;
            for (const cp::StagedBlock& each : staging.blocks())
              copies += each.block.tensor == "load.bias" && !each.memory.empty() ? 1 : 0;
            sw::HostCommunicator(world).all_reduce_in_place(std::span(&copies, 1));
            findings.expect(copies == 1, "ranks that write it: ", copies);
            cp::Description of_model = about();
            of_model.step = 3;
            saver.start(of_model, 1);
            saver.finish();
            const cp::Reader reader = newest(scratch, "alone");
            findings.expect(!reader.holds("up"), "the base");
            with(other, [&](auto& trained) { cp::load(world, reader, trained, optimizer); });
            findings.expect(other.load.bias().data()[0] == 0.25F, "the bias");
          }) == "");
  }
}

namespace {

/// A quantized matrix, or the same in float.
template <class Form> struct OneMatrix {
  template <class Mesh>
  OneMatrix(const Mesh& mesh, std::uint64_t seed) : up(mesh, {4, 128}, sw::Initial::normal(1)) {
    sw::initialize(*this, seed);
  }
  auto members() { return sw::members("up", up); }
  [[nodiscard]] std::vector<float> values() {
    up.weight().start_gather();
    up.weight().finish_gather();
    const auto whole = sw::local_values(sw::redistribute<sw::Layout<2>>(up.weight().weight()));
    up.weight().release();
    return {whole.begin(), whole.end()};
  }

  sw::Linear<sw::Layout<2, sw::Shard<0, sw::axis::dp>>, sw::Layout<2, sw::Shard<1, sw::axis::tp>>,
             sw::ModelPlan<float, sw::Frozen<sw::Zero3, Form>>>
      up;
};

} // namespace

TEST_CASE("quantized weights are saved as words, read on another mesh, and made of other weights") {
  using Coarse = OneMatrix<sw::NormalFloat4>;
  const Scratch scratch;
  CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
          const auto mesh = train_test::small_mesh(world, 2);
          sw::AdamW none;
          const auto saved = [&](auto& model, const char* name) {
            cp::Saver saver(world, scratch.root() / name);
            cp::stage(model, none, saver.staging());
            cp::Description of_model = about();
            of_model.step = 3;
            saver.start(of_model, 1);
            saver.finish();
            return newest(scratch, name);
          };
          Coarse model(mesh, 1);
          const std::vector<float> wanted = model.values();
          const cp::Reader words = saved(model, "words");
          findings.expect(words.tensor("up.nf4").dtype == sw::safetensors::Dtype::u32 && !words.holds("up"),
                          "the words");
          Coarse elsewhere(train_test::small_mesh(world, 1), 2);
          findings.expect(elsewhere.values() != wanted, "another seed");
          cp::load(world, words, elsewhere, none);
          findings.expect(elsewhere.values() == wanted, "from words");
          OneMatrix<void> whole(mesh, 1);
          const cp::Reader floats = saved(whole, "floats");
          Coarse made(mesh, 2);
          cp::load(world, floats, made, none);
          findings.expect(made.values() == wanted, "from weights in float");
        }) == "");
}
