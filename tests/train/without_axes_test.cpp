// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/tape.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// An axis that a mesh lacks has extent 1, for every layer of the library.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

using Stream = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp>>;

/// Layouts over dp, cp and tp, with the state of ZeRO over dp and cp.
template <class Zero> class Layers {
  using Plan = sw::ModelPlan<double, Zero>;

public:
  template <class Mesh>
  explicit Layers(const Mesh& mesh)
      : norm_(mesh, 6, 1e-5), up_(mesh, {6, 8}, sw::Initial::normal(0.5)),
        down_(mesh, {8, 6}, sw::Initial::normal(0.5)) {}
  auto operator()(sw::Var<Stream, double> x) {
    auto h = sw::gelu_tanh(up_(norm_(x)));
    return std::move(x) + down_(std::move(h)).template as<Stream>();
  }
  auto members() { return sw::members("norm", norm_, "up", up_, "down", down_); }

private:
  using Column = sw::Layout<2, sw::Shard<1, tp>>;
  using Row = sw::Layout<2, sw::Shard<0, tp>>;
  sw::RmsNorm<Stream, Plan> norm_;
  sw::Linear<Stream, Column, Plan> up_;
  sw::Linear<sw::MatmulLayout<Stream, Column>, Row, Plan> down_;
};

/// Loss, norm and weights after two steps.
template <class Zero, class Mesh> std::vector<double> train(const Mesh& mesh) {
  Layers<Zero> model(mesh);
  sw::initialize(model, 1);
  sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer;
  sw::ShardedTensor<Stream, double> x(mesh, {6, 4, 6}), y(mesh, {6, 4, 6});
  sw::fill_normal(x, {1, 1});
  sw::fill_normal(y, {1, 2});
  std::vector<double> out;
  sw::Tape<> tape;
  for (int step = 0; step < 2; ++step) {
    tape.restart();
    const auto loss = sw::mse(model(tape.input(x)), y);
    tape.backward();
    accumulator.add(loss);
    const sw::GradientSummary summary = accumulator.finish();
    optimizer.step(model, summary, 0.01);
    accumulator.restart();
    out.insert(out.end(), {summary.loss.value, summary.gradient_norm});
  }
  sw::for_each_parameter(model, [&](auto& parameter) {
    const auto& stored = parameter.stored();
    const auto all = sw::redistribute<sw::Layout<std::remove_cvref_t<decltype(stored)>::tensor_rank>>(stored);
    out.insert(out.end(), all.data(), all.data() + all.local_size());
  });
  return out;
}

} // namespace

TEST_CASE("a training on a mesh without the axes of its layouts equals one with extent 1, bit by bit") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [ranks](const sw::HostCommunicator& world, Findings& findings) {
            const sw::DeviceMesh all{world, sw::extent<dp>(ranks), sw::extent<cp>(1), sw::extent<tp>(1)};
            const sw::DeviceMesh data{world, sw::extent<dp>(ranks)};
            const sw::DeviceMesh columns{world, sw::extent<tp>(ranks)};
            const sw::DeviceMesh both{world, sw::extent<dp>(1), sw::extent<cp>(1), sw::extent<tp>(ranks)};
            findings.expect(train<sw::DataParallel>(data) == train<sw::DataParallel>(all), "plain");
            findings.expect(train<sw::Zero1>(data) == train<sw::Zero1>(all), "ZeRO-1");
            findings.expect(train<sw::Zero3>(data) == train<sw::Zero3>(all), "ZeRO-3");
            findings.expect(train<sw::Zero3>(columns) == train<sw::Zero3>(both), "ZeRO-3 without data ranks");
          }) == "");
}

TEST_CASE("an axis that a mesh lacks has one rank, of coordinate 0, and a layout over it holds all") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2)};
          findings.expect(mesh.extent<tp>() == 1 && mesh.coordinate<tp>() == 0, "extent and coordinate");
          findings.expect(mesh.communicator<tp>().size() == 1 && mesh.communicator<dp, tp>().size() == 2,
                          "communicators");
          sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>> x(mesh, {4, 3});
          sw::fill_normal(x, {1, 1});
          const auto columns = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>(x);
          findings.expect(columns.data() == x.data(), "the same block");
          const auto sums = sw::redistribute<sw::Layout<2, sw::Shard<0, tp>>>(x);
          findings.expect(sums.local_shape()[0] == 4, "all rows");
          const sw::ShardedTensor<sw::Layout<1, sw::Partial<sw::Sum, cp>>> alone(mesh, {3});
          findings.expect(sw::redistribute<sw::Layout<1>>(alone).data() == alone.data(), "a sum of one part");
        }) == "");
}

TEST_CASE("a layout over an axis that divides the model is rejected on a mesh that lacks it") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh stage{world, sw::extent<dp>(2)};
          const sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>> x(stage, {4, 3});
          const std::string message = failure_of<sw::InvalidArgument>([&] {
            static_cast<void>(sw::redistribute<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, pp>>>(x));
          });
          findings.expect(has(message,
                              "Mesh: an axis that divides the model must not be named on a mesh that "
                              "lacks it, but a layout names pp"),
                          message);
        }) == "");
}
