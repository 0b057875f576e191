// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/nn/layers/embedding.hpp>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using IdLayout = sw::Layout<2, sw::Shard<0, dp>>;
using Tokens = sw::Layout<3, sw::Shard<0, dp>>;
using Table = sw::Layout<2, sw::Shard<0, tp>>;
constexpr std::size_t batch = 3, sequence = 4, vocabulary = 7, width = 5;

std::int32_t id_of(std::size_t token) {
  return static_cast<std::int32_t>(sw::random_words({3, 3}, token).word[0] % vocabulary);
}

} // namespace

TEST_CASE("embedding and its gradient equal those of the whole table on every mesh, with repeated words") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            sw::ShardedTensor<IdLayout, std::int32_t> ids(mesh, {batch, sequence});
            const auto first = static_cast<std::size_t>(ids.local_offset()[0]) * sequence;
            for (std::size_t i = 0; i < ids.local_size(); ++i)
              ids.mutable_data()[i] = id_of(first + i);
            const auto table = random_tensor<Table>(mesh, {vocabulary, width}, 1);
            const auto upstream = random_tensor<Tokens>(mesh, {batch, sequence, width}, 2);
            const Vector rows = whole_of(table), weights = whole_of(upstream);
            Vector value, gradient(rows.size());
            for (std::size_t token = 0; token < batch * sequence; ++token)
              for (std::size_t i = 0; i < width; ++i) {
                const std::size_t at = static_cast<std::size_t>(id_of(token)) * width + i;
                value.push_back(rows[at]);
                gradient[at] += weights[token * width + i];
              }
            findings.expect(whole_of(sw::embed(ids, table)) == value, "value");
            GradientOf<sw::EmbeddingGradientLayout<IdLayout, Tokens, Table>> accumulated{
                {mesh, {vocabulary, width}}};
            const sw::operation::Embed<decltype(ids.share())> look_up{ids.share()};
            look_up.gradient_into(accumulated.slot(), upstream);
            double apart = difference(accumulated.whole(), gradient);
            findings.expect(apart <= 1e-15, "gradient differs by ", apart);
            look_up.gradient_into(accumulated.slot(), upstream);
            for (double& each : gradient)
              each *= 2;
            apart = difference(accumulated.whole(), gradient);
            findings.expect(apart <= 1e-15, "gradient of two microbatches differs by ", apart);
          }) == "");
}
