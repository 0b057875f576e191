// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/layer_norm.hpp>
#include <shardwright/nn/layers/rms_norm.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr double epsilon = 1e-2;
constexpr std::size_t width = 6;

/// Equation 4 of Ba et al., row by row.
Vector plain_norm(const Vector& x, const Vector& gain, const Vector& bias) {
  Vector out(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < width; ++i)
      mean += x[row + i] / width;
    for (std::size_t i = 0; i < width; ++i)
      variance += (x[row + i] - mean) * (x[row + i] - mean) / width;
    for (std::size_t i = 0; i < width; ++i)
      out[row + i] = (x[row + i] - mean) / std::sqrt(variance + epsilon) * gain[i] + bias[i];
  }
  return out;
}

/// Sequences over dp, positions over tp: with extents 3 and 5 all kinds of uneven blocks.
using X = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>;
constexpr std::array<std::int64_t, 3> shape{3, 5, width};

using Plan = sw::ModelPlan<double>;

/// Two norms of a stream, as in a transformer: each reads a sum, and the stream bypasses it.
template <bool biased> struct TwoNorms {
  sw::LayerNorm<X, Plan, biased> first, second;

  explicit TwoNorms(const Mesh& mesh) : first(mesh, width, epsilon), second(mesh, width, epsilon) {}
  auto operator()(sw::Var<X, double> x, sw::Var<X, double> y) {
    x = std::move(x) + sw::square(y);
    x = x + 0.5 * first(x);
    return x + sw::tanh(second(x));
  }
  auto members() { return sw::members("first", first, "second", second); }
};

template <bool biased> void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  const auto x = random_tensor<X>(mesh, shape, 1);
  const auto y = random_tensor<X>(mesh, shape, 2);
  const auto gain = random_tensor<sw::Layout<1>>(mesh, {width}, 3);
  const auto bias = random_tensor<sw::Layout<1>>(mesh, {width}, 4);
  const Vector xs = whole_of(x), gains = whole_of(gain),
               biases = biased ? whole_of(bias) : Vector(width, 0.0);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference) {
    findings.expect(difference(values, reference) <= 1e-13, what, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };
  const auto norm = [&](const auto& of) {
    if constexpr (biased)
      return sw::layer_norm(of, gain, bias, epsilon);
    else
      return sw::layer_norm(of, gain, epsilon);
  };
  same("norm", whole_of(norm(x).normed), plain_norm(xs, gains, biases));
  const auto sum = sw::add(x, y);
  const auto fused = [&] {
    if constexpr (biased)
      return sw::add_layer_norm(x, y.clone(), gain, bias, epsilon);
    else
      return sw::add_layer_norm(x, y.clone(), gain, epsilon);
  }();
  same("sum", whole_of(fused.sum), whole_of(sum));
  same("norm of the sum", whole_of(fused.normed), whole_of(norm(sum).normed));

  TwoNorms<biased> norms(mesh);
  sw::initialize(norms, 5);
  sw::for_each_parameter(norms, [&](auto& parameter) {
    parameter.update_weights([](auto& weights) { sw::fill_uniform(weights, {5, 6}, 0.5, 1.5); });
  });
  for (const auto kind : {sw::Recompute::none, sw::Recompute::full}) {
    const auto worst = sw::check_gradients(
        [&](auto a, auto b) {
          return sw::recompute([&norms](auto c, auto d) { return norms(std::move(c), std::move(d)); },
                               kind)(std::move(a), std::move(b));
        },
        sw::members("x", x, "y", y, "norms", norms), {.directions = 1, .elements = 3});
    findings.expect(worst.error < 1e-7, worst.input, " is off by ", worst.error);
  }
  std::string names;
  sw::for_each_parameter(norms, [&](auto& parameter) { names += parameter.name() + " "; });
  findings.expect(names ==
                      (biased ? "first.gain first.bias second.gain second.bias " : "first.gain second.gain "),
                  names);
}

} // namespace

TEST_CASE("layer_norm, its module and their gradients equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check<true>(world, findings, extents);
            check<false>(world, findings, extents);
          }) == "");
}

namespace {

/// Norms that read a sum in its own layout and in another one.
struct NormsOfOthers {
  using Rows = sw::Layout<3, sw::Shard<0, dp>>;
  sw::LayerNorm<X, Plan> own;
  sw::LayerNorm<Rows, Plan> layer;
  sw::RmsNorm<Rows, Plan> rms;

  explicit NormsOfOthers(const Mesh& mesh)
      : own(mesh, width, epsilon), layer(mesh, width, epsilon), rms(mesh, width, epsilon) {}
  auto operator()(sw::Var<X, double> x, sw::Var<X, double> y) {
    const auto sum = x + sw::square(y);
    auto out = own(sum.as<X>());
    out = std::move(out) + layer(sum.as<Rows>()).as<X>();
    return std::move(out) + rms((x + y).as<Rows>()).as<X>();
  }
  auto members() { return sw::members("own", own, "layer", layer, "rms", rms); }
};

} // namespace

TEST_CASE("norms read a value, also a sum, in another layout") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const auto x = random_tensor<X>(mesh, shape, 1), y = random_tensor<X>(mesh, shape, 2);
            NormsOfOthers norms(mesh);
            sw::initialize(norms, 5);
            sw::Tape<> tape(sw::Recording::evaluation);
            const Vector xs = whole_of(x), ys = whole_of(y),
                         found = whole_of(norms(tape.input(x), tape.input(y)).value());
            Vector sum = xs, rows = xs;
            for (std::size_t i = 0; i < xs.size(); ++i) {
              sum[i] += ys[i] * ys[i];
              rows[i] += ys[i];
            }
            Vector expected = plain_norm(sum, Vector(width, 2), Vector(width, 0)); // two norms of one sum
            for (std::size_t row = 0; row < rows.size(); row += width) {
              double squares = 0;
              for (std::size_t i = 0; i < width; ++i)
                squares += rows[row + i] * rows[row + i] / width;
              for (std::size_t i = 0; i < width; ++i)
                expected[row + i] += rows[row + i] / std::sqrt(squares + epsilon);
            }
            findings.expect(difference(found, expected) < 1e-13, "values are off by ",
                            difference(found, expected));
            const auto worst =
                sw::check_gradients([&](auto a, auto b) { return norms(std::move(a), std::move(b)); },
                                    sw::members("x", x, "y", y, "norms", norms), {.directions = 1});
            findings.expect(worst.error < 1e-7, worst.input, " is off by ", worst.error);
          }) == "");
}
