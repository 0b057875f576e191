// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One decoder layer over any layouts: forward, input gradient and weight gradient as separate passes.

#include <shardwright/nn/context_attention.hpp>
#include <shardwright/nn/decoder_config.hpp>
#include <shardwright/nn/decoder_layouts.hpp>
#include <shardwright/nn/dropout.hpp>
#include <shardwright/nn/initial_value.hpp>
#include <shardwright/nn/rms_norm.hpp>
#include <shardwright/nn/swiglu.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/forward_pass.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/recompute.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The residual stream between layers; the value is residual + addition.
template <LayoutType L, class Element, class Target>
struct ResidualStream {
  ShardedTensor<L, Element, Target> residual;
  std::optional<ShardedTensor<L, Element, Target>> addition;
};

/// @brief The stream as one tensor, and its norm.
template <LayoutType L, class Element, class Target, class Gain>
[[nodiscard]] AddRmsNormOutput<L, Element, Target> norm_stream(ResidualStream<L, Element, Target> stream,
                                                               const Gain& gain, double epsilon) {
  if (stream.addition)
    return add_rms_norm(stream.residual, std::move(*stream.addition), gain, epsilon);
  auto out = rms_norm(stream.residual, gain, epsilon);
  return {std::move(stream.residual), std::move(out.normed), std::move(out.inverse_rms)};
}

/// @brief Attention and SwiGLU, each behind an RMSNorm, around a residual stream.
///
/// The stream enters and leaves as two tensors, the residual and the last block's addition to it: the
/// addition is fused with the norm that reads the sum. `Layouts` is DecoderLayouts or a type with the same
/// members.
template <class Layouts, class Element = float, class Target = DefaultTarget>
class DecoderLayer {
  template <class L>
  using Tensor = ShardedTensor<L, Element, Target>;
  template <class L>
  using Handle = ShardedTensor<L, const Element, Target>;
  template <class L>
  using Statistics = ShardedTensor<L, MainElement<Element>, Target>;
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;

public:
  /// @name Layouts of activations
  /// They follow from those of the stream and the weights.
  /// @{
  using QkvOut = MatmulLayout<Tokens, typename Layouts::Qkv>;
  using Attending = typename Layouts::AttentionInput;
  using Attended = MatmulLayout<Tokens, typename Layouts::Output, MatmulForm::right_transposed>;
  using GateUpOut = MatmulLayout<Tokens, typename Layouts::GateUp>;
  using Activated = SwigluLayout<GateUpOut>;
  using Rows = RowsOf<Residual>;

  using Zero = typename Layouts::Zero;
  using NormGain = Parameter<typename Layouts::Gain, GainGradientLayout<Residual>, Element, Zero, Target>;
  template <class Weight, class In, class OutGradient>
  using Matrix =
      Parameter<Weight, MatmulLayout<In, OutGradient, MatmulForm::left_transposed>, Element, Zero, Target>;
  using Qkv = Matrix<typename Layouts::Qkv, Tokens, QkvOut>;
  using Output = Matrix<typename Layouts::Output, Attended, Tokens>;
  using GateUp = Matrix<typename Layouts::GateUp, Tokens, GateUpOut>;
  using Down = Matrix<typename Layouts::Down, Activated, Tokens>;

  using Stream = ResidualStream<Residual, Element, Target>;
  using Positions = TokenPositions<typename Layouts::Order>;

  /// @brief What the backward passes need of one microbatch. Memory returns to the pool where it is reset.
  struct Saved {
    BatchOrigin origin;
    std::optional<Positions> positions;
    // Set by forward, or by a replay of what it has not kept.
    std::optional<Handle<Residual>> attention_in, mlp_in;       // inputs of the norms
    std::optional<Statistics<Rows>> attention_rms, mlp_rms;     // inverse root mean squares
    std::optional<Handle<Tokens>> attention_normed, mlp_normed; // inputs of the column-parallel products
    std::optional<Tensor<Attending>> qkv;
    std::optional<AttentionOutput<Attending, Element, Target>> attention;
    std::optional<Handle<Attended>> attended; // its value, where the output product reads it
    std::optional<Tensor<GateUpOut>> gate_up;
    std::optional<Tensor<Activated>> activated;
    // Set by input_gradient, for weight_gradient.
    std::optional<Handle<Tokens>> attention_out_gradient, mlp_out_gradient;
    std::optional<Tensor<QkvOut>> qkv_gradient;
    std::optional<Tensor<GateUpOut>> gate_up_gradient;
  };

