// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Collects a trained model from the ranks, and writes it as models are published.

#include "model_export.hpp"

#include <pretrained/tensor_files.hpp>
#include <pretrained/training_source.hpp>
#include <shardwright/nn/decoder/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace train_gpt {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;

namespace {

/// The settings of the trained model: those that it started with, or those of a Llama of its size.
pretrained::Settings settings_of(const Options& options) {
  if (options.published)
    return *options.published;
  pretrained::Settings out;
  const ModelSize& size = options.size;
  const sw::DecoderConfig usual;
  out.family = "llama";
  out.layers = size.layers;
  out.width = size.d_model;
  out.heads = size.heads;
  out.kv_heads = size.kv_heads;
  out.head_width = size.d_model / size.heads;
  out.hidden = size.hidden;
  out.vocabulary = size.vocabulary;
  out.positions = size.sequence;
  out.norm_epsilon = usual.norm_epsilon;
  out.rope_base = usual.rope_base;
  out.tied_embedding = options.tied;
  return out;
}

using Head = std::array<std::uint64_t, 4>; // letters of the name, element type, dimensions, bytes

std::span<const std::uint8_t> letters(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

void send_blocks(sw::HostCommunicator& world, std::span<const cp::StagedBlock> blocks) {
  for (const cp::StagedBlock& each : blocks) {
    const cp::Block& block = each.block;
    if (block.bytes.empty())
      continue;
    std::vector<std::uint64_t> place = block.offset;
    place.insert(place.end(), block.extent.begin(), block.extent.end());
    world.send(Head{block.tensor.size(), static_cast<std::uint64_t>(block.dtype), block.offset.size(),
                    block.bytes.size()},
               0);
    world.send(letters(block.tensor), 0);
    world.send(place, 0);
    world.send(std::span(reinterpret_cast<const std::uint8_t*>(block.bytes.data()), block.bytes.size()), 0);
  }
  world.send(Head{}, 0);
}

void receive_blocks(sw::HostCommunicator& world, int from,
                    const std::function<void(const cp::Block&)>& take) {
  for (Head head{};;) {
    world.receive(head, from);
    if (head[0] == 0)
      return;
    std::vector<std::uint8_t> name(head[0]), bytes(head[3]);
    std::vector<std::uint64_t> place(2 * head[2]);
    world.receive(name, from);
    world.receive(place, from);
    world.receive(bytes, from);
    const auto middle = place.begin() + static_cast<std::ptrdiff_t>(head[2]);
    take({std::string(name.begin(), name.end()),
          static_cast<sw::safetensors::Dtype>(head[1]),
          {},
          {place.begin(), middle},
          {middle, place.end()},
          std::as_bytes(std::span(bytes)),
          {}});
  }
}

} // namespace

void export_model(const sw::HostCommunicator& ranks, const Options& options, const cp::Staging& blocks) {
  using sw::safetensors::Dtype;
  sw::HostCommunicator world = ranks;
  const pretrained::Settings settings = settings_of(options);
  pretrained::TensorWriter writer, adapters;
  const auto add = [&](const cp::Block& block) {
    if (!options.lora || options.merge)
      pretrained::add_block(writer, settings, block);
    if (options.lora)
      pretrained::add_adapter_block(adapters, settings, options.lora->rank, block);
  };
  if (world.rank() != 0)
    return send_blocks(world, blocks.blocks());
  for (const cp::StagedBlock& each : blocks.blocks())
    add(each.block);
  for (int rank = 1; rank < world.size(); ++rank)
    receive_blocks(world, rank, add);
  if (options.lora && !options.merge)
    return pretrained::write_adapters(options.export_to, *options.lora, adapters, options.init.string());
  if (options.merge)
    pretrained::merge_adapters(writer, *options.lora, adapters);
  const bool narrow = is_narrow(options.precision), brain = options.precision == Precision::bf16;
  const Dtype element = brain ? Dtype::bf16 : narrow ? Dtype::f16 : Dtype::f32;
  const std::string name = brain ? "bfloat16" : narrow ? "float16" : "float32";
  writer.write(options.export_to, element);
  if (options.init.empty()) {
    pretrained::write_byte_tokenizer(options.export_to);
    return pretrained::write_settings(options.export_to, settings, name);
  }
  pretrained::copy_settings(options.init, options.export_to, name);
  pretrained::copy_tokenizer(options.init, options.export_to);
}

} // namespace train_gpt
