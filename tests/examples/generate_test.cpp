// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"

#include <generate/generation.hpp>
#include <generate/model.hpp>
#include <pretrained/adapter_files.hpp>
#include <pretrained/chat_template.hpp>
#include <pretrained/settings.hpp>
#include <pretrained/tensor_files.hpp>
#include <pretrained/tokenizer.hpp>
#include <pretrained/training_source.hpp>
#include <train_gpt/published.hpp>
#include <train_gpt/training.hpp>
#include <trainer/verify.hpp>

#include <shardwright/core/philox.hpp>
#include <shardwright/io/safetensors/write.hpp>
#include <shardwright/io/write_text.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace sw = shardwright;
namespace files = sw::safetensors;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using shardwright_test::Scratch;
using Numbers = std::vector<double>;

/// A tensor as a published model names and stores it.
struct Stored {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
using Directory = std::map<std::string, Stored>;

constexpr int layers = 3, width = 12, heads = 4, kv_heads = 2, head_width = 4, hidden = 10, vocabulary = 29;
constexpr int experts = 3, chosen = 2;

const std::string sizes = R"("num_hidden_layers": 3, "hidden_size": 12, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 10, "vocab_size": 29, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64)";
const std::string llama = "{\"model_type\": \"llama\", " + sizes + R"(, "attention_bias": true,
  "rope_theta": 500.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 32}, "eos_token_id": [7, 9]})";
const std::string qwen3 = "{\"model_type\": \"qwen3\", " + sizes + R"(, "attention_bias": false,
  "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "tie_word_embeddings": true})";
const std::string mixtral = "{\"model_type\": \"mixtral\", " + sizes + R"(, "num_local_experts": 3,
  "num_experts_per_tok": 2, "rope_theta": 500.0, "sliding_window": 5, "dtype": "float32"})";

// Sizes of DeepSeek-V3: ranks, widths of a head, experts and their hidden dimension.
constexpr int query_rank = 6, value_rank = 5, plain_width = 2, rotary = 4, value_width = 3, routed = 4,
              inner = 7;
const std::string deepseek = R"({"model_type": "deepseek_v3", "num_hidden_layers": 3, "hidden_size": 12,
  "num_attention_heads": 4, "intermediate_size": 10, "vocab_size": 29, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64, "q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 2, "qk_rope_head_dim": 4,
  "v_head_dim": 3, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2,
  "topk_group": 1, "moe_intermediate_size": 7, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
  "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1, "rope_theta": 500.0,
  "rope_scaling": {"type": "yarn", "factor": 8.0, "beta_fast": 4, "beta_slow": 1, "mscale": 1.0,
  "mscale_all_dim": 0.5, "original_max_position_embeddings": 32}})";
const std::array<std::pair<std::string, std::string>, 4> families{
    {{"llama", llama}, {"qwen3", qwen3}, {"mixtral", mixtral}, {"deepseek_v3", deepseek}}};

/// Random tensors with the names of the model.
Directory random_model(const std::string& family, std::uint64_t tokens = vocabulary,
                       std::uint64_t wide = width) {
  Directory out;
  std::uint64_t number = 0;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape, float mean = 0) {
    Stored tensor{std::move(shape), {}};
    ++number;
    const std::uint64_t size = tensor.shape[0] * (tensor.shape.size() == 2 ? tensor.shape[1] : 1);
    for (std::uint64_t i = 0; i < size; ++i)
      tensor.values.push_back(
          mean +
          static_cast<float>(1.2 * (sw::unit_interval(sw::random_words({3, number}, i).word[0]) - 0.5)));
    out.emplace(name, std::move(tensor));
  };
  add("model.embed_tokens.weight", {tokens, wide});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    add(at + "input_layernorm.weight", {wide}, 1);
    add(at + "post_attention_layernorm.weight", {wide}, 1);
    const auto mlp = [&](const std::string& gate, const std::string& up, const std::string& down,
                         std::uint64_t of = hidden) {
      add(gate, {of, wide});
      add(up, {of, wide});
      add(down, {wide, of});
    };
    if (family == "deepseek_v3") {
      const std::string self = at + "self_attn.";
      add(self + "q_a_proj.weight", {query_rank, wide});
      add(self + "q_a_layernorm.weight", {query_rank}, 1);
      add(self + "q_b_proj.weight", {heads * (plain_width + rotary), query_rank});
      add(self + "kv_a_proj_with_mqa.weight", {value_rank + rotary, wide});
      add(self + "kv_a_layernorm.weight", {value_rank}, 1);
      add(self + "kv_b_proj.weight", {heads * (plain_width + value_width), value_rank});
      add(self + "o_proj.weight", {wide, heads * value_width});
      if (layer > 0) {
        add(at + "mlp.gate.weight", {routed, wide});
        add(at + "mlp.gate.e_score_correction_bias", {routed});
      }
      for (int expert = -1; layer > 0 && expert < routed; ++expert) {
        const std::string of =
            at + "mlp." + (expert < 0 ? "shared_experts." : "experts." + std::to_string(expert) + ".");
        mlp(of + "gate_proj.weight", of + "up_proj.weight", of + "down_proj.weight", inner);
      }
      if (layer == 0)
        mlp(at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight", at + "mlp.down_proj.weight");
      continue;
    }
    for (const auto& [name, rows] : {std::pair{"q", heads}, {"k", kv_heads}, {"v", kv_heads}}) {
      add(at + "self_attn." + name + "_proj.weight", {std::uint64_t(rows * head_width), wide});
      if (family == "llama" || family == "qwen2")
        add(at + "self_attn." + name + "_proj.bias", {std::uint64_t(rows * head_width)});
    }
    add(at + "self_attn.o_proj.weight", {wide, heads * head_width});
    if (family == "llama")
      add(at + "self_attn.o_proj.bias", {wide});
    if (family.starts_with("qwen3"))
      for (const char* name : {"q_norm", "k_norm"})
        add(at + "self_attn." + name + ".weight", {head_width}, 1);
    if (family != "mixtral") {
      mlp(at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight", at + "mlp.down_proj.weight");
      continue;
    }
    add(at + "block_sparse_moe.gate.weight", {experts, wide});
    for (int expert = 0; expert < experts; ++expert) {
      const std::string of = at + "block_sparse_moe.experts." + std::to_string(expert) + ".w";
      mlp(of + "1.weight", of + "3.weight", of + "2.weight");
    }
  }
  add("model.norm.weight", {wide}, 1);
  if (!family.starts_with("qwen"))
    add("lm_head.weight", {tokens, wide});
  return out;
}

void write(const std::filesystem::path& to, const std::string& config, const Directory& model) {
  std::vector<files::Source> sources;
  for (const auto& [name, tensor] : model)
    sources.push_back(files::source<float>(name, tensor.shape, tensor.values));
  files::write_sharded(to, sources, 4000);
  sw::write_text(to / "config.json", config);
}

/// The model as plain loops over whole sequences in double precision, without a cache.
class Plain {
public:
  Plain(const Directory& model, const std::string& family) : model_(model), family_(family) {}

