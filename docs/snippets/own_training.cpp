// SPDX-License-Identifier: Apache-2.0
//
// An optimizer of one's own, and checkpoints of a loop without sw::Training: a run of 20 steps ends at the
// same loss as one that stops after 10 and resumes. Runs on four thread ranks by default; `--ranks` gives
// another number.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/io/checkpoint/save_training.hpp>
#include <shardwright/io/configuration_hash.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/optimizer/optimizer_for.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
using sw::axis::dp;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Mesh = sw::DeviceMesh<dp>;

class Model {
public:
  explicit Model(const Mesh& mesh)
      : in_(mesh, {6, 16}, sw::Initial::normal(0.4)), out_(mesh, {16, 3}, sw::Initial::normal(0.3)) {
    sw::initialize(*this, 1);
  }
  auto operator()(auto x) { return out_(sw::gelu_tanh(in_(std::move(x)))); }
  auto members() { return sw::members("in", in_, "out", out_); }

private:
  sw::Linear<Rows, sw::Layout<2>, sw::ModelPlan<sw::bfloat16>> in_;
  sw::Linear<Rows, sw::Layout<2>, sw::ModelPlan<sw::bfloat16>> out_;
};

//! [optimizer]
/// Adagrad (Duchi et al., JMLR 12, 2011): a weight's rate falls with the sum of the squares of its gradients.
class Adagrad {
public:
  template <sw::ParameterSet Model>
  void step(Model& model, const sw::GradientSummary& summary, double learning_rate) {
    if (summary.tokens == 0)
      return; // there is no gradient
    ++steps_;
    sw::for_each_parameter(
        model, [&](auto& parameter) { update(parameter, summary.scale.factor(), learning_rate); });
  }
  //! [optimizer]

  explicit Adagrad(double epsilon = 1e-8) : epsilon_(epsilon) {}

  //! [numbers]
  auto numbers() const { return std::array{sw::GivenNumber("epsilon", epsilon_)}; }
  //! [numbers]

  //! [states]
  template <class P, class Visit> void for_each_state(const P& parameter, Visit&& visit) {
    states_.visit(parameter, visit); // those that exist
  }
  template <class P, class Visit> void for_each_state_made(const P& parameter, Visit&& visit) {
    static_cast<void>(states_.of(parameter, {})); // makes them, zero at first
    states_.visit(parameter, visit);
  }
  std::int64_t steps(const auto& /*resources*/) const { return steps_; }
  void set_steps(const auto& /*resources*/, std::int64_t steps) { steps_ = steps; }

private:
  sw::OptimizerStates<1> states_{{"squares"}}; // one tensor for each parameter, sharded like its gradient
  std::int64_t steps_ = 0;
  //! [states]
  double epsilon_;

  //! [update]
  template <class P> void update(P& parameter, double scale, double learning_rate) {
    using Number = typename P::accumulation_element; // float, also for weights in bfloat16
    for_each_state_made(parameter, [&](std::string_view, auto& squares) {
      parameter.update_weights([&](auto& weights) { // the master copy, if there is one
        const Number* const gradient = parameter.gradient().data();
        for (std::size_t i = 0; i < weights.local_size(); ++i) {
          const Number slope = static_cast<Number>(scale) * gradient[i];
          Number& sum = squares.mutable_data()[i];
          sum += slope * slope;
          weights.mutable_data()[i] -=
              static_cast<Number>(learning_rate) * slope / (std::sqrt(sum) + static_cast<Number>(epsilon_));
        }
      });
    });
  }
  //! [update]
};

//! [concept]
static_assert(sw::OptimizerFor<Adagrad, Model>);
//! [concept]

/// Rows of sines.
template <class Element>
sw::ShardedTensor<Rows, Element> waves(const Mesh& mesh, std::int64_t columns, double phase) {
  sw::ShardedTensor<Rows, Element> out(mesh, {24, columns});
  sw::load_rows(out, [phase](std::int64_t row, std::span<Element> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<Element>(
          static_cast<float>(std::sin(phase + 0.1 * static_cast<double>(row) * static_cast<double>(i + 1))));
  });
  return out;
}

