// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/layers/head_norm.hpp>

#include <string>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

constexpr double epsilon = 1e-2;
constexpr std::size_t width = 3, queries = 2;
constexpr sw::HeadShape heads{.queries = queries, .width = width};
constexpr std::array<std::int64_t, 4> shape{3, 5, 6, (queries + 2) * width};
/// Sequences over dp, key and value heads over tp.
using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;

/// Head by head.
Vector plain_norm(Vector x, const Vector& gain) {
  for (std::size_t at = 0, head = 0; at < x.size(); at += width, head = (head + 1) % (queries + 2)) {
    if (head > queries)
      continue; // a value
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i)
      squares += x[at + i] * x[at + i];
    for (std::size_t i = 0; i < width; ++i)
      x[at + i] *= gain[(head < queries ? 0 : width) + i] / std::sqrt(squares / width + epsilon);
  }
  return x;
}

void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  auto x = random_tensor<Qkv>(mesh, shape, 1);
  auto gain = random_tensor<sw::Layout<1>>(mesh, {2 * width}, 2);
  const auto upstream = random_tensor<Qkv>(mesh, shape, 3);
  const Vector xs = whole_of(x), gains = whole_of(gain), weights = whole_of(upstream);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference, double tolerance) {
    findings.expect(difference(values, reference) <= tolerance, what, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };
  const sw::operation::HeadNorm operation{heads, epsilon};
  auto out = operation.forward({}, x, gain);
  same("norm", whole_of(out.value), plain_norm(xs, gains), 1e-14);
  same("norm of tensors", whole_of(sw::head_norm(x, gain, heads, epsilon)), whole_of(out.value), 0);
  same("the input", whole_of(x), xs, 0);

  GradientOf<sw::GainGradientLayout<Qkv>> accumulated{{mesh, {2 * width}}};
  const auto gradient = [&] {
    return whole_of(operation.gradient(upstream.clone(), out.state, x, gain, accumulated.slot()));
  };
  same("input gradient", gradient(),
       finite_differences([&](const Vector& at) { return dot(plain_norm(at, gains), weights); }, xs), 1e-8);
  Vector gain_gradient =
      finite_differences([&](const Vector& at) { return dot(plain_norm(xs, at), weights); }, gains);
  same("gain gradient", accumulated.whole(), gain_gradient, 1e-8);
  static_cast<void>(gradient());
  for (double& each : gain_gradient)
    each *= 2;
  same("gain gradient of two microbatches", accumulated.whole(), gain_gradient, 1e-8);

  std::string sentence;
  try {
    static_cast<void>(sw::head_norm(x, random_tensor<sw::Layout<1>>(mesh, {width}, 2), heads, epsilon));
  } catch (const sw::InvalidArgument& error) {
    sentence = error.what();
  }
  findings.expect(has(sentence, "the gain must be [2 * head width], of queries and of keys"), sentence);
}

} // namespace

TEST_CASE("head_norm and its gradients equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, extents);
          }) == "");
}
