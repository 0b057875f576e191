// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The settings of a published model, from its config.json.

#include "settings.hpp"
#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace pretrained {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr std::int64_t most_parts = 65536; // of layers, heads or experts, for which lists are allocated

[[noreturn]] void refuse(const std::string& subject, const std::string& sentence) {
  throw sw::DataError(subject + ": " + sentence);
}

/// The fields of an object, each to be read or skipped by name; any that are left over are unknown.
class Fields {
public:
  Fields(const Json& object, std::string subject, std::vector<std::string> accepted)
      : object_(object), subject_(std::move(subject)), accepted_(std::move(accepted)) {}
  /// The fields of an object in a field.
  Fields(const Json& object, const Fields& outer, const std::string& name)
      : object_(object), subject_(outer.subject_), prefix_(name + "."), accepted_(outer.accepted_) {}

  [[noreturn]] void fail(const std::string& name, const std::string& must) const {
    refuse(subject_,
           "field " + sw::detail::quoted_text(prefix_ + name) + " must be " + must +
               (object_.contains(name) ? ", but it is " + shown(object_.at(name)) : ", but it is missing") +
               " (this program runs no other)");
  }
  /// The value; null if the field is missing or null.
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
  double positive_or(const std::string& name, double otherwise) {
    return find(name) == nullptr ? otherwise : positive(name);
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
  /// Checks that the field, if present, is `wanted`.
  void only(const std::string& name, const Json& wanted) {
    if (const Json* const value = find(name); value != nullptr && *value != wanted)
      fail(name, shown(wanted));
  }
  void absent(const std::string& name) {
    if (find(name) != nullptr)
      fail(name, "null or absent");
  }
  void pass_over(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }
  /// Names that begin with an underscore are notes of the program that wrote the file.
  void finish() const {
    for (const auto& [name, value] : object_.items())
      if (!known_.contains(name) && !name.starts_with('_') &&
          std::find(accepted_.begin(), accepted_.end(), prefix_ + name) == accepted_.end())
        refuse(subject_,
               "field " + sw::detail::quoted_text(prefix_ + name) +
                   " must be one that this program knows, as it may change what the model computes, "
                   "and it is " +
                   shown(value) + " (give --accept-field with its name if it changes nothing)");
  }

private:
  const Json& object_;
  std::string subject_, prefix_;
  std::vector<std::string> accepted_;
  std::set<std::string> known_;
};

YarnScaling read_yarn(Fields& rope) {
  YarnScaling out;
  out.factor = rope.positive("factor");
  out.fast = rope.positive_or("beta_fast", out.fast);
  out.slow = rope.positive_or("beta_slow", out.slow);
  if (!(out.fast > out.slow))
    rope.fail("beta_fast", "above beta_slow");
  out.positions = static_cast<double>(rope.count("original_max_position_embeddings"));
  out.mscale = rope.positive_or("mscale", 0);
  out.mscale_all = rope.positive_or("mscale_all_dim", 0);
  out.whole_numbers = rope.flag("truncate", true);
  rope.absent("attention_factor");
  return out;
}

/// Positions, as both generations of files specify them: rope_theta and rope_scaling, or rope_parameters.
void read_positions(Fields& fields, Settings& out) {
  const bool yarn_known = out.latent.has_value();
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
  Fields rope(*from, fields, name);
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
    if (yarn_known)
      rope.fail("rope_type", "default or yarn");
  } else if (type == "yarn" && yarn_known) {
    out.latent->scaling = read_yarn(rope);
  } else if (type != "default") {
    rope.fail(rope.find("rope_type") != nullptr ? "rope_type" : "type",
              yarn_known ? "default or yarn" : "default or llama3");
  }
  rope.only("partial_rotary_factor", 1.0);
  rope.finish();
}

