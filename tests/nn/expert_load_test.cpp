// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/experts/pipeline_loads.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/tape.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Mesh = sw::DeviceMesh<dp, cp, tp>;
using Counts = std::vector<std::int64_t>;

struct Extents3 {
  int dp, cp, tp;
  [[nodiscard]] int ranks() const { return dp * cp * tp; }
};
struct LoadPart {
  sw::NamedPart* part;
};
/// A rank's stage of a model whose only part is a load of experts.
class LoadStage {
public:
  LoadStage(int first_unit, sw::NamedPart& load) : first_unit_(first_unit), parts_{{LoadPart{&load}}} {}
  [[nodiscard]] int first_unit() const { return first_unit_; }
  [[nodiscard]] const auto& parts() const { return parts_; }

private:
  int first_unit_;
  std::vector<std::vector<LoadPart>> parts_;
};
struct LoadModel {
  std::vector<LoadStage> stages;
  void for_each_stage(const auto& visit) {
    for (LoadStage& stage : stages)
      visit(stage);
  }
};
constexpr std::array<Extents3, 6> meshes{{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 3}, {2, 2, 1}, {1, 2, 2}}};

} // namespace

TEST_CASE(
    "the bias of experts agrees with test vectors, changes only with a step, and is the same on every mesh") {
  for (const Extents3& extents : meshes) {
    INFO("dp " << extents.dp << " cp " << extents.cp << " tp " << extents.tp);
    CHECK(on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh(world, sw::extent<dp>(extents.dp), sw::extent<cp>(extents.cp),
                            sw::extent<tp>(extents.tp));
            const auto biased = [&](const std::vector<int>& wanted, bool recentre, double rate = 0.001) {
              // wanted[e] tokens choose expert e; one more is padding.
              std::vector<std::int32_t> choices;
              for (std::size_t e = 0; e < wanted.size(); ++e)
                choices.insert(choices.end(), static_cast<std::size_t>(wanted[e]),
                               static_cast<std::int32_t>(e));
              choices.push_back(-1);
              using Flat = sw::Layout<2, sw::Shard<0, dp, cp, tp>>;
              sw::ShardedTensor<Flat, std::int32_t> choice(mesh,
                                                           {static_cast<std::int64_t>(choices.size()), 1});
              for (std::size_t i = 0; i < choice.local_size(); ++i)
                choice.mutable_data()[i] = choices[static_cast<std::size_t>(choice.local_offset()[0]) + i];
              sw::ExpertLoad<Flat> load(mesh, static_cast<std::int64_t>(wanted.size()), {rate, recentre});
              static_assert(std::is_same_v<typename sw::ExpertCounts<Flat>::layout,
                                           sw::Layout<1, sw::Partial<sw::Sum, dp, cp, tp>>>);
              const auto share = choice.share();
              load.count(sw::Tape<>().first_pass(), share);
              load.end_step({.taken = false});
              findings.expect(!load.last_step().known() && load.bias().data()[0] == 0,
                              "a step that is skipped");
              load.count(sw::Tape<>(sw::Recording::evaluation).first_pass(), share); // never counts
              load.count(sw::Tape<>().first_pass(), share);
              load.end_step({});
              Counts all(wanted.begin(), wanted.end());
              findings.expect(load.last_step().experts() == all, "counts");
              findings.expect(load.last_step().tokens() == static_cast<std::int64_t>(choices.size()) - 1,
                              "tokens");
              const auto bias = load.bias();
              sw::ExpertLoad<Flat> resumed(mesh, static_cast<std::int64_t>(wanted.size()), {rate, recentre});
              resumed.set_bias(bias);
              return std::vector<float>(resumed.bias().data(), resumed.bias().data() + bias.size());
            };
            const auto u = [](double times) { return static_cast<float>(0.001 * times); };
            using Bias = std::vector<float>;
            findings.expect(biased({3, 1, 2, 2}, false) == Bias{u(-1), u(1), 0, 0}, "3 1 2 2");
            findings.expect(biased({5, 1, 1, 1}, false) == Bias{u(-1), u(1), u(1), u(1)}, "5 1 1 1");
            findings.expect(biased({5, 1, 1, 1}, true) == Bias{u(-1.5), u(0.5), u(0.5), u(0.5)}, "recentred");
            findings.expect(biased({0, 4}, false, 0) == Bias{0, 0}, "a rate of 0");
          }) == "");
  }
}

TEST_CASE("copies of a layer on several meshes, each with different microbatches, update one bias") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh(world.split(world.rank(), 0), sw::extent<dp>(1), sw::extent<cp>(1),
                          sw::extent<tp>(1));
          using Flat = sw::Layout<2, sw::Shard<0, dp, cp, tp>>;
          sw::ShardedTensor<Flat, std::int32_t> choice(mesh, {3, 1});
          for (std::size_t i = 0; i < 3; ++i)
            choice.mutable_data()[i] = i < 2 ? world.rank() : 2; // (2, 0, 1) here and (0, 2, 1) there
          sw::ExpertLoad<Flat> load(mesh, 3, {.rate = 0.5});
          load.initialize("layer.load", 1);
          load.set_copies(world);
          load.report_losses();
          load.losses()->balance.loss.value = 1 + world.rank();
          load.count(sw::Tape<>().first_pass(), choice.share());
          load.count_dropped(sw::Tape<>().first_pass(), 4);
          load.count_dropped(sw::Tape<>(sw::Recording::evaluation).first_pass(), 8);
          load.end_step({});
          const sw::ExpertLoadReport report = load.report();
          findings.expect(report.name == "layer.load" && report.chosen == Counts{2, 2, 2}, "counts");
          findings.expect(report.bias == std::vector<float>{0, 0, 0}, "an even load moves the bias");
          findings.expect(report.dropped == 8, "dropped ", report.dropped);
          findings.expect(report.balance_loss == 3.0 / 6, "balance ", report.balance_loss);

          // Rank 0 holds the later layer, and both ranks a copy of the earlier one.
          sw::ExpertLoad<Flat> later(mesh, 2);
          later.initialize("layers.4.load", 1);
          LoadModel model{{LoadStage(1, load)}};
          if (world.rank() == 0)
            model.stages.emplace_back(4, later);
          const auto all = sw::expert_loads(model, world);
          findings.expect(all.size() == 2 && all[0].name == "layer.load" && all[1].name == "layers.4.load" &&
                              all[0].chosen == Counts{2, 2, 2} && all[1].bias.size() == 2 &&
                              all[0].dropped == 8,
                          "loads of a pipeline");
        }) == "");
}

TEST_CASE("a dry run predicts the all_reduces of a layer with copies, that of reported losses included") {
  for (const bool losses : {false, true}) {
    const sw::DryRun run = sw::dry_run(2, 0, [&](sw::HostCommunicator world) {
      const Mesh mesh(world.split_by(
                          [](int rank) {
                            return sw::GroupPlace{rank, 0};
                          },
                          "alone"),
                      sw::extent<dp>(1), sw::extent<cp>(1), sw::extent<tp>(1));
      using Flat = sw::Layout<2, sw::Shard<0, dp, cp, tp>>;
      sw::ExpertLoad<Flat, sw::Counting<sw::DefaultTarget>> load(mesh, 3);
      load.set_copies(world);
      if (losses)
        load.report_losses();
      load.end_step({});
    });
    CHECK(std::count_if(run.calls.begin(), run.calls.end(), [](const sw::RecordedCall& call) {
            return call.operation == sw::Operation::all_reduce;
          }) == (losses ? 3 : 2)); // counts, dropped choices, losses
  }
}
