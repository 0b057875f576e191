// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"
#include "train/small_model.hpp"

#include <shardwright/io/checkpoint/save_training.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

// Trainings that are saved on one mesh and continue on it and on others.

namespace {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
namespace fs = std::filesystem;
using namespace shardwright_test;
using train_test::small_batch;

constexpr int microbatches = 4;
constexpr int steps_before = 3;
constexpr int steps_after = 5;
constexpr double rate = 0.01;

struct Setup {
  int pp, dp, cp, tp;
  const char* schedule;
  [[nodiscard]] int ranks() const { return pp * dp * cp * tp; }
};
constexpr std::array<Setup, 6> setups{{{1, 1, 1, 1, "1f1b"},
                                       {1, 2, 1, 2, "1f1b"},
                                       {3, 1, 1, 1, "zbh1"},
                                       {2, 1, 1, 2, "interleaved"},
                                       {1, 2, 2, 1, "1f1b"},
                                       {2, 2, 1, 1, "dualpipe"}}};

/// A rank's part of a training of four layers.
template <class Description> struct Run {
  using Model = sw::PipelineModel<Description>;
  using Batch = typename Description::Batch;
  using Pipeline = sw::DeviceMesh<sw::axis::pp, sw::axis::dp, sw::axis::cp, sw::axis::tp>;

  Run(const sw::HostCommunicator& world, const Setup& at)
      : whole(world, sw::extent<sw::axis::pp>(at.pp), sw::extent<sw::axis::dp>(at.dp),
              sw::extent<sw::axis::cp>(at.cp), sw::extent<sw::axis::tp>(at.tp)),
        mesh(whole.template communicator<sw::axis::dp, sw::axis::cp, sw::axis::tp>(),
             sw::extent<sw::axis::dp>(at.dp), sw::extent<sw::axis::cp>(at.cp),
             sw::extent<sw::axis::tp>(at.tp)),
        schedule(sw::make_schedule(at.schedule, at.pp, microbatches)),
        model(mesh, whole.template communicator<sw::axis::pp>(), schedule.placement(),
              sw::LayerPartition(4, schedule.stages()), {4}, 3),
        training(mesh, model, whole.world(), whole.template communicator<sw::axis::pp>(), schedule,
                 sw::AdamW(), options()) {}

  /// The losses of the next steps.
  std::vector<double> step(int count) {
    std::vector<double> out;
    for (int i = 0; i < count; ++i)
      out.push_back(training
                        .step(
                            [&](std::int64_t number) {
                              std::vector<Batch> batches;
                              for (int pass = 0; pass < microbatches; ++pass)
                                batches.push_back(small_batch<Description>(mesh, number, pass));
                              return batches;
                            },
                            rate)
                        ->loss);
    return out;
  }

  static sw::TrainingOptions options() {
    sw::TrainingOptions out;
    if (std::is_same_v<typename Description::element, sw::float16>)
      out.loss_scale = sw::LossScaleOptions{.initial_exponent = 7, .growth_steps = 2};
    return out;
  }

  Pipeline whole;
  typename Description::Mesh mesh;
  sw::Schedule schedule;
  Model model;
  sw::Training<Model> training;
};

/// Whether the state that a rank would save is bitwise the saved one.
template <class Description> bool holds(Run<Description>& run, const cp::Reader& reader) {
  cp::Staging own;
  cp::stage(run.model, run.training.optimizer(), own);
  std::vector<std::byte> saved;
  for (const cp::StagedBlock& each : own.blocks()) {
    saved.resize(each.memory.size());
    if (saved.empty())
      continue;
    reader.read(each.block.tensor, {each.block.offset, each.block.extent}, saved);
    if (!std::equal(saved.begin(), saved.end(), each.memory.begin(), each.memory.end()))
      return false;
  }
  return !own.blocks().empty();
}

/// The result of a run: its losses after the save, and its complete state at the end.
struct Left {
  std::vector<double> losses;
  sw::TrainingProgress progress;
};

using Kinds =
    std::tuple<train_test::SmallModel<double, sw::DataParallel>, train_test::SmallModel<double, sw::Zero1>,
               train_test::SmallModel<double, sw::Zero2>, train_test::SmallModel<double, sw::Zero3>,
               train_test::SmallModel<sw::float16, sw::Zero3>>;
constexpr std::size_t kinds = std::tuple_size_v<Kinds>;
constexpr std::size_t exact_kinds = kinds - 1; // whose numbers are close on all meshes

/// Calls visit.operator()<Description>() for the kind with that number.
template <std::size_t kind = 0, class Visit> void with_kind(std::size_t number, const Visit& visit) {
  if constexpr (kind < kinds) {
    if (number == kind)
      visit.template operator()<std::tuple_element_t<kind, Kinds>>();
    else
      with_kind<kind + 1>(number, visit);
  }
}

cp::Description about() { return {0, "a mesh", "0123", {{"data", "waves"}}}; }

std::unique_ptr<const cp::Reader> opened(const sw::HostCommunicator& world, const fs::path& directory) {
  std::vector<std::string> refused;
  return cp::open_newest(world, directory, refused);
}

/// Every rank throws an error with this text.
template <class Function>
void expect_sentence(Findings& findings, const std::string& part, const Function& function) {
  std::string sentence = "nothing";
  try {
    function();
  } catch (const sw::Error& error) {
    sentence = error.what();
  }
  findings.expect(has(sentence, part), "'", sentence, "' for '", part, "'");
}

} // namespace