/// DeepSeek-V3's: latent attention, and experts after the first layers.
void read_latent(Fields& fields, Settings& out) {
  LatentSizes latent;
  if (fields.find("q_lora_rank") != nullptr)
    latent.query_rank = fields.count("q_lora_rank");
  latent.key_value_rank = fields.count("kv_lora_rank");
  latent.plain_width = fields.count("qk_nope_head_dim");
  latent.rotary_width = fields.count("qk_rope_head_dim");
  if (latent.rotary_width % 2 != 0)
    fields.fail("qk_rope_head_dim", "even");
  latent.value_width = fields.count("v_head_dim");
  latent.interleaved = fields.flag("rope_interleave", true);
  out.latent = latent;
  fields.only("attention_bias", false);
  fields.only("qk_head_dim", latent.plain_width + latent.rotary_width);
  // For training, and for layers that predict tokens after the next one.
  fields.pass_over({"aux_loss_alpha", "seq_aux", "output_router_logits", "num_nextn_predict_layers",
                    "num_mtp_layers", "ep_size", "auto_map", "router_aux_loss_coef", "pretraining_tp"});
}
void read_deepseek_experts(Fields& fields, Settings& out) {
  ExpertSettings& experts = out.experts;
  experts.count = fields.count("n_routed_experts", most_parts);
  experts.chosen = fields.count("num_experts_per_tok");
  experts.hidden = fields.count("moe_intermediate_size");
  experts.shared_hidden = experts.hidden * fields.count("n_shared_experts", most_parts);
  const Json* const dense = fields.find("first_k_dense_replace");
  if (dense != nullptr && *dense != 0)
    experts.dense_layers = fields.count("first_k_dense_replace", most_parts);
  experts.sigmoid = true;
  experts.sums_to_one = fields.flag("norm_topk_prob", true);
  experts.scale = fields.positive("routed_scaling_factor");
  experts.groups = fields.count_or("n_group", 1);
  if (experts.groups > 64 || experts.count % experts.groups != 0 || experts.count / experts.groups < 2)
    fields.fail("n_group", "at most 64, and half of n_routed_experts or a smaller part of them");
  experts.kept_groups = fields.count_or("topk_group", 1);
  if (experts.kept_groups > experts.groups)
    fields.fail("topk_group", "at most n_group");
  if (experts.chosen > experts.count / experts.groups * experts.kept_groups)
    fields.fail("num_experts_per_tok", "at most the experts of topk_group groups");
  fields.only("scoring_func", "sigmoid");
  fields.only("topk_method", "noaux_tc");
  fields.only("moe_layer_freq", 1);
}

