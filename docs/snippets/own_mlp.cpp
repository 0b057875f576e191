// SPDX-License-Identifier: Apache-2.0
//
// The second tutorial, first half: a regression on a tape, a model of three layers, and a layer around a
// stream that is sharded over all ranks. Runs on four thread ranks by default; `--ranks` gives another
// number.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/lion.hpp>
#include <shardwright/train/optimizer/sgd.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <type_traits>
#include <utility>

//! [layouts]
namespace sw = shardwright;
using namespace sw::axis;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;   // data: rows split over dp
using Column = sw::Layout<2, sw::Shard<1, tp>>; // a matrix whose columns are split over tp
using Row = sw::Layout<2, sw::Shard<0, tp>>;    // one whose rows are
//! [layouts]

using Mesh = sw::DeviceMesh<dp, tp>;

//! [data]
/// Rows of sines; the target of each is another such row.
sw::ShardedTensor<Rows> waves(const Mesh& mesh, std::int64_t columns, double phase) {
  sw::ShardedTensor<Rows> out(mesh, {64, columns});
  sw::load_rows(out, [phase](std::int64_t row, std::span<float> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] =
          static_cast<float>(std::sin(phase + 0.1 * static_cast<double>(row) * static_cast<double>(i + 1)));
  });
  return out;
}
//! [data]

//! [tape]
/// The squared error of x w, and its gradient with respect to w.
auto slope(const sw::ShardedTensor<Rows>& x, const sw::ShardedTensor<Column>& weights,
           const sw::ShardedTensor<sw::MatmulLayout<Rows, Column>>& y) {
  sw::Tape tape;
  const auto w = tape.variable(weights);                      // gets a gradient; x does not
  const auto loss = sw::mse(sw::matmul(tape.input(x), w), y); // this rank's part of the sum
  tape.backward();                                            // one all_reduce over dp
  static_assert(std::is_same_v<decltype(tape.gradient(w))::layout, sw::Gradient<Column>>);
  return std::pair{loss.loss.value, tape.gradient(w)};
}
//! [tape]

/// Gradient descent on this rank's part of the loss, which it returns.
double descend(const sw::ShardedTensor<Rows>& x, const sw::ShardedTensor<sw::MatmulLayout<Rows, Column>>& y,
               sw::ShardedTensor<Column>& weights) {
  const auto [loss, gradient] = slope(x, weights, y);
  sw::axpy(-0.5 / static_cast<double>(x.shape()[0]), gradient, weights);
  return loss;
}

//! [mlp]
class ThreeLayers {
public:
  explicit ThreeLayers(const Mesh& mesh)
      : in_(mesh, {6, 32}, sw::Initial::normal(0.4)), middle_(mesh, {32, 16}, sw::Initial::normal(0.2)),
        out_(mesh, {16, 3}, sw::Initial::normal(0.3)) {}

  auto operator()(auto x) {
    auto h = sw::gelu_tanh(in_(std::move(x))); // rows over dp, columns over tp
    auto sum = middle_(std::move(h));          // Partial<Sum, tp>: each rank's part of the product
    return out_(sw::gelu_tanh(std::move(sum).template as<Rows>())); // read as Rows: one all_reduce over tp
  }
  auto members() { return sw::members("in", in_, "middle", middle_, "out", out_); }

private:
  using Hidden = sw::MatmulLayout<Rows, Column>;
  sw::Linear<Rows, Column> in_;         // column-parallel
  sw::Linear<Hidden, Row> middle_;      // row-parallel
  sw::Linear<Rows, sw::Layout<2>> out_; // every rank has the matrix
};
//! [mlp]

//! [edges]
using Hidden = sw::MatmulLayout<Rows, Column>;
static_assert(std::is_same_v<Hidden, sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>);
using Unfinished = sw::MatmulLayout<Hidden, Row>;
static_assert(std::is_same_v<Unfinished, sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>>);
static_assert(sw::Transition<Unfinished, Rows>::count<sw::AllReduce> == 1);
// Back: the gradient of a value read as Rows is complete already, and a Partial's gradient is replicated.
static_assert(sw::Transition<sw::Gradient<Rows>, sw::Gradient<Unfinished>>::collectives == 0);
//! [edges]

//! [stream]
using Stream = sw::Layout<2, sw::Shard<0, dp, tp>>; // rows over all ranks

class Residual {
public:
  explicit Residual(const Mesh& mesh)
      : up_(mesh, {6, 24}, sw::Initial::normal(0.3)), down_(mesh, {24, 6}, sw::Initial::normal(0.3)) {}

