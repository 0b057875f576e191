// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The axes over which the ranks of a loss hold different tokens, compared with those of the
/// parameters' gradients.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Sums that each rank along some axes has in full; see assume_replicated().
template <class Sums> struct AssumedReplicated { const Sums& sums; };

/// @brief Declares that loss and count are equal along the axes that their layout does not name, because the
/// program has reduced both over them.
///
/// Needed for a TokenCount of sum_loss() where such an axis splits the tape's inputs, and for sums where
/// every parameter's gradient is a sum over it. Pass the result at once to sum_loss or GradAccumulator::add.
/// Verified in checked builds.
template <class Sums> [[nodiscard]] AssumedReplicated<Sums> assume_replicated(const Sums& sums) {
  return {sums};
}

namespace detail {

/// A loss whose layout does not name an axis along which ranks have different tokens.
/// @param why these ranks do
/// @param uncounted what would be wrong
[[noreturn]] void reject_uncounted(const std::string& subject, std::string_view axis, const std::string& why,
                                   std::string_view layout, const std::string& uncounted,
                                   const std::string& words, const MeshCore& core, SourceLocation where);

/// The axes over which the raw gradient of every parameter of a rank is a sum: their ranks hold different
/// tokens.
class SummedAxes {
public:
  /// @param partial those of a parameter
  void keep_only(const std::vector<std::string_view>& partial);
  /// @throws InvalidArgument for a loss whose layout does not name one of them.
  void require_in(std::span<const std::string_view> loss, std::string_view layout, const MeshCore& core,
                  SourceLocation where) const;

private:
  std::vector<std::string_view> names_;
  bool begun_ = false;
};

template <LayoutType L> [[nodiscard]] std::vector<std::string_view> partial_axes() {
  std::vector<std::string_view> out;
  for (std::size_t axis = 0; axis < L::axes.size(); ++axis)
    if (L::value.is_partial(static_cast<int>(axis)))
      out.push_back(L::axes[axis]);
  return out;
}

} // namespace detail
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void detail::reject_uncounted(const std::string& subject, std::string_view axis,
                                                 const std::string& why, std::string_view layout,
                                                 const std::string& uncounted, const std::string& words,
                                                 const MeshCore& core, SourceLocation where) {
  throw InvalidArgument(
      subject + ": loss and count must be Partial over " + std::string(axis) + ", " + why +
          ", but they are " + std::string(layout) + " and " + uncounted +
          " would be taken for all (give both over this rank's tokens, in a layout that names that axis, or " +
          words + " over " + std::string(axis) + ")",
      {.rank = core.world().rank(), .layout = std::string(layout), .where = where});
}

[[gnu::noinline]] SHARDWRIGHT_INLINE void
detail::SummedAxes::keep_only(const std::vector<std::string_view>& partial) {
  if (std::exchange(begun_, true))
    names_.erase(std::remove_if(names_.begin(), names_.end(),
                                [&](std::string_view name) {
                                  return std::find(partial.begin(), partial.end(), name) == partial.end();
                                }),
                 names_.end());
  else
    names_ = partial;
}

[[gnu::noinline]] SHARDWRIGHT_INLINE void
detail::SummedAxes::require_in(std::span<const std::string_view> loss, std::string_view layout,
                               const MeshCore& core, SourceLocation where) const {
  for (const std::string_view name : names_)
    if (axis_index(loss, name) < 0)
      reject_uncounted("GradAccumulator", name, "over which every parameter's gradient is a sum", layout,
                       "those of one rank", "call assume_replicated(sums) if the program has reduced both",
                       core, where);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
