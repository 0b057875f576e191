// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/tensor/tensor_over.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::Findings;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;

namespace {

using Rows = Layout<2, Shard<0, dp>>;
using PartialRows = Layout<2, Partial<Sum, dp>>;
using Whole = Layout<2>;
using View = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using ConstView = Kokkos::View<const float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using StrideView = Kokkos::View<float**, Kokkos::LayoutStride, Kokkos::HostSpace>;

/// A view that the program owns, with the extents of a block; elements differ between ranks.
template <class L, class Mesh> View view_of(const Mesh& mesh, const std::array<std::int64_t, 2>& shape) {
  const auto block = block_shape<L>(mesh, shape);
  View view("view", static_cast<std::size_t>(block[0]), static_cast<std::size_t>(block[1]));
  for (std::size_t i = 0; i < view.extent(0); ++i)
    for (std::size_t j = 0; j < view.extent(1); ++j)
      view(i, j) = static_cast<float>(100 * mesh.rank()) + static_cast<float>(10 * i + j) / 8.0F - 3.0F;
  return view;
}
std::vector<float> elements_of(const View& view) { return {view.data(), view.data() + view.size()}; }

template <class Failure, class Action> std::string message_of(Action action) {
  try {
    action();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure of the type";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a tensor over a view reads and writes the view") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(world.size())};
            const View view = view_of<Rows>(mesh, {7, 5});
            const std::vector<float> before = elements_of(view);
            {
              auto x = tensor_over<Rows>(mesh, view, {7, 5});
              static_assert(std::is_same_v<decltype(x), ShardedTensor<Rows>>);
              findings.expect(x.data() == view.data() && x.local_shape() == block_shape<Rows>(mesh, {7, 5}),
                              "in place");
              findings.expect(elements_of(view) == before, "nothing writes it by itself, in no build");
              findings.expect(mesh.pool_statistics().used_bytes == 0 &&
                                  mesh.pool_statistics().allocations == 0,
                              "the pool has no part in it");
              ShardedTensor<Rows> y(mesh, {7, 5});
              fill(y, 2.0F);
              axpy(0.5, y, x); // x = x + 1
              std::vector<float> wanted = before;
              for (float& each : wanted)
                each += 1.0F;
              findings.expect(elements_of(view) == wanted, "written in the view");
              view(0, 2) = 8.0F;
              findings.expect(x.local()(0, 2) == 8.0F, "read from the view");
              findings.expect(gather(x, 0).size() == (mesh.rank() == 0 ? 35U : 0U), "in a call");
            }
            const std::size_t allocations = mesh.pool_statistics().allocations;
            const ShardedTensor<Rows> next(mesh, {7, 5});
            findings.expect(next.data() != view.data() && mesh.pool_statistics().allocations == allocations,
                            "the pool hands out its own block, not the view");
            findings.expect(view(0, 2) == 8.0F && view.use_count() == 1, "the view outlives the tensor");
          }) == "");
}

TEST_CASE("a tensor over a view is moved, shared and cloned like any other") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          const View view = view_of<Rows>(mesh, {4, 3});
          auto x = tensor_over<Rows>(mesh, view, {4, 3});
          auto moved = std::move(x);
          // NOLINTBEGIN(bugprone-use-after-move): that is the case
          findings.expect(!x.valid() &&
                              contains(message_of<LifecycleError>([&] { static_cast<void>(x.data()); }),
                                       "this one was moved from"),
                          "moved from");
          // NOLINTEND(bugprone-use-after-move)
          {
            const auto handle = moved.share();
            findings.expect(handle.data() == view.data(), "a handle of the view");
            findings.expect(
                contains(message_of<LifecycleError>([&] { fill_zero(moved); }), "shares its memory"),
                "no writes beside a handle");
          }
          const auto copy = moved.clone();
          fill_zero(moved);
          findings.expect(view(1, 1) == 0.0F && copy.local()(1, 1) != 0.0F, "a clone has separate memory");
        }) == "");
}

TEST_CASE("a view of const elements gives a read-only handle") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          const View view = view_of<Rows>(mesh, {4, 3});
          const std::vector<float> before = elements_of(view);
          auto x = tensor_over<Rows>(mesh, ConstView(view), {4, 3});
          static_assert(std::is_same_v<decltype(x), ShardedTensor<Rows, const float>>);
          findings.expect(x.data() == view.data(), "in place");
          const auto y = relu(std::move(x)); // in the operand's memory if that belongs to the pool
          findings.expect(y.data() != view.data() && elements_of(view) == before, "relu takes new memory");
          findings.expect(y.local()(0, 0) == (before[0] > 0 ? before[0] : 0.0F), "relu");
          auto again = tensor_over<Rows>(mesh, ConstView(view), {4, 3});
          auto third = tensor_over<Rows>(mesh, ConstView(view), {4, 3});
          const auto sum = std::move(again) + std::move(third);
          findings.expect(sum.data() != view.data() && elements_of(view) == before, "a sum takes new memory");
          findings.expect(sum.local()(1, 2) == 2 * before[5], "a sum");
        }) == "");
}

TEST_CASE("redistributing an owner over a view works in place if nothing moves, else in new memory") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(world.size())};
            const View view = view_of<PartialRows>(mesh, {4, 3});
            const std::vector<float> before = elements_of(view);
            const auto sum = redistribute<Whole>(tensor_over<PartialRows>(mesh, view, {4, 3}));
            findings.expect(elements_of(view) == before, "the call leaves the view as it is");
            findings.expect((sum.data() == view.data()) == (world.size() == 1), "memory");
            float wanted = 0;
            for (int rank = 0; rank < world.size(); ++rank)
              wanted += before[4] + static_cast<float>(100 * (rank - mesh.rank()));
            findings.expect(sum.local()(1, 1) == wanted, "sum");
            ShardedTensor<PartialRows> own(mesh, {4, 3});
            fill_zero(own);
            const float* const memory = own.data();
            findings.expect(redistribute<Whole>(std::move(own)).data() == memory,
                            "the pool's is reduced in place");
          }) == "");
}

