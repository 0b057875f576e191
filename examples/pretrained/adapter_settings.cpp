// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The settings of low-rank adapters, from PEFT's adapter_config.json.

#include "adapter_settings.hpp"
#include "json_text.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace pretrained {

namespace sw = shardwright;
using Json = nlohmann::json;

namespace {

bool is_set(const Json& value) {
  return !(value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty()));
}

/// The number in a field, if it is one that `fits`.
double number_of(const Json& object, const char* name, const std::string& wanted, bool (*fits)(double),
                 const std::string& subject) {
  const Json& value = field_of(object, name);
  if (!value.is_number() || !fits(value.get<double>()))
    throw sw::DataError(subject + ": field '" + name + "' must be " + wanted + ", but it is " +
                        (value.is_null() ? "missing" : shown(value)) + " (fetch the file again)");
  return value.get<double>();
}

} // namespace

double AdapterSettings::factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

AdapterSettings parse_adapter_settings(std::string_view text, const std::string& subject) {
  const Json all = parse_object(text, subject);
  const auto refuse = [&](const std::string& name, const std::string& wanted) {
    throw sw::DataError(subject + ": field " + sw::detail::quoted_text(name) + " must be " + wanted +
                        ", but it is " + shown(field_of(all, name.c_str())) +
                        " (this program knows LoRA of linear layers without more)");
  };
  static constexpr std::array ignored{
      "auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode", "layers_pattern",
      "layers_to_transform", "megatron_core", "peft_version", "qalora_group_size", "revision",
      "runtime_config", "target_modules", "task_type",
      // interpreted below
      "bias", "init_lora_weights", "lora_alpha", "lora_dropout", "peft_type", "r", "use_rslora"};
  for (const auto& [name, value] : all.items())
    if (is_set(value) && std::find(ignored.begin(), ignored.end(), name) == ignored.end())
      refuse(name, "left out");
  if (field_of(all, "peft_type") != "LORA")
    refuse("peft_type", "\"LORA\"");
  if (is_set(field_of(all, "bias")) && field_of(all, "bias") != "none")
    refuse("bias", "\"none\"");
  if (const Json& initial = field_of(all, "init_lora_weights"); initial.is_string() && initial != "gaussian")
    refuse("init_lora_weights", "true, false or \"gaussian\", which leave the base as it is");
  AdapterSettings out;
  out.rank = static_cast<std::int64_t>(number_of(
      all, "r", "a whole number from 1 to " + std::to_string(AdapterSettings::most_rank),
      [](double r) {
        return r >= 1 && r <= static_cast<double>(AdapterSettings::most_rank) && r == std::floor(r);
      },
      subject));
  out.alpha = number_of(
      all, "lora_alpha", "a number of at least 0", [](double alpha) { return alpha >= 0; }, subject);
  if (is_set(field_of(all, "lora_dropout")))
    out.dropout = number_of(
        all, "lora_dropout", "a number from 0 to below 1",
        [](double dropout) { return dropout >= 0 && dropout < 1; }, subject);
  out.rank_stabilized = field_of(all, "use_rslora") == true;
  return out;
}

} // namespace pretrained
