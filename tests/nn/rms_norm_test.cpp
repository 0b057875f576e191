// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/rms_norm.hpp>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr double epsilon = 1e-2;
constexpr std::size_t width = 6;

/// Equation 4 of Zhang and Sennrich, row by row.
Vector plain_norm(const Vector& x, const Vector& gain) {
  Vector out(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i)
      squares += x[row + i] * x[row + i];
    for (std::size_t i = 0; i < width; ++i)
      out[row + i] = x[row + i] / std::sqrt(squares / width + epsilon) * gain[i];
  }
  return out;
}

Vector sum_of(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

/// Sequences over dp, positions over tp: with extents 3 and 5 all kinds of uneven blocks.
using X = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>;
constexpr std::array<std::int64_t, 3> shape{3, 5, width};

void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  const auto x = random_tensor<X>(mesh, shape, 1);
  const auto gain = random_tensor<sw::Layout<1>>(mesh, {width}, 2);
  const auto upstream = random_tensor<X>(mesh, shape, 3);
  const auto stream = random_tensor<X>(mesh, shape, 4);
  const Vector xs = whole_of(x), gains = whole_of(gain), weights = whole_of(upstream),
               streams = whole_of(stream);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference, double tolerance) {
    findings.expect(difference(values, reference) <= tolerance, what, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };

  const auto out = sw::rms_norm(x, gain, epsilon);
  same("norm", whole_of(out.normed), plain_norm(xs, gains), 1e-14);
  auto fused = sw::add_rms_norm(x, stream.clone(), gain, epsilon);
  same("sum", whole_of(fused.sum), sum_of(xs, streams), 1e-15);
  same("norm of the sum", whole_of(fused.normed), plain_norm(sum_of(xs, streams), gains), 1e-14);
  same("rms of the sum", whole_of(fused.statistics),
       whole_of(sw::rms_norm(fused.sum, gain, epsilon).statistics), 1e-14);

  const Vector input_gradient =
      finite_differences([&](const Vector& at) { return dot(plain_norm(at, gains), weights); }, xs);
  Vector gain_gradient =
      finite_differences([&](const Vector& at) { return dot(plain_norm(xs, at), weights); }, gains);
  GradientOf<sw::GainGradientLayout<X>> accumulated{{mesh, {width}}};
  same("input gradient",
       whole_of(sw::rms_norm_gradient(upstream.clone(), x, gain, out.statistics, accumulated.slot())),
       input_gradient, 1e-8);
  same("gain gradient", accumulated.whole(), gain_gradient, 1e-8);
  same(
      "input gradient with a stream",
      whole_of(sw::rms_norm_gradient(upstream.clone(), x, gain, out.statistics, accumulated.slot(), &stream)),
      sum_of(input_gradient, streams), 1e-8);
  for (double& each : gain_gradient)
    each *= 2;
  same("gain gradient of two microbatches", accumulated.whole(), gain_gradient, 1e-8);
}

} // namespace

TEST_CASE("rms_norm and its gradients equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, extents);
          }) == "");
}
