// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Low-rank adapters in the files of PEFT.

#include "adapter_files.hpp"
#include "training_source.hpp"

#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/new_file.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/io/write_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace pretrained {

using Json = nlohmann::json;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 24; // of an adapter_config.json
constexpr std::string_view prefix = "base_model.model.", weight = ".weight";

/// The last name of the module of a weight in a model's files.
std::string module_of(std::string_view model_tensor) {
  const std::string_view module = model_tensor.substr(0, model_tensor.size() - weight.size());
  return std::string(module.substr(module.rfind('.') + 1));
}
/// Whether a weight in a model's files is its embedding, [in, out] where those of linear layers are [out,
/// in].
bool is_embedding(std::string_view model_tensor) {
  return model_tensor.ends_with(weight) && module_of(model_tensor) == "embed_tokens";
}

/// The tensor of an adapter of a weight in a model's files. @param which 'A' or 'B'
std::string tensor_of(std::string_view model_tensor, char which) {
  std::string out(prefix);
  out += model_tensor.substr(0, model_tensor.size() - weight.size());
  if (is_embedding(model_tensor))
    return out += std::string(".lora_embedding_") + which;
  out += std::string(".lora_") + which;
  return out += weight;
}
/// The other one's.
std::string partner_of(std::string tensor) {
  char& which = tensor[tensor.rfind('_') + 1];
  which = which == 'A' ? 'B' : 'A';
  return tensor;
}

/// An adapter's matrix, named by the weight beside it and the part of that, such as "queries".
struct Factor {
  std::string base, part;
  bool up = false; ///< B.
};
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> parts{{{"queries", "q_proj"},
                                                                              {"keys", "k_proj"},
                                                                              {"values", "v_proj"},
                                                                              {"gate", "gate_proj"},
                                                                              {"up", "up_proj"}}};

/// Whether the weight is that of all experts, [experts, in, out].
bool is_grouped(const Factor& factor) { return factor.base.find(".experts.") != std::string::npos; }

/// A table of the model's tokens, by its path in training.
std::optional<Part> table_at(std::string_view path) {
  return path == "embedding" ? std::optional(Part::embedding)
         : path == "head"    ? std::optional(Part::head)
                             : std::nullopt;
}
/// The only tensor of a table in a model's files; none if its tables are tied, which have no adapters.
std::optional<Piece> whole_table(const Settings& settings, Part part) {
  if (settings.tied_embedding)
    return std::nullopt;
  const auto shape = shape_of(settings, part);
  return pieces_of(settings, {part}, std::vector<std::int64_t>(shape.size()), shape).front();
}

/// The weight below which a layer's path is, and its part.
Factor factor_at(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot != path.npos &&
      (path.substr(0, dot).ends_with(".qkv") || path.substr(0, dot).ends_with(".gate_up")))
    return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
  return {std::string(path), {}};
}
std::optional<Factor> factor_of(std::string_view name) {
  constexpr std::string_view down = ".lora.a", up = ".lora.b";
  if (!(name.ends_with(down) || name.ends_with(up)))
    return std::nullopt;
  const std::string_view path = name.substr(0, name.size() - down.size());
  if (!path.starts_with("layers.") && !table_at(path)) // an optimizer state
    return std::nullopt;
  Factor out = factor_at(path);
  out.up = name.ends_with(up);
  return out;
}

/// The pieces of a block of one row of a weight [in, out...], or of the matrix of one expert, those of the
/// part only, at their places in a dense block of the part.
std::vector<Piece> row_pieces(const Settings& settings, const Factor& factor,
                              std::vector<std::uint64_t> offset, std::vector<std::uint64_t> extent) {
  const std::size_t in = is_grouped(factor) ? 1 : 0;
  offset.at(in) = 0;
  extent.at(in) = 1;
  if (factor.part.empty())
    return training_pieces(settings, factor.base, offset, extent);
  const auto named =
      std::find_if(parts.begin(), parts.end(), [&](const auto& each) { return each.first == factor.part; });
  if (named == parts.end())
    return {};
  const std::size_t fused = factor.base.ends_with(".gate_up") ? 1 : 2;
  offset.at(fused) = 0;
  extent.at(fused) = training_shape(settings, factor.base).at(fused);
  std::vector<Piece> out;
  for (Piece& piece : training_pieces(settings, factor.base, offset, extent))
    if (piece.tensor.find("." + std::string(named->second) + ".") != piece.tensor.npos) {
      piece.first = out.size() * piece.part.extent[0];
      out.push_back(std::move(piece));
    }
  return out;
}

