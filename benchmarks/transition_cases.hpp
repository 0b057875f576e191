// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The transitions that are compared with the bare call of the communicator, and four that do nothing.

#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace benchmark {

namespace sw = shardwright;
using namespace sw::axis;

/// @brief A transition of one collective over tp.
template <class From, class To> struct TransitionCase {
  using from = From;
  using to = To;
  const char* name;
};

/// @brief The measurements of a case at one size.
struct TransitionLine {
  const char* name = "";
  std::size_t bytes = 0;   ///< Of a whole tensor.
  double bare_seconds = 0; ///< Of the bare call.
  double into_ratio = 0;   ///< redistribute_into over the bare call,
  double pool_ratio = 0;   ///< and redistribute, whose result is memory of the mesh's pool.
};

template <class Tensor> [[nodiscard]] std::span<const float> elements_of(const Tensor& tensor) {
  return {tensor.data(), tensor.local_size()};
}
template <class Tensor> [[nodiscard]] std::span<float> elements_of(Tensor& tensor) {
  return {tensor.mutable_data(), tensor.local_size()};
}

/// @brief The results of `measure(case, bare)` for all cases, where `bare(from, to)` is the group's call that
/// the transition amounts to.
template <class Group, class Measure>
[[nodiscard]] auto each_transition(Group& group, const Measure& measure) {
  using Parts = sw::Layout<1, sw::Partial<sw::Sum, tp>>;
  using Rows = sw::Layout<1, sw::Shard<0, tp>>;
  using Whole = sw::Layout<1>;
  return std::array{
      measure(TransitionCase<Parts, Whole>{"all_reduce"},
              [&](const auto& from, auto& to) { group.all_reduce(elements_of(from), elements_of(to)); }),
      measure(TransitionCase<Parts, Rows>{"reduce_scatter"},
              [&](const auto& from, auto& to) { group.reduce_scatter(elements_of(from), elements_of(to)); }),
      measure(TransitionCase<Rows, Whole>{"all_gather"},
              [&](const auto& from, auto& to) { group.all_gather(elements_of(from), elements_of(to)); })};
}

/// @brief Nanoseconds on the host for four transitions that do nothing because all axes have one rank: the
/// median over `turns`.
template <sw::Target Where> [[nodiscard]] double four_trivial_transitions(int turns) {
  double found = 0;
  sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
    const sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>, float, Where> x(
        mesh, {64, 64});
    constexpr int repetitions = 200'000;
    std::vector<double> times;
    for (int turn = 0; turn < turns; ++turn) {
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < repetitions; ++i) {
        const auto a = sw::redistribute<sw::Layout<2, sw::Shard<0, dp, tp>>>(x);
        const auto b = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>(a);
        const auto c = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(b);
        const auto d = sw::redistribute<sw::Layout<2>>(c);
        if (d.data() != x.data())
          throw std::runtime_error("a trivial transition must share memory");
      }
      times.push_back(1e9 * seconds_since(begin) / repetitions);
    }
    found = median(times);
  });
  return found;
}

} // namespace benchmark
