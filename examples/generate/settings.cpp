// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The settings of a published model, from its config.json.

#include "settings.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace generate {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr std::int64_t most_parts = 65536; // layers, heads or experts, of which lists are made

[[noreturn]] void refuse(const std::string& subject, const std::string& sentence) {
  throw sw::DataError(subject + ": " + sentence);
}

Json parsed(std::string_view text, const std::string& subject) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object())
    refuse(subject, "it must be a JSON object (fetch it again)");
  return json;
}

/// The fields of an object, each to be read or passed over by name; those that are left are unknown.
class Fields {
public:
  Fields(const Json& object, std::string subject, std::string prefix = {})
      : object_(object), subject_(std::move(subject)), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(const std::string& name, const std::string& must) const {
    refuse(subject_,
           "field " + sw::detail::quoted_text(prefix_ + name) + " must be " + must +
               (object_.contains(name) ? ", but it is " + shown(object_.at(name)) : ", but it is missing") +
               " (this program runs no other)");
  }
  /// The value, or null where there is none or it is null.
  const Json* find(const std::string& name) {
    known_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  std::int64_t count(const std::string& name, std::int64_t most = std::numeric_limits<std::int32_t>::max()) {
    const Json* const value = find(name);
    constexpr std::int64_t least = 1;
    if (value == nullptr || !value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) ||
        value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
      fail(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value->get<std::int64_t>();
  }
  std::int64_t count_or(const std::string& name, std::int64_t otherwise) {
    return find(name) == nullptr ? otherwise : count(name);
  }
  double positive(const std::string& name) {
    const Json* const value = find(name);
    if (value == nullptr || !value->is_number() || !(value->get<double>() > 0) ||
        !std::isfinite(value->get<double>()))
      fail(name, "a number above 0");
    return value->get<double>();
  }
  bool flag(const std::string& name, bool otherwise = false) {
    const Json* const value = find(name);
    if (value != nullptr && !value->is_boolean())
      fail(name, "true or false");
    return value == nullptr ? otherwise : value->get<bool>();
  }
  std::string word(const std::string& name, const std::string& otherwise = {}) {
    const Json* const value = find(name);
    if (value == nullptr && !otherwise.empty())
      return otherwise;
    if (value == nullptr || !value->is_string())
      fail(name, "a text");
    return value->get<std::string>();
  }
  /// The field says nothing else than `wanted`, where it is there.
  void only(const std::string& name, const Json& wanted) {
    if (const Json* const value = find(name); value != nullptr && *value != wanted)
      fail(name, shown(wanted));
  }
  void absent(const std::string& name) {
    if (find(name) != nullptr)
      fail(name, "null or absent");
  }
  void pass_over(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }
  void finish() const {
    for (const auto& [name, value] : object_.items())
      if (!known_.contains(name))
        refuse(subject_,
               "field " + sw::detail::quoted_text(prefix_ + name) +
                   " must be one that this program knows, but it may change what the model computes "
                   "(remove it where it does not)");
  }
  [[nodiscard]] const std::string& subject() const { return subject_; }

private:
  static std::string shown(const Json& value) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= 80 ? text : text.substr(0, 80) + "...";
  }

  const Json& object_;
  std::string subject_, prefix_;
  std::set<std::string> known_;
};

/// Positions as both generations of files state them: rope_theta and rope_scaling, or rope_parameters.
void read_positions(Fields& fields, Settings& out) {
  const Json* const both = fields.find("rope_parameters");
  const Json* const scaling = fields.find("rope_scaling");
  if (fields.find("rope_theta") != nullptr)
    out.rope_base = fields.positive("rope_theta");
  const Json* const from = both != nullptr ? both : scaling;
  if (from == nullptr)
    return;
  const std::string name = both != nullptr ? "rope_parameters" : "rope_scaling";
  if (!from->is_object())
    fields.fail(name, "an object");
  Fields rope(*from, fields.subject(), name + ".");
  if (rope.find("rope_theta") != nullptr)
    out.rope_base = rope.positive("rope_theta");
  const std::string old_type = rope.word("type", "default");
  const std::string type = rope.word("rope_type", old_type);
  if (type == "llama3") {
    const double low = rope.positive("low_freq_factor"), high = rope.positive("high_freq_factor");
    if (!(high > low))
      rope.fail("high_freq_factor", "above low_freq_factor");
    out.rope_scaling = {rope.positive("factor"), low, high,
                        static_cast<double>(rope.count("original_max_position_embeddings"))};
  } else if (type != "default") {
    rope.fail(rope.find("rope_type") != nullptr ? "rope_type" : "type", "default or llama3");
  }
  rope.finish();
}

/// What the families differ in.
void read_family(Fields& fields, Settings& out) {
  const std::string& family = out.family;
  if (family == "llama") {
    out.qkv_bias = out.out_bias = fields.flag("attention_bias");
    fields.only("mlp_bias", false);
    fields.only("pretraining_tp", 1);
  } else if (family == "qwen2" || family == "qwen3") {
    out.head_norms = family == "qwen3";
    out.qkv_bias = family == "qwen2" || fields.flag("attention_bias");
    out.out_bias = family == "qwen3" && out.qkv_bias;
    fields.only("use_sliding_window", false);
    fields.only("use_mrope", false);
    fields.pass_over({"max_window_layers", "sliding_window"}); // of a window that is not used
  } else if (family == "mistral" || family == "mixtral") {
    if (fields.find("sliding_window") != nullptr)
      out.window = fields.count("sliding_window");
    if (family == "mixtral") {
      out.experts = fields.count("num_local_experts", most_parts);
      out.chosen_experts = fields.count("num_experts_per_tok");
      if (out.chosen_experts > out.experts)
        fields.fail("num_experts_per_tok", "at most num_local_experts");
      fields.pass_over(
          {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"}); // of training
    }
  } else {
    fields.fail("model_type", "llama, mistral, qwen2, qwen3 or mixtral");
  }
  if (const Json* const kinds = fields.find("layer_types"))
    if (!kinds->is_array() ||
        !std::all_of(kinds->begin(), kinds->end(), [](const Json& kind) { return kind == "full_attention"; }))
      fields.fail("layer_types", "a list of \"full_attention\"");
}

void read_end_tokens(Fields& fields, std::vector<std::int32_t>& out) {
  const Json* const ends = fields.find("eos_token_id");
  if (ends == nullptr)
    return;
  out.clear();
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max())
      fields.fail("eos_token_id", "a token's number, or a list of them");
    out.push_back(id.get<std::int32_t>());
  };
  if (ends->is_array())
    for (const Json& id : *ends)
      add(id);
  else
    add(*ends);
}

} // namespace