TEST_CASE("a view that does not fit the block is rejected with a sentence") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          const auto expect = [&](const std::string& message, const std::string& part) {
            findings.expect(contains(message, part), message);
            findings.expect(contains(message, "tensor_over_test.cpp:"), message);
          };
          const View view("view", 6, 4);
          expect(message_of<InvalidArgument>([&] {
                   static_cast<void>(tensor_over<Rows>(mesh, view, {6, 4}));
                 }),
                 "the view must have the extents of this rank's block, which are [3, 4], but it has [6, 4]");
          expect(message_of<InvalidArgument>([&] {
                   static_cast<void>(tensor_over<Rows>(mesh, view, {-6, 4}));
                 }),
                 "at least 0, but -6 was given");
          const StrideView columns = Kokkos::subview(view, std::pair(0, 3), std::pair(0, 3));
          expect(message_of<InvalidArgument>([&] {
                   static_cast<void>(tensor_over<Rows>(mesh, columns, {6, 3}));
                 }),
                 "must be contiguous in row-major order");
          const StrideView turned(view.data(), Kokkos::LayoutStride(3, 1, 4, 3));
          expect(message_of<InvalidArgument>([&] {
                   static_cast<void>(tensor_over<Rows>(mesh, turned, {6, 4}));
                 }),
                 "must be contiguous in row-major order");
          const StrideView rows = Kokkos::subview(view, std::pair(2, 5), Kokkos::ALL());
          const auto part = tensor_over<Rows>(mesh, rows, {6, 4});
          findings.expect(part.data() == &view(2, 0), "whole rows of a larger view");
          findings.expect(mesh.pool_statistics().allocations == 0, "nothing was allocated");
        }) == "");
}

TEST_CASE("blocks with halos, empty blocks and scalars may be over views") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(3)};
          using Haloed = Layout<2, Shard<0, dp, Halo<1>>>;
          const View view = view_of<Haloed>(mesh, {7, 5});
          const auto block = block_shape<Haloed>(mesh, {7, 5});
          findings.expect(block[0] == (mesh.rank() < 2 ? 5 : 3) && block[1] == 5, "halos included");
          auto x = tensor_over<Haloed>(mesh, view, {7, 5});
          const View plain = view_of<Rows>(mesh, {7, 5});
          redistribute_into(tensor_over<Rows>(mesh, plain, {7, 5}), x);
          findings.expect(view(1, 2) == plain(0, 2), "owned elements");
          findings.expect(mesh.rank() == 0 ? view(0, 0) == 0.0F
                                           : view(0, 0) == plain(0, 0) - 100.0F + 20.0F / 8.0F,
                          "the halo holds the neighbour's last row");

          const View one = view_of<Rows>(mesh, {1, 4}); // rank 0 has it all
          const auto few = tensor_over<Rows>(mesh, one, {1, 4});
          findings.expect(redistribute<Whole>(few).local()(0, 3) == 3.0F / 8.0F - 3.0F,
                          "empty blocks in a call");

          const Kokkos::View<double, Kokkos::HostSpace> number("number");
          auto y = tensor_over<Layout<0>>(mesh, number, {});
          fill(y, 2.5);
          findings.expect(number() == 2.5, "a tensor of rank 0");
          const Kokkos::View<float*, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 4);
          findings.expect(tensor_over<Layout<1>>(mesh, left, {4}).data() == left.data(),
                          "a vector has one order");
        }) == "");
}

TEST_CASE("device memory must be aligned for its widest access") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2)};
          const Kokkos::View<float*, Kokkos::HostSpace> line("line", 16);
          using Parts1 = Layout<1, Partial<Sum, dp>>;
          const auto odd = Kokkos::subview(line, std::pair(1, 9));
          const std::string message = message_of<InvalidArgument>(
              [&] { static_cast<void>(tensor_over<Layout<1>, MimicTarget>(mesh, odd, {8})); });
          findings.expect(contains(message, "must be aligned to 16 bytes"), message);
          for (std::size_t i = 0; i < line.extent(0); ++i)
            line(i) = static_cast<float>(i) + 1.0F;
          const auto sum = redistribute<Layout<1>>(
              tensor_over<Parts1, MimicTarget>(mesh, Kokkos::subview(line, std::pair(4, 12)), {8}));
          findings.expect(local_values(sum)[2] == 14.0F && line(6) == 7.0F, "summed over the ranks");
          const auto odd_sum = redistribute<Layout<1>>(tensor_over<Parts1>(mesh, odd, {8}));
          findings.expect(odd_sum.local()(7) == 18.0F, "hosts take any element");
        }) == "");
}

TEST_CASE("the mesh outlives its handle while a tensor over a view needs it") {
  CHECK(on_ranks(2, [](HostCommunicator world, Findings& findings) {
          std::optional<ShardedTensor<Rows>> kept;
          const View view("view", 2, 3);
          {
            const DeviceMesh mesh{world, extent<dp>(2)};
            kept.emplace(tensor_over<Rows>(mesh, view, {4, 3}));
          }
          fill(*kept, 1.5F);
          findings.expect(view(1, 2) == 1.5F && redistribute<Whole>(*kept).local()(3, 0) == 1.5F, "in use");
        }) == "");
}