  /// @brief Initial weights depend on seed and `number` alone, not on the mesh.
  template <class Mesh>
  DecoderLayer(const Mesh& mesh, const DecoderConfig& config, std::uint64_t seed, int number)
      : config_(config), recompute_(config.recompute.of(number)), seed_(seed), number_(number),
        attention_gain_(
            name(number, "attention_norm"),
            ones<typename NormGain::stored_layout, MainElement<Element>, Target>(mesh, {config.width})),
        qkv_(matrix<Qkv>(
            mesh, number, 0, "qkv",
            {config.width, config.kv_heads, (config.queries_per_kv_head() + 2) * config.head_width()}, seed,
            config.initial_deviation)),
        out_(matrix<Output>(mesh, number, 1, "attention_out",
                            {config.heads * config.head_width(), config.width}, seed,
                            residual_deviation(config))),
        mlp_gain_(name(number, "mlp_norm"),
                  ones<typename NormGain::stored_layout, MainElement<Element>, Target>(mesh, {config.width})),
        gate_up_(matrix<GateUp>(mesh, number, 2, "gate_up", {config.width, 2, config.hidden}, seed,
                                config.initial_deviation)),
        down_(matrix<Down>(mesh, number, 3, "down", {config.hidden, config.width}, seed,
                           residual_deviation(config))) {}

  /// @brief The stream after the layer; `saved` receives what the backward passes need and do not recompute.
  template <ForwardPass Pass>
  [[nodiscard]] Stream forward(Pass pass, Stream stream, const RotaryTable<Element, Target>& rotary,
                               const Positions& positions, const BatchOrigin& origin, Saved& saved) const {
    saved.origin = origin;
    saved.positions = positions;
    auto first = norm_stream(std::move(stream), attention_gain_.weight(), config_.norm_epsilon);
    saved.attention_in.emplace(first.sum.share());
    Tensor<Residual> residual =
        run_blocks(pass, std::move(first.normed), std::move(first.inverse_rms), rotary, saved);
    auto added = redistribute<Residual>(matmul(*saved.activated, down_.weight()));
    if constexpr (Pass::trains)
      dropout(added, mlp_dropout(), saved.origin, saved.positions->runs());
    forget(pass, saved);
    return {std::move(residual), std::move(added)};
  }

  /// @brief The gradient of the stream that entered, from that of the stream that left: one tensor, for both
  /// of its parts. Adds to the gains' gradients, and leaves in `saved` what weight_gradient needs.
  [[nodiscard]] Tensor<Residual> input_gradient(Tensor<Residual> gradient,
                                                const RotaryTable<Element, Target>& rotary, Saved& saved) {
    if (recompute_ == Recompute::full)
      replay(rotary, saved);
    saved.mlp_out_gradient.emplace(redistribute<Tokens>(
        dropout_gradient(gradient, mlp_dropout(), saved.origin, saved.positions->runs())));
    saved.gate_up_gradient.emplace(
        swiglu_gradient(matmul_input_gradient(*saved.mlp_out_gradient, down_.weight()), *saved.gate_up));
    saved.gate_up.reset();
    gradient = rms_norm_gradient(
        redistribute<Residual>(matmul_input_gradient(*saved.gate_up_gradient, gate_up_.weight())),
        *saved.mlp_in, mlp_gain_.weight(), *saved.mlp_rms, gradient, mlp_gain_.gradient_slot());
    saved.mlp_in.reset();
    saved.mlp_rms.reset();

    if (recompute_ == Recompute::selective)
      attend(saved);
    saved.attention_out_gradient.emplace(redistribute<Tokens>(
        dropout_gradient(gradient, attention_dropout(), saved.origin, saved.positions->runs())));
    auto attending_gradient =
        attention_gradient(redistribute<AttentionLayout<Attending>>(
                               matmul_input_gradient(*saved.attention_out_gradient, out_.weight())),
                           *saved.qkv, *saved.attention, *saved.positions, heads());
    saved.qkv.reset();
    saved.attention.reset();
    saved.qkv_gradient.emplace(redistribute<QkvOut>(std::move(attending_gradient)));
    rotate_back(*saved.qkv_gradient, rotary, *saved.positions, heads());
    gradient =
        rms_norm_gradient(redistribute<Residual>(matmul_input_gradient(*saved.qkv_gradient, qkv_.weight())),
                          *saved.attention_in, attention_gain_.weight(), *saved.attention_rms, gradient,
                          attention_gain_.gradient_slot());
    saved.attention_in.reset();
    saved.attention_rms.reset();
    return gradient;
  }

  /// @brief Adds the matrices' gradients of a microbatch after its input_gradient, and releases `saved`.
  void weight_gradient(Saved& saved) {
    weight_gradient(saved, [](auto&) {});
  }
  /// @brief The same; calls `ready(parameter)` for each parameter as soon as its gradient is complete.
  template <class Ready>
  void weight_gradient(Saved& saved, Ready ready) {
    ready(mlp_gain_);
    ready(attention_gain_);
    accumulate(down_, *saved.activated, *saved.mlp_out_gradient);
    ready(down_);
    accumulate(gate_up_, *saved.mlp_normed, *saved.gate_up_gradient);
    ready(gate_up_);
    accumulate(out_, *saved.attended, *saved.attention_out_gradient);
    ready(out_);
    accumulate(qkv_, *saved.attention_normed, *saved.qkv_gradient);
    ready(qkv_);
    saved = Saved{};
  }