/// A row of the whole weight, or of its part, or of the matrix of an expert.
std::vector<Piece> whole_row(const Settings& settings, const Factor& factor, std::uint64_t expert = 0) {
  constexpr std::array ends{".qkv",          ".attention.out", ".query_down", ".query_up",
                            ".attention.up", ".gate_up",       ".mlp.down",   ".shared.down"};
  const std::string& base = factor.base;
  if (!is_grouped(factor) &&
      std::none_of(ends.begin(), ends.end(), [&](const char* end) { return base.ends_with(end); }))
    return {};
  std::vector<std::uint64_t> extent = training_shape(settings, base), offset(extent.size());
  if (extent.empty())
    return {};
  if (is_grouped(factor)) {
    offset.front() = expert;
    extent.front() = 1;
  }
  return row_pieces(settings, factor, std::move(offset), std::move(extent));
}

/// A block of A, [in, rank], or of B, [rank, out], of a table: turned, as it is in files.
Piece table_piece(const Piece& table, bool up, std::int64_t rank, std::span<const std::uint64_t> offset,
                  std::span<const std::uint64_t> extent) {
  const std::uint64_t outer = table.shape[is_embedding(table.tensor) == up ? 1 : 0]; // that of in, or out
  std::vector<std::uint64_t> shape{static_cast<std::uint64_t>(rank), outer};
  if (up)
    std::swap(shape[0], shape[1]);
  return {tensor_of(table.tensor, up ? 'B' : 'A'),
          std::move(shape),
          {{offset[1], offset[0]}, {extent[1], extent[0]}},
          0,
          {1, static_cast<std::size_t>(extent[1])}};
}

/// The pieces of a block of A or B, or of those of one expert.
std::vector<Piece> matrix_pieces(const Settings& settings, const Factor& factor, std::int64_t rank,
                                 std::span<const std::uint64_t> offset,
                                 std::span<const std::uint64_t> extent) {
  const std::size_t in = is_grouped(factor) ? 1 : 0;
  if (!factor.up) {
    const Piece row = whole_row(settings, factor, in == 1 ? offset[0] : 0).front();
    return {{tensor_of(row.tensor, 'A'),
             {static_cast<std::uint64_t>(rank), row.shape[1]},
             {{offset[in + 1], offset[in]}, {extent[in + 1], extent[in]}},
             0,
             {1, static_cast<std::size_t>(extent[in + 1])}}};
  }
  std::vector<Piece> out =
      row_pieces(settings, factor, {offset.begin(), offset.end()}, {extent.begin(), extent.end()});
  const auto row = std::accumulate(extent.begin() + static_cast<std::ptrdiff_t>(in) + 1, extent.end(),
                                   std::size_t{1}, std::multiplies<>());
  for (Piece& piece : out) {
    piece.tensor = tensor_of(piece.tensor, 'B');
    piece.shape[1] = static_cast<std::uint64_t>(rank);
    piece.part.offset[1] = offset[in];
    piece.part.extent[1] = extent[in];
    piece.strides = {1, row};
  }
  return out;
}

std::vector<float> floats_of(const sw::safetensors::Files& files, const std::string& name) {
  const auto& shape = files.file_of(name).entry(name).shape;
  std::vector<float> out(std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>()));
  const Piece all{name, shape, {{0, 0}, shape}, 0, {shape[1], 1}};
  read_pieces(files, {}, std::span(&all, 1), out);
  return out;
}