TEST_CASE("save_training: a run resumes from a checkpoint of any mesh, schedule and sharding") {
  const Scratch scratch;
  std::vector<Left> left(kinds * setups.size());
  const auto place = [&](std::size_t run) { return scratch.root() / std::to_string(run); };
  const auto each_run = [&](std::size_t run, const auto& visit) {
    const Setup& at = setups[run % setups.size()];
    with_kind(run / setups.size(), [&]<class Description>() {
      CHECK(on_ranks(at.ranks(), [&](sw::HostCommunicator world, Findings& findings) {
              Run<Description> own(world, at);
              visit(own, world, findings);
            }) == "");
    });
  };
  for (std::size_t run = 0; run < left.size(); ++run)
    each_run(run, [&](auto& own, const sw::HostCommunicator& world, Findings& findings) {
      static_cast<void>(own.step(steps_before));
      cp::Saver saver(world, place(run));
      cp::save(saver, own.training, about(), 1);
      findings.expect(saver.last()->step == steps_before, "its step");
      std::vector<double> losses = own.step(steps_after);
      if (world.rank() == 0)
        left[run] = {std::move(losses), own.training.progress()};
    });
  std::size_t pairs = 0;
  for (std::size_t run = 0; run < left.size(); ++run)
    for (const std::size_t away : {0, 7, 16}) {
      const std::size_t exact = exact_kinds * setups.size();
      const std::size_t from =
          run < exact ? (run + away) % exact : exact + (run + away) % (left.size() - exact);
      pairs += from == run ? 0 : 1;
      CAPTURE(run, from);
      each_run(run, [&](auto& own, const sw::HostCommunicator& world, Findings& findings) {
        const auto reader = opened(world, place(from));
        cp::load(world, *reader, own.training, "0123");
        findings.expect(holds(own, *reader), "parameters and states, to the bit, rank ", world.rank());
        const std::vector<double> losses = own.step(steps_after);
        findings.expect(own.training.progress() == left[from].progress, "the place in the run");
        // Ranks of tp round their shares of a sum to float16 before these are added.
        const bool same_sums = setups[run % setups.size()].tp == setups[from % setups.size()].tp;
        const double allowed = run == from ? 0 : run < exact ? 1e-12 : same_sums ? 1e-6 : 1e-3;
        for (std::size_t i = 0; i < losses.size(); ++i)
          findings.expect(std::abs(losses[i] - left[from].losses[i]) <= allowed * losses[i], "loss ", i,
                          " is ", losses[i], " and not ", left[from].losses[i]);
      });
    }
  CHECK(pairs == 60);
}

