// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tensor/ordered_cases.hpp"
#include "tensor/reference.hpp"

#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Each form of redistribute on typed layouts. transition_run_test.cpp checks the steps for every pair of
// layouts.

namespace {

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using tensor_test::RandomParts;
using tensor_test::Reference;
using tensor_test::Table;

/// The block of a tensor that was made as `From`, in layout `from_value` or `to_value` of the pair.
template <class Pair, class Mesh, std::size_t rank>
std::vector<double> block_of(const LayoutValue& layout, const Mesh& mesh,
                             const std::array<std::int64_t, rank>& shape, std::uint64_t seed) {
  const detail::AxisBinding binding = detail::bind_axes(mesh.core(), Pair::axes);
  const Table table{static_cast<int>(Pair::axes.size()), binding.extents, binding.coordinates};
  tensor_test::Shape full{};
  std::copy(shape.begin(), shape.end(), full.begin());
  return Reference(table, Pair::from_value, RandomParts{seed, 12}).block(layout, full);
}

template <class L, class Element, class Mesh, std::size_t rank>
ShardedTensor<L, Element> made(const Mesh& mesh, const std::array<std::int64_t, rank>& shape,
                               const std::vector<double>& values) {
  ShardedTensor<L, Element> out(mesh, shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    out.mutable_data()[i] = static_cast<Element>(values[i]);
  return out;
}

template <class Tensor> bool holds(const Tensor& tensor, const std::vector<double>& values) {
  if (tensor.local_size() != values.size())
    return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (tensor.data()[i] != static_cast<typename Tensor::value_type>(values[i]))
      return false;
  return true;
}

/// All forms of one pair of layouts.
template <class From, class To, class Element, class Mesh, std::size_t rank>
void check_pair(const Mesh& mesh, const std::array<std::int64_t, rank>& shape, std::uint64_t seed,
                Findings& findings) {
  using Pair = Transition<From, To>;
  const std::vector<double> before = block_of<Pair>(Pair::from_value, mesh, shape, seed);
  const std::vector<double> after = block_of<Pair>(Pair::to_value, mesh, shape, seed);
  const auto from = made<From, Element>(mesh, shape, before);
  const std::string pair =
      tensor_test::text_of(Pair::from_value) + " to " + tensor_test::text_of(Pair::to_value);
  const bool trivial = detail::bind_transition<Pair>(mesh.core()).trivial();

  const ShardedTensor<To, const Element> plain = redistribute<To>(from);
  findings.expect(holds(plain, after), pair, ": redistribute");
  findings.expect(plain.shape() == shape, pair, ": the global shape stays");
  findings.expect((plain.data() == from.data()) == trivial, pair,
                  ": memory is shared exactly where nothing moves");

  PendingTensor<To, Element, DefaultTarget> pending = redistribute_async<To>(from);
  findings.expect(holds(pending.wait(), after), pair, ": redistribute_async");

  ShardedTensor<To, Element> into(mesh, shape);
  redistribute_into(from, into);
  findings.expect(holds(into, after), pair, ": redistribute_into");
  findings.expect(into.data() != from.data(), pair, ": a destination keeps its own memory");

  auto given = from.clone();
  const void* const memory = given.data();
  const ShardedTensor<To, Element> owner = redistribute<To>(std::move(given));
  findings.expect(holds(owner, after), pair, ": redistribute of an owner that is given away");
  const bool all_reduce = detail::bind_transition<Pair>(mesh.core()).is_all_reduce();
  if (owner.local_size() > 0)
    findings.expect((owner.data() == memory) == (trivial || all_reduce), pair, ": in place where it can be");
  findings.expect(holds(from, before), pair, ": the source is as it was");
}

template <class From, class... To, class Element, class Mesh, std::size_t rank>
void check_from(std::type_identity<std::tuple<To...>>, std::type_identity<Element>, const Mesh& mesh,
                const std::array<std::int64_t, rank>& shape, Findings& findings) {
  std::uint64_t seed = 0;
  (check_pair<From, To, Element>(mesh, shape, ++seed, findings), ...);
}

using Matrices = std::tuple<Layout<2>, Layout<2, Shard<0, dp>>, Layout<2, Shard<1, tp>>,
                            Layout<2, Shard<0, dp, tp>>, Layout<2, Shard<0, dp>, Shard<1, tp>>>;

template <class Element> std::string check_matrices(int d, int t, std::array<std::int64_t, 2> shape) {
  return on_ranks(d * t, [&](HostCommunicator world, Findings& findings) {
    const DeviceMesh mesh{world, extent<dp>(d), extent<tp>(t)};
    const std::type_identity<Matrices> all;
    const std::type_identity<Element> element;
    check_from<Layout<2>>(all, element, mesh, shape, findings);
    check_from<Layout<2, Shard<0, dp>>>(all, element, mesh, shape, findings);
    check_from<Layout<2, Shard<1, tp>>>(all, element, mesh, shape, findings);
    check_from<Layout<2, Shard<0, dp>, Shard<1, tp>>>(all, element, mesh, shape, findings);
    check_from<Layout<2, Shard<0, dp>, Partial<Sum, tp>>>(all, element, mesh, shape, findings);
    check_from<Layout<2, Partial<Sum, dp, tp>>>(all, element, mesh, shape, findings);
  });
}

} // namespace

TEST_CASE("typed layouts of a matrix, every form, float") {
  CHECK(check_matrices<float>(1, 1, {4, 3}) == "");
  CHECK(check_matrices<float>(2, 1, {5, 3}) == "");
  CHECK(check_matrices<float>(1, 3, {5, 4}) == "");
  CHECK(check_matrices<float>(2, 2, {13, 6}) == "");
  CHECK(check_matrices<float>(2, 3, {3, 2}) == "");
  CHECK(check_matrices<float>(4, 2, {9, 7}) == "");
}

TEST_CASE("typed layouts of a matrix, every form, double and int32") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          const std::array<std::int64_t, 2> shape{7, 5};
          using Block = Layout<2, Shard<0, dp>, Shard<1, tp>>;
          check_pair<Block, Layout<2, Shard<0, dp, tp>>, double>(mesh, shape, 1, findings);
          check_pair<Layout<2, Partial<Sum, dp, tp>>, Layout<2>, double>(mesh, shape, 2, findings);
          check_pair<Layout<2, Partial<Sum, dp, tp>>, Block, std::int32_t>(mesh, shape, 3, findings);
          check_pair<Block, Layout<2>, std::int32_t>(mesh, shape, 4, findings);
        }) == "");
}

