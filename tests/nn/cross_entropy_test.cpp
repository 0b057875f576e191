// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/train/step/global_sum.hpp>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using TargetLayout = sw::Layout<2, sw::Shard<0, dp>>;
using Scores = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<2, tp>>;
constexpr std::size_t batch = 3, sequence = 4, vocabulary = 7;

/// About every third target does not count.
std::int32_t target_of(std::size_t token) {
  return static_cast<std::int32_t>(sw::random_words({3, 4}, token).word[0] % (vocabulary + 3)) - 3;
}

double plain_loss(const Vector& scores) {
  double loss = 0;
  for (std::size_t token = 0; token < batch * sequence; ++token) {
    if (target_of(token) < 0)
      continue;
    const double* row = scores.data() + token * vocabulary;
    double total = 0;
    for (std::size_t i = 0; i < vocabulary; ++i)
      total += std::exp(row[i] - row[0]);
    loss += row[0] + std::log(total) - row[target_of(token)];
  }
  return loss;
}

void check(const sw::HostCommunicator& world, Findings& findings, Extents extents, double shift) {
  const Mesh mesh = mesh_of(world, extents);
  sw::ShardedTensor<TargetLayout, std::int32_t> targets(mesh, {batch, sequence});
  const auto first = static_cast<std::size_t>(targets.local_offset()[0]) * sequence;
  for (std::size_t i = 0; i < targets.local_size(); ++i)
    targets.mutable_data()[i] = target_of(first + i);
  std::int64_t valid = 0;
  for (std::size_t token = 0; token < batch * sequence; ++token)
    valid += target_of(token) >= 0 ? 1 : 0;
  sw::ShardedTensor<Scores, double> scores(mesh, {batch, sequence, vocabulary});
  sw::fill_normal(scores, {11, 1}, shift, 3.0);
  const Vector values = whole_of(scores);
  const double reference = plain_loss(values) / static_cast<double>(valid);

  const auto alone = sw::cross_entropy(scores, targets);
  const double mean = sw::mean_over_mesh(mesh, alone.loss, alone.tokens).value;
  findings.expect(std::abs(mean / reference - 1) < 1e-12, "loss ", mean, " instead of ", reference);
  findings.expect(whole_of(scores) == values, "cross_entropy leaves the scores as they are");
  // The layout says whether a rank has all scores of a token: gathered scores are not taken for a part of
  // them.
  const auto gathered = sw::cross_entropy(sw::redistribute<sw::Layout<3, sw::Shard<0, dp>>>(scores), targets);
  const double whole = sw::mean_over_mesh(mesh, gathered.loss, gathered.tokens).value;
  findings.expect(std::abs(whole / reference - 1) < 1e-12, "loss of gathered scores ", whole);
  sw::Tape<> tape;
  const auto variable = tape.variable(scores);
  const auto with_gradient = sw::cross_entropy(variable, targets);
  tape.backward();
  findings.expect(with_gradient.loss.value == alone.loss.value &&
                      with_gradient.tokens.value == alone.tokens.value,
                  "both forms give one loss");
  const double apart = difference(whole_of(tape.gradient(variable)), finite_differences(plain_loss, values));
  findings.expect(apart <= 1e-7, "gradient differs by ", apart, " on dp ", extents.data, " tp ",
                  extents.tensor);
}

} // namespace

TEST_CASE("cross entropy, its token count and its gradient equal those of whole rows on every mesh",
          "[moe_02]") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, extents, 0.0);
          }) == "");
}

TEST_CASE("scores far above the range of exp give finite losses") {
  for (const double shift : {-2000.0, 2000.0})
    CHECK(on_ranks(2, [shift](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, {1, 2}, shift);
          }) == "");
}