TEST_CASE("save_training: a save runs concurrently with the steps, and contains no later value") {
  const Scratch scratch;
  using Description = train_test::SmallModel<double, sw::Zero1>;
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          Run<Description> run(world, setups[3]);
          static_cast<void>(run.step(2));
          cp::Saver saver(world, scratch.root());
          findings.expect(saver.poll() && !saver.last(), "nothing is under way");
          cp::start_save(saver, run.training, about(), 2);
          Run<Description> same(world, setups[3]);
          static_cast<void>(same.step(2));
          static_cast<void>(run.step(1));
          const auto staged_at = [&] {
            std::vector<const std::byte*> out;
            cp::Staging& memory = saver.staging();
            cp::stage(run.model, run.training.optimizer(), memory);
            for (const cp::StagedBlock& each : memory.blocks())
              out.push_back(each.memory.data());
            return out;
          };
          const auto before = staged_at(); // waits
          findings.expect(saver.last() && saver.last()->step == 2 && saver.last()->bytes > 0,
                          "step 2 is saved");
          findings.expect(holds(same, *opened(world, scratch.root())), "what was there at step 2");
          findings.expect(staged_at() == before, "the memory of the copies stays");

          cp::start_save(saver, run.training, about(), 2);
          while (!saver.poll()) {
          }
          findings.expect(saver.last()->step == 3 && holds(run, *opened(world, scratch.root())), "step 3");

          // A failure in the background is an error of the next call, on every rank.
          cp::Staging& memory = saver.staging();
          if (world.rank() != 1)
            cp::stage(run.model, run.training.optimizer(), memory);
          saver.start({4, "", "", {}}, 1);
          expect_sentence(findings, "rank 0: checkpoint: tensor", [&] { saver.finish(); });
          findings.expect(saver.poll() && saver.last()->step == 3, "that save is gone");
          static_cast<void>(run.step(1));
          cp::save(saver, run.training, about(), 1);
          findings.expect(saver.last()->step == 4, "and the next one succeeds");
          // One that is never waited for is dropped.
          static_cast<void>(run.step(1));
          cp::start_save(saver, run.training, about(), 1);
        }) == "");
  CHECK(cp::saved_steps(scratch.root()) == std::vector<std::uint64_t>{4});
}

namespace {

/// An optimizer as checkpoints of earlier versions saw it: without the steps of each parameter.
struct WithoutSteps {
  sw::AdamW& optimizer;
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor&& visit) {
    optimizer.for_each_state(parameter, visit);
  }
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor&& visit) {
    optimizer.for_each_state_made(parameter, visit);
  }
};

} // namespace

TEST_CASE("save_training: steps are restored for each parameter, from checkpoints without them for all") {
  const Scratch scratch;
  using Description = train_test::SmallModel<double, sw::Zero1>;
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          const Setup at{2, 1, 1, 1, "1f1b"};
          Run<Description> run(world, at);
          static_cast<void>(run.step(3));
          cp::Saver old_form(world, scratch.root() / "old");
          WithoutSteps without{run.training.optimizer()};
          cp::stage(run.model, without, old_form.staging());
          cp::Description old_about = about();
          old_about.step = 3;
          cp::add_progress(old_about.more, run.training.progress());
          old_form.start(old_about, 1);
          old_form.finish();
          cp::Saver saver(world, scratch.root() / "new");
          cp::save(saver, run.training, about(), 1);
          const std::vector<double> wanted = run.step(3);
          const auto all_have = [&](Run<Description>& found, std::int64_t steps) {
            sw::for_each_parameter(found.model, [&](auto& parameter) {
              const std::int64_t has = found.training.optimizer().parameter_steps(parameter);
              findings.expect(has == steps, parameter.name(), " has ", has, " steps and not ", steps);
            });
          };
          for (const char* form : {"old", "new"}) {
            const auto reader = opened(world, scratch.root() / form);
            const bool counts =
                std::any_of(reader->manifest().tensors.begin(), reader->manifest().tensors.end(),
                            [](const auto& each) { return each.first.starts_with("optimizer/steps/"); });
            findings.expect(counts == (form == std::string("new")), form, " form");
            Run<Description> next(world, at);
            cp::load(world, *reader, next.training, "0123");
            all_have(next, 3);
            findings.expect(next.step(3) == wanted, "the same steps from the ", form, " form");
          }
          // A loop without a Training needs no more than the model and the optimizer.
          Run<Description> own(world, at);
          cp::load(world, *opened(world, scratch.root() / "new"), own.model, own.training.optimizer());
          all_have(own, 3);
        }) == "");
}