  /// Scores of the tokens that may follow the last one.
  Numbers scores(const std::vector<std::int32_t>& ids) const {
    std::vector<Numbers> x;
    for (const std::int32_t id : ids) {
      const auto row = at("model.embed_tokens.weight").begin() + id * width;
      x.emplace_back(row, row + width);
    }
    for (int layer = 0; layer < layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".";
      family_ == "deepseek_v3" ? attend_by_latents(x, name) : attend(x, name);
      for (Numbers& token : x) {
        const Numbers read = normed(token, name + "post_attention_layernorm.weight");
        add(token, family_ == "mixtral" ? mixture(read, name + "block_sparse_moe.")
                   : model_.count(name + "mlp.gate.weight")
                       ? grouped_mixture(read, name + "mlp.")
                       : mlp(read, name + "mlp.gate_proj.weight", name + "mlp.up_proj.weight",
                             name + "mlp.down_proj.weight"));
      }
    }
    const bool tied = model_.count("lm_head.weight") == 0;
    return product(normed(x.back(), "model.norm.weight"),
                   tied ? "model.embed_tokens.weight" : "lm_head.weight");
  }

private:
  const std::vector<float>& at(const std::string& name) const { return model_.at(name).values; }
  static void add(Numbers& to, const Numbers& from) {
    std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
  }
  Numbers product(const Numbers& x, const std::string& name) const {
    const std::vector<float>& matrix = at(name);
    Numbers out(matrix.size() / x.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::inner_product(x.begin(), x.end(),
                                  matrix.begin() + static_cast<std::ptrdiff_t>(i * x.size()), 0.0);
    return out;
  }
  Numbers normed(Numbers x, const std::string& gain) const {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] *= at(gain)[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    return x;
  }
  Numbers mlp(const Numbers& x, const std::string& gate, const std::string& up,
              const std::string& down) const {
    Numbers gated = product(x, gate);
    const Numbers by = product(x, up);
    for (std::size_t i = 0; i < gated.size(); ++i)
      gated[i] *= by[i] / (1 + std::exp(-gated[i]));
    return product(gated, down);
  }
  Numbers mixture(const Numbers& x, const std::string& name) const {
    const Numbers score = product(x, name + "gate.weight");
    std::vector<std::size_t> order{0, 1, 2};
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    Numbers out(width);
    double total = 0;
    for (int i = 0; i < chosen; ++i)
      total += std::exp(score[order[std::size_t(i)]]);
    for (int i = 0; i < chosen; ++i) {
      const std::size_t e = order[std::size_t(i)];
      const std::string of = name + "experts." + std::to_string(e) + ".w";
      Numbers part = mlp(x, of + "1.weight", of + "3.weight", of + "2.weight");
      for (double& number : part)
        number *= std::exp(score[e]) / total;
      add(out, part);
    }
    return out;
  }
  /// Two of four experts, both of the group with the greater sum, and the shared one.
  Numbers grouped_mixture(const Numbers& x, const std::string& name) const {
    Numbers score = product(x, name + "gate.weight"), biased;
    for (std::size_t e = 0; e < score.size(); ++e) {
      score[e] = 1 / (1 + std::exp(-score[e]));
      biased.push_back(score[e] + at(name + "gate.e_score_correction_bias")[e]);
    }
    const std::size_t first = biased[0] + biased[1] >= biased[2] + biased[3] ? 0 : 2;
    const auto expert = [&](const std::string& of) {
      return mlp(x, name + of + "gate_proj.weight", name + of + "up_proj.weight",
                 name + of + "down_proj.weight");
    };
    Numbers out = expert("shared_experts.");
    for (const std::size_t e : {first, first + 1}) {
      Numbers part = expert("experts." + std::to_string(e) + ".");
      for (double& number : part)
        number *= 1.5 * score[e] / (score[first] + score[first + 1]);
      add(out, part);
    }
    return out;
  }
  /// Rotates neighbours among the last elements of a head by angles that YaRN stretches from 32 positions by
  /// 8.
  static void turn(Numbers& head, std::size_t position) {
    const auto logarithm = [](double weight) { return 0.1 * weight * std::log(8.0) + 1; };
    const auto bound = [](double turns) {
      return 4 * std::log(32 / (turns * 2 * std::acos(-1.0))) / (2 * std::log(500.0));
    };
    const double low = std::max(std::floor(bound(4)), 0.0), high = std::min(std::ceil(bound(1)), 3.0);
    for (std::size_t i = 0; i < rotary / 2; ++i) {
      const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      const double plain = std::pow(500.0, -0.5 * static_cast<double>(i));
      const double angle = static_cast<double>(position) * (share * plain / 8 + (1 - share) * plain);
      const double factor = logarithm(1.0) / logarithm(0.5);
      double& a = head[head.size() - rotary + 2 * i];
      double& b = head[head.size() - rotary + 2 * i + 1];
      const double was = a;
      a = factor * (was * std::cos(angle) - b * std::sin(angle));
      b = factor * (b * std::cos(angle) + was * std::sin(angle));
    }
  }
  /// The expanded keys and values of each head.
  void attend_by_latents(std::vector<Numbers>& x, const std::string& layer) const {
    const std::string name = layer + "self_attn.";
    const auto cut = [](const Numbers& from, std::size_t first, std::size_t count) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
      return Numbers(begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    std::vector<Numbers> queries, expanded, turning, out(x.size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Numbers read = normed(x[t], layer + "input_layernorm.weight");
      queries.push_back(
          product(normed(product(read, name + "q_a_proj.weight"), name + "q_a_layernorm.weight"),
                  name + "q_b_proj.weight"));
      const Numbers kept = product(read, name + "kv_a_proj_with_mqa.weight");
      expanded.push_back(product(normed(cut(kept, 0, value_rank), name + "kv_a_layernorm.weight"),
                                 name + "kv_b_proj.weight"));
      turning.push_back(cut(kept, value_rank, rotary));
      turn(turning.back(), t);
    }
    const double of_all = 0.1 * 0.5 * std::log(8.0) + 1;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t t = 0; t < x.size(); ++t) {
        Numbers query = cut(queries[t], h * (plain_width + rotary), plain_width + rotary), sum(value_width);
        turn(query, t);
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          Numbers key = cut(expanded[s], h * (plain_width + value_width), plain_width);
          key.insert(key.end(), turning[s].begin(), turning[s].end());
          const double weight = std::exp(std::inner_product(query.begin(), query.end(), key.begin(), 0.0) *
                                         of_all * of_all / std::sqrt(plain_width + rotary));
          total += weight;
          for (std::size_t i = 0; i < value_width; ++i)
            sum[i] += weight * expanded[s][h * (plain_width + value_width) + plain_width + i];
        }
        for (const double number : sum)
          out[t].push_back(number / total);
      }
    for (std::size_t t = 0; t < x.size(); ++t)
      add(x[t], product(out[t], name + "o_proj.weight"));
  }
  /// Frequency i of a head, as the published Llama 3.1 stretches it from 32 positions by 8.
  double frequency(int i) const {
    const double plain = std::pow(500.0, -2.0 * i / head_width);
    if (family_ != "llama")
      return plain;
    const double wavelength = 2 * std::acos(-1.0) / plain;
    if (wavelength < 32 / 4.0)
      return plain;
    if (wavelength > 32 / 1.0)
      return plain / 8;
    const double smooth = (32 / wavelength - 1) / (4 - 1);
    return (1 - smooth) * plain / 8 + smooth * plain;
  }
  Numbers head(const Numbers& x, const std::string& name, const char* which, int number,
               std::size_t position) const {
    Numbers all = product(x, name + which + "_proj.weight");
    if (family_ == "llama")
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i] += at(name + which + "_proj.bias")[i];
    Numbers out(all.begin() + number * head_width, all.begin() + (number + 1) * head_width);
    if (*which == 'v')
      return out;
    if (family_ == "qwen3")
      out = normed(out, name + which + "_norm.weight");
    Numbers turned = out;
    for (int i = 0; i < head_width / 2; ++i) {
      const double angle = static_cast<double>(position) * frequency(i);
      const std::size_t low = std::size_t(i), high = low + head_width / 2;
      turned[low] = out[low] * std::cos(angle) - out[high] * std::sin(angle);
      turned[high] = out[high] * std::cos(angle) + out[low] * std::sin(angle);
    }
    return turned;
  }
  void attend(std::vector<Numbers>& x, const std::string& layer) const {
    const std::string name = layer + "self_attn.";
    std::vector<Numbers> read, out(x.size());
    for (const Numbers& token : x)
      read.push_back(normed(token, layer + "input_layernorm.weight"));
    for (int h = 0; h < heads; ++h) {
      std::vector<Numbers> keys, values;
      for (std::size_t s = 0; s < x.size(); ++s) {
        keys.push_back(head(read[s], name, "k", h / 2, s));
        values.push_back(head(read[s], name, "v", h / 2, s));
      }
      for (std::size_t t = 0; t < x.size(); ++t) {
        const Numbers query = head(read[t], name, "q", h, t);
        Numbers sum(head_width);
        double total = 0;
        for (std::size_t s = family_ == "mixtral" && t >= 5 ? t - 4 : 0; s <= t; ++s) {
          const double weight = std::exp(
              std::inner_product(query.begin(), query.end(), keys[s].begin(), 0.0) / std::sqrt(head_width));
          total += weight;
          for (std::size_t i = 0; i < head_width; ++i)
            sum[i] += weight * values[s][i];
        }
        for (const double number : sum)
          out[t].push_back(number / total);
      }
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      add(x[t], product(out[t], name + "o_proj.weight"));
      if (family_ == "llama")
        add(x[t], Numbers(at(name + "o_proj.bias").begin(), at(name + "o_proj.bias").end()));
    }
  }

  const Directory& model_;
  std::string family_;
};

const std::vector<std::int32_t> prompt{3, 17, 28, 0, 11, 11, 5};
constexpr std::int64_t new_tokens = 25;

/// The greedy continuation of the plain model, with the scores that led to each token.
struct Continuation {
  std::vector<std::int32_t> tokens;
  std::vector<Numbers> scores;
};
Continuation plain_continuation(const Plain& plain) {
  std::vector<std::int32_t> ids = prompt;
  std::vector<Numbers> scores;
  for (std::int64_t i = 0; i < new_tokens; ++i) {
    scores.push_back(plain.scores(ids));
    ids.push_back(static_cast<std::int32_t>(std::max_element(scores.back().begin(), scores.back().end()) -
                                            scores.back().begin()));
  }
  return {{ids.begin() + std::ptrdiff_t(prompt.size()), ids.end()}, scores};
}

void nothing(const std::string&) {}

double difference(std::span<const float> scores, const Numbers& reference) {
  double out = scores.size() == reference.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < reference.size() && out < 1e9; ++i)
    out = std::max(out, std::abs(static_cast<double>(scores[i]) - reference[i]));
  return out;
}

} // namespace

TEST_CASE("a model of each family continues a prompt like plain loops, on every mesh") {
  for (const auto& [family, config] : families) {
    const Scratch directory;
    const Directory model = random_model(family);
    write(directory.root(), config, model);
    const Continuation plain = plain_continuation(Plain(model, family));
    for (const generate::Extents extents :
         {generate::Extents{1, 1, 1}, {1, 1, 2}, {4, 1, 1}, {2, 1, 2}, {1, 3, 2}}) {
      if (extents.ep > 1 && config.find("experts") == config.npos)
        continue;
      INFO(family << " on pp " << extents.pp << " ep " << extents.ep << " tp " << extents.tp);
      CHECK(on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
              const pretrained::Settings settings = pretrained::read_settings(directory.root());
              const files::Files opened(directory.root());
              const auto made = generate::load_model(world, extents, settings, opened, 32, nothing);
              std::vector<float> last = made->append(prompt, generate::Scores::last);
              std::vector<std::int32_t> got;
              for (std::int64_t i = 0; i < new_tokens; ++i) {
                findings.expect(difference(last, plain.scores[std::size_t(i)]) < 2e-4, "token ", i,
                                " differs by ", difference(last, plain.scores[std::size_t(i)]));
                got.push_back(generate::pick(last, {}, 0));
                last = made->append(std::span(&got.back(), 1), generate::Scores::last);
              }
              findings.expect(got == plain.tokens, "the greedy tokens must be those of the plain loops");
              // The scores of one pass over all tokens are those of one token at a time.
              const auto fresh = generate::load_model(world, extents, settings, opened, 32, nothing);
              const std::vector<float> all = fresh->append(prompt, generate::Scores::all);
              findings.expect(all.size() == prompt.size() * vocabulary &&
                                  difference(std::span(all).last(vocabulary), plain.scores[0]) < 2e-4,
                              "the last of all scores must be the last scores");
              // Prompts of several lengths in one pass, of which each has the tokens that it has alone.
              const std::vector<std::vector<std::int32_t>> several{
                  {prompt[1]}, {prompt.begin(), prompt.end()}, {prompt[2], prompt[0]}};
              const auto batch =
                  generate::load_model(world, extents, settings, opened, 32, nothing, nullptr, 3);
              const auto ignore = [](std::size_t, std::int32_t) {};
              const std::vector<std::vector<std::int32_t>> ends{
                  {plain.tokens[5]}}; // the second one is the first to end
              const auto together =
                  generate::continue_prompts(*batch, several, new_tokens, {}, ends, true, ignore);
              for (std::size_t i = 0; i < several.size(); ++i) {
                const auto own = generate::load_model(world, extents, settings, opened, 32, nothing);
                const auto alone = generate::continue_prompts(*own, std::span(&several[i], 1), new_tokens, {},
                                                              ends, true, ignore);
                findings.expect(together[i].tokens == alone[0].tokens, "prompt ", i,
                                " continues alone otherwise");
                const auto& scores = alone[0].prompt_scores;
                const double other =
                    difference(together[i].prompt_scores, Numbers(scores.begin(), scores.end()));
                findings.expect(other < 1e-5, "the scores of prompt ", i, " differ alone by ", other);
              }
            }) == "");
    }
  }
}

TEST_CASE(
    "no tokens, and those beyond the sequences or positions of a model, are refused, and none is appended") {
  const Scratch directory;
  write(directory.root(), llama, random_model("llama"));
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          const files::Files opened(directory.root());
          const auto model = generate::load_model(world, {}, pretrained::read_settings(directory.root()),
                                                  opened, 8, nothing, nullptr, 2);
          const auto refused_all = [&](std::span<const generate::NewTokens> added, const char* part) {
            std::string said = "nothing";
            try {
              static_cast<void>(model->append(added, generate::Scores::last));
            } catch (const sw::InvalidArgument& error) {
              said = error.what();
            }
            findings.expect(said.find(part) != said.npos, said);
            findings.expect(model->size(0) == 0 && model->size(1) == 0, "after: ", said);
          };
          const auto refused = [&](std::int64_t sequence, std::span<const std::int32_t> ids,
                                   const char* part) {
            refused_all(std::array<generate::NewTokens, 2>{{{0, prompt}, {sequence, ids}}}, part);
          };
          const char* const others = "a sequence must be one of the 2 that it was made for, from 0 on";
          refused(2, prompt, others);
          refused(-1, prompt, others);
          refused(0, prompt, "the tokens must be at most the 8");
          refused(1, std::vector<std::int32_t>(9, 3), "the tokens must be at most the 8");
          refused(1, {}, "at least one for each sequence that is given");
          refused_all({}, "there must be tokens to append");
        }) == "");
}