/// Adds factor B A, [out, in], to the piece of a block, or turned to that of an embedding.
void add_product(const Piece& piece, const AdapterSettings& adapters, const std::vector<float>& a,
                 const std::vector<float>& b, std::span<float> block) {
  const auto rank = static_cast<std::size_t>(adapters.rank);
  const bool turned = is_embedding(piece.tensor);
  const std::uint64_t *const first = piece.part.offset.data(), in = piece.shape[turned ? 0 : 1];
  std::vector<double> sums(piece.part.extent[1]);
  for (std::size_t row = 0; row < piece.part.extent[0]; ++row) {
    std::fill(sums.begin(), sums.end(), 0);
    for (std::size_t k = 0; k < rank; ++k) {
      const std::size_t at = first[0] + row;
      const double of_row = turned ? a[k * in + at] : b[at * rank + k];
      const float* const of_columns = turned ? &b[first[1] * rank + k] : &a[k * in + first[1]];
      const std::size_t stride = turned ? rank : 1;
      for (std::size_t column = 0; column < sums.size(); ++column)
        sums[column] += of_row * static_cast<double>(of_columns[column * stride]);
    }
    for (std::size_t column = 0; column < sums.size(); ++column) {
      float& to = block[piece.first + row * piece.strides[0] + column * piece.strides[1]];
      to = static_cast<float>(static_cast<double>(to) + adapters.factor() * sums[column]);
    }
  }
}

} // namespace

AdapterFiles::AdapterFiles(const std::filesystem::path& directory, const Settings& settings)
    : adapters_(parse_adapter_settings(sw::read_text(directory / "adapter_config.json", most_bytes),
                                       (directory / "adapter_config.json").string())),
      files_(directory / "adapter_model.safetensors") {
  std::map<std::string, std::vector<std::uint64_t>> known;
  const auto rank = static_cast<std::uint64_t>(adapters_.rank);
  for (const Parameter& parameter : all_parameters(settings)) {
    const auto shape = shape_of(settings, parameter.part);
    if (parameter.part == Part::embedding && settings.tied_embedding)
      continue;
    for (const Piece& piece : pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape))
      if (piece.shape.size() == 2) {
        const bool turned = is_embedding(piece.tensor);
        known[tensor_of(piece.tensor, 'A')] = {rank, piece.shape[turned ? 0 : 1]};
        known[tensor_of(piece.tensor, 'B')] = {piece.shape[turned ? 1 : 0], rank};
      }
  }
  std::string faults;
  std::set<std::string> targets;
  for (const std::string& name : files_.names()) {
    const auto at = known.find(name);
    const auto& shape = files_.file_of(name).entry(name).shape;
    if (at == known.end()) {
      faults += "\n  " + sw::detail::quoted_text(name) +
                (name.ends_with(".base_layer.weight")
                     ? " is a copy of the model's table (save with save_embedding_layers=False)"
                     : " belongs to no linear layer or table of the model");
      continue;
    }
    const std::string other = partner_of(name);
    if (shape != at->second)
      faults += "\n  " + name + " must be " + sw::safetensors::detail::shape_text(at->second) + ", but is " +
                sw::safetensors::detail::shape_text(shape);
    else if (!files_.contains(other))
      faults += "\n  " + other + " is missing";
    const std::string module = name.substr(0, name.rfind(".lora_"));
    targets.insert(module.substr(module.rfind('.') + 1));
  }
  if (!faults.empty() || files_.names().empty())
    throw sw::DataError(
        directory.string() +
        ": the adapters must be of linear layers or tables of this model (give the model that they were "
        "trained over, without tied tables among their modules):" +
        (faults.empty() ? "\n  there are none" : faults));
  adapters_.targets.assign(targets.begin(), targets.end());
}

void AdapterFiles::add_to(std::span<const Piece> pieces, std::span<float> block) const {
  std::string name;
  std::vector<float> a, b; // of the tensor `name`
  for (const Piece& piece : pieces) {
    if (piece.shape.size() != 2 || !files_.contains(tensor_of(piece.tensor, 'A')))
      continue;
    if (name != piece.tensor) {
      name = piece.tensor;
      a = floats_of(files_, tensor_of(name, 'A'));
      b = floats_of(files_, tensor_of(name, 'B'));
    }
    add_product(piece, adapters_, a, b, block);
  }
}

void merge_adapters(TensorWriter& model, const AdapterSettings& adapters, const TensorWriter& tensors) {
  for (auto& [name, tensor] : model.tensors()) {
    const auto& all = tensors.tensors();
    const auto a = name.ends_with(weight) ? all.find(tensor_of(name, 'A')) : all.end();
    if (a != all.end())
      add_product({name, tensor.shape, {{0, 0}, tensor.shape}, 0, {tensor.shape[1], 1}}, adapters,
                  a->second.values, all.at(tensor_of(name, 'B')).values, tensor.values);
  }
}

