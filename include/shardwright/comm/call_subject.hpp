// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The tensor that a call moves, so that differing shapes are detected even if the counts agree.

#include <shardwright/core/config.hpp>
#include <shardwright/core/mix.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The global shape of a tensor, or none.
struct SubjectShape {
  static constexpr int most_dimensions = 6;

  std::array<std::int64_t, most_dimensions> extents{};
  int dimensions = -1; ///< -1: of no tensor.

  [[nodiscard]] static SubjectShape of(std::span<const std::int64_t> shape) noexcept {
    SubjectShape out;
    std::copy(shape.begin(), shape.end(), out.extents.begin());
    out.dimensions = static_cast<int>(shape.size());
    return out;
  }
  [[nodiscard]] constexpr bool known() const noexcept { return dimensions >= 0; }
  /// "[12, 8]".
  [[nodiscard]] std::string text() const {
    std::string out;
    for (int d = 0; d < dimensions; ++d)
      out += (d == 0 ? "" : ", ") + std::to_string(extents[static_cast<std::size_t>(d)]);
    return "[" + out + "]";
  }
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept {
    std::uint64_t out = static_cast<std::uint64_t>(dimensions + 1);
    for (int d = 0; d < dimensions; ++d)
      out = mixed(out, static_cast<std::uint64_t>(extents[static_cast<std::size_t>(d)]));
    return out;
  }
  friend constexpr bool operator==(const SubjectShape&, const SubjectShape&) = default;
};

/// The tensors that a program has created on a mesh, which must agree on all ranks: recorded in checked
/// builds.
class MadeTensors {
public:
  void add(const SubjectShape& shape) noexcept {
    last_[count_++ % last_.size()] = shape;
    hash_ = mixed(hash_, shape.hash());
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  /// The first difference among the most recent ones, such as "tensor 3 made on the mesh is [12] and [13]".
  [[nodiscard]] static std::string difference(const MadeTensors& left, const MadeTensors& right) {
    const std::size_t most = std::max(left.count_, right.count_);
    for (std::size_t number = most - std::min(most, left.last_.size()); number < most; ++number)
      if (left.text(number) != right.text(number))
        return "tensor " + std::to_string(number + 1) + " that they made on the mesh is " +
               left.text(number) + " and " + right.text(number);
    return "one of the tensors that they made on the mesh before the last " +
           std::to_string(left.last_.size()) + " differs";
  }

private:
  [[nodiscard]] std::string text(std::size_t number) const {
    return number < count_ ? last_[number % last_.size()].text() : std::string("none");
  }

  std::uint64_t hash_ = 0;
  std::size_t count_ = 0;
  std::array<SubjectShape, 8> last_{};
};

/// The same in other builds, which record nothing.
struct UnseenTensors {
  constexpr void add(const SubjectShape&) const noexcept {}
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept { return 0; }
  [[nodiscard]] static std::string difference(const UnseenTensors&, const UnseenTensors&) { return {}; }
};

/// The subject of a call, on which all of its ranks must agree.
struct CallSubject {
  using Made = std::conditional_t<always_checked, MadeTensors, UnseenTensors>;
  SubjectShape shape{}; ///< Of the tensor that is moved, or from which it was reduced.
  Made made{};          ///< Before the call.

  [[nodiscard]] std::uint64_t hash() const noexcept { return mixed(shape.hash(), made.hash()); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
