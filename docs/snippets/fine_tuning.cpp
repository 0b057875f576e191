// SPDX-License-Identifier: Apache-2.0
//
// A model of which only the last matrix is trained, at a rate that changes only for its group. Runs on four
// thread ranks by default; `--ranks` gives another number.
#include <shardwright/models.hpp>
#include <shardwright/run.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

namespace sw = shardwright;
using sw::axis::dp;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Mesh = sw::DeviceMesh<dp>;

//! [frozen]
class Model {
public:
  explicit Model(const Mesh& mesh)
      : base_(mesh, {6, 16}, sw::Initial::normal(0.4)), out_(mesh, {16, 3}, sw::Initial::normal(0.3)) {
    sw::initialize(*this, 1);
  }
  auto operator()(auto x) { return out_(sw::gelu_tanh(base_(std::move(x)))); }
  auto members() { return sw::members("base", base_, "out", out_); }

private:
  sw::Linear<Rows, sw::Layout<2>, sw::ModelPlan<float, sw::Frozen<sw::Zero3>>> base_;
  sw::Linear<Rows, sw::Layout<2>, sw::ModelPlan<float, sw::Zero3>> out_;
};
//! [frozen]

/// Rows of sines.
sw::ShardedTensor<Rows> waves(const Mesh& mesh, std::int64_t columns, double phase) {
  sw::ShardedTensor<Rows> out(mesh, {24, columns});
  sw::load_rows(out, [phase](std::int64_t row, std::span<float> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] =
          static_cast<float>(std::sin(phase + 0.1 * static_cast<double>(row) * static_cast<double>(i + 1)));
  });
  return out;
}

int program(sw::HostCommunicator world) {
  const Mesh mesh{world, sw::extent<dp>(world.size())};
  Model model(mesh);
  sw::GradAccumulator accumulator(model);
  const auto x = waves(mesh, 6, 0), y = waves(mesh, 3, 1);
  //! [factor]
  sw::AdamWOptions options;
  options.groups = {{.matches = [](const sw::ParameterInfo& parameter) { return parameter.name == "out"; }}};
  sw::AdamW optimizer(options);
  const auto set_rates = [&](int step) {
    optimizer.set_factor(0, step < 20 ? step / 20.0 : 1); // the group of "out" begins slowly
  };
  //! [factor]
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    sw::Tape<> tape;
    accumulator.add(sw::mse(model(tape.input(x)), y));
    tape.backward(sw::PassPosition::last);
    const auto summary = accumulator.finish();
    last = summary.loss.value;
    if (step == 0)
      first = last;
    set_rates(step);
    optimizer.step(model, summary, 0.02);
    accumulator.restart();
  }
  if (world.rank() == 0)
    std::printf("%.3f, then %.3f\n", first, last);
  return last < 0.6 * first ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
