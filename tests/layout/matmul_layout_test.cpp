// SPDX-License-Identifier: Apache-2.0

#include "layout/virtual_values.hpp"
#include "support/catch.hpp"

#include <shardwright/layout/matmul_layout.hpp>

#include <type_traits>
#include <utility>

using namespace layout_test;
using namespace shardwright::axis;

namespace {

using Tokens = Layout<2, Shard<0, dp>>;
using Column = Layout<2, Shard<1, tp>>;
using Row = Layout<2, Shard<0, tp>>;
using Hidden = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Unfinished = Layout<2, Shard<0, dp>, Partial<Sum, tp>>;

/// Every index of a box.
std::vector<Index> indices_of(const std::vector<std::int64_t>& shape) {
  std::vector<Index> out{Index{}};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<Index> next;
    for (const Index& index : out)
      for (std::int64_t i = 0; i < shape[d]; ++i) {
        next.push_back(index);
        next.back()[d] = i;
      }
    out = next;
  }
  return out;
}

/// Indices of the factors of every term of a result element: the plain sum over the contracted dimensions.
std::vector<std::pair<Index, Index>> terms(MatmulForm form, const std::vector<std::int64_t>& left,
                                           const std::vector<std::int64_t>& right, const Index& out) {
  std::vector<std::pair<Index, Index>> list;
  const std::size_t rows =
      form == MatmulForm::right_transposed ? left.size() - right.size() + 1 : left.size() - 1;
  const std::size_t columns = form == MatmulForm::left_transposed ? right.size() - rows : right.size() - 1;
  if (form == MatmulForm::plain) {
    for (std::int64_t k = 0; k < right[0]; ++k) {
      Index first{};
      Index second{};
      for (std::size_t d = 0; d < rows; ++d)
        first[d] = out[d];
      first[rows] = second[0] = k;
      for (std::size_t d = 0; d < columns; ++d)
        second[1 + d] = out[rows + d];
      list.emplace_back(first, second);
    }
  } else if (form == MatmulForm::right_transposed) {
    for (const Index& n : indices_of({right.begin() + 1, right.end()})) {
      Index first{};
      Index second{};
      for (std::size_t d = 0; d < rows; ++d)
        first[d] = out[d];
      second[0] = out[rows];
      for (std::size_t d = 0; d < columns; ++d)
        first[rows + d] = second[1 + d] = n[d];
      list.emplace_back(first, second);
    }
  } else {
    for (const Index& m : indices_of({left.begin(), left.end() - 1})) {
      Index first = m;
      Index second = m;
      first[rows] = out[0];
      for (std::size_t d = 0; d < columns; ++d)
        second[rows + d] = out[1 + d];
      list.emplace_back(first, second);
    }
  }
  return list;
}

/// Multiplies the blocks of every rank for every pair that the rule accepts; returns the number of such
/// pairs.
template <MatmulForm form>
int check_all_pairs(const VirtualMesh& mesh, const std::vector<std::int64_t>& left_shape,
                    const std::vector<std::int64_t>& right_shape, const std::vector<std::int64_t>& shape) {
  const auto axes = static_cast<int>(mesh.extents.size());
  const std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::average};
  int pairs = 0;
  for (const LayoutValue& left : all_layouts(static_cast<int>(left_shape.size()), axes, ops))
    for (const LayoutValue& right : all_layouts(static_cast<int>(right_shape.size()), axes, ops)) {
      const PropagatedLayout result = detail::MatmulRule<form>::apply(left, right);
      if (!result.valid())
        continue;
      ++pairs;
      VirtualTensor a = make_tensor(mesh, left, left_shape);
      VirtualTensor b = make_tensor(mesh, right, right_shape);
      VirtualTensor c = make_tensor(mesh, result.layout, shape);
      fill_whole(mesh, a, 1, 9);
      fill_whole(mesh, b, 2, 9);
      bool ranges_agree = true;
      for (std::size_t rank = 0; rank < c.blocks.size(); ++rank)
        c.blocks[rank].for_each([&](const Index& index) {
          double sum = 0;
          for (const auto& [first, second] : terms(form, left_shape, right_shape, index)) {
            ranges_agree = ranges_agree && a.blocks[rank].holds(first) == b.blocks[rank].holds(second);
            if (a.blocks[rank].holds(first) && b.blocks[rank].holds(second))
              sum += a.blocks[rank].at(first) * b.blocks[rank].at(second);
          }
          c.blocks[rank].at(index) = sum;
        });
      REQUIRE(ranges_agree);
      REQUIRE(stands_for(mesh, c, [&](const Index& index) {
        double sum = 0;
        for (const auto& [first, second] : terms(form, left_shape, right_shape, index))
          sum += *value_at(mesh, a, first) * *value_at(mesh, b, second);
        return sum;
      }));
    }
  return pairs;
}

} // namespace

TEST_CASE("tensor-parallel products", "[matmul]") {
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Tokens, Column>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Hidden, Row>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Layout<2>, Layout<2>>, Layout<2>>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Tokens, Layout<1>>, Layout<1, Shard<0, dp>>>); // by a vector
  using Sequence = Layout<3, Shard<0, dp>, Shard<1, cp>, Shard<2, tp>>;
  STATIC_REQUIRE(
      std::is_same_v<MatmulLayout<Sequence, Row>, Layout<3, Shard<0, dp>, Shard<1, cp>, Partial<Sum, tp>>>);
}