  /// @brief Visits the parameters, which a layer's passes read as one unit.
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
  /// From the first norm to what the last product reads: what the first pass and its replay have in common.
  /// The stream that the last product adds to.
  template <ForwardPass Pass>
  [[nodiscard]] Tensor<Residual> run_blocks(Pass, Tensor<Residual> normed, Statistics<Rows> inverse_rms,
                                            const RotaryTable<Element, Target>& rotary, Saved& saved) const {
    saved.attention_rms.emplace(std::move(inverse_rms));
    saved.attention_normed.emplace(as_tokens(std::move(normed)));
    {
      auto qkv = matmul(*saved.attention_normed, qkv_.weight());
      rotate(qkv, rotary, *saved.positions, heads());
      saved.qkv.emplace(redistribute<Attending>(std::move(qkv)));
    }
    attend(saved);
    auto attended = redistribute<Residual>(matmul(*saved.attended, out_.weight()));
    if constexpr (Pass::trains)
      dropout(attended, attention_dropout(), saved.origin, saved.positions->runs());

    auto second =
        add_rms_norm(*saved.attention_in, std::move(attended), mlp_gain_.weight(), config_.norm_epsilon);
    saved.mlp_rms.emplace(std::move(second.inverse_rms));
    saved.mlp_in.emplace(second.sum.share());
    saved.mlp_normed.emplace(as_tokens(std::move(second.normed)));
    saved.gate_up.emplace(matmul(*saved.mlp_normed, gate_up_.weight()));
    saved.activated.emplace(swiglu(*saved.gate_up));
    return std::move(second.sum);
  }

  /// For the products that read all positions; where that is a copy, the part goes back to the pool.
  [[nodiscard]] static Handle<Tokens> as_tokens(Tensor<Residual> normed) {
    return redistribute<Tokens>(std::as_const(normed));
  }
  void attend(Saved& saved) const {
    saved.attention.emplace(attention(*saved.qkv, *saved.positions, heads()));
    saved.attended.emplace(redistribute<Attended>(std::as_const(saved.attention->value)));
  }

  /// Gives back what the backward pass will compute again, or never asks for.
  template <ForwardPass Pass>
  void forget(Pass, Saved& saved) const {
    if constexpr (!Pass::trains) {
      saved = {};
    } else if (recompute_ == Recompute::full) {
      Saved input;
      input.origin = saved.origin;
      input.positions = saved.positions;
      input.attention_in = std::move(saved.attention_in);
      saved = std::move(input);
    } else if (recompute_ == Recompute::selective) {
      saved.attention.reset();
      saved.attended.reset();
    }
  }

  /// What forward has given back, from the layer's input.
  void replay(const RotaryTable<Element, Target>& rotary, Saved& saved) const {
    auto first = rms_norm(*saved.attention_in, attention_gain_.weight(), config_.norm_epsilon);
    static_cast<void>(
        run_blocks(Replay{}, std::move(first.normed), std::move(first.inverse_rms), rotary, saved));
  }

  static std::string name(int number, const char* part) {
    return "layers." + std::to_string(number) + "." + part;
  }
  static std::uint64_t tensor_id(int number, int part) {
    return static_cast<std::uint64_t>(16 * (number + 1) + part);
  }
  /// Products that add to the stream start smaller, so that its variance does not grow with depth (Radford et
  /// al., 2019).
  static double residual_deviation(const DecoderConfig& config) {
    return config.initial_deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  /// Parts 4 and 5 of a layer's random numbers; its matrices have 0 to 3.
  [[nodiscard]] DropoutUse attention_dropout() const { return dropout_use(4); }
  [[nodiscard]] DropoutUse mlp_dropout() const { return dropout_use(5); }
  [[nodiscard]] DropoutUse dropout_use(int part) const {
    return {seed_, static_cast<std::uint32_t>(tensor_id(number_, part)), config_.dropout};
  }
  [[nodiscard]] HeadShape heads() const { return {config_.queries_per_kv_head(), config_.head_width()}; }

  template <class P, class Mesh>
  static P matrix(const Mesh& mesh, int number, int part, const char* called,
                  const typename P::Stored::Shape& shape, std::uint64_t seed, double deviation) {
    return {name(number, called), normal<typename P::stored_layout, MainElement<Element>, Target>(
                                      mesh, shape, seed, tensor_id(number, part), deviation)};
  }

  template <class P, class In, class OutGradient>
  static void accumulate(P& parameter, const In& in, const OutGradient& gradient) {
    auto slot = parameter.gradient_slot();
    matmul_weight_gradient_into(slot.tensor, in, gradient, slot.beta);
  }

  DecoderConfig config_;
  Recompute recompute_;
  std::uint64_t seed_;
  int number_;
  NormGain attention_gain_;
  Qkv qkv_;
  Output out_;
  NormGain mlp_gain_;
  GateUp gate_up_;
  Down down_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