TEST_CASE("an exported model has the tensors that it was made of") {
  for (const auto& [family, config] : families) {
    const Scratch from, to;
    const Directory model = random_model(family);
    write(from.root(), config, model);
    const pretrained::Settings settings = pretrained::read_settings(from.root());
    const generate::Extents extents{2, settings.experts.count > 0 ? 2 : 1, 2};
    CHECK(on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
            const files::Files opened(from.root());
            const auto made = generate::load_model(world, extents, settings, opened, 4, nothing);
            const auto values = [&](const pretrained::Parameter& parameter) {
              return made->parameter(parameter);
            };
            if (world.rank() == 0)
              pretrained::write_model(to.root(), settings, values);
            else
              for (const pretrained::Parameter& parameter : pretrained::all_parameters(settings))
                static_cast<void>(values(parameter));
            findings.expect(made->size() == 0, "an export appends nothing");
          }) == "");
    const files::Files written(to.root());
    CHECK(written.names().size() == model.size());
    for (const auto& [name, tensor] : model)
      CHECK(written.file_of(name).read_as<float>(name) == tensor.values);
    CHECK(pretrained::settings_text(pretrained::read_settings(to.root())) ==
          pretrained::settings_text(settings));
  }
}

TEST_CASE("unknown settings are errors that name the field") {
  const auto refusal = [](const std::string& from, const std::string& to, std::string text = llama) {
    text.replace(text.find(from), from.size(), to);
    try {
      (void)pretrained::parse_settings(text, "config.json");
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(pretrained::parse_settings(llama, "x").end_tokens == std::vector<std::int32_t>{7, 9});
  const auto has = [](const std::string& part) { return shardwright_test::ContainsSubstring(part); };
  CHECK_THAT(refusal("\"rope_theta\"", "\"rope_teta\""),
             has("'rope_teta' must be one that this program knows"));
  CHECK_THAT(refusal("\"llama\"", "\"gpt2\""), has("'model_type' must be llama"));
  CHECK_THAT(refusal("\"llama3\"", "\"yarn\""), has("'rope_scaling.rope_type' must be default or llama3"));
  CHECK_THAT(refusal("8.0", "-8"), has("'rope_scaling.factor' must be a number above 0, but it is -8"));
  CHECK_THAT(refusal("\"factor\": 8.0", "\"factor\": 8, \"beta_fast\": 1"),
             has("'rope_scaling.beta_fast' must be"));
  CHECK_THAT(refusal("\"hidden_size\": 12", "\"hidden_size\": 1e3"),
             has("'hidden_size' must be a whole number"));
  CHECK_THAT(refusal("\"hidden_size\": 12,", ""),
             has("'hidden_size' must be a whole number from 1 to 2147483647, but it is missing"));
  CHECK_THAT(refusal("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
             has("'num_key_value_heads' must be a divisor"));
  CHECK_THAT(refusal("\"head_dim\": 4", "\"head_dim\": 5"), has("'head_dim' must be even"));
  CHECK_THAT(refusal("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 65537"),
             has("'num_hidden_layers' must be a whole number from 1 to 65536"));
  CHECK_THAT(refusal("500.0", "500, \"hidden_act\": \"gelu\""),
             has("'hidden_act' must be \"silu\", but it is \"gelu\""));
  CHECK_THAT(refusal("500.0", "500, \"quantization_config\": {}"),
             has("'quantization_config' must be null or absent"));
  CHECK_THAT(refusal("[7, 9]", "\"end\""), has("'eos_token_id' must be a token's number"));
  CHECK_THAT(refusal("9]}", "9]"),
             has("it must be JSON in UTF-8, but is not from byte " + std::to_string(llama.size()) + " of " +
                 std::to_string(llama.size() - 1) + " on"));
  CHECK_THAT(refusal("8.0", "1e999"), has("its numbers must fit 64 bits"));
  CHECK_THAT(refusal("[7, 9]", std::string(99999, '[') + std::string(99999, ']')),
             has("nested at most 32 deep"));
  CHECK_THAT(refusal(llama, "[1]"), has("it must be a JSON object, but is array"));
  CHECK_THAT(refusal("500.0", "500, \"rope_interleaved\": true"), has("'rope_interleaved' must be false"));
  CHECK_THAT(refusal("500.0", "500, \"is_encoder_decoder\": true"),
             has("'is_encoder_decoder' must be false"));
  CHECK_THAT(refusal("500.0", "500, \"pruned_heads\": {\"1\": [0]}"), has("'pruned_heads' must be empty"));
  const auto of_deepseek = [&](const std::string& from, const std::string& to) {
    return refusal(from, to, deepseek);
  };
  CHECK_THAT(of_deepseek("\"sigmoid\"", "\"softmax\""), has("'scoring_func' must be \"sigmoid\""));
  CHECK_THAT(of_deepseek("noaux_tc", "greedy"), has("'topk_method' must be \"noaux_tc\""));
  CHECK_THAT(of_deepseek("\"n_group\": 2", "\"n_group\": 3"), has("'n_group' must be at most 64, and"));
  CHECK_THAT(of_deepseek("\"topk_group\": 1", "\"topk_group\": 3"),
             has("'topk_group' must be at most n_group"));
  CHECK_THAT(of_deepseek("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 3"),
             has("'num_experts_per_tok' must be at most the experts of topk_group groups"));
  CHECK_THAT(of_deepseek("\"yarn\"", "\"linear\""), has("'rope_scaling.type' must be default or yarn"));
  CHECK_THAT(of_deepseek("\"beta_fast\": 4", "\"beta_fast\": 1"),
             has("'rope_scaling.beta_fast' must be above"));
  CHECK_THAT(of_deepseek("\"kv_lora_rank\": 5, ", ""), has("'kv_lora_rank' must be a whole number"));
  CHECK_THAT(of_deepseek("500.0", "500, \"index_topk\": 8"),
             has("'index_topk' must be one that this program knows"));
  CHECK_THAT(of_deepseek("500.0", "500, \"quantization_config\": {}"),
             has("'quantization_config' must be null, or --widen-fp8 must be given"));
}

TEST_CASE("settings that change nothing are ignored, and unknown ones only by name") {
  const std::string plain = pretrained::settings_text(pretrained::parse_settings(llama, "x"));
  const auto with = [](const std::string& more) {
    return llama.substr(0, llama.rfind('}')) + ", " + more + "}";
  };
  const auto text_of = [](const std::string& text, const std::vector<std::string>& fields = {}) {
    return pretrained::settings_text(pretrained::parse_settings(text, "x", {.fields = fields}));
  };
  // What transformers writes for any model, what published models have beside it, and notes.
  for (const char* more :
       {R"("_model_name_or_path": "a", "_attn_implementation_autoset": true, "unk_token_id": 0)",
        R"("is_llama_config": true, "rope_interleaved": false, "pretraining_tp": 2)",
        R"("transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}})",
        R"("temperature": 0.7, "do_sample": true, "max_length": 20, "id2label": {"0": "a"})",
        R"("return_dict": true, "torchscript": false, "pruned_heads": {}, "is_decoder": true)"})
    CHECK(text_of(with(more)) == plain);
  const std::string unknown = with(R"("my_note": 3)");
  CHECK(text_of(unknown, {"my_note"}) == plain);
  CHECK_THROWS_AS(text_of(unknown, {"note"}), sw::DataError);
  std::string nested = llama;
  nested.replace(nested.find("\"factor\""), 8, "\"shape\": 1, \"factor\"");
  CHECK_THROWS_AS(text_of(nested, {"shape"}), sw::DataError);
  CHECK(text_of(nested, {"rope_scaling.shape"}) == plain);
  // No name makes this program run what it cannot.
  CHECK_THROWS_AS(text_of(with(R"("mlp_bias": true)"), {"mlp_bias"}), sw::DataError);
}

TEST_CASE("a weight that is no number, and scores that are none, are errors that name their place") {
  const Scratch directory;
  Directory model = random_model("llama");
  model["model.layers.1.mlp.up_proj.weight"].values[2 * width + 7] = std::nanf("");
  model["model.layers.2.mlp.down_proj.weight"].values[0] = -INFINITY;
  write(directory.root(), llama, model);
  const auto settings = pretrained::read_settings(directory.root());
  const auto said = [&](const generate::Extents& extents) {
    const files::Files opened(directory.root());
    try {
      return on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings&) {
        const auto made = generate::load_model(world, extents, settings, opened, 8, nothing);
        (void)generate::continue_prompt(*made, prompt, 1, {}, {}, false, [](std::int32_t) {});
      });
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
  };
  const std::string bad =
      "tensor 'model.layers.1.mlp.up_proj.weight' must be finite, but element [2, 7] is not a number";
  for (const generate::Extents extents : {generate::Extents{}, {1, 1, 2}})
    CHECK_THAT(said(extents), shardwright_test::ContainsSubstring(bad));
  for (auto& [name, tensor] : model)
    for (float& value : tensor.values)
      value = name == "lm_head.weight" ? 3e38F : 1;
  write(directory.root(), llama, model);
  CHECK_THAT(said({}), shardwright_test::ContainsSubstring(
                           "the scores must be finite, but that of token 0 after 7 tokens is infinite"));
}

TEST_CASE("a model is exported only where there is none") {
  const Scratch scratch;
  pretrained::require_new_model(scratch.root());
  pretrained::require_new_model(scratch.root() / "not there");
  (void)scratch.write("notes.txt", "");
  pretrained::require_new_model(scratch.root());
  for (const char* name :
       {"config.json", "model-00002-of-00003.safetensors", "model.safetensors.index.json"}) {
    const auto path = scratch.write(name, "");
    CHECK_THROWS_WITH(pretrained::require_new_model(scratch.root()),
                      shardwright_test::ContainsSubstring("must have no model in it yet, but has '" +
                                                          std::string(name) + "'"));
    std::filesystem::remove(path);
  }
}

