// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares numbers that must be equal on all ranks, such as a factor, a seed or a shape.

#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A number that the program must give alike on all ranks, and what it is:
/// GivenNumber("factor", 0.5), or GivenNumber("frequency", 0.5, 3) for one of several.
// nvcc 13 reads {"factor", 0.5} in templates as a comma expression, so calls name the type.
struct GivenNumber {
  const char* what;
  std::int64_t index;       ///< After the name, as in "frequency 3"; none if negative.
  std::string_view of = {}; ///< A parameter's name, as in "weight decay factor of layers.1.down".
  std::uint64_t bits;
  enum class Kind : std::uint8_t { whole, natural, real } kind;

  template <class Number>
  requires(std::is_arithmetic_v<Number>) constexpr GivenNumber(const char* name, Number number,
                                                               std::int64_t which = -1) noexcept
      : what(name), index(which), bits(bits_of(number)), kind(std::is_floating_point_v<Number> ? Kind::real
                                                              : std::is_signed_v<Number>       ? Kind::whole
                                                                                         : Kind::natural) {}

  /// @brief "frequency 3", "weight decay factor of layers.1.down".
  [[nodiscard]] std::string name() const;

  /// @brief The same number of another rank, as text that tells all numbers apart.
  [[nodiscard]] std::string text(std::uint64_t theirs) const;

private:
  template <class Number> [[nodiscard]] static constexpr std::uint64_t bits_of(Number number) noexcept {
    if constexpr (std::is_floating_point_v<Number>)
      return std::bit_cast<std::uint64_t>(static_cast<double>(number));
    else
      return static_cast<std::uint64_t>(number);
  }
};