TEST_CASE("the products of the backward pass", "[matmul]") {
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Hidden, Column, MatmulForm::right_transposed>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Tokens, Row, MatmulForm::right_transposed>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Tokens, Hidden, MatmulForm::left_transposed>,
                                Layout<2, Shard<1, tp>, Partial<Sum, dp>>>);
  using Left = Layout<3, Shard<0, dp>, Shard<1, cp>>;
  using Right = Layout<3, Shard<0, dp>, Shard<1, cp>, Shard<2, tp>>;
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Left, Right, MatmulForm::left_transposed>,
                                Layout<2, Shard<1, tp>, Partial<Sum, cp, dp>>>);
}

TEST_CASE("Partial passes through a product with a replicated operand", "[matmul]") {
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Unfinished, Layout<2>>, Unfinished>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Tokens, Layout<2, Partial<Avg, tp>>>,
                                Layout<2, Shard<0, dp>, Partial<Avg, tp>>>);
}

TEST_CASE("the plan of a product over a grid is known when it is compiled", "[matmul]") {
  // Both operands and the result alike; not vectors, batches, or operands with halos.
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Hidden, Hidden>, Hidden>);
  STATIC_REQUIRE(!detail::is_grid<Tokens> && !detail::is_grid<Unfinished> && !detail::is_grid<InvalidLayout>);
  STATIC_REQUIRE(!detail::is_grid<Layout<3, Shard<0, dp>, Shard<1, cp>>>);
  STATIC_REQUIRE(!detail::is_grid<Layout<2, Shard<0, dp, Halo<1>>, Shard<1, tp>>>);
  // In alphabetical order: cp, dp, tp.
  using Layers = Layout<2, Shard<0, dp>, Shard<1, tp>, Partial<Sum, cp>>;
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Hidden, Hidden, MatmulForm::right_transposed>, Hidden>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Hidden, Hidden, MatmulForm::left_transposed>, Hidden>);
  STATIC_REQUIRE(detail::is_sum_of_grid<Hidden, Layers>());
  STATIC_REQUIRE(!detail::is_sum_of_grid<Hidden, Hidden>() && !detail::is_sum_of_grid<Hidden, Unfinished>());
  STATIC_REQUIRE(!detail::is_sum_of_grid<Hidden, Layout<2, Shard<0, dp>, Shard<1, tp>, Partial<Avg, cp>>>());

  // 2 x 3 ranks: the blocks of A end at 4, 8 and 10, those of B at 5 and 10.
  constexpr std::array<int, 2> grid{2, 3};
  constexpr auto panels = [] {
    std::array<ProductPanel, 5> out{};
    std::size_t count = 0;
    GridProduct<Hidden>::for_each_panel(std::array{2, 3}, std::array{0, 0}, 10,
                                        [&](const ProductPanel& panel) { out.at(count++) = panel; });
    return out;
  }();
  STATIC_REQUIRE(panels[0] == ProductPanel{{0, 4}, 0, 0});
  STATIC_REQUIRE(panels[1] == ProductPanel{{4, 1}, 1, 0});
  STATIC_REQUIRE(panels[2] == ProductPanel{{5, 3}, 1, 1});
  STATIC_REQUIRE(panels[3] == ProductPanel{{8, 2}, 2, 1});
  STATIC_REQUIRE(GridProduct<Hidden>::steps(grid, 10) == 4);
  STATIC_REQUIRE(GridProduct<Hidden>::steps(grid, 1200) == 6); // at most 256 wide: 256, 144, 200, 200, ...
  // Of A it lacks 6 of 10 columns in 4 rows, of B 5 of 10 rows in 3 columns.
  STATIC_REQUIRE(GridProduct<Hidden>::bytes(grid, {7, 10, 9}, 4) == 4 * (6 * 4 + 5 * 3));

  // Of two layers the first one takes 5 of 10: of A it lacks 1, of B none.
  constexpr std::array<int, 3> layers{2, 2, 3};
  STATIC_REQUIRE(GridProduct<Layers>::steps(layers, 10) == 2);
  STATIC_REQUIRE(GridProduct<Layers>::bytes(layers, {7, 10, 9}, 4) == 4 * (1 * 4 + 0 * 3));
}

TEST_CASE("a rejected product causes no second error", "[matmul]") {
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<InvalidLayout, Column>, InvalidLayout>);
  STATIC_REQUIRE(std::is_same_v<MatmulLayout<Column, InvalidLayout>, InvalidLayout>);
}

TEST_CASE("local products represent the whole product wherever the rule accepts the layouts", "[matmul]") {
  for (const auto& extents : {std::vector<int>{2, 2}, {3, 2}}) {
    const VirtualMesh mesh(extents);
    CHECK(check_all_pairs<MatmulForm::plain>(mesh, {5, 4}, {4, 3}, {5, 3}) > 50);
    CHECK(check_all_pairs<MatmulForm::right_transposed>(mesh, {3, 5}, {4, 5}, {3, 4}) > 50);
    CHECK(check_all_pairs<MatmulForm::left_transposed>(mesh, {5, 2}, {5, 3}, {2, 3}) > 50);
  }
  const VirtualMesh mesh({2, 2});
  CHECK(check_all_pairs<MatmulForm::plain>(mesh, {2, 3, 4}, {4, 3}, {2, 3, 3}) > 50);
  CHECK(check_all_pairs<MatmulForm::left_transposed>(mesh, {2, 3, 2}, {2, 3, 3}, {2, 3}) > 50);
  CHECK(check_all_pairs<MatmulForm::plain>(mesh, {3, 4}, {4, 2, 3}, {3, 2, 3}) > 50);
  CHECK(check_all_pairs<MatmulForm::right_transposed>(mesh, {3, 2, 3}, {4, 2, 3}, {3, 4}) > 50);
  CHECK(check_all_pairs<MatmulForm::left_transposed>(mesh, {3, 4}, {3, 2, 3}, {4, 2, 3}) > 50);
}
