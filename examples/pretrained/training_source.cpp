// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Converts between the files of a published model and the parameters of a decoder in training.

#include "training_source.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace pretrained {
namespace {

using sw::safetensors::Dtype;

/// A weight of a training decoder: one parameter of a file, one of each expert side by side, or the norms of
/// queries and keys.
struct Weight {
  Parameter parameter{Part::embedding};
  bool of_experts = false;
  std::size_t piece = 0; // of an expert: its gate or its up projection
};

/// The norm of queries and then that of keys, [2 * head width].
std::vector<Piece> head_norm_pieces(const Settings& settings, std::int64_t layer, std::int64_t first,
                                    std::int64_t count) {
  std::vector<Piece> out;
  std::int64_t begin = 0; // of the norm in the whole weight
  for (const Part part : {Part::query_norm, Part::key_norm}) {
    const std::int64_t from = std::max(first, begin),
                       end = std::min(first + count, begin + settings.head_width);
    if (from < end) {
      const std::array<std::int64_t, 1> offset{from - begin}, extent{end - from};
      Piece piece = pieces_of(settings, {part, layer}, offset, extent).at(0);
      piece.first = static_cast<std::size_t>(from - first);
      out.push_back(std::move(piece));
    }
    begin += settings.head_width;
  }
  return out;
}

std::optional<Weight> weight_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Part>, 3> ends{
      {{"embedding", Part::embedding}, {"final_norm", Part::final_norm}, {"head", Part::head}}};
  for (const auto& [end, part] : ends)
    if (name == end)
      return Weight{{part}};
  constexpr std::string_view before = "layers.";
  if (!name.starts_with(before))
    return std::nullopt;
  std::int64_t layer = 0;
  const auto [stop, error] = std::from_chars(name.data() + before.size(), name.data() + name.size(), layer);
  if (error != std::errc() || stop == name.data() + name.size() || *stop != '.')
    return std::nullopt;
  const std::string_view rest = name.substr(static_cast<std::size_t>(stop + 1 - name.data()));
  const std::array<std::pair<std::string_view, Weight>, 12> of_layer{
      {{"attention_norm", {{Part::attention_norm, layer}}},
       {"attention.qkv", {{Part::qkv, layer}}},
       {"attention.qkv_bias", {{Part::qkv_bias, layer}}},
       {"attention.head_norms", {{Part::query_norm, layer}}},
       {"attention.out", {{Part::out, layer}}},
       {"mlp_norm", {{Part::mlp_norm, layer}}},
       {"mlp.gate_up", {{Part::gate_up, layer}}},
       {"mlp.down", {{Part::down, layer}}},
       {"mlp.router.weight", {{Part::router, layer}}},
       {"mlp.experts.gate", {{Part::expert_gate_up, layer}, true, 0}},
       {"mlp.experts.up", {{Part::expert_gate_up, layer}, true, 1}},
       {"mlp.experts.down", {{Part::expert_down, layer}, true, 0}}}};
  for (const auto& [end, weight] : of_layer)
    if (rest == end)
      return weight;
  return std::nullopt;
}

std::vector<std::uint64_t> shape_of_weight(const Settings& settings, const Weight& weight) {
  const auto whole = shape_of(settings, weight.parameter.part);
  std::vector<std::uint64_t> out(whole.begin(), whole.end());
  if (weight.of_experts) {
    if (out.size() == 3)
      out.erase(out.begin() + 1); // gate and up are separate parameters
    out.insert(out.begin(), static_cast<std::uint64_t>(settings.experts.count));
  }
  if (weight.parameter.part == Part::query_norm)
    out.front() *= 2;
  return out;
}

} // namespace

std::vector<Piece> training_pieces(const Settings& settings, const std::string& name,
                                   std::span<const std::uint64_t> offset,
                                   std::span<const std::uint64_t> extent) {
  const std::optional<Weight> weight = weight_of(name);
  if (!weight)
    return {};
  std::vector<std::int64_t> from(offset.begin(), offset.end()), count(extent.begin(), extent.end());
  if (weight->parameter.part == Part::query_norm)
    return head_norm_pieces(settings, weight->parameter.layer, from[0], count[0]);
  if (!weight->of_experts)
    return pieces_of(settings, weight->parameter, from, count);
  const auto matrix = static_cast<std::size_t>(count[1] * count[2]),
             columns = static_cast<std::size_t>(count[2]);
  const std::int64_t first = from[0], end = from[0] + count[0];
  from.erase(from.begin());
  count.erase(count.begin());
  if (weight->parameter.part == Part::expert_gate_up) {
    from.insert(from.begin() + 1, 0);
    count.insert(count.begin() + 1, 2);
  }
  std::vector<Piece> out;
  for (std::int64_t expert = first; expert < end; ++expert) {
    Parameter of = weight->parameter;
    of.expert = expert;
    Piece piece = pieces_of(settings, of, from, count).at(weight->piece);
    piece.first = static_cast<std::size_t>(expert - first) * matrix;
    piece.strides = {1, columns};
    out.push_back(std::move(piece));
  }
  return out;
}

ModelSource::ModelSource(const std::filesystem::path& directory, const Settings& settings)
    : settings_(settings), files_(directory) {
  static_cast<void>(check_tensors(settings_, files_));
}

Dtype ModelSource::require(const std::string& name, Dtype wanted, const std::vector<std::uint64_t>& shape,
                           bool) const {
  const std::optional<Weight> weight = weight_of(name);
  if (!weight && (name.starts_with("optimizer/") || name.find(".load.") != name.npos))
    return wanted;
  if (!weight)
    throw sw::DataError("the parameter " + sw::detail::quoted_text(name) +
                        " must be one that a published model has (train a model without it)");
  if (shape_of_weight(settings_, *weight) != shape)
    throw sw::DataError("the parameter " + sw::detail::quoted_text(name) + " must be " +
                        sw::safetensors::detail::shape_text(shape_of_weight(settings_, *weight)) +
                        " as config.json has it, but it is " + sw::safetensors::detail::shape_text(shape) +
                        " (train a model of these sizes)");
  return Dtype::f32;
}

void ModelSource::read(const std::string& name, const sw::safetensors::BlockOf& wanted,
                       std::span<std::byte> out) const {
  const auto pieces = training_pieces(settings_, name, wanted.offset, wanted.extent);
  if (pieces.empty()) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return;
  }
  std::vector<float> values(out.size() / sizeof(float));
  read_pieces(files_, settings_, pieces, values);
  std::memcpy(out.data(), values.data(), out.size());
}

void add_block(TensorWriter& writer, const Settings& settings, const sw::checkpoint::Block& block) {
  const auto pieces = training_pieces(settings, block.tensor, block.offset, block.extent);
  if (pieces.empty() || block.bytes.empty())
    return;
  const auto values = [&]<class Element>(Element) {
    std::vector<Element> stored(block.bytes.size() / sizeof(Element));
    std::memcpy(stored.data(), block.bytes.data(), block.bytes.size());
    return std::vector<float>(stored.begin(), stored.end());
  };
  writer.add(pieces, block.dtype == Dtype::f64 ? values(double()) : values(float()));
}

} // namespace pretrained
