// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_values.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/embedding_layout.hpp>

#include <type_traits>

using namespace layout_test;
using namespace shardwright::axis;

namespace {

constexpr std::int64_t vocabulary = 7;
constexpr std::int64_t width = 3;

/// Word of a token; every rank that holds the token holds the same.
double word(const Index& index, const std::vector<int>&) {
  return static_cast<double>(std::abs(hashed(21, index, {}, 1000)) % vocabulary);
}

Index entry(const VirtualBlock& indices, const Index& token, std::int64_t column) {
  return {static_cast<std::int64_t>(indices.at(token)), column};
}

} // namespace

TEST_CASE("a vocabulary-parallel table leaves an incomplete sum", "[embedding]") {
  using Tokens = Layout<1, Shard<0, dp>>;
  using Table = Layout<2, Shard<0, tp>>;
  using Output = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;
  STATIC_REQUIRE(std::is_same_v<EmbeddingLayout<Tokens, Table>, Output>);
  STATIC_REQUIRE(std::is_same_v<EmbeddingLayout<Layout<2, Shard<0, dp>, Shard<1, cp>>, Table>,
                                Layout<3, Shard<0, dp>, Shard<1, cp>, Partial<Sum, tp>>>);
  STATIC_REQUIRE(std::is_same_v<EmbeddingLayout<Tokens, Layout<2, Shard<1, tp>>>,
                                Layout<2, Shard<0, dp>, Shard<1, tp>>>);
  STATIC_REQUIRE(std::is_same_v<EmbeddingGradientLayout<Tokens, Layout<2, Shard<0, dp>>, Table>,
                                Layout<2, Shard<0, tp>, Partial<Sum, dp>>>);
  STATIC_REQUIRE(std::is_same_v<EmbeddingLayout<Tokens, InvalidLayout>, InvalidLayout>);
}

TEST_CASE("local lookups represent the whole lookup", "[embedding]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}}) {
    const VirtualMesh mesh(extents);
    for (const auto& token_shape : {std::vector<std::int64_t>{5}, {3, 2}}) {
      const std::size_t tokens_rank = token_shape.size();
      std::vector<std::int64_t> shape = token_shape;
      shape.push_back(width);
      int valid = 0;
      for (const LayoutValue& tokens : all_layouts(static_cast<int>(tokens_rank), 2, {ReduceOp::sum}))
        for (const LayoutValue& placed : all_layouts(2, 2, {ReduceOp::sum})) {
          const PropagatedLayout result = detail::EmbeddingRule::apply(tokens, placed);
          if (!result.valid())
            continue;
          ++valid;
          VirtualTensor indices = make_tensor(mesh, tokens, token_shape);
          VirtualTensor table = make_tensor(mesh, placed, {vocabulary, width});
          VirtualTensor out = make_tensor(mesh, result.layout, shape);
          fill_parts(mesh, indices, word);
          fill_whole(mesh, table, 3, 50);
          for (std::size_t rank = 0; rank < out.blocks.size(); ++rank)
            out.blocks[rank].for_each([&](const Index& index) {
              Index token = index;
              token[tokens_rank] = 0;
              const Index row = entry(indices.blocks[rank], token, index[tokens_rank]);
              out.blocks[rank].at(index) = table.blocks[rank].holds(row) ? table.blocks[rank].at(row) : 0;
            });
          REQUIRE(stands_for(mesh, out, [&](const Index& index) {
            Index token = index;
            token[tokens_rank] = 0;
            return *value_at(
                mesh, table,
                {static_cast<std::int64_t>(*value_at(mesh, indices, token)), index[tokens_rank]});
          }));
        }
      CHECK(valid > 20);
    }
  }
}

TEST_CASE("local gradients of the table represent the whole gradient", "[embedding]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}}) {
    const VirtualMesh mesh(extents);
    int valid = 0;
    for (const LayoutValue& tokens : all_layouts(1, 2, {}))
      for (const LayoutValue& arriving : all_layouts(2, 2, {ReduceOp::sum}))
        for (const LayoutValue& placed : all_layouts(2, 2, {})) {
          const PropagatedLayout result = detail::EmbeddingGradientRule::apply(tokens, arriving, placed);
          if (!result.valid())
            continue;
          ++valid;
          VirtualTensor indices = make_tensor(mesh, tokens, {5});
          VirtualTensor gradient = make_tensor(mesh, arriving, {5, width});
          VirtualTensor out = make_tensor(mesh, result.layout, {vocabulary, width});
          const VirtualTensor table = make_tensor(mesh, placed, {vocabulary, width});
          fill_parts(mesh, indices, word);
          fill_whole(mesh, gradient, 4, 50);
          bool held = true;
          for (std::size_t rank = 0; rank < out.blocks.size(); ++rank) {
            REQUIRE(out.blocks[rank].ranges == table.blocks[rank].ranges);
            gradient.blocks[rank].for_each([&](const Index& index) {
              held = held && indices.blocks[rank].holds({index[0]});
              const Index row = entry(indices.blocks[rank], {index[0]}, index[1]);
              if (out.blocks[rank].holds(row))
                out.blocks[rank].at(row) += gradient.blocks[rank].at(index);
            });
          }
          REQUIRE(held);
          REQUIRE(stands_for(mesh, out, [&](const Index& at) {
            double total = 0;
            for (std::int64_t token = 0; token < 5; ++token)
              if (*value_at(mesh, indices, {token}) == static_cast<double>(at[0]))
                total += *value_at(mesh, gradient, {token, at[1]});
            return total;
          }));
        }
    CHECK(valid > 20);
  }
}