TEST_CASE("tensors that are missing, surplus or wrong are named in one error") {
  const Scratch directory;
  Directory model = random_model("llama");
  model.erase("model.layers.1.mlp.up_proj.weight");
  model["model.layers.2.self_attn.q_norm.weight"] = {{2}, {1, 2}};
  model["model.norm.weight"] = {{3}, {1, 2, 3}};
  write(directory.root(), llama, model);
  const auto settings = pretrained::read_settings(directory.root());
  std::string sentence;
  try {
    (void)pretrained::check_tensors(settings, files::Files(directory.root()));
  } catch (const sw::DataError& error) {
    sentence = error.what();
  }
  for (const char* part :
       {"model.layers.1.mlp.up_proj.weight is missing", "model.norm.weight must be [12], but is [3]",
        "'model.layers.2.self_attn.q_norm.weight' belongs to no parameter"})
    CHECK_THAT(sentence, shardwright_test::ContainsSubstring(part));
}

TEST_CASE("blocks of FP8 are widened with their scales, and layers after the model's last are skipped") {
  const Scratch directory;
  std::string config = deepseek;
  config.insert(config.rfind('}'), R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
    "activation_scheme": "dynamic", "weight_block_size": [2, 3]})");
  const auto settings =
      pretrained::parse_settings(config, "x", {.fp8 = pretrained::Fp8::widened, .fields = {}});
  Directory model = random_model("deepseek_v3");
  model["model.layers.3.eh_proj.weight"] = {{2, 2}, {1, 2, 3, 4}};
  const std::string name = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"; // [9, 12]
  model.erase(name);
  std::vector<files::Source> sources;
  for (const auto& [each, tensor] : model)
    sources.push_back(files::source<float>(each, tensor.shape, tensor.values));
  // 1, -2, the greatest, the least, the least normal number
  const std::array<unsigned char, 5> patterns{0x38, 0xc0, 0x7e, 0x01, 0x08};
  const std::array<float, 5> numbers{1, -2, 448, 0.001953125F, 0.015625F};
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < 9 * 12; ++i)
    bytes.push_back(std::byte{patterns[i % 5]});
  sources.push_back({name, files::Dtype::f8_e4m3, {9, 12}, bytes});
  const auto refusal = [&] {
    files::write_sharded(directory.root(), sources, 1 << 20);
    try {
      (void)pretrained::check_tensors(settings, files::Files(directory.root()));
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK_THAT(refusal(), shardwright_test::ContainsSubstring("mqa.weight_scale_inv is missing"));
  std::vector<float> scales(20);
  std::iota(scales.begin(), scales.end(), 1.0F);
  sources.push_back(files::source<float>(name + "_scale_inv", {4, 5}, scales));
  CHECK_THAT(refusal(),
             shardwright_test::ContainsSubstring("weight_scale_inv must be F32 [5, 4], but is F32 [4, 5]"));
  sources.back().shape = {5, 4};
  CHECK(refusal() == "none");
  const files::Files opened(directory.root());
  const auto passed_over = pretrained::check_tensors(settings, opened);
  REQUIRE(passed_over.size() == 1);
  CHECK_THAT(passed_over[0], shardwright_test::ContainsSubstring("ignored: model.layers.3, 1 tensors"));
  const std::array<std::int64_t, 2> offset{4, 3}, extent{7, 5}; // [in, out], the transposed file
  const auto pieces = pretrained::pieces_of(settings, {pretrained::Part::key_value_down, 0}, offset, extent);
  std::vector<float> block(35);
  pretrained::read_pieces(opened, settings, pieces, block);
  for (std::size_t in = 0; in < 7; ++in)
    for (std::size_t out = 0; out < 5; ++out)
      CHECK(block[in * 5 + out] ==
            numbers[((out + 3) * 12 + in + 4) % 5] * scales[(out + 3) / 2 * 4 + (in + 4) / 3]);
}

TEST_CASE("tokens are drawn by temperature and top-p, and depend only on the seed") {
  const std::vector<float> scores{0, std::log(4.0f), -1e30f, std::log(3.0f),
                                  std::log(2.0f)}; // 1 : 4 : 0 : 3 : 2
  CHECK(generate::pick(scores, {}, 5) == 1);
  const auto count = [&](const generate::Sampling& sampling) {
    std::map<std::int32_t, int> out;
    for (std::uint64_t place = 0; place < 4000; ++place)
      ++out[generate::pick(scores, sampling, place)];
    return out;
  };
  auto drawn = count({.temperature = 1});
  CHECK(drawn.count(2) == 0);
  for (const auto& [token, share] : {std::pair{0, 400}, {1, 1600}, {3, 1200}, {4, 800}})
    CHECK(std::abs(drawn[token] - share) < 120); // about four deviations
  CHECK(drawn == count({.temperature = 1}));
  CHECK(drawn != count({.temperature = 1, .seed = 2}));
  drawn = count({.temperature = 1, .top_p = 0.6}); // 4 : 3, as 4 of 10 are too few
  CHECK(drawn.size() == 2);
  CHECK(std::abs(drawn[1] - 4000 * 4 / 7) < 130);
  CHECK(count({.temperature = 1, .top_p = 1e-9}).size() == 1);
  drawn = count({.temperature = 0.5}); // 1 : 16 : 0 : 9 : 4
  CHECK(std::abs(drawn[1] - 4000 * 16 / 30) < 130);
}

namespace {

/// A byte-level tokenizer with the words and the pattern of Llama 3: token b is byte b.
std::string small_tokenizer() {
  std::string vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    char letter[8];
    std::snprintf(letter, sizeof letter, "\\u%04x", printable ? byte : next++);
    vocabulary += "\"" + std::string(letter) + "\": " + std::to_string(byte) + ", ";
  }
  return R"({"truncation": null, "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 300, "content": "<s>", "special": true}, {"id": 301, "content": "<s><s>", "special": true},
                     {"id": 302, "content": "<tool>", "special": false, "lstrip": false, "normalized": true}],
    "model": {"type": "BPE", "dropout": null, "ignore_merges": true, "vocab": {)" +
         vocabulary +
         R"("he": 256, "ll": 257, "hell": 258, "12": 259, "34": 260, "\u0120w": 261, "lo": 262, "xyz": 263},
      "merges": ["h e", ["l", "l"], "he ll", "1 2", "3 4", "\u0120 w", "l o"]}})";
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("a tokenizer splits text as its file says, and decodes it again") {
  const Scratch directory;
  const auto path = directory.write("tokenizer.json", small_tokenizer());
  if (!pretrained::has_tokenizer()) {
    CHECK_THROWS_AS(pretrained::read_tokenizer(path), sw::InvalidArgument);
    return;
  }
  const auto tokenizer = pretrained::read_tokenizer(path);
  using Ids = std::vector<std::int32_t>;
  const auto encode = [&](const std::string& text) { return tokenizer->encode(text, false); };
  CHECK(tokenizer->encode("hello") == Ids{300, 258, 'o'}); // he, ll, hell before lo
  CHECK(encode("").empty());
  CHECK(encode("lo hell 1234") == Ids{262, ' ', 258, ' ', 259, '3', '4'}); // three digits are a word
  CHECK(encode(" w  w") == Ids{261, ' ', 261});
  CHECK(encode("xyz xyz") == Ids{263, ' ', 'x', 'y', 'z'}); // whole words, though no merge produces them
  CHECK(encode("e\u0301") == encode("\u00e9"));
  CHECK(encode("\u00e9") == Ids{0xc3, 0xa9});
  CHECK(encode("1<s><s>2<s>he<tool>") == Ids{'1', 301, '2', 300, 256, 302});
  CHECK(encode("he'LLo") == Ids{256, '\'', 'L', 'L', 'o'});
  CHECK(encode("a\u00a0\u3000b").size() == 7); // the last space goes with the letter
  const std::string text = "It's 12345\n\n \u4f60\u597d \U0001f600<tool>\tx";
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  CHECK(tokenizer->decode(Ids{0xc3}) == "\xc3"); // part of a character
  CHECK_THROWS_AS(encode("a\xff"), sw::InvalidArgument);

  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string other = small_tokenizer();
    other.replace(other.find(from), from.size(), to);
    try {
      (void)pretrained::read_tokenizer(directory.write("other.json", other));
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  for (const auto& [from, to, part] : std::vector<std::array<std::string, 3>>{
           {"\"BPE\"", "\"Unigram\"", "'model.type' must be BPE, but it is \"Unigram\""},
           {"\"NFC\"", "\"Lowercase\"", "'normalizer' must be null, NFC"},
           {"{\"type\": \"NFC\"}", std::string(99, '[') + std::string(99, ']'),
            "it must be nested at most 32 deep"},
           {"\"Isolated\"", "\"Shuffled\"", "'pre_tokenizer.behavior' must be Isolated, Removed"},
           {"\"Split\"", "\"UnicodeScripts\"", "'pre_tokenizer' must be null, ByteLevel, Digits"},
           {"(?i:", "(?z:", "'pre_tokenizer.pattern' must be a pattern that ICU knows"},
           {"\"lstrip\": false", "\"lstrip\": true", "'added_tokens.lstrip' must be false"},
           {"\"he ll\"", "\"he lx\"", "'model.merges' must be pairs of tokens whose union is a token"},
           {"\"dropout\": null", "\"dropout\": 0.1", "'model.dropout' must be null"},
           {"\"truncation\": null", "\"truncation\": {}", "'truncation' must be null"},
           {"\"ids\": [300]", "\"ids\": [-1]",
            "'post_processor.special_tokens' must be the number of a token"},
           {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": null",
            "'decoder.type' must be ByteLevel"}})
    CHECK_THAT(refusal(from, to), shardwright_test::ContainsSubstring(part));
  const std::string whole = small_tokenizer();
  CHECK_THAT(refusal(whole, whole.substr(0, 999)),
             shardwright_test::ContainsSubstring("but is not from byte 1000 of 999 on"));
}

TEST_CASE("a tokenizer need not know every byte, nor have a pattern that ends") {
  if (!pretrained::has_tokenizer())
    return;
  const Scratch directory;
  using Ids = std::vector<std::int32_t>;
  const auto changed = [&](const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string text = small_tokenizer();
    for (const auto& [from, to] : changes)
      text.replace(text.find(from), from.size(), to);
    return pretrained::read_tokenizer(directory.write("tokenizer.json", text));
  };
  const auto said = [](const pretrained::Tokenizer& tokenizer, const std::string& text) {
    try {
      (void)tokenizer.encode(text, false);
    } catch (const sw::Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto has = [](const std::string& part) { return shardwright_test::ContainsSubstring(part); };
  const std::pair<std::string, std::string> no_z{"\"\\u007a\": 122, ", ""};
  const auto without = changed({no_z});
  CHECK(without->encode("hell", false) == Ids{258});
  CHECK_THAT(said(*without, "he zoo"),
             has("must be of bytes that have tokens, as there is no unknown token, but 0x7A in ' zoo'"));
  // The unknown token of the file, for each byte or once for several.
  const auto marked = changed({no_z, {"\"dropout\": null", "\"unk_token\": \"hell\""}});
  CHECK(marked->encode("azzb", false) == Ids{'a', 258, 258, 'b'});
  const auto fused = changed({no_z, {"\"dropout\": null", "\"unk_token\": \"hell\", \"fuse_unk\": true"}});
  CHECK(fused->encode("azzb z", false) == Ids{'a', 258, 'b', ' ', 258});

  // Exponentially many steps, and a memory that grows with the text.
  const std::string pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)"; // the beginning of the small tokenizer's
  const auto hangs = changed({{pattern, "(a+)+$|.|"}});
  CHECK_THAT(
      said(*hangs, std::string(60, 'a') + "b"),
      has("pattern '(a+)+$|.|") &&
          has("must split a text in steps and memory that grow with its length, but from character 0 of 61"));
  CHECK(hangs->encode("b" + std::string(10, 'a'), false) ==
        Ids{'b', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a'});
  CHECK_THAT(said(*changed({{pattern, "(?:a|b)*c|"}}), std::string(1 << 20, 'a')), has("exceeds the limit"));
}

TEST_CASE("a tokenizer splits words by digits, texts and marks as transformers does") {
  if (!pretrained::has_tokenizer())
    return;
  const Scratch directory;
  using Ids = std::vector<std::int32_t>;
  // Merges everything, so that tokens are words: a, b, 1, 2, the mark and their pairs.
  const auto split = [&](const std::string& steps, const std::string& text) {
    const std::string file = R"({"pre_tokenizer": )" + steps + R"(, "decoder": {"type": "Metaspace"},
      "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "1": 3, "2": 4, "_": 5, " ": 6,
        "ab": 12, "12": 34, "_a": 51, "a_": 15, "_1": 53, " a": 61, "a ": 16, "a1": 13, "__": 55},
      "merges": ["a b", "1 2", "_ a", "a _", "_ 1", [" ", "a"], ["a", " "], "a 1", "_ _"]}})";
    return pretrained::read_tokenizer(directory.write("tokenizer.json", file))->encode(text);
  };
  CHECK(split(R"({"type": "Digits", "individual_digits": true})", "ab12ab") == Ids{12, 3, 4, 12});
  CHECK(split(R"({"type": "Digits", "individual_digits": false})", "ab12a1") == Ids{12, 34, 1, 3});
  const auto by_space = [](const std::string& behavior, const std::string& more = "") {
    return R"({"type": "Split", "pattern": {"String": " "}, "behavior": ")" + behavior + "\"" + more + "}";
  };
  CHECK(split(by_space("Isolated"), "a a") == Ids{1, 6, 1});
  CHECK(split(by_space("Removed"), "a a") == Ids{1, 1});
  CHECK(split(by_space("MergedWithPrevious"), "a a") == Ids{16, 1});
  CHECK(split(by_space("MergedWithNext"), "a a") == Ids{1, 61});
  CHECK(split(by_space("Removed", R"(, "invert": true)"), "a a") == Ids{6});
  CHECK(split(R"({"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Contiguous"})", "a12a") ==
        Ids{1, 34, 1});
  CHECK(split(R"({"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated"})", "a1") == Ids{13});
  const auto mark = [](const std::string& more) {
    return R"({"type": "Metaspace", "replacement": "_")" + more + "}";
  };
  CHECK(split(mark(R"(, "prepend_scheme": "always")"), "a a1") == Ids{51, 51, 3});
  CHECK(split(mark(R"(, "prepend_scheme": "never")"), "a 1") == Ids{1, 53});
  CHECK(split(mark(R"(, "prepend_scheme": "first", "split": false)"), "ab 12") == Ids{5, 12, 5, 34});
  CHECK(split(mark(R"(, "add_prefix_space": false)"), "b") == Ids{2});
  CHECK(split(mark(R"(, "add_prefix_space": true)"), "1") == Ids{53});
}

