// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/step/dynamic_loss_scale.hpp>
#include <shardwright/train/step/guard.hpp>
#include <shardwright/train/step/reports.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Steps whose numbers stay on the device, compared bitwise with the host's, verdicts included.

namespace {

namespace sw = shardwright;
using shardwright_test::Findings;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;
using sw::axis::dp;

/// Scores of a linear layer, whose weights are sharded by `Zero`.
template <class Element, class Zero, class Target> class LinearModel {
public:
  using target = Target;
  using element = Element;
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  using Targets = sw::Layout<1, sw::Shard<0, dp>>;
  using Weight = sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, Element, Zero, Target>;
  static constexpr std::int64_t rows = 7, width = 5, vocabulary = 9;

  explicit LinearModel(const sw::DeviceMesh<sw::axis::cp, dp>& mesh)
      : weight(mesh, {width, vocabulary}, sw::Initial::normal(0.5).keyed(1)), input_(random_input(mesh)),
        targets_(mesh, {rows}) {
    sw::initialize(*this, 3);
    std::vector<std::int32_t> targets(targets_.local_size());
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = static_cast<std::int32_t>(i) % 4 - 1;
    sw::set_local_values(targets_, targets);
  }

  [[nodiscard]] const sw::LossScale& loss_scale() const { return scale_; }
  void set_loss_scale(sw::LossScale scale) { scale_ = std::move(scale); }
  [[nodiscard]] auto members() { return sw::members("weight", weight); }

  /// @param trouble makes this rank's gradient infinite
  [[nodiscard]] auto forward_backward(bool trouble) {
    weight.start_gather();
    weight.finish_gather();
    sw::ShardedTensor<Rows, sw::AccumulationElement<Element>, Target> scores(input_.resources(),
                                                                             {rows, vocabulary});
    sw::matmul_into(scores, input_, weight.weight());
    auto loss = cross_entropy(scores);
    const auto gradient = sw::convert<Element>(std::move(scores));
    const auto slot = weight.gradient_slot();
    sw::matmul_weight_gradient_into(slot.tensor, input_, gradient, slot.beta);
    if (trouble) {
      std::vector<sw::AccumulationElement<Element>> broken = sw::local_values(slot.tensor);
      broken[3] = std::numeric_limits<float>::infinity();
      sw::set_local_values(slot.tensor, broken);
    }
    weight.release();
    weight.gradient_state().end_pass(sw::PassPosition::middle);
    return loss;
  }

  Weight weight;

private:
  [[nodiscard]] static auto random_input(const sw::DeviceMesh<sw::axis::cp, dp>& mesh) {
    sw::ShardedTensor<Rows, float, Target> out(mesh, {rows, width});
    sw::fill_normal(out, {3, 2});
    return sw::convert<Element>(std::move(out));
  }
  template <class Scores> [[nodiscard]] auto cross_entropy(Scores& scores) {
    const sw::kernels::LossFactor factor = scale_.in_kernels();
    return sw::detail::cross_entropy_of(scores, targets_, {}, {}, {}, &factor);
  }

  sw::ShardedTensor<Rows, Element, Target> input_;
  sw::ShardedTensor<Targets, std::int32_t, Target> targets_;
  sw::LossScale scale_;
};

/// The outcome of a run of steps on a rank.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<bool> taken;
  std::vector<float> weights, first_moment;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Which steps have an infinite gradient, on the last rank.
using Troubles = std::vector<int>;

[[nodiscard]] bool is_in(const Troubles& troubles, int step) {
  return std::find(troubles.begin(), troubles.end(), step) != troubles.end();
}

/// Equal if both are NaN.
[[nodiscard]] double comparable(double value) { return std::isnan(value) ? -1 : value; }

constexpr int steps = 6;
constexpr sw::LossScaleOptions scaling{.initial_exponent = 3, .growth_steps = 2};

template <class Model> void keep(Outcome& out, const Model& model, sw::AdamW& optimizer) {
  const auto weights = sw::local_values(model.weight.stored());
  out.weights.assign(weights.begin(), weights.end());
  optimizer.for_each_state(model.weight, [&](std::string_view name, const auto& state) {
    if (name == "first moment")
      out.first_moment = sw::local_values(state);
  });
}

template <class Element, class Zero, bool scales>
Outcome on_host(const sw::DeviceMesh<sw::axis::cp, dp>& mesh, const Troubles& troubles) {
  LinearModel<Element, Zero, sw::DefaultTarget> model(mesh);
  sw::GradAccumulator accumulator(model, mesh.world());
  sw::StepGuard guard(sw::NonFinite::skip, mesh.world());
  sw::DynamicLossScale scale(mesh, scaling);
  sw::AdamW optimizer;
  Outcome out;
  if (scales)
    model.set_loss_scale(scale.scale());
  for (int step = 0; step < steps; ++step) {
    for (int pass = 0; pass < 2; ++pass)
      accumulator.add(
          model.forward_backward(is_in(troubles, step) && mesh.rank() + 1 == mesh.size() && pass == 1));
    sw::GradientSummary summary = accumulator.finish();
    if (scales)
      scale.update(summary);
    const bool taken = guard.admit(accumulator, summary, step);
    if (taken)
      optimizer.step(model, summary, 0.01 * (step + 1));
    accumulator.restart();
    out.losses.push_back(comparable(summary.loss.value));
    out.norms.push_back(comparable(summary.gradient_norm));
    out.taken.push_back(taken);
  }
  keep(out, model, optimizer);
  return out;
}

template <class Element, class Zero, bool scales>
Outcome on_device(const sw::DeviceMesh<sw::axis::cp, dp>& mesh, const Troubles& troubles) {
  LinearModel<Element, Zero, MimicTarget> model(mesh);
  sw::GradAccumulator accumulator(model, mesh.world());
  sw::StepGuard guard(sw::NonFinite::skip, mesh.world());
  sw::DynamicLossScale<MimicTarget> scale(mesh, scaling);
  sw::AdamW optimizer;
  sw::StepReports<MimicTarget> reports(mesh.world().deadline());
  Outcome out;
  if (scales)
    model.set_loss_scale(scale.scale());
  const auto take = [&] {
    const sw::GradientSummary report = reports.take();
    out.losses.push_back(comparable(report.loss.value));
    out.norms.push_back(comparable(report.gradient_norm));
    out.taken.push_back(report.take);
  };
  for (int step = 0; step < steps; ++step) {
    for (int pass = 0; pass < 2; ++pass)
      accumulator.add(
          model.forward_backward(is_in(troubles, step) && mesh.rank() + 1 == mesh.size() && pass == 1));
    auto summary = accumulator.finish();
    if (scales)
      scale.update(summary);
    static_cast<void>(guard.admit(accumulator, summary, step));
    optimizer.step(model, summary, 0.01 * (step + 1));
    accumulator.restart();
    reports.append(summary);
    if (reports.pending() > 1)
      take();
  }
  take();
  keep(out, model, optimizer);
  return out;
}

template <class Element, class Zero, bool scales = false>
void check_same(Findings& findings, const sw::HostCommunicator& world, const char* what) {
  const sw::DeviceMesh mesh{world, sw::extent<sw::axis::cp>(1), sw::extent<dp>(world.size())};
  for (const Troubles& troubles : {Troubles{}, Troubles{1, 3}}) {
    const Outcome host = on_host<Element, Zero, scales>(mesh, troubles);
    const Outcome device = on_device<Element, Zero, scales>(mesh, troubles);
    findings.expect(host == device, what, ", rank ", world.rank(), " with ", troubles.size(), " bad steps");
    findings.expect(host.taken[1] == troubles.empty(), "the verdict");
    findings.expect(host.losses[0] != host.losses[5], "it must learn");
    findings.expect(!host.first_moment.empty(), "the optimizer has state");
  }
}

} // namespace