TEST_CASE("save_training: a checkpoint that does not fit is rejected by all ranks, and nothing changes") {
  const Scratch scratch;
  using Wide = train_test::SmallModel<double, sw::Zero1>;
  using Narrow = train_test::SmallModel<sw::float16, sw::Zero3>;
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          Run<Wide> run(world, setups[1]);
          static_cast<void>(run.step(2));
          cp::Saver saver(world, scratch.root());
          cp::save(saver, run.training, about(), 1);
          const auto reader = opened(world, scratch.root());
          expect_sentence(findings, "must have the configuration of this run, but it has another one",
                          [&] { cp::load(world, *reader, run.training, "4567"); });
          findings.expect(reader->manifest().description.more.at("data") == "waves",
                          "what the program added");
          Run<Narrow> other(world, setups[5]);
          const std::vector<double> first = Run<Narrow>(world, setups[5]).step(1);
          expect_sentence(findings, "must be F32 [6, 6], but F64 [6, 6] was saved",
                          [&] { cp::load(world, *reader, other.training, "0123"); });
          findings.expect(other.step(1) == first, "nothing has changed");
          // Another element type on request: the numbers are rounded.
          Run<Narrow> converted(world, setups[5]);
          cp::load(world, *reader, converted.training, "0123", true);
          const std::vector<double> rounded = converted.step(2), exact = run.step(2);
          for (std::size_t i = 0; i < exact.size(); ++i)
            findings.expect(std::abs(rounded[i] - exact[i]) < 0.01 * exact[i], rounded[i], " and ", exact[i]);
          // Tensors that the model does not have.
          saver.staging().add("more", {1.0}, cp::Replica{static_cast<std::uint64_t>(world.rank()), 4});
          cp::Description later = about();
          later.step = 9;
          saver.start(later, 1);
          saver.finish();
          expect_sentence(findings, "'steps' must be a whole number, but it is missing",
                          [&] { cp::load(world, *opened(world, scratch.root()), run.training, ""); });
          expect_sentence(findings, "must hold the tensor '", [&] {
            cp::load(world, *opened(world, scratch.root()), run.model, run.training.optimizer());
          });
        }) == "");
}

namespace {

/// Experts over ep, their load, and values that no mesh changes.
struct Experts {
  using Weight = sw::Layout<3, sw::Shard<0, sw::axis::ep>, sw::Shard<2, sw::axis::tp>>;
  using Gradient = sw::Layout<3, sw::Shard<0, sw::axis::ep>, sw::Shard<2, sw::axis::tp>,
                              sw::Partial<sw::Sum, sw::axis::dp, sw::axis::cp>>;
  using Logits = sw::Layout<2, sw::Shard<0, sw::axis::dp, sw::axis::cp>>;

  template <class Mesh>
  Experts(const Mesh& mesh, int seed) : up(mesh, {5, 3, 7}, sw::Initial::normal(1)), load(mesh, 5) {
    sw::initialize(*this, static_cast<std::uint64_t>(seed));
    optimizer.for_each_state_made(up, [&](std::string_view name, auto& state) {
      sw::fill_normal(state, {static_cast<std::uint64_t>(seed), sw::detail::key_of(name)});
    });
    const double some = seed + 0.25;
    load.set_state({{"bias", {some, 2, 3, 4, 5}}, {"counts", {some - 0.25, 1, 2, 3, 4, 10}}});
  }
  auto members() { return sw::members("up", up, "load", load); }

  sw::Parameter<Weight, Gradient, sw::bfloat16, sw::Zero3> up;
  sw::ExpertLoad<Logits> load;
  sw::AdamW optimizer;
};

} // namespace