namespace {

/// A run of train_gpt on thread ranks: the result of the first rank, or the sentence of an error.
struct Trained {
  std::string error;
  train_gpt::RunResult result;
};
/// @param repeated a run whose steps are repeated; null for all of the words
Trained train(std::vector<std::string> words, const train_gpt::RunResult* repeated = nullptr) {
  words.insert(words.begin(), "train_gpt");
  std::vector<const char*> arguments;
  for (const std::string& word : words)
    arguments.push_back(word.c_str());
  auto parsed = train_gpt::parse(static_cast<int>(arguments.size()), arguments.data(), {{}, "/sources"});
  if (!parsed.options)
    return {parsed.message, {}};
  if (repeated != nullptr)
    trainer::repeat_steps(*parsed.options, *repeated, 1);
  const auto dataset = train_gpt::read_dataset(*parsed.options);
  Trained out;
  try {
    out.error = on_ranks(parsed.options->ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
      auto result = train_gpt::train(world, *parsed.options, *dataset, true);
      findings.expect(std::isfinite(result.validation_loss), "the loss must be a number");
      if (world.rank() == 0)
        out.result = std::move(result);
    });
  } catch (const sw::InvalidArgument& error) { // such as of a training that the build leaves out
    out.error = error.what();
  }
  return out;
}

/// The mean loss of a model over the held-out windows of a training, one sequence after the other.
double held_out_loss(const std::filesystem::path& directory, const std::filesystem::path& text,
                     std::size_t sequence, std::size_t batch) {
  const std::string length = std::to_string(sequence);
  const std::array<const char*, 7> words{"train_gpt",  "--init",     directory.c_str(), "--data",
                                         text.c_str(), "--sequence", length.c_str()};
  const auto parsed = train_gpt::parse(static_cast<int>(words.size()), words.data(), {{}, "/sources"});
  const auto dataset = train_gpt::read_dataset(parsed.options.value());
  const std::size_t batches = dataset->validation_batches(batch, 2);
  double sum = 0;
  std::size_t counted = 0;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          const pretrained::Settings settings = pretrained::read_settings(directory);
          const files::Files opened(directory);
          findings.expect(settings.layers == layers, "the model must be the one that was written");
          std::vector<std::int32_t> ids(batch * sequence), targets(ids.size());
          for (std::size_t i = 0; i < batches; ++i) {
            dataset->validation(i, batches, batch, {0, batch}, ids, targets);
            for (std::size_t row = 0; row < batch; ++row) {
              const auto model = generate::load_model(world, {}, settings, opened,
                                                      static_cast<std::int64_t>(sequence), nothing);
              const auto all =
                  model->append(std::span(ids).subspan(row * sequence, sequence), generate::Scores::all);
              const std::size_t width_of = all.size() / sequence;
              for (std::size_t t = 0; t < sequence; ++t) {
                if (targets[row * sequence + t] < 0)
                  continue;
                ++counted;
                double total = 0;
                for (std::size_t v = 0; v < width_of; ++v)
                  total += std::exp(static_cast<double>(all[t * width_of + v]));
                sum += std::log(total) -
                       static_cast<double>(all[t * width_of + std::size_t(targets[row * sequence + t])]);
              }
            }
          }
        }) == "");
  return sum / static_cast<double>(counted);
}

} // namespace

TEST_CASE("a training run starts from a published model and exports one") {
  constexpr std::uint64_t tokens = 304; // those of the small tokenizer, and one
  const std::string bias_name = "model.layers.2.mlp.gate.e_score_correction_bias";
  struct Case {
    std::string family, config;
    std::vector<std::string> whole, one, other; // meshes
    std::uint64_t wide = heads * head_width;
  };
  const std::string more = R"(, "rope_theta": 500.0, "eos_token_id": 301, "hidden_act": "silu")";
  const std::vector<Case> cases{
      {"mistral",
       "{\"model_type\": \"llama\", " + sizes + more +
           R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 4}})",
       {"--mesh", "pp=2,dp=2,tp=2"},
       {"--mesh", "tp=2", "--sequence-parallel"},
       {"--mesh", "pp=3"}},
      {"qwen2",
       "{\"model_type\": \"qwen2\", " + sizes + more + R"(, "tie_word_embeddings": true})",
       {"--mesh", "pp=2,dp=2,tp=2"},
       {"--mesh", "tp=2", "--sequence-parallel"},
       {"--mesh", "pp=3"}},
      {"qwen3", // with heads that together are wider than the stream
       "{\"model_type\": \"qwen3\", " + sizes + more +
           R"(, "attention_bias": false, "tie_word_embeddings": true})",
       {"--mesh", "pp=2,dp=2,tp=2"},
       {"--mesh", "tp=2", "--sequence-parallel"},
       {"--mesh", "pp=3"},
       width},
      {"mixtral",
       "{\"model_type\": \"mixtral\", " + sizes + more +
           R"(, "num_local_experts": 3, "num_experts_per_tok": 2})",
       {"--mesh", "pp=2,ep=3"},
       {"--mesh", "dp=2,tp=2"},
       {"--mesh", "pp=3"}},
      {"deepseek_v3",
       deepseek,
       {"--mesh", "pp=2,ep=2"},
       {"--mesh", "tp=2"},
       {"--mesh", "cp=2,ep=2", "--recompute", "selective"},
       width}};
  for (const Case& each : cases) {
    const Scratch from, to, one, other, data;
    const Directory model = random_model(each.family, tokens, each.wide);
    std::string config = each.config;
    config.replace(config.find(": 29"), 4, ": 304");
    config.replace(config.find(": 12"), 4, ": " + std::to_string(each.wide));
    Directory stored = model;
    const bool latent = each.family == "deepseek_v3";
    if (latent) // a layer that predicts the token after the next one
      stored["model.layers.3.eh_proj.weight"] = {{2, 2}, {1, 2, 3, 4}};
    write(from.root(), config, stored);
    (void)from.write("tokenizer.json", small_tokenizer());
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "hello world " + std::to_string(i * i) + (i % 7 == 0 ? "\n" : " ");
    const auto file = data.write("text.txt", text);
    std::vector<std::string> words{
        "--init", from.root().string(),   "--data", file.string(), "--sequence", "8",        "--batch",
        "6",      "--validation-batches", "2",      "--lr",        "0.01",       "--warmup", "0"};
    if (!pretrained::has_tokenizer()) {
      CHECK_THROWS_AS(train(words), sw::InvalidArgument);
      return;
    }
    const auto run = [&](std::vector<std::string> with, const std::string& steps, const Scratch& exported) {
      with.insert(with.end(), words.begin(), words.end());
      with.insert(with.end(), {"--steps", steps, "--export", exported.root().string()});
      return train(with);
    };
    CAPTURE(each.family);
    const Trained none = run(each.whole, "0", to);
    if ((latent || each.family == "mixtral") && none.error.find("was left out") != std::string::npos)
      continue; // a build without trainings of experts
    REQUIRE(none.error == "");
    const files::Files written(to.root());
    CHECK(written.names().size() == model.size());
    for (const auto& [name, tensor] : model)
      CHECK(written.file_of(name).read_as<float>(name) == tensor.values);
    CHECK(shardwright_test::bytes_of(to.root() / "tokenizer.json") == small_tokenizer());
    if (latent)
      CHECK_THAT(text_of(to.root() / "config.json"),
                 shardwright_test::ContainsSubstring("\"num_nextn_predict_layers\": 0"));
    const double expected = held_out_loss(from.root(), file, 8, 6);
    CHECK(std::abs(none.result.validation_loss - expected) < 1e-5 * expected);

    const Trained first = run(each.one, "3", one), second = run(each.other, "3", other);
    REQUIRE(first.error == "");
    REQUIRE(second.error == "");
    for (std::size_t step = 0; step < 3; ++step)
      CHECK(std::abs(first.result.steps.at(step).loss - second.result.steps.at(step).loss) <
            1e-4 * first.result.steps.at(step).loss);
    if (latent) // the bias of the choice stays
      CHECK(files::Files(one.root()).file_of(bias_name).read_as<float>(bias_name) ==
            model.at(bias_name).values);
    const double trained = held_out_loss(one.root(), file, 8, 6);
    CHECK(trained < expected - 0.1);
    CHECK(std::abs(first.result.validation_loss - trained) < 1e-5 * trained);
    CHECK(std::abs(second.result.validation_loss - trained) < 1e-4 * trained);
    CHECK(std::abs(held_out_loss(other.root(), file, 8, 6) - trained) < 1e-4 * trained);
  }
}

