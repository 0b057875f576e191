// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory of a decoder layer's passes, counted from its layouts.

#include <shardwright/core/element.hpp>
#include <shardwright/nn/decoder_layer.hpp>
#include <shardwright/train/parameter_ledger.hpp>
#include <shardwright/train/tensor_ledger.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// rms_norm_gradient of what a product in layout `Product` gives, in the product's own memory.
template <class Product, class Residual, class Element, class Gain>
[[nodiscard]] MemoryLedger::Block norm_input_gradient(TensorLedger& tensors, Gain& gain,
                                                      const std::array<std::int64_t, 3>& shape) {
  gain.gradient_slot();
  MemoryLedger::Block given = tensors.tensor<Product, Element>(MemoryKind::stream, shape);
  MemoryLedger::Block out =
      tensors.redistributed<Product, Residual, Element>(MemoryKind::stream, std::move(given), shape);
  const auto local = tensors.place().template local_shape<Residual>(shape);
  const MemoryLedger::Block workspace = tensors.vector<MainElement<Element>>(
      MemoryKind::temporaries, kernels::rms_norm_workspace(static_cast<std::size_t>(local[0] * local[1]),
                                                           static_cast<std::size_t>(local[2])));
  return out;
}

/// DecoderLayer with blocks in place of tensors, taken and returned in its order.
template <class Layouts, class Element, class Target>
class DecoderLayerLedger {
  using Layer = DecoderLayer<Layouts, Element, Target>;
  using Block = MemoryLedger::Block;
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Attending = typename Layouts::AttentionInput;
  using Main = MainElement<Element>;
  using QkvOut = typename Layer::QkvOut;
  using Attended = typename Layer::Attended;
  using GateUpOut = typename Layer::GateUpOut;
  using Activated = typename Layer::Activated;
  using Rows = typename Layer::Rows;
  using HeadValues = AttentionLayout<Attending>;
  static constexpr MemoryKind stream = MemoryKind::stream;
  static constexpr MemoryKind in_attention = MemoryKind::attention;
  static constexpr MemoryKind in_mlp = MemoryKind::mlp;
  static constexpr MemoryKind temporary = MemoryKind::temporaries;

public:
  struct Stream {
    Block residual, addition;
  };
  struct Saved {
    Block attention_in, mlp_in, attention_rms, mlp_rms, attention_normed, mlp_normed, qkv, head_values,
        log_sum_exp, attended, gate_up, activated;
    Block attention_out_gradient, mlp_out_gradient, qkv_gradient, gate_up_gradient;
  };

  DecoderLayerLedger(TensorLedger& tensors, const DecoderConfig& config, std::int64_t number,
                     std::int64_t sequences)
      : t_(&tensors), config_(config),
        recompute_(config.recompute.of(number)), tokens_{sequences, config.sequence, config.width},
        rows_{sequences, config.sequence}, qkv_shape_{sequences, config.sequence, config.kv_heads,
                                                      (config.queries_per_kv_head() + 2) *
                                                          config.head_width()},
        attended_{sequences, config.sequence, config.heads * config.head_width()},
        gate_up_shape_{sequences, config.sequence, 2, config.hidden}, activated_{sequences, config.sequence,
                                                                                 config.hidden},
        attention_gain_(tensors, {config.width}), qkv_(tensors, {config.width, qkv_shape_[2], qkv_shape_[3]}),
        out_(tensors, {attended_[2], config.width}), mlp_gain_(tensors, {config.width}),
        gate_up_(tensors, {config.width, 2, config.hidden}), down_(tensors, {config.hidden, config.width}) {}

  [[nodiscard]] Stream forward(Stream in, Saved& saved, bool trains) const {
    Stream first = normed(std::move(in), in_attention, saved.attention_rms);
    saved.attention_in = first.residual;
    Stream out;
    out.residual = run_blocks(std::exchange(first.addition, {}), saved);
    out.addition =
        t_->template redistributed<MatmulLayout<Activated, typename Layouts::Down>, Residual, Element>(
            stream, product<MatmulLayout<Activated, typename Layouts::Down>>(stream, tokens_), tokens_);
    if (!trains)
      saved = {};
    else if (recompute_ == Recompute::full)
      saved = only_input(saved);
    else if (recompute_ == Recompute::selective)
      saved.head_values = saved.log_sum_exp = saved.attended = {};
    return out;
  }