namespace detail {

/// The axes that split a tensor's dimensions: their ranks may treat their blocks differently.
template <class L> struct SplittingAxes {
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
[[nodiscard]] int first_along(const MeshCore& core, int rank, int axis);

/// The numbers that all ranks of a group give to an operation. Collective; cost: 8 bytes per number and rank,
/// and a wait.
class NumbersOfRanks {
public:
  /// @throws ConfigurationMismatch on every rank if some give numbers to another operation.
  NumbersOfRanks(HostCommunicator ranks, std::string_view operation, std::span<const GivenNumber> numbers,
                 SourceLocation where);

  /// @param along " along " and an axis, or nothing
  /// @throws ConfigurationMismatch naming both numbers and ranks.
  void require_alike(int first, int rank, const std::string& along) const;
  /// Whether two ranks give the same numbers.
  [[nodiscard]] bool alike(int first, int rank) const noexcept {
    for (std::size_t number = 0; number < numbers_.size(); ++number)
      if (word(rank, number) != word(first, number))
        return false;
    return true;
  }
  /// @throws ConfigurationMismatch with a sentence about the operation.
  [[noreturn]] void reject(const std::string& sentence) const;

private:
  [[nodiscard]] std::uint64_t word(int rank, std::size_t number) const {
    return all_[(numbers_.size() + 1) * static_cast<std::size_t>(rank) + number];
  }

  HostCommunicator ranks_;
  std::string_view operation_;
  std::span<const GivenNumber> numbers_;
  SourceLocation where_;
  std::vector<std::uint64_t> all_;
};

} // namespace detail

/// @brief Compares numbers on all ranks of a group, which may hold several meshes. Collective; cost: 8 bytes
/// for each number and rank, and a wait.
/// @param operation whose numbers they are, for the sentence
/// @throws ConfigurationMismatch on every rank, naming both numbers and their ranks.
void require_agreement(const HostCommunicator& ranks, std::string_view operation,
                       std::span<const GivenNumber> numbers,
                       SourceLocation where = SourceLocation::current());

namespace detail {

/// Compares numbers along all axes of a mesh but those of `split`; collective over the mesh. The sentence
/// also names the axis.
void require_agreement(const MeshCore& core, std::string_view operation, std::span<const GivenNumber> numbers,
                       std::span<const std::string_view> split, SourceLocation where);

inline constexpr std::array<std::string_view, 0> no_axes{};

/// The same in checked builds. Braces around the numbers would not pass nvcc 13.
template <std::same_as<GivenNumber>... Numbers>
void agreed([[maybe_unused]] const MeshCore& core, [[maybe_unused]] std::string_view operation,
            [[maybe_unused]] SourceLocation where, [[maybe_unused]] std::span<const std::string_view> split,
            [[maybe_unused]] const Numbers&... numbers) {
  if constexpr (always_checked) {
    const std::array all{numbers...};
    require_agreement(core, operation, all, split, where);
  }
}

/// The extents of a shape as numbers that must be equal on all ranks.
[[nodiscard]] std::vector<GivenNumber> given_extents(std::span<const std::int64_t> shape);

/// The same for the shape of a new tensor.
inline void agreed_shape([[maybe_unused]] const MeshCore& core,
                         [[maybe_unused]] std::span<const std::int64_t> shape,
                         [[maybe_unused]] SourceLocation where) {
  if constexpr (always_checked)
    require_agreement(core, "ShardedTensor", given_extents(shape), {}, where);
}

} // namespace detail
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string GivenNumber::name() const {
  return what + (index < 0 ? "" : " " + std::to_string(index)) + (of.empty() ? "" : " of " + std::string(of));
}

SHARDWRIGHT_INLINE std::string GivenNumber::text(std::uint64_t theirs) const {
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

namespace detail {

SHARDWRIGHT_INLINE int first_along(const MeshCore& core, int rank, int axis) {
  int stride = 1;
  for (int inner = core.axis_count() - 1; inner > axis; --inner)
    stride *= core.extent(inner);
  return rank - core.coordinate_of(rank, axis) * stride;
}

SHARDWRIGHT_INLINE std::vector<GivenNumber> given_extents(std::span<const std::int64_t> shape) {
  std::vector<GivenNumber> out;
  for (const std::int64_t extent : shape)
    out.emplace_back("extent of dimension", extent, static_cast<std::int64_t>(out.size()));
  return out;
}

SHARDWRIGHT_INLINE NumbersOfRanks::NumbersOfRanks(HostCommunicator ranks, std::string_view operation,
                                                  std::span<const GivenNumber> numbers, SourceLocation where)
    : ranks_(std::move(ranks)), operation_(operation), numbers_(numbers), where_(where) {
  Fnv1a asked;
  asked.add(operation);
  std::vector<std::uint64_t> own{};
  for (const GivenNumber& number : numbers) {
    own.push_back(number.bits);
    asked.add(number.name());
  }
  own.push_back(asked.value());
  all_.resize(own.size() * static_cast<std::size_t>(ranks_.size()));
  ranks_.all_gather(own, all_, {}, where);
  for (int rank = 1; rank < ranks_.size(); ++rank)
    if (word(rank, numbers.size()) != word(0, numbers.size()))
      reject("all ranks must run the same operations in the same order, but rank " +
             std::to_string(ranks_.world_rank(rank)) + " and rank " + std::to_string(ranks_.world_rank(0)) +
             " run different ones (remove what only some ranks do)");
}

SHARDWRIGHT_INLINE void NumbersOfRanks::require_alike(int first, int rank, const std::string& along) const {
  for (std::size_t number = 0; number < numbers_.size(); ++number) {
    const GivenNumber& given = numbers_[number];
    if (word(rank, number) != word(first, number))
      reject("all ranks" + along + " must give the same " + given.name() + ", but it is " +
             given.text(word(first, number)) + " on rank " + std::to_string(ranks_.world_rank(first)) +
             " and " + given.text(word(rank, number)) + " on rank " +
             std::to_string(ranks_.world_rank(rank)) + " (compute it from what all ranks share)");
  }
}

SHARDWRIGHT_INLINE void NumbersOfRanks::reject(const std::string& sentence) const {
  throw ConfigurationMismatch(std::string(operation_) + ": " + sentence,
                              {.rank = ranks_.world_rank(ranks_.rank()),
                               .group = ranks_.name(),
                               .operation = std::string(operation_),
                               .where = where_});
}

SHARDWRIGHT_INLINE void require_agreement(const MeshCore& core, std::string_view operation,
                                          std::span<const GivenNumber> numbers,
                                          std::span<const std::string_view> split, SourceLocation where) {
  const int ranks = core.world().size();
  if (ranks == 1)
    return;
  const NumbersOfRanks all(core.world(), operation, numbers, where);
  for (int axis = 0; axis < core.axis_count(); ++axis) {
    if (core.extent(axis) == 1 || axis_index(split, core.name(axis)) >= 0)
      continue;
    const std::string along = " along " + std::string(core.name(axis));
    for (int rank = 0; rank < ranks; ++rank)
      all.require_alike(first_along(core, rank, axis), rank, along);
  }
}

} // namespace detail

SHARDWRIGHT_INLINE void require_agreement(const HostCommunicator& ranks, std::string_view operation,
                                          std::span<const GivenNumber> numbers, SourceLocation where) {
  if (ranks.size() == 1)
    return;
  const detail::NumbersOfRanks all(ranks, operation, numbers, where);
  for (int rank = 1; rank < ranks.size(); ++rank)
    all.require_alike(0, rank, "");
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