Settings parse_settings(std::string_view text, const std::string& subject) {
  const Json json = parsed(text, subject);
  Fields fields(json, subject);
  Settings out;
  out.family = fields.word("model_type");
  read_family(fields, out);
  out.layers = fields.count("num_hidden_layers", most_parts);
  out.width = fields.count("hidden_size");
  out.heads = fields.count("num_attention_heads", most_parts);
  out.kv_heads = fields.count_or("num_key_value_heads", out.heads);
  if (out.heads % out.kv_heads != 0)
    fields.fail("num_key_value_heads", "a divisor of num_attention_heads, " + std::to_string(out.heads));
  if (fields.find("head_dim") == nullptr && out.width % out.heads != 0)
    fields.fail("head_dim", "there, as hidden_size is no multiple of num_attention_heads");
  out.head_width = fields.count_or("head_dim", out.width / out.heads);
  if (out.head_width % 2 != 0)
    fields.fail("head_dim", "even");
  out.hidden = fields.count("intermediate_size");
  out.vocabulary = fields.count("vocab_size");
  out.positions = fields.count("max_position_embeddings");
  out.norm_epsilon = fields.positive("rms_norm_eps");
  read_positions(fields, out);
  out.tied_embedding = fields.flag("tie_word_embeddings");
  read_end_tokens(fields, out.end_tokens);
  fields.only("hidden_act", "silu");
  fields.absent("quantization_config");
  // Of training, of other tokens than the last one, or of the program that wrote the file.
  fields.pass_over({"architectures", "attention_dropout", "bos_token_id", "dtype", "initializer_range",
                    "pad_token_id", "torch_dtype", "transformers_version", "use_cache", "_name_or_path"});
  fields.finish();
  return out;
}

Settings read_settings(const std::filesystem::path& directory) {
  const auto path = directory / "config.json";
  Settings out = parse_settings(sw::read_text(path, most_bytes), path.string());
  if (const auto more = directory / "generation_config.json"; std::filesystem::exists(more)) {
    const Json json = parsed(sw::read_text(more, most_bytes), more.string());
    Fields fields(json, more.string());
    read_end_tokens(fields, out.end_tokens);
  }
  return out;
}

std::string settings_text(const Settings& settings) {
  const std::string& family = settings.family;
  Json rope{{"rope_type", "default"}, {"rope_theta", settings.rope_base}};
  if (const auto& scaling = settings.rope_scaling)
    rope = {{"rope_type", "llama3"},
            {"rope_theta", settings.rope_base},
            {"factor", scaling->factor},
            {"low_freq_factor", scaling->low},
            {"high_freq_factor", scaling->high},
            {"original_max_position_embeddings", static_cast<std::int64_t>(scaling->positions)}};
  Json scaling = rope; // for programs of before rope_parameters
  scaling.erase("rope_theta");
  Json out{{"architectures", {std::string()}},
           {"model_type", family},
           {"num_hidden_layers", settings.layers},
           {"hidden_size", settings.width},
           {"num_attention_heads", settings.heads},
           {"num_key_value_heads", settings.kv_heads},
           {"head_dim", settings.head_width},
           {"intermediate_size", settings.hidden},
           {"vocab_size", settings.vocabulary},
           {"max_position_embeddings", settings.positions},
           {"rms_norm_eps", settings.norm_epsilon},
           {"rope_theta", settings.rope_base},
           {"rope_scaling", settings.rope_scaling ? scaling : Json()},
           {"rope_parameters", rope},
           {"tie_word_embeddings", settings.tied_embedding},
           {"hidden_act", "silu"},
           {"eos_token_id", settings.end_tokens}};
  std::string name = family;
  name.front() = static_cast<char>(name.front() - 'a' + 'A');
  out["architectures"] = {name + "ForCausalLM"};
  if (settings.end_tokens.size() < 2)
    out["eos_token_id"] = settings.end_tokens.empty() ? Json() : Json(settings.end_tokens.front());
  if (family == "llama" || family == "qwen3")
    out["attention_bias"] = settings.qkv_bias;
  if (family == "mistral" || family == "mixtral")
    out["sliding_window"] = settings.window ? Json(*settings.window) : Json();
  if (settings.experts > 0) {
    out["num_local_experts"] = settings.experts;
    out["num_experts_per_tok"] = settings.chosen_experts;
  }
  return out.dump(2) + "\n";
}

} // namespace generate