  auto operator()(sw::Var<Stream> x) {
    auto h = sw::gelu_tanh(up_(x.as<Rows>())); // all_gather over tp; its gradient: reduce_scatter
    return std::move(x) +
           down_(std::move(h)).as<Stream>(); // reduce_scatter over tp; its gradient: all_gather
  }
  auto members() { return sw::members("up", up_, "down", down_); }

private:
  sw::Linear<Rows, Column> up_;
  sw::Linear<Hidden, Row> down_;
};
//! [stream]

//! [stream_edges]
static_assert(sw::Transition<Stream, Rows>::count<sw::AllGather> == 1);
static_assert(sw::Transition<Unfinished, Stream>::count<sw::ReduceScatter> == 1);
// The raw gradient of the rows that the product with `up` read, and its transition to the stream's gradient:
using Raw = sw::MatmulLayout<sw::Gradient<Hidden>, Column, sw::MatmulForm::right_transposed>;
static_assert(std::is_same_v<Raw, Unfinished>);
static_assert(sw::Transition<Raw, sw::Gradient<Stream>>::count<sw::ReduceScatter> == 1);
static_assert(sw::Transition<Raw, sw::Gradient<Stream>>::collectives == 1);
//! [stream_edges]

/// One after the other.
class Whole {
public:
  explicit Whole(const Mesh& mesh) : residual_(mesh), layers_(mesh) {}
  auto operator()(sw::Var<Stream> x) { return layers_(residual_(std::move(x)).as<Rows>()); }
  auto members() { return sw::members("residual", residual_, "layers", layers_); }

private:
  Residual residual_;
  ThreeLayers layers_;
};

/// The loss after 100 steps, and the first one.
template <class Optimizer>
std::pair<double, double> fit(const Mesh& mesh, const sw::ShardedTensor<Rows>& x,
                              const sw::ShardedTensor<Rows>& y, Optimizer optimizer, double rate) {
  double first = 0, last = 0;
  //! [train]
  Whole model(mesh);
  sw::initialize(model, 1); // names the parameters by their paths, and draws their first values
  sw::GradAccumulator accumulator(model);
  sw::Tape tape;
  for (int step = 0; step < 100; ++step) {
    tape.restart();
    const auto loss = sw::mse(model(tape.input(sw::redistribute<Stream>(x))), y);
    tape.backward();
    accumulator.add(loss); // sums and counts, divided once at the end, over all ranks
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, rate); // such as sw::AdamW()
    accumulator.restart();
    (step == 0 ? first : last) = summary.loss.value;
  }
  //! [train]
  return {last, first};
}

int program(sw::HostCommunicator world) {
  const int columns = world.size() % 2 == 0 ? 2 : 1;
  const Mesh mesh{world, sw::extent<dp>(world.size() / columns), sw::extent<tp>(columns)};
  const auto x = waves(mesh, 6, 0.0);

  sw::ShardedTensor<Column> truth(mesh, {6, 3}), weights(mesh, {6, 3});
  sw::fill_normal(truth, {.seed = 1, .tensor = 1});
  sw::fill(weights, 0.0F);
  const auto answers = sw::matmul(x, truth);
  const double before = descend(x, answers, weights);
  double after = before;
  for (int step = 0; step < 50; ++step)
    after = descend(x, answers, weights);

  const auto y = waves(mesh, 3, 1.0);
  const auto [adamw, first] = fit(mesh, x, y, sw::AdamW(), 0.02);
  //! [sgd]
  sw::Sgd descent({.momentum = 0.9, .nesterov = true});
  //! [sgd]
  const auto [sgd, same] = fit(mesh, x, y, std::move(descent), 0.1);
  //! [groups]
  sw::LionOptions options{.weight_decay = 0.1};
  options.groups = {
      {.matches = [](const sw::ParameterInfo& parameter) { return parameter.name == "layers.out"; },
       .learning_rate_factor = 0.5},
      {.matches =
           [](const sw::ParameterInfo& parameter) { return parameter.role == sw::ParameterRole::weight; }},
      {.matches = [](const sw::ParameterInfo&) { return true; }, .weight_decay_factor = 0}};
  sw::Lion lion(options);
  //! [groups]
  const auto [signs, alike] = fit(mesh, x, y, std::move(lion), 0.005);
  if (world.rank() == 0)
    std::printf("line: %.2g, then %.2g; three layers: %.2g, then %.2g by AdamW, %.2g by Sgd, %.2g by Lion\n",
                before, after, first, adamw, sgd, signs);
  return after < 0.05 * before && std::max({adamw, sgd, signs}) < 0.3 * first && first == same &&
                 first == alike
             ? 0
             : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
