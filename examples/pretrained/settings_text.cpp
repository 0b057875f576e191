// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Settings of a published model as text, and values derived from them.

#include "json_text.hpp"
#include "tensor_files.hpp"

#include <shardwright/io/read_text.hpp>
#include <shardwright/io/write_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numbers>

namespace pretrained {

using Json = nlohmann::json;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 28; // of a file beside the tensors

/// Equation 22 of the paper, with a weight of the logarithm.
double magnitude(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

Json rope_of(const Settings& settings) {
  Json out{{"rope_type", "default"}, {"rope_theta", settings.rope_base}};
  if (const auto& scaling = settings.rope_scaling) {
    out["rope_type"] = "llama3";
    out["factor"] = scaling->factor;
    out["low_freq_factor"] = scaling->low;
    out["high_freq_factor"] = scaling->high;
    out["original_max_position_embeddings"] = static_cast<std::int64_t>(scaling->positions);
  } else if (settings.latent && settings.latent->scaling) {
    const YarnScaling& yarn = *settings.latent->scaling;
    out["rope_type"] = "yarn";
    out["factor"] = yarn.factor;
    out["beta_fast"] = yarn.fast;
    out["beta_slow"] = yarn.slow;
    out["original_max_position_embeddings"] = static_cast<std::int64_t>(yarn.positions);
    if (yarn.mscale > 0)
      out["mscale"] = yarn.mscale;
    if (yarn.mscale_all > 0)
      out["mscale_all_dim"] = yarn.mscale_all;
    if (!yarn.whole_numbers)
      out["truncate"] = false;
  }
  return out;
}

void add_latent(Json& out, const Settings& settings) {
  const LatentSizes& latent = *settings.latent;
  const ExpertSettings& experts = settings.experts;
  out["q_lora_rank"] = latent.query_rank > 0 ? Json(latent.query_rank) : Json();
  out["kv_lora_rank"] = latent.key_value_rank;
  out["qk_nope_head_dim"] = latent.plain_width;
  out["qk_rope_head_dim"] = latent.rotary_width;
  out["v_head_dim"] = latent.value_width;
  out["rope_interleave"] = latent.interleaved;
  out["n_routed_experts"] = experts.count;
  out["num_experts_per_tok"] = experts.chosen;
  out["moe_intermediate_size"] = experts.hidden;
  out["n_shared_experts"] = experts.shared_hidden / experts.hidden;
  out["first_k_dense_replace"] = experts.dense_layers;
  out["norm_topk_prob"] = experts.sums_to_one;
  out["routed_scaling_factor"] = experts.scale;
  out["n_group"] = experts.groups;
  out["topk_group"] = experts.kept_groups;
  out["num_nextn_predict_layers"] = 0;
}

} // namespace

std::vector<double> YarnScaling::frequencies(std::int64_t rotary_width, double base) const {
  const auto d = static_cast<double>(rotary_width);
  const auto place = [&](double turns) {
    return d * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = place(fast), high = place(slow);
  if (whole_numbers) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high)
    high += 0.001;
  std::vector<double> out = sw::rotary_frequencies(rotary_width, base);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out[i] *= 1 - stretched + stretched / factor;
  }
  return out;
}

double YarnScaling::turned_factor() const {
  return mscale > 0 && mscale_all > 0 ? magnitude(factor, mscale) / magnitude(factor, mscale_all)
                                      : magnitude(factor, 1);
}

double YarnScaling::score_factor() const {
  const double of_each = mscale_all > 0 ? magnitude(factor, mscale_all) : 1;
  return of_each * of_each;
}

std::string settings_text(const Settings& settings, const std::string& element) {
  const std::string& family = settings.family;
  const Json rope = rope_of(settings);
  Json scaling = rope; // for programs from before rope_parameters
  scaling.erase("rope_theta");
  Json out{{"architectures", {std::string()}},
           {"model_type", family},
           {"num_hidden_layers", settings.layers},
           {"hidden_size", settings.width},
           {"num_attention_heads", settings.heads},
           {"num_key_value_heads", settings.kv_heads},
           {"intermediate_size", settings.hidden},
           {"vocab_size", settings.vocabulary},
           {"max_position_embeddings", settings.positions},
           {"rms_norm_eps", settings.norm_epsilon},
           {"rope_theta", settings.rope_base},
           {"rope_scaling", scaling.at("rope_type") == "default" ? Json() : scaling},
           {"rope_parameters", rope},
           {"tie_word_embeddings", settings.tied_embedding},
           {"hidden_act", "silu"},
           {"torch_dtype", element},
           {"eos_token_id", settings.end_tokens}};
  std::string name = family == "deepseek_v3" ? "DeepseekV3" : family;
  name.front() = static_cast<char>(std::toupper(name.front()));
  out["architectures"] = {name + "ForCausalLM"};
  if (settings.end_tokens.size() < 2)
    out["eos_token_id"] = settings.end_tokens.empty() ? Json() : Json(settings.end_tokens.front());
  if (family == "llama" || family == "qwen3")
    out["attention_bias"] = settings.qkv_bias;
  if (family == "mistral" || family == "mixtral")
    out["sliding_window"] = settings.window ? Json(*settings.window) : Json();
  if (settings.latent) {
    add_latent(out, settings);
    return out.dump(2) + "\n";
  }
  out["head_dim"] = settings.head_width;
  if (settings.experts.count > 0) {
    out["num_local_experts"] = settings.experts.count;
    out["num_experts_per_tok"] = settings.experts.chosen;
  }
  return out.dump(2) + "\n";
}

void write_settings(const std::filesystem::path& directory, const Settings& settings,
                    const std::string& element) {
  sw::write_text(directory / "config.json", settings_text(settings, element));
}

void copy_settings(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& element) {
  auto config = parse_object<nlohmann::ordered_json>(sw::read_text(from / "config.json", most_bytes),
                                                     (from / "config.json").string());
  config.erase("quantization_config");
  for (const char* name : {"dtype", "torch_dtype"}) // of current and of older programs
    config[name] = element;
  if (config.contains("num_nextn_predict_layers")) // such layers are not written
    config["num_nextn_predict_layers"] = 0;
  sw::write_text(to / "config.json", config.dump(2) + "\n");
}

void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model",
        "chat_template.jinja", "vocab.json", "merges.txt", "generation_config.json"})
    if (std::filesystem::exists(from / name))
      sw::write_text(to / name, sw::read_text(from / name, most_bytes));
}

void write_byte_tokenizer(const std::filesystem::path& directory) {
  nlohmann::ordered_json vocabulary;
  for (int byte = 0, next = 256; byte < 256; ++byte) { // the letters of GPT-2's byte_encoder
    const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int code = printable ? byte : next++;
    std::string letter;
    if (code >= 0x80)
      letter += static_cast<char>(0xc0 | code >> 6);
    letter += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f));
    vocabulary[letter] = byte;
  }
  const nlohmann::ordered_json bytes{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::ordered_json out{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", nlohmann::ordered_json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::ordered_json::array()}}}};
  sw::write_text(directory / "tokenizer.json", out.dump(2) + "\n");
  sw::write_text(directory / "tokenizer_config.json", "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n");
  sw::write_text(
      directory / "chat_template.jinja",
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n");
}

} // namespace pretrained
