// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Converts between the files of a published model and the parameters of a decoder in training.

#include "training_source.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/core/low_precision.hpp>

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

/// How a weight of a training decoder is made from the parameters of a file.
enum class Form {
  whole,           // one parameter as it is
  gate,            // of each expert, the first matrix of its first parameter
  up,              // the second one
  down,            // of each expert, its second parameter
  head_norms,      // the norm of queries and that of keys
  queries,         // [in, heads, out], with the rotated elements in another order
  latents,         // [in, key value rank], a part of the matrix that compresses keys and values
  rotary_keys,     // [in, rotary width], the other one, in another order
  keys_and_values, // [in, heads, out]
};

/// A weight of a training decoder.
struct Weight {
  Parameter parameter{Part::embedding};
  Form form = Form::whole;

  [[nodiscard]] bool of_experts() const {
    return form == Form::gate || form == Form::up || form == Form::down;
  }
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

/// The row of the rotated elements of a file that is element `i` here, where the halves of a pair are
/// rotary_width / 2 apart.
std::int64_t rotated_row(const LatentSizes& sizes, std::int64_t i) {
  const std::int64_t half = sizes.rotary_width / 2;
  return !sizes.interleaved ? i : i < half ? 2 * i : 2 * (i - half) + 1;
}

/// A block, as training has it: element (i, j) of the matrix is element first + i * stride + j, and columns
/// are rows of a tensor of the files.
struct Transposed {
  std::size_t first = 0, stride = 0;
  std::int64_t row_begin = 0, rows = 0;       // i
  std::int64_t column_begin = 0, columns = 0; // j
};

/// Adds the pieces of a block whose column j is row `row_of(j)` of the only tensor of a parameter, as few as
/// possible.
template <class RowOf>
void add_transposed(std::vector<Piece>& out, const Settings& settings, const Parameter& parameter,
                    const Transposed& block, const RowOf& row_of) {
  const auto unsigned_of = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  const auto whole = shape_of(settings, parameter.part);
  const Piece all = pieces_of(settings, parameter, std::vector<std::int64_t>(whole.size()), whole).front();
  const std::int64_t end = block.column_begin + block.columns;
  for (std::int64_t begin = block.column_begin, next = begin; begin < end; begin = next) {
    for (next = begin + 1; next < end && row_of(next) == row_of(next - 1) + 1;)
      ++next;
    out.push_back({all.tensor,
                   all.shape,
                   {{unsigned_of(row_of(begin)), unsigned_of(block.row_begin)},
                    {unsigned_of(next - begin), unsigned_of(block.rows)}},
                   block.first + static_cast<std::size_t>(begin - block.column_begin),
                   {1, block.stride}});
  }
}

/// The weights of latent attention.
std::vector<Piece> latent_pieces(const Settings& settings, const Weight& weight,
                                 const std::vector<std::int64_t>& from,
                                 const std::vector<std::int64_t>& count) {
  const LatentSizes& sizes = *settings.latent;
  std::vector<Piece> out;
  if (weight.form == Form::latents || weight.form == Form::rotary_keys) {
    const bool keys = weight.form == Form::rotary_keys;
    const Transposed block{0, static_cast<std::size_t>(count[1]), from[0], count[0], from[1], count[1]};
    add_transposed(out, settings, weight.parameter, block, [&](std::int64_t column) {
      return keys ? sizes.key_value_rank + rotated_row(sizes, column) : column;
    });
    return out;
  }
  const bool queries = weight.form == Form::queries;
  const std::int64_t each = sizes.plain_width + (queries ? sizes.rotary_width : sizes.value_width);
  for (std::int64_t head = 0; head < count[1]; ++head) {
    const Transposed block{static_cast<std::size_t>(head * count[2]),
                           static_cast<std::size_t>(count[1] * count[2]),
                           from[0],
                           count[0],
                           from[2],
                           count[2]};
    add_transposed(out, settings, weight.parameter, block, [&](std::int64_t column) {
      const bool turns = queries && column >= sizes.plain_width;
      return (from[1] + head) * each +
             (turns ? sizes.plain_width + rotated_row(sizes, column - sizes.plain_width) : column);
    });
  }
  return out;
}

/// A matrix of each expert.
std::vector<Piece> expert_pieces(const Settings& settings, const Weight& weight,
                                 std::vector<std::int64_t> from, std::vector<std::int64_t> count) {
  const auto matrix = static_cast<std::size_t>(count[1] * count[2]),
             columns = static_cast<std::size_t>(count[2]);
  const std::int64_t first = from[0], end = from[0] + count[0];
  from.erase(from.begin());
  count.erase(count.begin());
  if (weight.form != Form::down) {
    from.insert(from.begin() + 1, 0);
    count.insert(count.begin() + 1, 2);
  }
  std::vector<Piece> out;
  for (std::int64_t expert = first; expert < end; ++expert) {
    Parameter of = weight.parameter;
    of.expert = expert;
    Piece piece = pieces_of(settings, of, from, count).at(weight.form == Form::up ? 1 : 0);
    piece.first = static_cast<std::size_t>(expert - first) * matrix;
    piece.strides = {1, columns};
    out.push_back(std::move(piece));
  }
  return out;
}

/// The weight with this name; nothing if a model with these settings has none.
std::optional<Weight> weight_of(const Settings& settings, std::string_view name) {
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
  struct Entry {
    std::string_view name;
    Part part;
    Form form = Form::whole;
  };
  static constexpr Entry entries[] = {
      {"attention_norm", Part::attention_norm},
      {"attention.qkv", Part::qkv},
      {"attention.qkv_bias", Part::qkv_bias},
      {"attention.head_norms", Part::query_norm, Form::head_norms},
      {"attention.query_down", Part::query_down},
      {"attention.query_norm", Part::query_down_norm},
      {"attention.query_up", Part::query_up, Form::queries},
      {"attention.down", Part::key_value_down, Form::latents},
      {"attention.norm", Part::key_value_down_norm},
      {"attention.up", Part::key_value_up, Form::keys_and_values},
      {"attention.rotary_key", Part::key_value_down, Form::rotary_keys},
      {"attention.out", Part::out},
      {"mlp_norm", Part::mlp_norm},
      {"mlp.gate_up", Part::gate_up},
      {"mlp.down", Part::down},
      {"mlp.router.weight", Part::router},
      {"mlp.router.load.bias", Part::router_bias},
      {"mlp.experts.gate", Part::expert_gate_up, Form::gate},
      {"mlp.experts.up", Part::expert_gate_up, Form::up},
      {"mlp.experts.down", Part::expert_down, Form::down},
      {"mlp.shared.gate_up", Part::shared_gate_up},
      {"mlp.shared.down", Part::shared_down},
  };
  for (const Entry& entry : entries)
    if (rest == entry.name && (entry.part != Part::router_bias || settings.experts.sigmoid))
      return Weight{{entry.part, layer}, entry.form};
  return std::nullopt;
}

std::vector<std::uint64_t> shape_of_weight(const Settings& settings, const Weight& weight) {
  const auto whole = shape_of(settings, weight.parameter.part);
  std::vector<std::uint64_t> out(whole.begin(), whole.end());
  if (weight.of_experts()) {
    if (out.size() == 3)
      out.erase(out.begin() + 1); // gate and up are separate parameters
    out.insert(out.begin(), static_cast<std::uint64_t>(settings.experts.count));
  }
  if (weight.form == Form::head_norms)
    out.front() *= 2;
  if (weight.form == Form::latents)
    out.back() = static_cast<std::uint64_t>(settings.latent->key_value_rank);
  if (weight.form == Form::rotary_keys)
    out.back() = static_cast<std::uint64_t>(settings.latent->rotary_width);
  if (weight.form == Form::keys_and_values)
    std::rotate(out.begin(), out.end() - 1, out.end()); // the file's has [in] last
  return out;
}

} // namespace

