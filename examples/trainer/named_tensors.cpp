// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Sends the parameters of all stages to the first rank.

#include "named_tensors.hpp"

#include <shardwright/comm/all_gather_v.hpp>

#include <algorithm>
#include <cstddef>

namespace trainer {

namespace sw = shardwright;

std::vector<NamedTensor> gather_stages(const sw::HostCommunicator& pipeline,
                                       const std::vector<std::pair<int, NamedTensor>>& own) {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes; // stage, dimensions and extents of each
  std::vector<double> values;
  for (const auto& [stage, tensor] : own) {
    names.push_back(tensor.name);
    sizes.push_back(stage);
    sizes.push_back(static_cast<std::int64_t>(tensor.shape.size()));
    sizes.insert(sizes.end(), tensor.shape.begin(), tensor.shape.end());
    values.insert(values.end(), tensor.values.begin(), tensor.values.end());
  }
  const auto all_names = sw::gather_texts(pipeline, names);
  const auto all_sizes = sw::all_gather_v(pipeline, sizes);
  const auto all_values = sw::all_gather_v(pipeline, values);
  std::vector<std::pair<std::int64_t, NamedTensor>> found;
  for (std::size_t rank = 0; rank < all_names.size(); ++rank) {
    auto size = all_sizes[rank].begin();
    auto value = all_values[rank].begin();
    for (const std::string& name : all_names[rank]) {
      const std::int64_t stage = *size++;
      const auto shape_end = size + 1 + static_cast<std::ptrdiff_t>(*size);
      NamedTensor tensor{name, {size + 1, shape_end}, {}};
      std::ptrdiff_t count = 1;
      for (const std::int64_t extent : tensor.shape)
        count *= extent;
      tensor.values.assign(value, value + count);
      value += count;
      size = shape_end;
      found.emplace_back(stage, std::move(tensor));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedTensor> out;
  for (auto& [stage, tensor] : found)
    out.push_back(std::move(tensor));
  return out;
}

} // namespace trainer
