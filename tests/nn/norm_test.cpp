// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr double epsilon = 1e-2;
constexpr std::size_t width = 6;

using Rms = sw::operation::rms_norm;
using Layer = sw::operation::layer_norm;

/// Equation 4 of Ba et al., or of Zhang and Sennrich, row by row.
template <class Tag> Vector plain_norm(const Vector& x, const Vector& gain, const Vector& bias) {
  Vector out(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < width && std::is_same_v<Tag, Layer>; ++i)
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
template <class Tag, bool biased> struct TwoNorms {
  sw::Norm<Tag, X, Plan, biased> first, second;

  explicit TwoNorms(const Mesh& mesh) : first(mesh, width, epsilon), second(mesh, width, epsilon) {}
  auto operator()(sw::Var<X, double> x, sw::Var<X, double> y) {
    x = std::move(x) + sw::square(y);
    x = x + 0.5 * first(x);
    return x + sw::tanh(second(x));
  }
  auto members() { return sw::members("first", first, "second", second); }
};

Vector sum_of(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

template <class Tag, bool biased>
void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  const auto x = random_tensor<X>(mesh, shape, 1), y = random_tensor<X>(mesh, shape, 2),
             upstream = random_tensor<X>(mesh, shape, 3), stream = random_tensor<X>(mesh, shape, 4);
  const auto gain = random_tensor<sw::Layout<1>>(mesh, {width}, 5),
             bias = random_tensor<sw::Layout<1>>(mesh, {width}, 6);
  const Vector xs = whole_of(x), gains = whole_of(gain), weights = whole_of(upstream),
               biases = biased ? whole_of(bias) : Vector(width, 0.0);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference, double tolerance) {
    findings.expect(difference(values, reference) <= tolerance, Tag::name, ": ", what, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };
  const sw::operation::Norm<Tag> operation{epsilon};
  const auto with_weights = [&](const auto& call) {
    if constexpr (biased)
      return call(gain, bias);
    else
      return call(gain);
  };
  const auto norm = [&](const auto& of) {
    return with_weights([&](const auto&... w) { return operation.forward({}, of, w...); });
  };
  auto out = norm(x);
  same("norm", whole_of(out.value), plain_norm<Tag>(xs, gains, biases), 1e-13);
  const auto plain = [&] {
    if constexpr (std::is_same_v<Tag, Rms>)
      return sw::rms_norm(x, gain, epsilon);
    else
      return with_weights([&](const auto&... w) { return sw::layer_norm(x, w..., epsilon); });
  }();
  same("norm of tensors", whole_of(plain), whole_of(out.value), 0);
  const auto fused =
      with_weights([&](const auto&... w) { return operation.forward_sum(x, y.clone(), w...); });
  same("sum", whole_of(fused.first), sum_of(xs, whole_of(y)), 1e-15);
  same("norm of the sum", whole_of(fused.second.value), whole_of(norm(fused.first).value), 1e-13);
  same("statistics of the sum", whole_of(fused.second.state.inverse),
       whole_of(norm(fused.first).state.inverse), 1e-14);

  const Vector input_gradient = finite_differences(
      [&](const Vector& at) { return dot(plain_norm<Tag>(at, gains, biases), weights); }, xs);
  Vector gain_gradient = finite_differences(
      [&](const Vector& at) { return dot(plain_norm<Tag>(xs, at, biases), weights); }, gains);
  GradientOf<sw::GainGradientLayout<X, Tag>> of_gain{{mesh, {width}}}, of_bias{{mesh, {width}}};
  const auto gradient = [&](const auto* residual) {
    if constexpr (biased)
      return whole_of(sw::detail::norm_gradient<Tag>(upstream.clone(), x, out.state, residual, gain,
                                                     of_gain.slot(), of_bias.slot()));
    else
      return whole_of(
          sw::detail::norm_gradient<Tag>(upstream.clone(), x, out.state, residual, gain, of_gain.slot()));
  };
  same("input gradient", gradient(static_cast<decltype(&stream)>(nullptr)), input_gradient, 1e-8);
  same("gain gradient", of_gain.whole(), gain_gradient, 1e-8);
  same("input gradient with a stream", gradient(&stream), sum_of(input_gradient, whole_of(stream)), 1e-8);
  for (double& each : gain_gradient)
    each *= 2;
  same("gain gradient of two microbatches", of_gain.whole(), gain_gradient, 1e-8);
  if constexpr (biased) {
    Vector bias_gradient(width, 0.0);
    for (std::size_t i = 0; i < weights.size(); ++i)
      bias_gradient[i % width] += 2 * weights[i];
    same("bias gradient of two microbatches", of_bias.whole(), bias_gradient, 1e-12);
  }

  TwoNorms<Tag, biased> norms(mesh);
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
  const std::string expected = biased                       ? "first.gain first.bias second.gain second.bias "
                               : std::is_same_v<Tag, Layer> ? "first.gain second.gain "
                                                            : "first second ";
  findings.expect(names == expected, names);
}

} // namespace

TEST_CASE("norms, their modules and their gradients equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check<Rms, false>(world, findings, extents);
            check<Layer, true>(world, findings, extents);
            check<Layer, false>(world, findings, extents);
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
            Vector expected =
                plain_norm<Layer>(sum, Vector(width, 2), Vector(width, 0)); // two norms of one sum
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
