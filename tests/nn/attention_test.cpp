// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/attention.hpp>

#include <string>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr std::size_t batch = 3, sequence = 5, groups = 6, queries = 2, width = 4;
constexpr std::size_t group_width = (queries + 2) * width;
constexpr double base = 100;

double& element(Vector& qkv, std::size_t b, std::size_t t, std::size_t g, std::size_t i) {
  return qkv[((b * sequence + t) * groups + g) * group_width + i];
}

/// Rotary positions on queries and keys: element i turns with element i + width / 2.
Vector plain_rotation(Vector qkv) {
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < sequence; ++t)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t head = 0; head <= queries; ++head)
          for (std::size_t i = 0; i < width / 2; ++i) {
            const double angle =
                static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / width);
            double& low = element(qkv, b, t, g, head * width + i);
            double& high = element(qkv, b, t, g, head * width + i + width / 2);
            const double turned = low * std::cos(angle) - high * std::sin(angle);
            high = high * std::cos(angle) + low * std::sin(angle);
            low = turned;
          }
  return qkv;
}

/// Causal softmax(q k' / sqrt(width)) v with all probabilities stored.
Vector plain_attention(Vector qkv) {
  Vector out;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < sequence; ++t)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t head = 0; head < queries; ++head) {
          Vector weights;
          double total = 0;
          for (std::size_t s = 0; s <= t; ++s) {
            double score = 0;
            for (std::size_t i = 0; i < width; ++i)
              score += element(qkv, b, t, g, head * width + i) * element(qkv, b, s, g, queries * width + i);
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
            total += weights.back();
          }
          for (std::size_t i = 0; i < width; ++i) {
            double value = 0;
            for (std::size_t s = 0; s <= t; ++s)
              value += weights[s] / total * element(qkv, b, s, g, (queries + 1) * width + i);
            out.push_back(value);
          }
        }
  return out;
}

using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
using Out = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<2, tp>>;
static_assert(std::is_same_v<sw::AttentionLayout<Qkv>, Out>);
constexpr sw::HeadShape heads{queries, width};

void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  auto qkv = random_tensor<Qkv>(mesh, {batch, sequence, groups, group_width}, 1);
  const auto upstream = random_tensor<Out>(mesh, {batch, sequence, groups * queries * width}, 2);
  const Vector before = whole_of(qkv), weights = whole_of(upstream);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference, double tolerance) {
    findings.expect(difference(values, reference) <= tolerance, what, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };

  const sw::RotaryTable<double, sw::DefaultTarget> table(mesh, sequence, width, base);
  sw::rotate(qkv, table, heads);
  const Vector turned = whole_of(qkv);
  same("rotation", turned, plain_rotation(before), 1e-14);
  const auto out = sw::attention(qkv, heads);
  same("value", whole_of(out.value), plain_attention(turned), 1e-13);

  auto gradient = sw::attention_gradient(upstream, qkv, out, heads);
  sw::rotate_back(gradient, table, heads);
  const auto objective = [&](const Vector& at) { return dot(plain_attention(plain_rotation(at)), weights); };
  if (world.size() == 1)
    same("gradient", whole_of(gradient), finite_differences(objective, before), 1e-7);
  // Elsewhere a direction is enough, and much cheaper.
  const Vector analytic = whole_of(gradient);
  const auto along = [&](double step) {
    Vector at = before;
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] += step * analytic[i];
    return objective(at);
  };
  const double slope = (8 * (along(1e-3) - along(-1e-3)) - (along(2e-3) - along(-2e-3))) / 12e-3;
  same("slope along the gradient", {dot(analytic, analytic)}, {slope}, 1e-7);
}

} // namespace

TEST_CASE("attention and its gradient are those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, extents);
          }) == "");
}

TEST_CASE("attention names heads that do not divide and a fused width that is not theirs") {
  CHECK(
      on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
        const Mesh mesh = mesh_of(world, {1, 2});
        const auto sentence = [&](std::int64_t kv_heads, std::int64_t fused) {
          const auto qkv = random_tensor<Qkv>(mesh, {1, 2, kv_heads, fused}, 1);
          try {
            static_cast<void>(sw::attention(qkv, heads));
          } catch (const sw::InvalidArgument& error) {
            return std::string(error.what());
          }
          return std::string("no error");
        };
        const std::string uneven = sentence(3, group_width);
        findings.expect(
            uneven.find("attention: kv_heads 3 must be a multiple of the 2 ranks that share them") !=
                std::string::npos,
            uneven);
        const std::string narrow = sentence(2, group_width + 1);
        findings.expect(
            narrow.find("attention: the last extent must be (queries + 2) * head width = 16, but it is 17") !=
                std::string::npos,
            narrow);
      }) == "");
}