/// Trains up to step `end`, from the newest checkpoint if there is one; returns the last loss.
double run(const sw::HostCommunicator& world, const std::filesystem::path& directory, std::int64_t end) {
  const Mesh mesh{world, sw::extent<dp>(world.size())};
  const double rate = 0.1;
  Model model(mesh);
  Adagrad optimizer;
  sw::GradAccumulator accumulator(model);

  //! [configuration]
  const std::string settings = "model 6 16 3\nseed 1\nrate " + std::to_string(rate) + "\n";
  sw::require_same_configuration(world, settings); // ends the run if ranks differ
  const std::string hash = std::to_string(sw::configuration_hash(settings));
  //! [configuration]

  //! [resume]
  cp::Saver saver(world, directory); // makes the directory, and locks it
  std::int64_t step = 0;
  std::vector<std::string> refused; // a sentence for each newer checkpoint that is damaged
  if (const auto newest = cp::open_newest(world, directory, refused)) {
    const cp::Description& about = newest->manifest().description;
    if (about.configuration_hash != hash)
      throw sw::DataError("the checkpoint must have these settings, but it has others");
    cp::load(world, *newest, model, optimizer); // from whatever mesh it was saved
    step = static_cast<std::int64_t>(about.step);
    optimizer.set_steps(mesh, std::stoll(about.more.at("optimizer steps")));
  }
  //! [resume]

  const auto x = waves<sw::bfloat16>(mesh, 6, 0.0), y = waves<sw::bfloat16>(mesh, 3, 1.0);
  sw::Tape tape;
  double loss = 0;
  for (; step < end; ++step) {
    tape.restart();
    accumulator.add([&] {
      const auto sums = sw::mse(model(tape.input(x)), y);
      tape.backward();
      return sums;
    }());
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, rate);
    accumulator.restart();
    loss = summary.loss.value;
    static_cast<void>(saver.poll()); // advances a save that is under way
  }
  //! [save]
  cp::stage(model, optimizer, saver.staging()); // copies this rank's share
  cp::Description about;
  about.step = static_cast<std::uint64_t>(step);
  about.mesh = "dp=" + std::to_string(world.size());
  about.configuration_hash = hash;
  about.more["optimizer steps"] = std::to_string(optimizer.steps(mesh));
  saver.start(about, 2); // in the background; keeps the two newest
  saver.finish();        // waits until it is on disk
  //! [save]
  return loss;
}

/// A solver has no model: it saves its fields by name. @return whether they return, in another layout too
bool fields_return(const sw::HostCommunicator& world, const std::filesystem::path& directory) {
  const Mesh mesh{world, sw::extent<dp>(world.size())};
  sw::ShardedTensor<Rows, double> u(mesh, {9, 4}), v(mesh, {9, 4});
  sw::fill_uniform(u, {.seed = 1, .tensor = 0});
  sw::fill_uniform(v, {.seed = 1, .tensor = 1});
  cp::Saver saver(world, directory);
  cp::Description about;
  //! [fields]
  cp::Staging& staging = saver.staging(); // this call empties it: once for each save
  staging.add("u", u);
  staging.add("v", v);
  saver.start(about, 2);
  saver.finish();
  //! [fields]
  std::vector<std::string> refused;
  //! [read_fields]
  const auto newest = cp::open_newest(world, directory, refused);
  sw::ShardedTensor<sw::Layout<2>, double> whole(mesh, {9, 4}); // any layout, on any mesh
  cp::read_tensor(*newest, "u", whole);
  //! [read_fields]
  cp::read_tensor(*newest, "v", v);
  const auto wanted = sw::redistribute<sw::Layout<2>>(u);
  return std::equal(whole.data(), whole.data() + 36, wanted.data());
}

int main(int argc, char** argv) {
  const auto root = std::filesystem::temp_directory_path() / ("own_training." + std::to_string(getpid()));
  const auto program = [&root](sw::HostCommunicator world) {
    const double whole = run(world, root / "whole", 20);
    const double first = run(world, root / "parts", 10);
    const double second = run(world, root / "parts", 20);
    if (world.rank() == 0)
      std::printf("loss %.4f after 10 steps, %.4f after 20\n", first, second);
    return fields_return(world, root / "fields") && second == whole && second < first ? 0 : 1;
  };
  const int code = sw::run(argc, argv, program, {.ranks = 4});
  std::filesystem::remove_all(root);
  return code;
}
