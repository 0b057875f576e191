// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/mdspan.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

using namespace shardwright;
using namespace shardwright::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

namespace {

/// The part of std::mdspan that tensors use, for compilers without it: a pointer and row-major extents.
template <class Element, std::size_t rank> class PlainSpan {
public:
  PlainSpan(Element* data, const std::array<std::int64_t, rank>& extents) : data_(data), extents_(extents) {}
  [[nodiscard]] std::int64_t extent(std::size_t d) const { return extents_[d]; }
  [[nodiscard]] Element* data_handle() const { return data_; }
  [[nodiscard]] Element& at(const std::array<std::int64_t, rank>& place) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d)
      offset = offset * extents_[d] + place[d];
    return data_[offset];
  }

private:
  Element* data_;
  std::array<std::int64_t, rank> extents_;
};

template <class Tensor> auto read(const Tensor& tensor) {
#if defined(__cpp_lib_mdspan)
  return local_mdspan(tensor);
#else
  return detail::block_as<PlainSpan<const typename Tensor::value_type, 2>>(tensor);
#endif
}
template <class Tensor> auto write(Tensor& tensor) {
#if defined(__cpp_lib_mdspan)
  return mutable_local_mdspan(tensor);
#else
  return detail::mutable_block_as<PlainSpan<typename Tensor::value_type, 2>>(tensor);
#endif
}
template <class Span> decltype(auto) element(const Span& span, std::int64_t i, std::int64_t j) {
  if constexpr (requires { span.at({i, j}); })
    return span.at({i, j});
  else
    return span[std::array<std::int64_t, 2>{i, j}];
}

template <class Action> bool fails(Action action) {
  try {
    action();
  } catch (const LifecycleError&) {
    return true;
  }
  return false;
}

} // namespace

TEST_CASE("a span of a block has the block's extents and elements") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(world.size())};
            ShardedTensor<Layout<2, Shard<0, dp>>> x(mesh, {7, 5});
            fill_normal(x, {.seed = 5, .tensor = 0});
            const auto view = x.local();
            const auto span = read(x);
            static_assert(std::is_same_v<decltype(element(span, 0, 0)), const float&>);
            findings.expect(span.data_handle() == x.data(), "memory");
            findings.expect(span.extent(0) == x.local_shape()[0] && span.extent(1) == 5, "extents");
            for (std::int64_t i = 0; i < span.extent(0); ++i)
              for (std::int64_t j = 0; j < span.extent(1); ++j)
                findings.expect(&element(span, i, j) == &view(i, j), "an element");
            element(write(x), 1, 3) = 2.5F;
            findings.expect(view(1, 3) == 2.5F, "written");
          }) == "");
}

TEST_CASE("a span of a block includes halos, and is writable only if nothing shares the block") {
  CHECK(on_ranks(3, [](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(3)};
          ShardedTensor<Layout<2, Shard<0, dp, Halo<1>>>> x(mesh, {7, 5});
          findings.expect(read(x).extent(0) == x.owned_shape()[0] + 2, "extents with halos");
          {
            const auto handle = x.share();
            findings.expect(fails([&] { static_cast<void>(write(x)); }), "a shared block");
          }
          const auto moved = std::move(x);
          // NOLINTNEXTLINE(bugprone-use-after-move): that is the case
          findings.expect(fails([&] { static_cast<void>(read(x)); }) && moved.valid(),
                          "a tensor without memory");
        }) == "");
}