TEST_CASE("save_training: experts, their load and their master weights are restored on any other mesh") {
  const Scratch scratch;
  constexpr std::array<std::array<int, 4>, 5> meshes{
      {{1, 1, 1, 1}, {2, 1, 2, 1}, {1, 2, 1, 2}, {1, 1, 4, 1}, {1, 1, 2, 2}}}; // dp, cp, ep, tp
  const auto on_each = [&](const auto& visit) {
    for (std::size_t number = 0; number < meshes.size(); ++number) {
      const auto& at = meshes[number];
      CHECK(on_ranks(at[0] * at[1] * at[2] * at[3], [&](sw::HostCommunicator world, Findings& findings) {
              const sw::DeviceMesh mesh{world, sw::extent<sw::axis::dp>(at[0]),
                                        sw::extent<sw::axis::cp>(at[1]), sw::extent<sw::axis::ep>(at[2]),
                                        sw::extent<sw::axis::tp>(at[3])};
              visit(mesh, number, world, findings);
            }) == "");
    }
  };
  on_each([&](const auto& mesh, std::size_t number, const sw::HostCommunicator& world, Findings& findings) {
    Experts model(mesh, static_cast<int>(number));
    cp::Saver saver(world, scratch.root() / std::to_string(number));
    cp::stage(model, model.optimizer, saver.staging());
    saver.start({1, "", "", {}}, 1);
    saver.finish();
    findings.expect(saver.last().has_value(), "saved");
  });
  on_each([&](const auto& mesh, std::size_t, const sw::HostCommunicator& world, Findings& findings) {
    for (std::size_t from = 0; from < meshes.size(); ++from) {
      Experts wanted(mesh, static_cast<int>(from)), found(mesh, 99);
      const auto reader = opened(world, scratch.root() / std::to_string(from));
      const std::vector<std::string> names{"up",
                                           cp::state_name("up", "first moment"),
                                           "optimizer/second_moment/up",
                                           "optimizer/steps/up",
                                           "load.bias",
                                           "load.counts"};
      findings.expect(cp::require_state(*reader, found, found.optimizer) == names, "names");
      cp::read_state(*reader, found, found.optimizer);
      cp::Staging left, right;
      cp::stage(wanted, wanted.optimizer, left);
      cp::stage(found, found.optimizer, right);
      for (std::size_t i = 0; i < left.blocks().size(); ++i)
        findings.expect(left.blocks()[i].memory == right.blocks()[i].memory, left.blocks()[i].block.tensor,
                        " from mesh ", from);
      const auto& stored = wanted.up.stored();
      findings.expect(std::memcmp(stored.data(), found.up.stored().data(),
                                  stored.local_size() * sizeof(sw::bfloat16)) == 0,
                      "the weights that products read");
      findings.expect(found.load.bias().data()[0] == static_cast<float>(from) + 0.25F &&
                          found.load.last_step().tokens() == 10,
                      "the load");
    }
  });
}

TEST_CASE("save_training: the position in a run is restored from its texts") {
  const auto back = [](const sw::TrainingProgress& progress) {
    std::map<std::string, std::string> more{{"seed", "7"}};
    cp::add_progress(more, progress);
    return cp::progress_of(more) == progress && more.at("seed") == "7";
  };
  CHECK(back({7, 5, 2, {}, {}}));
  CHECK(back({1'000'000'000'000, 0, 0, sw::LossScaleState{-3, 1, 4}, {{0, 0.1}, {12, 1. / 3}}}));
  std::map<std::string, std::string> more;
  cp::add_progress(more, {});
  more["optimizer steps"] = "7x";
  CHECK_THROWS_WITH(cp::progress_of(more),
                    ContainsSubstring("'optimizer steps' must be a whole number, but it is '7x'"));
  more["optimizer steps"] = "7";
  more["learning rate factor of group 1"] = "half";
  CHECK_THROWS_WITH(cp::progress_of(more), ContainsSubstring("must be a number, but it is 'half'"));
}
