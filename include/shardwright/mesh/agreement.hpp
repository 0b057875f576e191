// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares numbers that must be equal on all ranks, such as a factor, a seed or a shape.

#include <shardwright/core/error.hpp>
#include <shardwright/core/mix.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A number that the program gives on every rank, and what it is: {"factor", 0.5}.
struct GivenNumber {
  const char* what;
  std::uint64_t bits;
  enum class Kind : std::uint8_t { whole, natural, real } kind;

  template <class Number>
  requires(std::is_arithmetic_v<Number>) constexpr GivenNumber(const char* name, Number number) noexcept
      : what(name), bits(bits_of(number)), kind(std::is_floating_point_v<Number> ? Kind::real
                                                : std::is_signed_v<Number>       ? Kind::whole
                                                                                 : Kind::natural) {}

  /// The same number of another rank, as text that tells all numbers apart.
  [[nodiscard]] std::string text(std::uint64_t theirs) const {
    if (kind == Kind::whole)
      return std::to_string(static_cast<std::int64_t>(theirs));
    if (kind == Kind::natural)
      return std::to_string(theirs);
    std::array<char, 32> letters{};
    const auto number = std::bit_cast<double>(theirs);
    std::snprintf(letters.data(), letters.size(), "%.15g", number);
    if (std::bit_cast<std::uint64_t>(std::strtod(letters.data(), nullptr)) != theirs)
      std::snprintf(letters.data(), letters.size(), "%.17g", number);
    return letters.data();
  }

private:
  template <class Number>
  [[nodiscard]] static constexpr std::uint64_t bits_of(Number number) noexcept {
    if constexpr (std::is_floating_point_v<Number>)
      return std::bit_cast<std::uint64_t>(static_cast<double>(number));
    else
      return static_cast<std::uint64_t>(number);
  }
};

/// The axes that split a tensor's dimensions: their ranks may treat their blocks differently.
template <class L>
struct SplittingAxes {
  static constexpr std::size_t size = [] {
    std::size_t count = 0;
    for (std::size_t axis = 0; axis < L::axes.size(); ++axis)
      count += L::value.dimension_of(static_cast<int>(axis)) >= 0;
    return count;
  }();
  static constexpr std::array<std::string_view, size> names = [] {
    std::array<std::string_view, size> out{};
    std::size_t count = 0;
    for (std::size_t axis = 0; axis < L::axes.size(); ++axis)
      if (L::value.dimension_of(static_cast<int>(axis)) >= 0)
        out[count++] = L::axes[axis];
    return out;
  }();
};

/// The rank of a mesh that comes first of those that differ from `rank` only along an axis.
[[nodiscard]] inline int first_along(const MeshCore& core, int rank, int axis) {
  int stride = 1;
  for (int inner = core.axis_count() - 1; inner > axis; --inner)
    stride *= core.extent(inner);
  return rank - core.coordinate_of(rank, axis) * stride;
}

[[noreturn]] inline void reject_disagreement(const MeshCore& core, std::string_view operation,
                                             const std::string& sentence, SourceLocation where) {
  throw ConfigurationMismatch(std::string(operation) + ": " + sentence, {.rank = core.world().rank(),
                                                                         .group = core.world().name(),
                                                                         .operation = std::string(operation),
                                                                         .where = where});
}

/// Compares numbers along all axes of a mesh but those of `split`. Collective over the mesh, with the same
/// verdict on every rank; cost: 8 bytes per number and rank, and a wait.
/// @throws ConfigurationMismatch naming both numbers, their ranks and the axis.
inline void require_agreement(const MeshCore& core, std::string_view operation,
                              std::span<const GivenNumber> numbers, std::span<const std::string_view> split,
                              SourceLocation where) {
  HostCommunicator world = core.world();
  if (world.size() == 1)
    return;
  Fnv1a asked;
  asked.add(operation);
  std::vector<std::uint64_t> own{};
  for (const GivenNumber& number : numbers) {
    own.push_back(number.bits);
    asked.add(std::string_view(number.what));
  }
  own.push_back(asked.value());
  const std::size_t words = own.size();
  std::vector<std::uint64_t> all(words * static_cast<std::size_t>(world.size()));
  world.all_gather(own, all, where);
  const auto word = [&](int rank, std::size_t number) {
    return all[words * static_cast<std::size_t>(rank) + number];
  };
  for (int rank = 1; rank < world.size(); ++rank)
    if (word(rank, words - 1) != word(0, words - 1))
      reject_disagreement(core, operation,
                          "all ranks must run the same operations in the same order, but rank " +
                              std::to_string(rank) +
                              " and rank 0 run different ones (remove what only some ranks do)",
                          where);
  for (int axis = 0; axis < core.axis_count(); ++axis) {
    if (core.extent(axis) == 1 || axis_index(split, core.name(axis)) >= 0)
      continue;
    for (int rank = 0; rank < world.size(); ++rank)
      for (std::size_t number = 0; number < numbers.size(); ++number) {
        const int first = first_along(core, rank, axis);
        if (word(rank, number) == word(first, number))
          continue;
        const GivenNumber& given = numbers[number];
        reject_disagreement(core, operation,
                            "all ranks along " + std::string(core.name(axis)) + " must give the same " +
                                given.what + ", but it is " + given.text(word(first, number)) + " on rank " +
                                std::to_string(first) + " and " + given.text(word(rank, number)) +
                                " on rank " + std::to_string(rank) +
                                " (compute it from what all ranks share)",
                            where);
      }
  }
}

/// The same in checked builds.
inline void agreed([[maybe_unused]] const MeshCore& core, [[maybe_unused]] std::string_view operation,
                   [[maybe_unused]] std::initializer_list<GivenNumber> numbers,
                   [[maybe_unused]] SourceLocation where,
                   [[maybe_unused]] std::span<const std::string_view> split = {}) {
  if constexpr (always_checked)
    require_agreement(core, operation, {numbers.begin(), numbers.size()}, split, where);
}

/// The extents of a shape as numbers that must be equal on all ranks.
[[nodiscard]] inline std::vector<GivenNumber> given_extents(std::span<const std::int64_t> shape) {
  constexpr std::array names{"extent of dimension 0", "extent of dimension 1", "extent of dimension 2",
                             "extent of dimension 3", "extent of dimension 4", "extent of dimension 5"};
  std::vector<GivenNumber> out;
  for (const std::int64_t extent : shape)
    out.emplace_back(names[out.size()], extent);
  return out;
}

/// The same for the shape of a new tensor.
inline void agreed_shape([[maybe_unused]] const MeshCore& core,
                         [[maybe_unused]] std::span<const std::int64_t> shape,
                         [[maybe_unused]] SourceLocation where) {
  if constexpr (always_checked)
    require_agreement(core, "ShardedTensor", given_extents(shape), {}, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
