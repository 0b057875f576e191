// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Reads specifications; error messages name the line and the field.

#include "specifications.hpp"

#include "json_text.hpp"

#include <command_line/limits.hpp>
#include <command_line/words.hpp>
#include <plan/published/chip_name.hpp>

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/plan/search/situation.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <deque>
#include <vector>

namespace plan_example {

namespace sw = shardwright;

namespace {

/// Specifications point to their names; names from files live as long as the program.
std::string_view kept_name(std::string name) {
  static std::deque<std::string> names;
  return names.emplace_back(std::move(name));
}

/// A value as written, truncated if it is long.
std::string shown(const nlohmann::json& value) {
  constexpr std::size_t most = 60;
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

/// A name for a message, without quotes.
std::string printable(const std::string& name) {
  const std::string quoted = sw::detail::quoted_text(name);
  return quoted.substr(1, quoted.size() - 2);
}

/// The fields of one object, each of which must be read; any that is left over is an error.
class Fields {
public:
  /// @param from where in the text the object begins, so that errors in it are located there.
  Fields(const nlohmann::json& object, const std::string& text, std::string file, std::string where,
         std::size_t from = 0)
      : object_(object), text_(text), file_(std::move(file)), where_(std::move(where)), from_(from) {
    if (!object_.is_object())
      fail(where_.empty() ? "the file" : where_, "must be an object, in braces");
  }

  /// Takes a number from `least` up; the value is unchanged if the field is missing.
  /// @param unit for the message, if it is not obvious.
  template <class Number>
  void number(const char* name, Number& value, double least = 0, const std::string& unit = {}) {
    const nlohmann::json* found = take(name);
    if (found == nullptr)
      return;
    constexpr bool whole = std::is_integral_v<Number>;
    constexpr double most = whole ? 1e8 : 1e24;
    if (!found->is_number() || found->get<double>() < least || found->get<double>() > most ||
        (whole && found->get<double>() != std::floor(found->get<double>())))
      fail(name, std::string("must be a ") + (whole ? "whole " : "") + "number from " +
                     command_line::text(least) + " to " + (whole ? "100000000" : "1e24") + unit +
                     ", but it is " + shown(*found));
    value = found->get<Number>();
  }
  void flag(const char* name, bool& value) {
    if (const nlohmann::json* found = take(name)) {
      if (!found->is_boolean())
        fail(name, "must be true or false, but it is " + shown(*found));
      value = found->get<bool>();
    }
  }
  [[nodiscard]] std::string word(const char* name) {
    const nlohmann::json* found = take(name);
    if (found != nullptr && !found->is_string())
      fail(name, "must be a word in quotes, but it is " + shown(*found));
    constexpr std::size_t most = 256;
    if (found != nullptr && found->get_ref<const std::string&>().size() > most)
      fail(name, "must have at most " + std::to_string(most) + " bytes, but it is " + shown(*found));
    return found == nullptr ? std::string() : found->get<std::string>();
  }
  [[nodiscard]] const nlohmann::json* take(const char* name) {
    taken_.emplace_back(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  void end() const {
    for (const auto& [name, value] : object_.items())
      if (std::find(taken_.begin(), taken_.end(), name) == taken_.end()) {
        const std::string_view near = command_line::nearest(name, taken_);
        fail(printable(name),
             "is no field here" + (near.empty()
                                       ? " (the fields are " + command_line::joined(taken_, " and ") + ")"
                                       : "; did you mean " + std::string(near) + "?"));
      }
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    const std::size_t named = text_.find('"' + name + '"', from_);
    const std::size_t at = named == std::string::npos ? from_ : named;
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw sw::DataError(file_ + ", line " + std::to_string(line) + ": " +
                        (where_.empty() || where_ == name ? "" : where_ + ".") + name + " " + what);
  }

private:
  const nlohmann::json& object_;
  const std::string& text_;
  std::string file_;
  std::string where_;
  std::size_t from_;
  std::vector<std::string> taken_;
};

bool is_file(const std::string& name) { return name.size() > 5 && name.ends_with(".json"); }

template <class Catalogue> std::vector<std::string> names_of(const Catalogue& catalogue) {
  std::vector<std::string> names;
  for (const auto& one : catalogue)
    names.emplace_back(one.name);
  return names;
}

std::string known(const std::string& name, const std::vector<std::string>& names) {
  const std::string_view near = command_line::nearest(name, names);
  return near.empty() ? "take one of " + command_line::joined(names, " or ")
                      : "did you mean " + std::string(near) + "?";
}

/// Chips by their first words, as clusters name them.
std::string known_chip(const std::string& name) {
  std::vector<std::string> names;
  for (const sw::ChipSpec& one : sw::chip_catalogue) {
    names.emplace_back(one.name.substr(0, one.name.find_first_of("- ")));
    std::transform(names.back().begin(), names.back().end(), names.back().begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return known(name, names);
}

} // namespace

sw::ModelSpec read_model(const std::string& name) {
  if (!is_file(name)) {
    if (const sw::ModelSpec* model = sw::find_model(name))
      return *model;
    throw sw::DataError("--model must be known or a file that ends with .json, but it is '" + name + "' (" +
                        known(name, names_of(sw::model_catalogue)) + ")");
  }
  return model_of_json(sw::read_text(name, command_line::most_specification_bytes), name);
}

sw::ModelSpec model_of_json(const std::string& text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name);
  sw::ModelSpec model;
  Fields fields(json, text, name, "");
  const std::string given = fields.word("name");
  model.name = kept_name(given.empty() ? name : given);
  fields.number("layers", model.layers, 1);
  fields.number("hidden", model.hidden, 1);
  fields.number("heads", model.heads, 1);
  model.key_value_heads = model.heads;
  fields.number("key_value_heads", model.key_value_heads, 1);
  fields.number("head_width", model.head_width, 1);
  fields.number("feed_forward", model.feed_forward, 1);
  fields.flag("gated", model.gated);
  fields.number("vocabulary", model.vocabulary, 1);
  fields.flag("tied_embeddings", model.tied_embeddings);
  fields.number("position_rows", model.position_rows);
  fields.flag("biases", model.biases);
  fields.number("window", model.window);
  fields.number("window_layers", model.window_layers);
  fields.flag("chunked", model.chunked);
  fields.flag("parallel_block", model.parallel_block);
  fields.number("prediction_layers", model.prediction_layers);
  if (const nlohmann::json* inner = fields.take("latent")) {
    Fields latent(*inner, text, name, "latent", text.find("\"latent\""));
    latent.number("query_rank", model.latent.query_rank);
    latent.number("key_value_rank", model.latent.key_value_rank, 1);
    latent.number("plain_width", model.latent.plain_width, 1);
    latent.number("rotary_width", model.latent.rotary_width);
    latent.number("value_width", model.latent.value_width, 1);
    latent.end();
  }
  if (const nlohmann::json* inner = fields.take("experts")) {
    Fields experts(*inner, text, name, "experts", text.find("\"experts\""));
    experts.number("count", model.experts.count, 1);
    experts.number("active", model.experts.active, 1);
    experts.number("width", model.experts.width, 1);
    experts.number("shared", model.experts.shared);
    experts.number("shared_width", model.experts.shared_width);
    experts.number("leading_dense_layers", model.experts.leading_dense_layers);
    experts.number("every", model.experts.every, 1);
    experts.number("groups", model.experts.groups);
    experts.number("all_groups", model.experts.all_groups);
    experts.number("latent_width", model.experts.latent_width);
    experts.end();
    if (model.experts.active < 1 || model.experts.active > model.experts.count || model.experts.width < 1)
      experts.fail("active", "must be from 1 to count, and width must be given");
  }
  if (const nlohmann::json* inner = fields.take("state_space")) {
    Fields space(*inner, text, name, "state_space", text.find("\"state_space\""));
    space.number("layers", model.state_space.layers, 1);
    space.number("attention_layers", model.state_space.attention_layers);
    space.number("heads", model.state_space.heads, 1);
    space.number("head_width", model.state_space.head_width, 1);
    space.number("groups", model.state_space.groups, 1);
    space.number("state", model.state_space.state, 1);
    space.number("convolution", model.state_space.convolution, 1);
    space.end();
    if (model.state_space.heads < 1 || model.state_space.head_width < 1 || model.state_space.state < 1)
      space.fail("heads", "must be given, and head_width and state, too");
    if (std::int64_t{model.state_space.layers} + model.state_space.attention_layers >= model.layers)
      space.fail("layers", "must leave layers for feed-forwards, beside attention_layers");
    if (model.experts.leading_dense_layers > 0 || model.experts.every > 1)
      space.fail("layers",
                 "must go without leading_dense_layers and every: each feed-forward has experts or none has");
  }
  fields.end();
  for (const auto& [field, value] :
       std::initializer_list<std::pair<const char*, int>>{{"layers", model.layers},
                                                          {"hidden", model.hidden},
                                                          {"heads", model.heads},
                                                          {"vocabulary", model.vocabulary}})
    if (value < 1)
      fields.fail(field,
                  "must be given (a model needs layers, hidden, heads and vocabulary, and a feed_forward)");
  if (model.feed_forward < 1 && model.dense_layers() > 0)
    fields.fail("feed_forward", "must be given for layers without experts");
  if (model.experts.leading_dense_layers > model.layers)
    fields.fail("leading_dense_layers", "must be at most the layers");
  else if (!model.state_space.used() &&
           (model.layers - model.experts.leading_dense_layers) % model.experts.every != 0)
    fields.fail("every", "must divide the layers that are not leading dense ones");
  if (model.window_layers > model.layers)
    fields.fail("window_layers", "must be at most the layers");
  if (model.head_width == 0 && !model.latent.used() && model.hidden % model.heads != 0)
    fields.fail("heads", "must divide hidden, unless head_width is given");
  if (model.heads % model.key_value_heads != 0)
    fields.fail("key_value_heads", "must divide heads");
  return model;
}

namespace {

sw::ClusterSpec known_cluster(const std::string& name) {
  if (!is_file(name)) {
    if (const auto cluster = sw::cluster_of_name(name)) {
      sw::ClusterSpec found = *cluster;
      found.name = kept_name(std::string(found.name));
      return found;
    }
    const std::size_t times = name.find_last_of("xX");
    const std::string chip = name.substr(0, times);
    throw sw::DataError(
        "--cluster must be known, <chip>x<number> such as h100x1024 with a number above 0, or a file that ends with .json, but it is '" +
        name + "' (" +
        (times == std::string::npos && sw::chip_of_word(name) ? "write " + name + "x16 for 16 of these chips"
         : sw::chip_of_word(chip)                             ? "write a number after the x"
                                                              : "for <chip> " + known_chip(chip)) +
        ")");
  }
  return cluster_of_json(sw::read_text(name, command_line::most_specification_bytes), name);
}

} // namespace

namespace {

/// A chip that a cluster's file defines; its links are those of the domains.
sw::ChipSpec chip_of_json(const nlohmann::json& object, const std::string& text, const std::string& file) {
  Fields fields(object, text, file, "chip", text.find("\"chip\""));
  sw::ChipSpec chip;
  const std::string name = fields.word("name");
  chip.name = kept_name(name.empty() ? "chip of " + file : name);
  chip.source = kept_name(file);
  fields.number("peak_bf16", chip.peak_bf16, 1e9, " FLOP/s");
  fields.number("peak_fp8", chip.peak_fp8);
  fields.number("peak_fp4", chip.peak_fp4);
  fields.number("memory_bytes", chip.memory_bytes, 1e6, " bytes");
  fields.number("memory_bandwidth", chip.memory_bandwidth, 1e6, " bytes/s");
  const std::vector<std::string> generations{"ampere", "hopper", "blackwell", "tpu", "generic"};
  if (const std::string word = fields.word("generation"); !word.empty()) {
    const auto found = std::find(generations.begin(), generations.end(), word);
    if (found == generations.end())
      fields.fail("generation", "must be " + command_line::joined(generations, " or ") + ", but it is " +
                                    sw::detail::quoted_text(word));
    chip.generation = static_cast<sw::ChipGeneration>(found - generations.begin());
  }
  fields.end();
  for (const auto& [field, value] :
       std::initializer_list<std::pair<const char*, double>>{{"peak_bf16", chip.peak_bf16},
                                                             {"memory_bytes", chip.memory_bytes},
                                                             {"memory_bandwidth", chip.memory_bandwidth}})
    if (value <= 0)
      fields.fail(field, "must be given, in FLOP/s, bytes or bytes/s");
  return chip;
}

} // namespace

sw::ClusterSpec cluster_of_json(const std::string& text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name);
  Fields fields(json, text, name, "");
  const std::string given = fields.word("name");
  sw::ClusterSpec cluster;
  cluster.name = kept_name(given.empty() ? name : given);
  const nlohmann::json* defined = fields.take("chip");
  if (defined != nullptr && defined->is_object()) {
    cluster.chip = chip_of_json(*defined, text, name);
  } else {
    const std::string chip = fields.word("chip");
    const auto found = sw::chip_of_word(chip);
    if (!found)
      fields.fail("chip", "must be of the catalogue, or an object that defines one, but it is " +
                              sw::detail::quoted_text(chip) + " (" + known_chip(chip) + ")");
    cluster.chip = *found;
  }
  fields.number("memory_bytes", cluster.chip.memory_bytes, 1e6, " bytes");
  const nlohmann::json* domains = fields.take("domains");
  if (domains == nullptr || !domains->is_array() || domains->empty() ||
      domains->size() > sw::ClusterSpec::most_domains)
    fields.fail("domains", "must be a list of 1 to 4 objects, from the innermost domain to the cluster");
  std::size_t at = text.find("\"domains\"");
  for (const nlohmann::json& one : *domains) {
    at = text.find('{', at + 1); // there are no braces inside a domain
    sw::DomainSpec& domain = cluster.domains[static_cast<std::size_t>(cluster.domain_count++)];
    Fields inner(one, text, name, "domains", at == std::string::npos ? 0 : at);
    inner.number("chips", domain.chips, 1);
    inner.number("bandwidth", domain.bandwidth, 1e6, " bytes/s (100 Gbit/s are 12.5e9)");
    inner.number("latency_seconds", domain.latency_seconds);
    inner.number("torus_dimensions", domain.torus_dimensions);
    inner.end();
    const std::int64_t inside =
        cluster.domain_count > 1 ? cluster.domains[static_cast<std::size_t>(cluster.domain_count - 2)].chips
                                 : 1;
    if (domain.chips < 1 || domain.chips % inside != 0)
      inner.fail("chips", "must be a multiple of those of the domain inside it, from 1 up");
    if (domain.bandwidth <= 0)
      inner.fail("bandwidth", "must be given, in bytes/s, one way and per chip");
  }
  if (cluster.chip.scale_up_chips == 0) { // defined in this file
    const sw::DomainSpec &inner = cluster.domains[0], &outer = cluster.domains[1];
    cluster.chip.scale_up_chips = static_cast<int>(inner.chips);
    cluster.chip.scale_up_bandwidth = inner.bandwidth;
    cluster.chip.scale_out_bandwidth = outer.bandwidth;
    cluster.chip.torus_dimensions = inner.torus_dimensions;
  }
  fields.end();
  return cluster;
}

sw::ClusterSpec read_cluster(const std::string& name, std::int64_t domain) {
  sw::ClusterSpec cluster = known_cluster(name);
  if (domain > 0)
    cluster = sw::with_more({cluster, {}}, sw::Resource::domain,
                            static_cast<double>(domain) / static_cast<double>(cluster.domains[0].chips))
                  .cluster;
  else if (!is_file(name) && cluster.domains[0].torus_dimensions == 0)
    cluster = with_even_domains(cluster);
  constexpr std::int64_t most = 1 << 24;
  if (cluster.chips() > most)
    throw sw::DataError("--cluster " + name + ": there must be at most " + std::to_string(most) +
                        " chips, but there are " + std::to_string(cluster.chips()) + " (take fewer)");
  const std::int64_t chips = cluster.chips(), each = cluster.domains[0].chips, over = chips % each;
  if (over != 0)
    throw sw::DataError("--cluster " + name + ": its chips must fill domains of " + std::to_string(each) +
                        ", but there are " + std::to_string(chips) + " (take " +
                        std::to_string(chips - over) + " or " + std::to_string(chips - over + each) +
                        ", or set " + (domain > 0 ? "another" : "the") + " domain with --domain)");
  return cluster;
}

} // namespace plan_example