  [[nodiscard]] Block input_gradient(Block gradient, Saved& saved) {
    if (recompute_ == Recompute::full) {
      Block again = t_->template tensor<Residual, Element>(in_attention, tokens_);
      saved.attention_rms = t_->template tensor<Rows, Main>(in_attention, rows_);
      static_cast<void>(run_blocks(std::move(again), saved));
    }
    saved.mlp_out_gradient = handed_back(gradient);
    {
      const Block activated =
          product<MatmulLayout<Tokens, typename Layouts::Down, MatmulForm::right_transposed>>(temporary,
                                                                                              activated_);
      saved.gate_up_gradient = product<GateUpOut>(in_mlp, gate_up_shape_);
    }
    saved.gate_up = {};
    gradient =
        norm_input_gradient<MatmulLayout<GateUpOut, typename Layouts::GateUp, MatmulForm::right_transposed>,
                            Residual, Element>(*t_, mlp_gain_, tokens_);
    saved.mlp_in = saved.mlp_rms = {};

    if (recompute_ == Recompute::selective)
      attend(saved);
    saved.attention_out_gradient = handed_back(gradient);
    Block attending_gradient = attention_gradient();
    saved.qkv = saved.log_sum_exp = saved.head_values = {};
    saved.qkv_gradient = t_->template redistributed<Attending, QkvOut, Element>(
        in_attention, std::move(attending_gradient), qkv_shape_);
    attending_gradient = {};
    gradient = norm_input_gradient<MatmulLayout<QkvOut, typename Layouts::Qkv, MatmulForm::right_transposed>,
                                   Residual, Element>(*t_, attention_gain_, tokens_);
    saved.attention_in = saved.attention_rms = {};
    return gradient;
  }

  template <class Ready>
  void weight_gradient(Saved& saved, Ready ready) {
    ready(mlp_gain_);
    ready(attention_gain_);
    const auto accumulate = [&ready](auto& parameter) {
      parameter.gradient_slot();
      ready(parameter);
    };
    accumulate(down_);
    accumulate(gate_up_);
    accumulate(out_);
    accumulate(qkv_);
    saved = {};
  }

  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    visit(attention_gain_);
    visit(qkv_);
    visit(out_);
    visit(mlp_gain_);
    visit(gate_up_);
    visit(down_);
  }