TEST_CASE("a training run learns the answers of conversations, the same on every mesh") {
  const Scratch from, to, data;
  std::string config =
      "{\"model_type\": \"llama\", " + sizes + R"(, "eos_token_id": 301, "hidden_act": "silu"})";
  config.replace(config.find(": 29"), 4, ": 304");
  config.replace(config.find(": 12"), 4, ": " + std::to_string(heads * head_width));
  config.replace(config.find(": 64"), 4, ": 128");
  write(from.root(), config, random_model("mistral", 304, heads * head_width));
  (void)from.write("tokenizer.json", small_tokenizer());
  (void)from.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "<s><s>"})");
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"prompt": ")" + std::to_string(i) + R"(", "completion": "hello )" + std::to_string(i % 3) +
             "\"}\n";
  const auto file = data.write("chats.jsonl", lines);
  const std::vector<std::string> words{"--init",
                                       from.root().string(),
                                       "--data",
                                       file.string(),
                                       "--batch",
                                       "4",
                                       "--sequence",
                                       "24",
                                       "--validation-batches",
                                       "2",
                                       "--lr",
                                       "0.02",
                                       "--warmup",
                                       "0",
                                       "--steps",
                                       "12"};
  if (!pretrained::has_tokenizer())
    return;
  const auto run = [&](std::vector<std::string> with) {
    with.insert(with.end(), words.begin(), words.end());
    return train(with);
  };
  CHECK_THROWS_AS(run({}), sw::DataError); // no template
  (void)from.write("chat_template.jinja", "{{ '[INST]' + m + '[/INST]' }}");
  const Trained first = run({"--export", to.root().string()});
  REQUIRE(first.error == "");
  for (const std::vector<std::string>& mesh : std::vector<std::vector<std::string>>{
           {"--mesh", "dp=2"}, {"--mesh", "pp=2,tp=2"}, {"--mesh", "tp=2", "--sequence-parallel"}}) {
    const Trained other = run(mesh);
    REQUIRE(other.error == "");
    for (std::size_t step = 0; step < 12; ++step)
      CHECK(std::abs(first.result.steps.at(step).loss - other.result.steps.at(step).loss) <
            1e-4 * first.result.steps.at(step).loss);
  }
  CHECK(first.result.validation_loss < 0.5 * first.result.steps.front().loss);
  train_gpt::RunResult begun = first.result;
  begun.steps.resize(5);
  const Trained repeated = train(words, &begun);
  REQUIRE(repeated.result.steps.size() == 5);
  CHECK(repeated.result.steps.back().loss == begun.steps.back().loss); // at the rates of twelve steps
  const double expected = held_out_loss(to.root(), file, 24, 4);
  CHECK(std::abs(first.result.validation_loss - expected) < 1e-5 * expected);

  const Scratch packed_to; // of several conversations in each row, none of which sees another
  const Trained packed = run({"--pack", "--export", packed_to.root().string(), "--sample-every", "50"});
  REQUIRE(packed.error == "");
  CHECK(packed.result.steps.front().loss != first.result.steps.front().loss); // of more tokens
  const double alone = held_out_loss(packed_to.root(), file, 24, 4);
  CHECK(std::abs(packed.result.validation_loss - alone) < 1e-5 * alone);
  REQUIRE(packed.result.answers.size() == 2);
  for (const char* const context : {"all-to-all", "ring"}) { // whose tokens are arranged
    const Trained spread =
        run({"--pack", "--mesh", "dp=2,cp=2", "--context", context, "--sample-every", "50"});
    if (spread.error.find("was left out") != std::string::npos)
      continue; // a build without trainings over a ring
    REQUIRE(spread.error == "");
    CHECK(std::abs(packed.result.steps.back().loss - spread.result.steps.back().loss) <
          1e-4 * packed.result.steps.back().loss);
    CHECK(spread.result.answers == packed.result.answers);
  }

  // Questions take fewer tokens than these rows, so answers are made in shorter ones.
  const auto in_long_rows = [&](std::vector<std::string> with) {
    for (std::string word : words)
      with.push_back(word == "24" ? "128" : word == "12" ? "2" : std::move(word));
    for (const char* const word : {"--pack", "--sample-every", "2"})
      with.emplace_back(word);
    return train(with);
  };
  const Trained whole = in_long_rows({});
  REQUIRE(whole.error == "");
  REQUIRE(whole.result.answers.size() == 1); // one row is held out
  for (const std::vector<std::string>& mesh : std::vector<std::vector<std::string>>{
           {"--mesh", "pp=2"}, {"--mesh", "pp=2,cp=2", "--context", "all-to-all"}}) {
    const Trained spread = in_long_rows(mesh);
    REQUIRE(spread.error == "");
    CHECK(spread.result.answers == whole.result.answers);
  }
}

namespace {

/// Questions of two letters; the answer is the letters after them in a row of ten, in the other order.
struct Swap {
  static constexpr std::string_view row = "abcdfgijkm";
  static constexpr std::size_t count = row.size() * row.size();
  [[nodiscard]] static std::string question(std::size_t i) {
    return {row[i / row.size()], row[i % row.size()]};
  }
  [[nodiscard]] static std::string answer(std::size_t i) {
    return {row[(i + 1) % row.size()], row[(i / row.size() + 1) % row.size()]};
  }
};

/// A model of bytes, trained on text of those letters, with a tokenizer and a template.
void train_small_base(const std::filesystem::path& to, const Scratch& data) {
  std::string text;
  for (std::uint64_t i = 0; i < 4000; ++i) { // a letter, its neighbour in the row, and an end
    const std::uint64_t letter = sw::random_words({5, 1}, i).word[0] % Swap::row.size();
    text += {Swap::row[letter], Swap::row[(letter + 1) % Swap::row.size()], '.'};
  }
  const auto file = data.write("letters.txt", text);
  std::vector<std::string> words{"--data", file.string(), "--export", to.string()};
  for (const char* const word :
       {"--layers", "2",        "--d-model", "32",           "--heads", "4",          "--kv-heads",
        "2",        "--hidden", "48",        "--vocabulary", "304",     "--sequence", "32",
        "--batch",  "8",        "--lr",      "0.01",         "--steps", "100",        "--validation-batches",
        "1"})
    words.emplace_back(word);
  REQUIRE(train(words).error == "");
  sw::write_text(to / "tokenizer.json", small_tokenizer());
  sw::write_text(to / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "."})");
  sw::write_text(to / "chat_template.jinja", "{{ '[INST]' + m + '[/INST]' }}");
}

/// The share of all questions that a model with adapters answers exactly.
double answered(const std::filesystem::path& directory, const std::filesystem::path& adapter = {},
                int tensor = 1) {
  const auto chat = pretrained::ChatTemplate::read(directory);
  const auto tokenizer = pretrained::read_tokenizer(directory / "tokenizer.json");
  const pretrained::Settings settings = pretrained::read_settings(directory);
  const std::array ends{tokenizer->encode(chat.answer_end(), false)};
  std::size_t right = 0;
  CHECK(on_ranks(tensor, [&](const sw::HostCommunicator& world, Findings& findings) {
          const files::Files opened(directory);
          std::optional<pretrained::AdapterFiles> adapters;
          if (!adapter.empty())
            adapters.emplace(adapter, settings);
          for (std::size_t i = 0; i < Swap::count; ++i) {
            const std::string prompt = chat.prompt({{"user", Swap::question(i)}});
            const std::string wanted =
                chat.parts({{"user", Swap::question(i)}, {"assistant", Swap::answer(i)}}).back().text;
            const auto model = generate::load_model(world, {.tp = tensor}, settings, opened, 40, nothing,
                                                    adapters ? &*adapters : nullptr);
            const auto made = generate::continue_prompt(*model, tokenizer->encode(prompt, false), 6, {}, ends,
                                                        false, [](std::int32_t) {});
            findings.expect(!made.tokens.empty(), "no answer");
            if (world.rank() == 0 && made.tokens == tokenizer->encode(wanted, false))
              ++right;
          }
        }) == "");
  return static_cast<double>(right) / Swap::count;
}

} // namespace

TEST_CASE("adapters of experts have the names of files, however experts and columns are cut") {
  const pretrained::Settings settings = pretrained::parse_settings(mixtral, "config.json", {});
  constexpr std::uint64_t rank = 2;
  using Three = std::array<std::uint64_t, 3>;
  pretrained::TensorWriter whole, cut;
  for (const auto& [module, own] : {std::pair{"gate", "w1"}, {"up", "w3"}, {"down", "w2"}})
    for (const char which : {'a', 'b'}) {
      const std::string weight = std::string("layers.1.mlp.experts.") + module;
      Three shape{};
      const auto of_weight = pretrained::training_shape(settings, weight);
      REQUIRE(of_weight.size() == 3);
      std::copy(of_weight.begin(), of_weight.end(), shape.begin());
      shape[which == 'a' ? 2 : 1] = rank;
      const auto value = [&](const Three& at) {
        return static_cast<float>((at[0] * shape[1] + at[1]) * shape[2] + at[2]);
      };
      const auto write = [&](pretrained::TensorWriter& to, const Three& offset, const Three& extent) {
        std::vector<float> block;
        for (std::uint64_t i = 0; i < extent[0]; ++i)
          for (std::uint64_t j = 0; j < extent[1]; ++j)
            for (std::uint64_t k = 0; k < extent[2]; ++k)
              block.push_back(value({offset[0] + i, offset[1] + j, offset[2] + k}));
        to.add(pretrained::adapter_pieces(settings, weight + ".lora." + which, rank, offset, extent), block);
      };
      write(whole, {}, shape);
      const Three middle{1, shape[1] / 2, shape[2] / 2};
      for (int corner = 0; corner < 8; ++corner) {
        Three offset{}, extent{};
        for (std::size_t d = 0; d < 3; ++d) {
          const bool upper = (corner >> d & 1) != 0;
          offset[d] = upper ? middle[d] : 0;
          extent[d] = upper ? shape[d] - middle[d] : middle[d];
        }
        write(cut, offset, extent);
      }
      for (std::uint64_t expert = 0; expert < shape[0]; ++expert) {
        const std::string name = "base_model.model.model.layers.1.block_sparse_moe.experts." +
                                 std::to_string(expert) + "." + own + ".lora_" + (which == 'a' ? "A" : "B") +
                                 ".weight";
        INFO(name);
        const auto& tensor = whole.tensors().at(name);
        REQUIRE(tensor.shape == std::vector<std::uint64_t>{shape[2], shape[1]});
        for (std::uint64_t row = 0; row < shape[2]; ++row)
          for (std::uint64_t column = 0; column < shape[1]; ++column)
            CHECK(tensor.values[row * shape[1] + column] == value({expert, column, row}));
        CHECK(cut.tensors().at(name).values == tensor.values);
      }
    }
  CHECK(cut.tensors().size() == whole.tensors().size());
}