/// The differences between the families.
void read_family(Fields& fields, Settings& out) {
  const std::string& family = out.family;
  if (family == "llama") {
    out.qkv_bias = out.out_bias = fields.flag("attention_bias");
    fields.only("mlp_bias", false);
    fields.only("rope_interleaved", false);
    fields.absent("sliding_window");
    fields.pass_over(
        {"pretraining_tp", "is_llama_config", "max_sequence_length"}); // the first: of sums' order
  } else if (family == "qwen2" || family == "qwen3") {
    out.head_norms = family == "qwen3";
    out.qkv_bias = family == "qwen2" || fields.flag("attention_bias");
    out.out_bias = family == "qwen3" && out.qkv_bias;
    fields.only("use_sliding_window", false);
    fields.only("use_mrope", false);
    fields.pass_over({"max_window_layers", "sliding_window"}); // settings of a window that is not used
  } else if (family == "mistral" || family == "mixtral") {
    if (fields.find("sliding_window") != nullptr)
      out.window = fields.count("sliding_window");
    fields.only("attention_bias", false);
    if (family == "mixtral") {
      out.experts.count = fields.count("num_local_experts", most_parts);
      out.experts.chosen = fields.count("num_experts_per_tok");
      out.experts.hidden = fields.count("intermediate_size");
      if (out.experts.chosen > out.experts.count)
        fields.fail("num_experts_per_tok", "at most num_local_experts");
      fields.pass_over(
          {"router_aux_loss_coef", "output_router_logits", "router_jitter_noise"}); // of training
    }
  } else if (family == "deepseek_v3") {
    read_latent(fields, out);
    read_deepseek_experts(fields, out);
  } else {
    fields.fail("model_type", "llama, mistral, qwen2, qwen3, mixtral or deepseek_v3");
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

/// Weights in FP8 blocks with one scale each, as in DeepSeek-V3.
void read_quantization(Fields& fields, Settings& out, Fp8 fp8) {
  const Json* const found = fields.find("quantization_config");
  if (found == nullptr)
    return;
  if (!out.latent || !found->is_object())
    fields.absent("quantization_config");
  if (fp8 == Fp8::refused)
    fields.fail("quantization_config", "null, or --widen-fp8 must be given, which reads its FP8 weights");
  Fields blocks(*found, fields, "quantization_config");
  blocks.only("quant_method", "fp8");
  blocks.only("fmt", "e4m3");
  blocks.pass_over({"activation_scheme"}); // activations are not quantized here
  const Json* const sizes = blocks.find("weight_block_size");
  const auto is_size = [](const Json& size) {
    return size.is_number_integer() && size >= 1 && size <= 65536;
  };
  if (sizes == nullptr || !sizes->is_array() || sizes->size() != 2 || !is_size((*sizes)[0]) ||
      !is_size((*sizes)[1]))
    blocks.fail("weight_block_size", "a list of the rows and the columns of a block");
  out.fp8_rows = (*sizes)[0].get<std::int64_t>();
  out.fp8_columns = (*sizes)[1].get<std::int64_t>();
  blocks.finish();
}

/// What transformers keeps for every model, and other programs beside it.
void read_common(Fields& fields) {
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"})
    fields.only(name, false);
  fields.absent("cross_attention_hidden_size");
  fields.only("partial_rotary_factor", 1.0);
  if (const Json* const pruned = fields.find("pruned_heads"); pruned != nullptr && !pruned->empty())
    fields.fail("pruned_heads", "empty");
  // Of tokens other than the last ones, and of the program that wrote the file.
  fields.pass_over({"architectures",
                    "bos_token_id",
                    "cls_token_id",
                    "decoder_start_token_id",
                    "mask_token_id",
                    "pad_token_id",
                    "sep_token_id",
                    "unk_token_id",
                    "dtype",
                    "torch_dtype",
                    "transformers_version",
                    "tokenizer_class",
                    "prefix",
                    "name_or_path",
                    "model_max_length",
                    "is_decoder",
                    "transformers.js_config",
                    "unsloth_version",
                    "unsloth_fixed",
                    "attn_implementation",
                    "experts_implementation"});
  // Of training, of other tasks, and of what a call returns or how it computes it.
  fields.pass_over({"attention_dropout",
                    "hidden_dropout",
                    "initializer_range",
                    "gradient_checkpointing",
                    "neftune_noise_alpha",
                    "finetuning_task",
                    "id2label",
                    "label2id",
                    "num_labels",
                    "problem_type",
                    "task_specific_params",
                    "classifier_dropout",
                    "use_cache",
                    "output_attentions",
                    "output_hidden_states",
                    "return_dict",
                    "use_return_dict",
                    "torchscript",
                    "use_bfloat16",
                    "tf_legacy_loss",
                    "chunk_size_feed_forward"});
  // Of generation, in files from before generation_config.json; the options of this program decide.
  fields.pass_over({"max_length",
                    "min_length",
                    "do_sample",
                    "early_stopping",
                    "num_beams",
                    "num_beam_groups",
                    "diversity_penalty",
                    "temperature",
                    "top_k",
                    "top_p",
                    "typical_p",
                    "repetition_penalty",
                    "length_penalty",
                    "no_repeat_ngram_size",
                    "encoder_no_repeat_ngram_size",
                    "bad_words_ids",
                    "num_return_sequences",
                    "output_scores",
                    "return_dict_in_generate",
                    "forced_bos_token_id",
                    "forced_eos_token_id",
                    "remove_invalid_values",
                    "exponential_decay_length_penalty",
                    "suppress_tokens",
                    "begin_suppress_tokens"});
}

} // namespace

Settings parse_settings(std::string_view text, const std::string& subject, const Accepted& accepted) {
  const auto json = parse_object(text, subject);
  Fields fields(json, subject, accepted.fields);
  Settings out;
  out.family = fields.word("model_type");
  read_family(fields, out);
  out.layers = fields.count("num_hidden_layers", most_parts);
  out.width = fields.count("hidden_size");
  out.heads = fields.count("num_attention_heads", most_parts);
  out.kv_heads = fields.count_or("num_key_value_heads", out.heads);
  if (out.heads % out.kv_heads != 0)
    fields.fail("num_key_value_heads", "a divisor of num_attention_heads, " + std::to_string(out.heads));
  if (out.latent && out.kv_heads != out.heads)
    fields.fail("num_key_value_heads", "num_attention_heads, as keys are made for each head");
  if (out.latent)
    fields.only("head_dim", out.latent->rotary_width);
  else if (fields.find("head_dim") == nullptr && out.width % out.heads != 0)
    fields.fail("head_dim", "there, as hidden_size is no multiple of num_attention_heads");
  out.head_width = out.latent ? out.latent->plain_width + out.latent->rotary_width
                              : fields.count_or("head_dim", out.width / out.heads);
  if (!out.latent && out.head_width % 2 != 0)
    fields.fail("head_dim", "even");
  out.hidden = fields.count("intermediate_size");
  out.vocabulary = fields.count("vocab_size");
  out.positions = fields.count("max_position_embeddings");
  out.norm_epsilon = fields.positive("rms_norm_eps");
  read_positions(fields, out);
  out.tied_embedding = fields.flag("tie_word_embeddings");
  read_end_tokens(fields, out.end_tokens);
  fields.only("hidden_act", "silu");
  read_quantization(fields, out, accepted.fp8);
  read_common(fields);
  fields.finish();
  return out;
}

Settings read_settings(const std::filesystem::path& directory, const Accepted& accepted) {
  const auto path = directory / "config.json";
  Settings out = parse_settings(sw::read_text(path, most_bytes), path.string(), accepted);
  if (const auto more = directory / "generation_config.json"; std::filesystem::exists(more)) {
    const auto json = parse_object(sw::read_text(more, most_bytes), more.string());
    Fields fields(json, more.string(), {});
    read_end_tokens(fields, out.end_tokens);
  }
  return out;
}

} // namespace pretrained
