// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The route of a broadcast: the ranks to which each rank forwards the data.

#include <shardwright/core/config.hpp>

#include <bit>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank's place in a broadcast: in a binomial tree, which takes the fewest steps, or in a chain, which
/// many segments keep busy.
class BroadcastRoute {
public:
  BroadcastRoute() = default;
  BroadcastRoute(int rank, int ranks, int root, bool tree) noexcept
      : ranks_(static_cast<unsigned>(ranks)), root_(static_cast<unsigned>(root)),
        relative_(static_cast<unsigned>((rank - root + ranks) % ranks)), tree_(tree) {}

  [[nodiscard]] bool begins() const noexcept { return relative_ == 0; }

  /// The rank from which it receives; the root has none.
  [[nodiscard]] int parent() const noexcept {
    return absolute(tree_ ? relative_ & (relative_ - 1) : relative_ - 1);
  }

  /// Calls `pass_on(rank)` for every rank to which it sends, the one with the largest subtree first.
  template <class PassOn> void for_each_child(const PassOn& pass_on) const {
    const unsigned reach = !tree_ ? 2 : begins() ? std::bit_ceil(ranks_) : relative_ & (~relative_ + 1);
    for (unsigned child = reach / 2; child > 0; child /= 2)
      if (relative_ + child < ranks_)
        pass_on(absolute(relative_ + child));
  }

private:
  [[nodiscard]] int absolute(unsigned relative) const noexcept {
    return static_cast<int>((relative + root_) % ranks_);
  }

  unsigned ranks_ = 1;
  unsigned root_ = 0;
  unsigned relative_ = 0; ///< Counted from the root.
  bool tree_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