namespace {

/// Trains a little more than a step of adapters with uniform initial values, of the tables too, and reads
/// them back. @param run as in the test below
template <class Run>
void check_adapted_tables(const std::filesystem::path& base, const Run& run, std::size_t words,
                          std::size_t width) {
  const Scratch begun, tuned, again, merged;
  const std::vector<std::string> lora{"--lora", "r=4,alpha=8,kaiming=1", "--lora-targets",
                                      "q_proj,embed_tokens,lm_head"};
  const std::string model = "base_model.model.model.", head = "base_model.model.lm_head.lora_",
                    embedding = model + "embed_tokens.lora_embedding_";
  const auto values = [](const Scratch& scratch, const std::string& name) {
    const files::Files opened(scratch.root() / "adapter_model.safetensors");
    return opened.file_of(name).read_as<float>(name);
  };
  const auto largest = [](const std::vector<float>& all) {
    float out = 0;
    for (const float each : all)
      out = std::max(out, std::abs(each));
    return static_cast<double>(out);
  };
  REQUIRE(run("0", lora, {"--export", begun.root().string()}).error == "");
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  for (const std::string& name : {head + "A.weight", model + "layers.0.self_attn.q_proj.lora_A.weight"}) {
    const auto uniform = values(begun, name);
    CHECK(uniform.size() == 4 * width);
    CHECK(largest(uniform) <= bound);
    CHECK(largest(uniform) > 0.9 * bound); // normal ones of this variance would reach further
  }
  CHECK(largest(values(begun, embedding + "A")) == 0);
  CHECK(largest(values(begun, embedding + "B")) > 1); // normal numbers

  const Trained one = run("3", lora, {"--export", tuned.root().string()});
  REQUIRE(one.error == "");
  const Trained other = run("3", lora, {"--mesh", "tp=2"});
  REQUIRE(other.error == "");
  for (std::size_t step = 0; step < 3; ++step)
    CHECK(std::abs(other.result.steps.at(step).loss - one.result.steps.at(step).loss) < 1e-4);
  const std::vector<std::string> trained{"--adapter", tuned.root().string()};
  REQUIRE(run("0", trained, {"--mesh", "tp=2", "--export", again.root().string()}).error == "");
  for (const std::string& name : {embedding + "A", embedding + "B", head + "A.weight", head + "B.weight"}) {
    CHECK(largest(values(tuned, name)) > 0);
    CHECK(values(again, name) == values(tuned, name));
  }
  CHECK(values(tuned, embedding + "A").size() == 4 * words);

  // Merged tables are T + 2 (B A)^T and T + 2 B A, however they are merged.
  REQUIRE(run("0", trained, {"--merge", "--export", merged.root().string()}).error == "");
  const pretrained::Settings settings = pretrained::read_settings(base);
  const pretrained::AdapterFiles adapters(tuned.root(), settings);
  const files::Files before(base), after(merged.root());
  for (const bool input : {true, false}) {
    const std::string name = input ? "model.embed_tokens.weight" : "lm_head.weight";
    const auto a = values(tuned, input ? embedding + "A" : head + "A.weight"),
               b = values(tuned, input ? embedding + "B" : head + "B.weight");
    auto wanted = before.file_of(name).read_as<float>(name);
    auto read = wanted;
    adapters.add_to(
        std::array{pretrained::Piece{name, {words, width}, {{0, 0}, {words, width}}, 0, {width, 1}}}, read);
    for (std::size_t word = 0; word < words; ++word)
      for (std::size_t i = 0; i < width; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < 4; ++k)
          sum += input ? static_cast<double>(a[k * words + word]) * static_cast<double>(b[i * 4 + k])
                       : static_cast<double>(b[word * 4 + k]) * static_cast<double>(a[k * width + i]);
        float& to = wanted[word * width + i];
        to = static_cast<float>(static_cast<double>(to) + 2 * sum);
      }
    CHECK(read == wanted);
    CHECK(after.file_of(name).read_as<float>(name) == wanted);
  }
}

} // namespace

TEST_CASE("adapters of a small model learn to answer, the same on every mesh, and are read back") {
  const Scratch base, text, data, tuned, merged, again, saves, ended_saves;
  if (!pretrained::has_tokenizer())
    return;
  train_small_base(base.root(), text);
  std::string lines; // each question twice, so that those held out are trained, too
  for (std::size_t i = 0; i < 2 * Swap::count; ++i) {
    const std::size_t number = (37 * i + i / Swap::count) % Swap::count;
    lines +=
        R"({"prompt": ")" + Swap::question(number) + R"(", "completion": ")" + Swap::answer(number) + "\"}\n";
  }
  const auto file = data.write("questions.jsonl", lines);
  using Words = std::vector<std::string>;
  const auto with_both = [](Words all, const Words& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto run = [&](const std::string& steps, Words adapters, const Words& more = {},
                       const std::string& rate = "0.006") {
    adapters = with_both(adapters, more);
    adapters.insert(adapters.end(), {"--init", base.root().string(), "--data", file.string(), "--batch", "16",
                                     "--sequence", "24", "--validation-batches", "1", "--warmup", "0",
                                     "--steps", steps, "--lr", rate, "--weight-decay", "0"});
    return train(adapters);
  };
  const Words lora{"--lora", "r=8,alpha=16"};
  const Trained whole = run("200", lora, {"--export", tuned.root().string(), "--sample-every", "500"});
  if (whole.error.find("was left out") != std::string::npos)
    return; // a build without trainings of adapters
  REQUIRE(whole.error == "");
  REQUIRE(whole.result.answers.size() == 2); // of held-out questions, which others have asked
  for (const std::string& line : whole.result.answers)
    CHECK_THAT(line, !ContainsSubstring(", not '"));
  CHECK(answered(base.root()) < 0.05);
  CHECK(answered(base.root(), tuned.root()) > 0.9);
  CHECK(answered(base.root(), tuned.root(), 2) > 0.9);

  // What is read back from the files of other meshes is what was written.
  const Words trained{"--adapter", tuned.root().string()};
  REQUIRE(run("0", trained, {"--mesh", "tp=2", "--export", again.root().string()}).error == "");
  const files::Files wanted(tuned.root() / "adapter_model.safetensors"),
      found(again.root() / "adapter_model.safetensors");
  CHECK(found.names() == wanted.names());
  CHECK(wanted.names().size() == 2 * 2 * 7);
  for (const std::string& name : wanted.names())
    CHECK(found.file_of(name).read_as<float>(name) == wanted.file_of(name).read_as<float>(name));
  REQUIRE(run("0", trained, {"--merge", "--export", merged.root().string()}).error == "");
  CHECK(answered(merged.root()) > 0.9);

  const auto expect_same = [](const Trained& one, const Trained& other, std::size_t first) {
    REQUIRE(other.error == "");
    for (std::size_t step = first; step < one.result.steps.size(); ++step) {
      const double loss = one.result.steps[step].loss;
      CHECK(std::abs(other.result.steps.at(step - first).loss - loss) < 1e-4 * loss);
    }
  };
  const Words asks{"--sample-every", "5"};
  const Trained one = run("6", lora, asks);
  CHECK_THAT(one.result.answers.at(0), ContainsSubstring(", not '"));
  for (const char* const mesh : {"dp=2", "tp=2", "pp=2", "cp=2"}) {
    const Trained other = run("6", lora, with_both(asks, {"--mesh", mesh}));
    expect_same(one, other, 0);
    CHECK(other.result.answers == one.result.answers);
  }
  const Words kept{"--checkpoint", saves.root().string()};
  CHECK(run("6", lora, {kept[0], kept[1], "--mesh", "dp=2", "--stop-after", "3"}).result.stopped);
  expect_same(one, run("6", lora, {kept[0], kept[1], "--mesh", "tp=2", "--resume"}), 3);

  CHECK_THAT(run("6", {"--lora", "r=8", "--epochs", "2"}).error,
             ContainsSubstring("--epochs and --steps both say how long to train"));
  CHECK_THAT(run("6", {"--lora", "r=0"}).error,
             ContainsSubstring("--lora r must be a whole number from 1 to 65536"));
  for (const Words& other :
       std::vector<Words>{{"--precision", "fp64"}, {"--precision", "fp16"}, {"--zero", "1"}, {"--zero", "2"}})
    CHECK_THAT(run("6", lora, other).error,
               ContainsSubstring("--lora is for --precision fp32 or bf16 with --zero 0 or 3"));
  CHECK_THAT(run("6", {"--lora", "r=8,beta=1"}).error, ContainsSubstring("but has 'beta=1'"));
  {
    const pretrained::Settings settings = pretrained::read_settings(base.root());
    check_adapted_tables(base.root(), run, static_cast<std::size_t>(settings.vocabulary),
                         static_cast<std::size_t>(settings.width));
  }
  CHECK_THAT(run("6", {"--lora", "r=8", "--lora-targets", "v_proj,q_pro"}).error,
             ContainsSubstring("did you mean q_proj?"));
  CHECK_THAT(run("6", {"--lora", "r=8", "--merge"}).error, ContainsSubstring("add --lora and --export"));
  const Scratch wordless; // a model without tokenizer
  for (const char* const each : {"config.json", "model.safetensors"})
    std::filesystem::copy(base.root() / each, wordless.root() / each);
  CHECK_THROWS_WITH(train({"--init", wordless.root().string(), "--data", file.string()}),
                    ContainsSubstring("tokenizer"));
  CHECK_THAT(run("6", {"--quantize-base", "nf4"}).error, ContainsSubstring("(add --lora, or leave it out)"));
  CHECK_THAT(run("6", lora, {"--quantize-base", "int8", "--merge"}).error,
             ContainsSubstring("--merge adds adapters to the whole weights of --init"));
  CHECK_THAT(run("6", with_both(trained, lora)).error, ContainsSubstring("leave out --lora"));
  CHECK_THAT(train({"--lora", "r=8"}).error, ContainsSubstring("give --init, or leave it out"));

  const auto refused_by = [&](const std::string& config) {
    const Scratch broken;
    std::filesystem::copy(tuned.root() / "adapter_model.safetensors",
                          broken.root() / "adapter_model.safetensors");
    (void)broken.write("adapter_config.json", config);
    try {
      static_cast<void>(pretrained::AdapterFiles(broken.root(), pretrained::read_settings(base.root())));
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string least = R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16)";
  CHECK(refused_by(least + R"(, "use_dora": false, "target_modules": ["q_proj"]})") == "nothing");
  CHECK_THAT(refused_by(least + R"(, "use_dora": true})"),
             ContainsSubstring("field 'use_dora' must be left out, but it is true"));
  CHECK_THAT(refused_by(least + R"(, "bias": "all"})"), ContainsSubstring("field 'bias' must be \"none\""));
  CHECK_THAT(refused_by(least + R"(, "init_lora_weights": "pissa"})"),
             ContainsSubstring("which leave the base as it is"));
  CHECK_THAT(refused_by(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16})"),
             ContainsSubstring("layers.0.mlp.down_proj.lora_A.weight must be [4, 48], but is [8, 48]"));
  for (const char* const rank : {"1.5", "1e300", "0", "65537", "\"8\""})
    CHECK_THAT(refused_by(R"({"peft_type": "LORA", "lora_alpha": 16, "r": )" + std::string(rank) + "}"),
               ContainsSubstring("field 'r' must be a whole number from 1 to 65536, but it is "));
  CHECK_THAT(refused_by(R"({"peft_type": "LORA", "lora_alpha": 16})"),
             ContainsSubstring("but it is missing"));
  CHECK_THAT(refused_by(least + R"(, "lora_dropout": 1})"),
             ContainsSubstring("field 'lora_dropout' must be a number from 0 to below 1, but it is 1"));

  const std::string directory = base.root().string(), chats = file.string();
  const std::array<const char*, 11> words{"train_gpt",  "--init", directory.c_str(), "--data", chats.c_str(),
                                          "--sequence", "24",     "--epochs",        "3",      "--warmup",
                                          "301"};
  auto epochs = train_gpt::parse(static_cast<int>(words.size()) - 2, words.data(), {{}, "/sources"});
  REQUIRE(epochs.options);
  train_gpt::settle_epochs(*epochs.options, *train_gpt::read_dataset(*epochs.options));
  CHECK(epochs.options->steps == (180 * 3 + epochs.options->batch - 1) / epochs.options->batch);
  CHECK(epochs.options->warmup == epochs.options->steps / 10);
  // The defaults of finetune.
  using Program = train_gpt::Program;
  const auto finetune = [&](Words given) {
    given.insert(given.begin(), "finetune");
    std::vector<const char*> all;
    for (const std::string& word : given)
      all.push_back(word.c_str());
    return train_gpt::parse(static_cast<int>(all.size()), all.data(), {{}, "/sources"}, Program::finetune);
  };
  const Words needed{"--init", directory, "--data", chats, "--sequence", "24"};
  const auto plain = finetune(needed);
  REQUIRE(plain.options);
  REQUIRE(plain.options->lora);
  CHECK(plain.options->lora->rank == 16);
  CHECK(plain.options->lora->alpha == 32);
  CHECK(plain.options->lora->targets.size() == 7);
  CHECK(plain.options->epochs == 1);
  CHECK(plain.options->pack);
  CHECK(plain.options->validate_first);
  const auto fewer = finetune(with_both(
      needed, {"--steps", "7", "--no-pack", "--validate-every", "0", "--adapter", tuned.root().string()}));
  REQUIRE(fewer.options);
  CHECK(fewer.options->lora->rank == 8);
  CHECK(fewer.options->steps == 7);
  CHECK(fewer.options->epochs == 0);
  CHECK_FALSE(fewer.options->pack);
  CHECK_FALSE(fewer.options->validate_first);
  CHECK_THAT(
      finetune({"--data", chats}).message,
      ContainsSubstring("finetune: this program adapts a published model to conversations (give --init DIR"));
  // With the warmup: more steps than are trained without --epochs.
  auto warm = train_gpt::parse(static_cast<int>(words.size()), words.data(), {{}, "/sources"});
  REQUIRE(warm.options);
  warm.options->epochs = 30;
  CHECK_NOTHROW(train_gpt::settle_epochs(*warm.options, *train_gpt::read_dataset(*warm.options)));
  warm.options->epochs = 3;
  CHECK_THROWS_WITH(train_gpt::settle_epochs(*warm.options, *train_gpt::read_dataset(*warm.options)),
                    ContainsSubstring("--warmup 301 must not be longer than the run, which has 45 steps"));

  // At this rate no weight moves by a rounding, so no validation is below that before the first step.
  const Words impatient{"--validate-every",         "2", "--patience", "2", "--checkpoint",
                        ended_saves.root().string()};
  const Trained ended = run("40", lora, impatient, "1e-30");
  REQUIRE(ended.error == "");
  CHECK(ended.result.steps.size() == 4);
  const Trained further = run("40", lora, with_both(impatient, {"--resume", "--stop-after", "7"}), "1e-30");
  REQUIRE(further.error == ""); // its last step was saved
  CHECK(further.result.steps.size() == 3);
}