namespace {

/// The names of modules in the first layer, which is dense, and in the last, which perhaps has experts.
template <class Takes> std::vector<std::string> modules_where(const Settings& settings, Takes takes) {
  std::vector<std::string> out;
  for (const std::int64_t layer : {std::int64_t{0}, settings.layers - 1})
    for (const Parameter& parameter : layer_parameters(settings, layer)) {
      const auto shape = shape_of(settings, parameter.part);
      if (!takes(parameter.part, shape.size()))
        continue;
      for (const Piece& piece :
           pieces_of(settings, parameter, std::vector<std::int64_t>(shape.size()), shape))
        if (const std::string name = module_of(piece.tensor);
            piece.shape.size() == 2 && std::find(out.begin(), out.end(), name) == out.end())
          out.push_back(name);
    }
  return out;
}

} // namespace

std::vector<std::string> adaptable_modules(const Settings& settings) {
  return modules_where(settings, [](Part part, std::size_t dimensions) {
    return dimensions > 1 && part != Part::router && part != Part::key_value_down;
  });
}
std::vector<std::string> expert_modules(const Settings& settings) {
  return modules_where(settings, [](Part part, std::size_t) {
    return part == Part::expert_gate_up || part == Part::expert_down;
  });
}

std::vector<std::string> table_modules(const Settings& settings) {
  std::vector<std::string> out;
  for (const Part part : {Part::embedding, Part::head})
    if (const std::optional<Piece> table = whole_table(settings, part))
      out.push_back(module_of(table->tensor));
  return out;
}

std::string adapted_module(const Settings& settings, std::string_view path) {
  if (const std::optional<Part> part = table_at(path)) {
    const std::optional<Piece> table = whole_table(settings, *part);
    return table ? module_of(table->tensor) : std::string();
  }
  const std::vector<Piece> pieces = whole_row(settings, factor_at(path));
  return pieces.empty() ? std::string() : module_of(pieces.front().tensor);
}

std::vector<Piece> adapter_pieces(const Settings& settings, const std::string& name, std::int64_t rank,
                                  std::span<const std::uint64_t> offset,
                                  std::span<const std::uint64_t> extent) {
  const std::optional<Factor> factor = factor_of(name);
  if (!factor)
    return {};
  if (const std::optional<Part> part = table_at(factor->base)) {
    const std::optional<Piece> table = whole_table(settings, *part);
    return table ? std::vector{table_piece(*table, factor->up, rank, offset, extent)} : std::vector<Piece>();
  }
  if (whole_row(settings, *factor).empty())
    return {};
  if (!is_grouped(*factor))
    return matrix_pieces(settings, *factor, rank, offset, extent);
  std::vector<Piece> out;
  const auto matrix = static_cast<std::size_t>(extent[1] * extent[2]);
  for (std::uint64_t expert = 0; expert < extent[0]; ++expert) {
    const std::array from{offset[0] + expert, offset[1], offset[2]},
        count{std::uint64_t{1}, extent[1], extent[2]};
    for (Piece& piece : matrix_pieces(settings, *factor, rank, from, count)) {
      piece.first += static_cast<std::size_t>(expert) * matrix;
      out.push_back(std::move(piece));
    }
  }
  return out;
}

void write_adapters(const std::filesystem::path& directory, const AdapterSettings& adapters,
                    const TensorWriter& tensors, const std::string& base) {
  tensors.write(directory, sw::safetensors::Dtype::f32, "adapter_model.safetensors");
  const Json all{{"peft_type", "LORA"},
                 {"task_type", "CAUSAL_LM"},
                 {"base_model_name_or_path", base},
                 {"r", adapters.rank},
                 {"lora_alpha", adapters.alpha},
                 {"lora_dropout", adapters.dropout},
                 {"use_rslora", adapters.rank_stabilized},
                 {"target_modules", adapters.targets},
                 {"bias", "none"},
                 {"fan_in_fan_out", false},
                 {"inference_mode", true},
                 {"init_lora_weights", true},
                 {"modules_to_save", nullptr}};
  sw::write_text(directory / "adapter_config.json", all.dump(2) + "\n");
}

} // namespace pretrained