TEST_CASE("reductions of every kind, vectors and tensors of rank 3") {
  CHECK(on_ranks(4, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          check_pair<Layout<1, Partial<Avg, tp>>, Layout<1>, float>(mesh, std::array<std::int64_t, 1>{9}, 1,
                                                                    findings);
          check_pair<Layout<1, Partial<Product, dp, tp>>, Layout<1>, float>(
              mesh, std::array<std::int64_t, 1>{9}, 2, findings);
          check_pair<Layout<1, Partial<Max, dp, tp>>, Layout<1, Shard<0, tp>>, double>(
              mesh, std::array<std::int64_t, 1>{9}, 3, findings);
          check_pair<Layout<1, Partial<Min, tp>>, Layout<1, Shard<0, tp, dp>>, std::int32_t>(
              mesh, std::array<std::int64_t, 1>{9}, 4, findings);
          check_pair<Layout<3, Shard<0, dp>, Shard<2, tp>>, Layout<3, Shard<0, dp>, Shard<1, tp>>, float>(
              mesh, std::array<std::int64_t, 3>{3, 5, 4}, 5, findings);
          check_pair<Layout<3, Shard<0, dp>, Partial<Sum, tp>>, Layout<3, Shard<0, dp>, Shard<1, tp>>, float>(
              mesh, std::array<std::int64_t, 3>{3, 5, 4}, 6, findings);
        }) == "");
}

TEST_CASE("eight ranks on three axes") {
  CHECK(on_ranks(8, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<cp>(2), extent<tp>(2)};
          const std::array<std::int64_t, 3> shape{5, 6, 3};
          check_pair<Layout<3, Shard<0, dp, cp>, Partial<Sum, tp>>, Layout<3, Shard<0, dp>, Shard<1, cp, tp>>,
                     float>(mesh, shape, 1, findings);
          check_pair<Layout<3, Shard<0, dp>, Shard<1, cp, tp>>, Layout<3>, double>(mesh, shape, 2, findings);
          check_pair<Layout<3, Partial<Sum, dp, cp, tp>>, Layout<3, Shard<0, dp, cp, tp>>, float>(
              mesh, shape, 3, findings);
        }) == "");
}

TEST_CASE("merged collectives give the same bits as single ones") {
  using Parts = Layout<1, Partial<Sum, dp, tp>>;
  CHECK(on_ranks(6, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(3)};
          ShardedTensor<Parts> parts(mesh, {1001});
          for (std::size_t i = 0; i < parts.local_size(); ++i)
            parts.mutable_data()[i] = static_cast<float>(
                unit_interval(random_words({3, static_cast<std::uint64_t>(world.rank())}, i).word[0]) - 0.4);
          const auto merged = redistribute<Layout<1>>(parts);
          const auto single = redistribute<Layout<1>>(redistribute<Layout<1, Partial<Sum, dp>>>(parts));
          const auto scattered = redistribute<Layout<1, Shard<0, dp, tp>>>(parts);
          const auto stepwise = redistribute<Layout<1, Shard<0, dp, tp>>>(
              redistribute<Layout<1, Shard<0, dp>, Partial<Sum, tp>>>(parts));
          for (std::size_t i = 0; i < merged.local_size(); ++i)
            findings.expect(merged.data()[i] == single.data()[i], "all_reduce, element ", i);
          for (std::size_t i = 0; i < scattered.local_size(); ++i)
            findings.expect(scattered.data()[i] == stepwise.data()[i], "reduce_scatter, element ", i);
        }) == "");
}

TEST_CASE("two runs on one mesh give the same bits") {
  using Parts = Layout<1, Partial<Sum, dp>>;
  std::vector<std::vector<float>> results(2);
  for (auto& result : results)
    CHECK(on_ranks(3, [&](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(3)};
            ShardedTensor<Parts> parts(mesh, {5000});
            for (std::size_t i = 0; i < parts.local_size(); ++i)
              parts.mutable_data()[i] = static_cast<float>(
                  unit_interval(random_words({4, static_cast<std::uint64_t>(world.rank())}, i).word[0]));
            const auto whole = redistribute<Layout<1>>(std::move(parts));
            findings.expect(whole.local_size() == 5000, "size");
            if (world.rank() == 0)
              result.assign(whole.data(), whole.data() + whole.local_size());
          }) == "");
  CHECK(results[0] == results[1]);
}

TEST_CASE("sums on a reproducible target are those of a plain tree, on every number of ranks") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_ranks(ranks, ordered_test::check_world) == "");
}