TEST_CASE("a training run rejects models that it cannot start from") {
  const Scratch from;
  const auto said = [&](std::string config, std::vector<std::string> more = {}) {
    sw::write_text(from.root() / "config.json", config);
    more.insert(more.begin(), {"--init", from.root().string()});
    try {
      return train(more).error;
    } catch (const sw::DataError& error) {
      return std::string(error.what());
    }
  };
  const auto has = [](const std::string& part) { return shardwright_test::ContainsSubstring(part); };
  CHECK_THAT(said(llama),
             has("'attention_bias' must be false (this program trains no bias after attention)"));
  const auto of_deepseek = [&](const std::string& from_text, const std::string& to_text) {
    std::string text = deepseek;
    return said(text.replace(text.find(from_text), from_text.size(), to_text));
  };
  CHECK_THAT(of_deepseek("\"q_lora_rank\": 6", "\"q_lora_rank\": null"),
             has("'q_lora_rank' must be a number (this program trains only compressed queries)"));
  CHECK_THAT(of_deepseek("\"n_group\"", "\"norm_topk_prob\": false, \"n_group\""),
             has("'norm_topk_prob' must be true with several experts per token and false with one, but it is "
                 "false with 2"));
  CHECK_THAT(of_deepseek("_replace\": 1", "_replace\": 3"),
             has("'first_k_dense_replace' must be below num_hidden_layers, 3, but it is 3"));
  CHECK_THAT(said(deepseek, {"--precision", "fp64"}), has("--precision fp32, or bf16 with --zero 0 or 3"));
  CHECK_THAT(said(llama, {"--longer", "drop"}), has("--longer is for conversations"));
  CHECK_THAT(train({"--chat-template", "chatml", "--data", "a.jsonl"}).error,
             has("--chat-template is for conversations (give --init and"));
  CHECK_THAT(train({"--sample-every", "3"}).error, has("--sample-every is for conversations"));
  CHECK_THAT(train({"--init", from.root().string(), "--data", "a.jsonl", "b.txt"}).error,
             has("--data must name either files of conversations, which end with .jsonl, or texts"));
  CHECK_THAT(train({"--widen-fp8"}).error, has("--widen-fp8 is for the weights of --init"));
  std::string config = "{\"model_type\": \"mistral\", " + sizes + ", \"sliding_window\": 5}";
  config.replace(config.find("\"hidden_size\": 12"), 17, "\"hidden_size\": 16");
  CHECK_THAT(said(config, {"--sequence", "6"}), has("'sliding_window' must not be less than --sequence 6"));
  config.replace(config.find("\"sliding_window\": 5"), 19, "\"sliding_window\": null");
  CHECK_THAT(said(config, {"--sequence", "65"}), has("'max_position_embeddings' must not be less"));
  CHECK_THAT(said(config, {"--layers", "2"}), has("--layers is determined by the model that --init names"));
  CHECK_THAT(said(config, {"--steps", "0"}), has("--steps 0 trains nothing"));
  CHECK_THAT(said(config, {"--sample", "3"}), has("--sample is for models of bytes"));
  CHECK_THAT(said(config, {"--export", from.root().string()}), has("--export must name another directory"));
  CHECK_THAT(train({"--model", "moe-tiny", "--export", "x"}).error,
             has("--export writes a model with experts only if --init"));
}

// Called by generate_runs.cmake, whose runs know how plain loops continue 3, 17, 28, 0, 11, 11, 5.
TEST_CASE("a small model in a directory", "[.model]") {
  const std::filesystem::path directory = std::getenv("SHARDWRIGHT_MODEL_DIRECTORY");
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const Directory model = random_model("llama");
  std::string config = llama;
  config.replace(config.find("[7, 9]"), 6, "[6, 9]"); // 6 ends the text
  write(directory, config, model);
  std::string tokens;
  for (const std::int32_t token : plain_continuation(Plain(model, "llama")).tokens)
    tokens += (tokens.empty() ? "" : ",") + std::to_string(token);
  CHECK_THAT(tokens, shardwright_test::ContainsSubstring(std::getenv("SHARDWRIGHT_MODEL_TOKENS")));

  // One with experts that reads bytes, to be adapted.
  const std::filesystem::path with_experts = directory.string() + "_experts";
  std::filesystem::remove_all(with_experts);
  std::filesystem::create_directories(with_experts);
  config = mixtral;
  config.replace(config.find("29"), 2, "256");
  config.replace(config.find("\"sliding_window\": 5"), 19, "\"sliding_window\": null");
  write(with_experts, config, random_model("mixtral", 256));
  pretrained::write_byte_tokenizer(with_experts);
}

// Called by generate_tokenizers.py: every tokenizer of a directory over every text of it.
TEST_CASE("tokens of texts, for Python", "[.tokenizers]") {
  const std::filesystem::path directory = std::getenv("SHARDWRIGHT_PYTHON_DIRECTORY");
  std::size_t texts = 0;
  for (const auto& of : std::filesystem::directory_iterator(directory)) {
    if (of.path().extension() != ".json")
      continue;
    const auto tokenizer = pretrained::read_tokenizer(of.path());
    for (const auto& from : std::filesystem::directory_iterator(directory)) {
      if (from.path().extension() != ".txt")
        continue;
      ++texts;
      const std::vector<std::int32_t> ids = tokenizer->encode(text_of(from.path()));
      const auto name = of.path().stem().string() + "-" + from.path().stem().string();
      std::ofstream out(directory / (name + ".ids"));
      for (const std::int32_t id : ids)
        out << id << " ";
      std::ofstream(directory / (name + ".decoded"), std::ios::binary) << tokenizer->decode(ids);
    }
  }
  CHECK(texts > 0);
}