std::vector<std::uint64_t> training_shape(const Settings& settings, std::string_view name) {
  const std::optional<Weight> weight = weight_of(settings, name);
  return weight ? shape_of_weight(settings, *weight) : std::vector<std::uint64_t>{};
}

std::vector<Piece> training_pieces(const Settings& settings, const std::string& name,
                                   std::span<const std::uint64_t> offset,
                                   std::span<const std::uint64_t> extent) {
  const std::optional<Weight> weight = weight_of(settings, name);
  if (!weight)
    return {};
  const std::vector<std::int64_t> from(offset.begin(), offset.end()), count(extent.begin(), extent.end());
  if (weight->of_experts())
    return expert_pieces(settings, *weight, from, count);
  switch (weight->form) {
  case Form::head_norms:
    return head_norm_pieces(settings, weight->parameter.layer, from[0], count[0]);
  case Form::queries:
  case Form::latents:
  case Form::rotary_keys:
  case Form::keys_and_values:
    return latent_pieces(settings, *weight, from, count);
  default:
    return pieces_of(settings, weight->parameter, from, count);
  }
}

ModelSource::ModelSource(const std::filesystem::path& directory, const Settings& settings,
                         const std::filesystem::path& adapters)
    : settings_(settings), files_(directory), skipped_(check_tensors(settings_, files_)) {
  if (!adapters.empty())
    adapters_.emplace(adapters, settings_);
}