private:
  /// norm_stream: the sum in `residual`, its norm in `addition`.
  [[nodiscard]] Stream normed(Stream in, MemoryKind kind, Block& rms) const {
    Stream out;
    out.addition = t_->template tensor<Residual, Element>(kind, tokens_);
    rms = t_->template tensor<Rows, Main>(kind, rows_);
    out.residual = in.addition ? std::move(in.addition) : std::move(in.residual);
    return out;
  }
  template <class L, std::size_t rank>
  [[nodiscard]] Block product(MemoryKind kind, const std::array<std::int64_t, rank>& shape) const {
    return t_->template tensor<L, Element>(kind, shape);
  }

  [[nodiscard]] Block run_blocks(Block normed_in, Saved& saved) const {
    saved.attention_normed =
        t_->template redistributed_copy<Residual, Tokens, Element>(in_attention, normed_in, tokens_);
    normed_in = {};
    saved.qkv = t_->template redistributed<QkvOut, Attending, Element>(
        in_attention, product<QkvOut>(in_attention, qkv_shape_), qkv_shape_);
    attend(saved);
    using Product = MatmulLayout<Attended, typename Layouts::Output>;
    Block added = t_->template redistributed<Product, Residual, Element>(
        stream, product<Product>(stream, tokens_), tokens_);
    Stream second = normed({saved.attention_in, std::move(added)}, in_mlp, saved.mlp_rms);
    saved.mlp_in = second.residual;
    saved.mlp_normed =
        t_->template redistributed_copy<Residual, Tokens, Element>(in_mlp, second.addition, tokens_);
    second.addition = {};
    saved.gate_up = product<GateUpOut>(in_mlp, gate_up_shape_);
    saved.activated = product<Activated>(in_mlp, activated_);
    return std::move(second.residual);
  }

  void attend(Saved& saved) const {
    saved.head_values = product<HeadValues>(in_attention, attended_);
    saved.log_sum_exp = t_->template tensor<HeadValues, Main>(
        in_attention, std::array{attended_[0], attended_[1], config_.heads});
    take_attention(false);
    saved.attended = t_->template redistributed_copy<HeadValues, Attended, Element>(
        in_attention, saved.head_values, attended_);
  }

  /// What is given away lives as long as the expression that it is in.
  [[nodiscard]] Block attention_gradient() const {
    using Product = MatmulLayout<Tokens, typename Layouts::Output, MatmulForm::right_transposed>;
    Block given = product<Product>(temporary, attended_);
    const Block values =
        t_->template redistributed<Product, HeadValues, Element>(temporary, std::move(given), attended_);
    Block gradient = product<Attending>(in_attention, qkv_shape_);
    take_attention(true);
    return gradient;
  }

  /// What attention works with: its workspace, and where keys travel around a ring their packed blocks, which
  /// narrow elements add up beside.
  void take_attention(bool backward) const {
    const typename Target::execution_space execution;
    const kernels::AttentionShape heads = local_heads();
    const std::size_t block = heads.tokens() * heads.kv_heads * 2 * heads.head_dim;
    std::array<Block, 6> ring;
    if (ring_ranks() > 1 && block > 0) {
      if (!std::is_same_v<Element, Main>)
        ring[5] = t_->template vector<Main>(
            temporary, heads.tokens() * (backward ? heads.qkv_width() : heads.output_width()));
      for (std::size_t i = 0; i < 2; ++i)
        ring[i] = t_->template vector<Element>(temporary, block);
      for (std::size_t i = 2; i < 5 && backward; ++i)
        ring[i] = t_->template vector<Main>(temporary, block);
    }
    const Block workspace = t_->template vector<Main>(
        temporary, backward ? kernels::attention_backward_workspace<Element>(execution, heads)
                            : kernels::attention_forward_workspace<Element>(execution, heads));
  }
  /// Ranks that share a sequence in attention.
  [[nodiscard]] int ring_ranks() const {
    const MeshPlace::Bound bound = t_->place().bind(Attending::axes);
    int ranks = 1;
    for (const int axis : Attending::value.shard(1))
      ranks *= bound.extents[static_cast<std::size_t>(axis)];
    return ranks;
  }

  /// The gradient that reaches a block's last product.
  [[nodiscard]] Block handed_back(const Block& gradient) const {
    const Block masked =
        config_.dropout > 0 ? t_->template tensor<Residual, Element>(stream, tokens_) : gradient;
    return t_->template redistributed_copy<Residual, Tokens, Element>(stream, masked, tokens_);
  }

  [[nodiscard]] kernels::AttentionShape local_heads() const {
    const auto local = t_->place().template local_shape<Attending>(qkv_shape_);
    const auto size = [](std::int64_t extent) { return static_cast<std::size_t>(extent); };
    return {size(local[0]), size(local[1]), size(local[2]), size(config_.queries_per_kv_head()),
            size(config_.head_width())};
  }

  [[nodiscard]] static Saved only_input(const Saved& saved) {
    Saved out;
    out.attention_in = saved.attention_in;
    return out;
  }

  TensorLedger* t_;
  DecoderConfig config_;
  Recompute recompute_;
  std::array<std::int64_t, 3> tokens_;
  std::array<std::int64_t, 2> rows_;
  std::array<std::int64_t, 4> qkv_shape_;
  std::array<std::int64_t, 3> attended_;
  std::array<std::int64_t, 4> gate_up_shape_;
  std::array<std::int64_t, 3> activated_;
  ParameterLedger<typename Layer::NormGain, 1> attention_gain_;
  ParameterLedger<typename Layer::Qkv, 3> qkv_;
  ParameterLedger<typename Layer::Output, 2> out_;
  ParameterLedger<typename Layer::NormGain, 1> mlp_gain_;
  ParameterLedger<typename Layer::GateUp, 3> gate_up_;
  ParameterLedger<typename Layer::Down, 2> down_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
