// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The differences of two checkpoints, tensor by tensor.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/one_file.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/checkpoint/real_elements.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief A tensor that differs between two checkpoints.
struct TensorDifference {
  std::string name;
  std::string sentence;       ///< Set if only one has it, or if their shapes or element types differ.
  std::uint64_t elements = 0; ///< Those of `all` that differ in any bit.
  std::uint64_t all = 0;
  double largest = 0;  ///< Largest difference of two numbers; infinite if one is not a number.
  double relative = 0; ///< Norm of the differences over the norm of the first one's numbers.
};

namespace detail {

/// Compares the elements of two tensors of the same shape and type.
inline void compare_elements(const std::vector<std::byte>& left, const std::vector<std::byte>& right,
                             safetensors::Dtype dtype, TensorDifference& out) {
  const std::size_t size = std::max(safetensors::bits_of(dtype) / 8, 1U);
  out.all = left.size() / size;
  for (std::size_t at = 0; at < left.size(); at += size)
    out.elements += std::memcmp(left.data() + at, right.data() + at, size) != 0 ? 1 : 0;
  if (out.elements == 0 || !is_real(dtype))
    return;
  const std::vector<std::byte> a = converted<double>(dtype, left), b = converted<double>(dtype, right);
  double squares = 0, norm = 0;
  for (std::size_t at = 0; at < a.size(); at += sizeof(double)) {
    double x, y;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    const double difference = x == y || (std::isnan(x) && std::isnan(y)) ? 0 : std::abs(x - y);
    out.largest =
        std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(out.largest, difference);
    squares += difference * difference;
    norm += x * x;
  }
  out.relative = std::sqrt(squares) / std::sqrt(norm);
}

} // namespace detail

/// @brief Compares all tensors of two checkpoints, of any meshes; empty if they are bitwise equal. Needs
/// several times the memory of the largest tensor.
/// @throws DataError if one cannot be read.
[[nodiscard]] inline std::vector<TensorDifference> differences(const Reader& left, const Reader& right) {
  std::set<std::string> names;
  for (const Reader* const each : {&left, &right})
    for (const auto& [name, tensor] : each->manifest().tensors)
      names.insert(name);
  std::vector<TensorDifference> out;
  const auto find = [](const Reader& reader, const std::string& name) -> const SavedTensor* {
    const auto at = reader.manifest().tensors.find(name);
    return at == reader.manifest().tensors.end() ? nullptr : &at->second;
  };
  const auto kind = [](const SavedTensor& tensor) {
    return std::string(safetensors::name_of(tensor.dtype)) + " " +
           safetensors::detail::shape_text(tensor.shape);
  };
  for (const std::string& name : names) {
    const SavedTensor* const a = find(left, name);
    const SavedTensor* const b = find(right, name);
    TensorDifference found{name, {}};
    if (a == nullptr || b == nullptr)
      found.sentence = std::string("only in the ") + (b == nullptr ? "first" : "second");
    else if (kind(*a) != kind(*b))
      found.sentence = kind(*a) + " in the first, " + kind(*b) + " in the second";
    else
      detail::compare_elements(read_whole(left, name), read_whole(right, name), a->dtype, found);
    if (!found.sentence.empty() || found.elements > 0)
      out.push_back(std::move(found));
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