Dtype ModelSource::require(const std::string& name, Dtype wanted, const std::vector<std::uint64_t>& shape,
                           bool) const {
  if (adapters_ && !adapter_pieces(settings_, name, adapters_->settings().rank,
                                   std::vector<std::uint64_t>(shape.size()), shape)
                        .empty())
    return wanted == Dtype::f64 ? wanted : Dtype::f32;
  const std::optional<Weight> weight = weight_of(settings_, name);
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
  return wanted == Dtype::f64 ? wanted : Dtype::f32;
}

bool ModelSource::holds(const std::string& name) const { return weight_of(settings_, name).has_value(); }

void ModelSource::read(const std::string& name, const sw::safetensors::BlockOf& wanted,
                       std::span<std::byte> out) const {
  auto pieces = training_pieces(settings_, name, wanted.offset, wanted.extent);
  const bool adapter = pieces.empty() && adapters_;
  if (adapter)
    pieces = adapter_pieces(settings_, name, adapters_->settings().rank, wanted.offset, wanted.extent);
  if (pieces.empty()) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return;
  }
  const auto count =
      std::accumulate(wanted.extent.begin(), wanted.extent.end(), std::size_t{1}, std::multiplies<>());
  std::vector<float> values(count);
  read_pieces(adapter ? adapters_->files() : files_, settings_, pieces, values);
  if (out.size() == count * sizeof(float)) {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  const std::vector<double> wide(values.begin(), values.end()); // of a part that keeps doubles
  std::memcpy(out.data(), wide.data(), out.size());
}

namespace {

void add_pieces(TensorWriter& writer, const std::vector<Piece>& pieces, const sw::checkpoint::Block& block) {
  if (pieces.empty() || block.bytes.empty())
    return;
  const auto values = [&]<class Element>(Element) {
    std::vector<Element> stored(block.bytes.size() / sizeof(Element));
    std::memcpy(stored.data(), block.bytes.data(), block.bytes.size());
    return std::vector<float>(stored.begin(), stored.end());
  };
  writer.add(pieces, block.dtype == Dtype::f64    ? values(double())
                     : block.dtype == Dtype::bf16 ? values(sw::bfloat16())
                     : block.dtype == Dtype::f16  ? values(sw::float16())
                                                  : values(float()));
}

} // namespace

void add_block(TensorWriter& writer, const Settings& settings, const sw::checkpoint::Block& block) {
  add_pieces(writer, training_pieces(settings, block.tensor, block.offset, block.extent), block);
}

void add_adapter_block(TensorWriter& writer, const Settings& settings, std::int64_t rank,
                       const sw::checkpoint::Block& block) {
  add_pieces(writer, adapter_pieces(settings, block.tensor, rank, block.offset, block.extent), block);
}

} // namespace pretrained
