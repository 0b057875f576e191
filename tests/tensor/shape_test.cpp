// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/tensor/transpose.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using Values = std::vector<double>;

template <class Tensor> Values whole(const Tensor& tensor) {
  const auto replicated = redistribute<Layout<Tensor::tensor_rank>>(tensor);
  return Values(replicated.data(), replicated.data() + replicated.local_size());
}

template <class Action> std::string message_of(Action action) {
  try {
    static_cast<void>(action());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

using Block = Layout<4, Shard<0, dp>, Shard<2, tp>>;
static_assert(std::is_same_v<TransposeLayout<Block, 1, 2>, Layout<4, Shard<0, dp>, Shard<1, tp>>>);
static_assert(std::is_same_v<TransposeLayout<Block, 3, 0>, Layout<4, Shard<3, dp>, Shard<2, tp>>>);
static_assert(std::is_same_v<TransposeLayout<Layout<2, Shard<0, dp>, Partial<Sum, tp>>, 0, 1>,
                             Layout<2, Shard<1, dp>, Partial<Sum, tp>>>);
static_assert(std::is_same_v<TransposeLayout<InvalidLayout, 0, 1>, InvalidLayout>);
static_assert(std::is_same_v<RegroupLayout<Block, 2, 2, 1>, Layout<3, Shard<0, dp>, Shard<2, tp>>>);
static_assert(std::is_same_v<RegroupLayout<Block, 2, 1, 3>, Layout<6, Shard<0, dp>, Shard<2, tp>>>);
static_assert(std::is_same_v<RegroupLayout<Block, 1, 1, 0>, Layout<3, Shard<0, dp>, Shard<1, tp>>>);
static_assert(std::is_same_v<RegroupLayout<Block, 0, 2, 1>, Layout<3, Shard<0, dp>, Shard<1, tp>>>);
static_assert(
    std::is_same_v<RegroupLayout<Layout<2, Shard<0, dp, tp>>, 0, 2, 3>, Layout<3, Shard<0, dp, tp>>>);
static_assert(std::is_same_v<RegroupLayout<InvalidLayout, 0, 1, 1>, InvalidLayout>);

} // namespace

TEST_CASE("dimensions are swapped with their shards, whatever surrounds them") {
  CHECK(
      on_ranks(4, [](HostCommunicator world, Findings& findings) {
        const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
        const std::array<std::size_t, 4> e{3, 2, 19, 33};
        ShardedTensor<Block, double> x(mesh, {3, 2, 19, 33});
        fill_normal(x, {1, 1});
        const Values xs = whole(x);
        const auto expect = [&](const char* what, const Values& found, std::array<std::size_t, 4> order) {
          // order[d]: the dimension of x that is dimension d of the result
          std::size_t at = 0;
          std::array<std::size_t, 4> i{};
          bool same = true;
          for (i[order[0]] = 0; i[order[0]] < e[order[0]]; ++i[order[0]])
            for (i[order[1]] = 0; i[order[1]] < e[order[1]]; ++i[order[1]])
              for (i[order[2]] = 0; i[order[2]] < e[order[2]]; ++i[order[2]])
                for (i[order[3]] = 0; i[order[3]] < e[order[3]]; ++i[order[3]])
                  same = same && found[at++] == xs[((i[0] * e[1] + i[1]) * e[2] + i[2]) * e[3] + i[3]];
          findings.expect(same, what);
        };
        expect("1 and 2", whole(transpose<1, 2>(x)), {0, 2, 1, 3});
        expect("0 and 3", whole(transpose<0, 3>(x)), {3, 1, 2, 0});
        expect("3 and 2", whole(transpose<3, 2>(x)), {0, 1, 3, 2});
        expect("0 and 1", whole(transpose<0, 1>(x)), {1, 0, 2, 3});
        const auto same = transpose<1, 1>(x);
        findings.expect(whole(same) == xs, "a dimension and itself");
        ShardedTensor<Layout<2, Partial<Sum, dp, tp>>, std::int32_t> parts(mesh, {2, 3});
        for (std::size_t i = 0; i < 6; ++i)
          parts.mutable_data()[i] = static_cast<std::int32_t>(i);
        findings.expect(whole(transpose<0, 1>(parts)) == Values{0, 12, 4, 16, 8, 20}, "integers, unfinished");
      }) == "");
}

TEST_CASE("a reshape shares memory") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          ShardedTensor<Block, double> x(mesh, {4, 3, 6, 5});
          fill_normal(x, {1, 1});
          const Values xs = whole(x);
          const auto merged = merge_dimensions<2, 2>(x);
          static_assert(std::is_same_v<decltype(merged)::layout, Layout<3, Shard<0, dp>, Shard<2, tp>>>);
          findings.expect(merged.shape() == std::array<std::int64_t, 3>{4, 3, 30}, "merged extents");
          findings.expect(merged.data() == x.data() && whole(merged) == xs, "merged");
          findings.expect(whole(merge_dimensions<0, 2>(x)) == xs, "merged around a sharded one");
          const auto split = split_dimension<2>(x, {2, 3});
          static_assert(std::is_same_v<decltype(split)::layout, Layout<5, Shard<0, dp>, Shard<2, tp>>>);
          findings.expect(whole(split) == xs, "split");
          ShardedTensor<Layout<2, Shard<0, dp, tp>>, double> rows(mesh, {8, 6});
          fill_normal(rows, {1, 2});
          const auto reshaped = reshape(rows, {4, 2, 6});
          static_assert(std::is_same_v<decltype(reshaped)::layout, Layout<3, Shard<0, dp, tp>>>);
          findings.expect(reshaped.data() == rows.data() && whole(reshaped) == whole(rows), "reshaped");
          findings.expect(whole(reshape(rows, {48})) == whole(rows), "as a vector");
          ShardedTensor<Layout<2>, double> none(mesh, {0, 6});
          findings.expect(reshape(none, {3, 0, 2}).local_size() == 0, "without elements");

          std::string message = message_of([&] { return reshape(rows, {7, 7}); });
          findings.expect(
              message.find("reshape: the result must have as many elements as the input, but the shapes are "
                           "[8, 6] and [7, 7]") == 0,
              message);
          message = message_of([&] { return reshape(rows, {3, 16}); });
          findings.expect(
              message.find("reshape: the blocks of a sharded dimension must stay whole, but those of [8, 6] "
                           "and [3, 16] are cut at different elements") == 0,
              message);
          // Blocks of 3, 3, 3 and 1 rows, into which 30 elements in one dimension are not cut.
          ShardedTensor<Layout<2, Shard<0, dp, tp>>, double> uneven(mesh, {10, 3});
          message = message_of([&] { return merge_dimensions<0, 2>(uneven); });
          findings.expect(message.find("reshape: the blocks of a sharded dimension must stay whole") == 0,
                          message);
        }) == "");
}
