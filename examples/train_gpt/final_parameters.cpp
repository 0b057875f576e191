// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Packs and unpacks parameters: stage, length and letters of the name, count and values.

#include "final_parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace train_gpt {

namespace {

void append(std::vector<std::uint8_t>& bytes, const void* data, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(data);
  bytes.insert(bytes.end(), first, first + size);
}

const std::uint8_t* take(const std::uint8_t* from, void* to, std::size_t size) {
  std::memcpy(to, from, size);
  return from + size;
}

} // namespace

void pack(std::vector<std::uint8_t>& bytes, int stage, const std::string& name,
          const std::vector<double>& values) {
  const std::uint64_t head[] = {static_cast<std::uint64_t>(stage), name.size(), values.size()};
  append(bytes, head, sizeof head);
  append(bytes, name.data(), name.size());
  append(bytes, values.data(), values.size() * sizeof(double));
}

std::vector<FinalParameter> unpack(const std::vector<std::vector<std::uint8_t>>& ranks) {
  std::vector<std::pair<std::uint64_t, FinalParameter>> found;
  for (const std::vector<std::uint8_t>& bytes : ranks)
    for (const std::uint8_t* at = bytes.data(); at != bytes.data() + bytes.size();) {
      std::uint64_t head[3];
      at = take(at, head, sizeof head);
      FinalParameter parameter{std::string(head[1], ' '), std::vector<double>(head[2])};
      at = take(at, parameter.name.data(), head[1]);
      at = take(at, parameter.values.data(), head[2] * sizeof(double));
      found.emplace_back(head[0], std::move(parameter));
    }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<FinalParameter> out;
  for (auto& [stage, parameter] : found)
    out.push_back(std::move(parameter));
  return out;
}

} // namespace train_gpt