TEST_CASE("a device takes and skips the same steps as the host, to the bit, however state is sharded") {
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            check_same<sw::bfloat16, sw::Zero2>(findings, world, "bfloat16, ZeRO-2");
            check_same<sw::float16, sw::Zero1, true>(findings, world, "float16 with a loss scale, ZeRO-1");
          }) == "");
}

TEST_CASE("after a step that ends the run, a device takes no steps until the host knows of it") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<sw::axis::cp>(1), sw::extent<dp>(2)};
          using Model = LinearModel<sw::bfloat16, sw::Zero2, MimicTarget>;
          Model model(mesh);
          sw::GradAccumulator<Model> accumulator(model, world);
          sw::StepGuard guard(sw::NonFinite::stop, world);
          sw::AdamW optimizer;
          sw::StepReports<MimicTarget> reports(world.deadline());
          std::vector<sw::bfloat16> before;
          for (int step = 0; step < 3; ++step) {
            accumulator.add(model.forward_backward(step == 1 && world.rank() == 1));
            const auto summary = accumulator.finish();
            static_cast<void>(guard.admit(accumulator, summary, step));
            optimizer.step(model, summary, 0.1);
            accumulator.restart();
            reports.append(summary);
            if (step == 0)
              before = sw::local_values(model.weight.stored());
          }
          findings.expect(before == sw::local_values(model.weight.stored()), "the weights");
          const bool halted[] = {false, true, true};
          sw::GradientSummary last;
          for (const bool wanted : halted) {
            const sw::GradientSummary report = reports.take();
            findings.expect(report.halted == wanted && report.take == !wanted, "the report");
            last = report;
          }
          // The step once more, with a check of each rank's gradients.
          const sw::WatchRawGradients<Model> watch(accumulator);
          accumulator.add(model.forward_backward(world.rank() == 1));
          const sw::GradientSummary again = accumulator.finish().read();
          findings.expect(!again.finite(), "the step once more");
          std::string said;
          try {
            guard.end_run(accumulator, last, 2);
          } catch (const sw::NonFiniteStep& error) {
            said = error.what();
          }
          findings.expect(said.find("the gradient of weight on rank 1 (1 element)") != std::string::npos,
                          said);
        }) == "");
}

TEST_CASE("reports are taken in order, and no more may be pending than there is room for") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
          sw::detail::DeviceValue<sw::GradientSummary, MimicTarget> record(
              mesh.core().resources<MimicTarget>());
          const sw::DeviceSummary<MimicTarget> summary(record);
          sw::StepReports<MimicTarget> reports(std::chrono::milliseconds(1));
          const auto throws = [&](const char* part, auto use) {
            std::string said;
            try {
              use();
            } catch (const sw::Error& error) {
              said = error.what();
            }
            findings.expect(said.find(part) != std::string::npos, "'", said, "' instead of ", part);
          };
          throws("must follow an append()", [&] { static_cast<void>(reports.take()); });
          for (int i = 0; i < 4; ++i) {
            sw::GradientSummary next;
            next.loss.value = i;
            next.tokens = 1;
            record.store(next);
            reports.append(summary);
          }
          throws("may be pending", [&] { reports.append(summary); });
          for (int i = 0; i < 4; ++i)
            findings.expect(reports.ready() && reports.take().loss.value == i, "report ", i);
          record.store({});
          reports.append(summary);
          const sw::GradientSummary empty = reports.take();
          findings.expect(empty.tokens == 0 && !empty.take, "a step without tokens");
        }) == "");
}
