// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A Llama-style decoder language model over typed layouts: loss, gradients, evaluation, next-token
/// scores.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/nn/cross_entropy.hpp>
#include <shardwright/nn/decoder_layer.hpp>
#include <shardwright/nn/embedding.hpp>
#include <shardwright/train/grad_accumulator.hpp>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Token embedding, decoder layers, final norm and vocabulary-parallel cross entropy.
///
/// `Layouts` chooses where everything lives, and with it every collective; the code names none. The output
/// table may be the input table (`DecoderConfig::tied_embedding`), whose layouts are equal by type.
template <class Layouts, class Element = float, class Target = DefaultTarget>
class Decoder {
  template <class L>
  using Tensor = ShardedTensor<L, Element, Target>;
  template <class L>
  using Handle = ShardedTensor<L, const Element, Target>;
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Layer = DecoderLayer<Layouts, Element, Target>;
  using Stream = typename Layer::Stream;
  using Logits = MatmulLayout<Tokens, typename Layouts::Table, MatmulForm::right_transposed>;
  using Table = Parameter<typename Layouts::Table,
                          EmbeddingGradientLayout<typename Layouts::Ids, Tokens, typename Layouts::Table>,
                          Element, Target>;
  using Gain = Parameter<typename Layouts::Gain, GainGradientLayout<Residual>, Element, Target>;
  using TiedTable = TiedLayouts<typename Layouts::Table, typename Layouts::Table>;

public:
  using layouts = Layouts;
  using target = Target;
  using element = Element;
  /// @brief Token ids or targets, [batch, sequence]; a negative target does not count.
  using Ids = ShardedTensor<typename Layouts::Ids, std::int32_t, Target>;
  /// @brief Scores of the next token, [batch, sequence, vocabulary].
  using Scores = Tensor<Logits>;
  using Loss = CrossEntropy<typename Layouts::Ids>;

  /// @brief Initial weights depend on the seed alone, not on the mesh. Not collective.
  /// @throws InvalidArgument where the sizes do not fit one another or the mesh.
  template <class Mesh>
  Decoder(const Mesh& mesh, const DecoderConfig& config, std::uint64_t seed)
      : config_(checked<Mesh>(mesh, config)),
        rotary_(mesh, config.sequence, config.head_width(), config.rope_base),
        embedding_("embedding",
                   normal<typename Layouts::Table, Element, Target>(mesh, {config.vocabulary, config.width},
                                                                    seed, 0, config.initial_deviation)),
        final_gain_("final_norm", ones<typename Layouts::Gain, Element, Target>(mesh, {config.width})) {
    layers_.reserve(static_cast<std::size_t>(config.layers));
    for (int number = 0; number < config.layers; ++number)
      layers_.emplace_back(mesh, config, seed, number);
    saved_.resize(layers_.size());
    if (!config.tied_embedding) {
      head_.emplace("head", normal<TiedTable, Element, Target>(mesh, {config.vocabulary, config.width}, seed,
                                                               1, config.initial_deviation));
    }
  }

  [[nodiscard]] const DecoderConfig& config() const noexcept { return config_; }

  /// @brief One microbatch: the summed loss of its tokens, and its gradients added to the parameters' slots.
  ///
  /// Collective over the axes that the layouts shard the layers over; data ranks meet only in
  /// GradAccumulator::finish.
  [[nodiscard]] Loss forward_backward(const Ids& ids, const Ids& targets) {
    const Handle<Tokens> normed = forward(ids);
    Scores scores = matmul_input_gradient(normed, head().value());
    const Loss loss = cross_entropy_with_gradient(scores, targets); // scores hold their gradient from here on
    auto stream = redistribute<Residual>(matmul(scores, head().value()));
    const auto slot = head().gradient_slot();
    matmul_weight_gradient_into(slot.tensor, scores, normed, slot.beta);
    backward(rms_norm_gradient(std::move(stream), *final_in_, final_gain_.value(), *final_rms_,
                               final_gain_.gradient_slot()),
             ids);
    return loss;
  }

  /// @brief The summed loss of a batch without gradients.
  [[nodiscard]] Loss evaluate(const Ids& ids, const Ids& targets) {
    Scores scores = this->scores(ids);
    return cross_entropy(scores, targets);
  }

  /// @brief The next token's scores at every position.
  [[nodiscard]] Scores scores(const Ids& ids) {
    const Handle<Tokens> normed = forward(ids);
    for (auto& saved : saved_)
      saved = {};
    return matmul_input_gradient(normed, head().value());
  }

  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    visit(embedding_);
    for (Layer& layer : layers_)
      layer.for_each_parameter(visit);
    visit(final_gain_);
    if (head_)
      visit(*head_);
  }

private:
  template <class Mesh>
  static DecoderConfig checked(const Mesh& mesh, const DecoderConfig& config) {
    check_decoder(config, mesh.template extent<axis::tp>(), Layouts::sharded_sequence);
    return config;
  }

  [[nodiscard]] Table& head() { return head_ ? *head_ : embedding_; }

  /// The normed stream before the head; layers' activations are in saved_.
  [[nodiscard]] Handle<Tokens> forward(const Ids& ids) {
    Stream stream{redistribute<Residual>(embed(ids, embedding_.value())), std::nullopt};
    for (std::size_t i = 0; i < layers_.size(); ++i)
      stream = layers_[i].forward(std::move(stream), rotary_, saved_[i]);
    auto last =
        add_rms_norm(stream.residual, std::move(*stream.addition), final_gain_.value(), config_.norm_epsilon);
    final_in_.emplace(std::move(last.sum));
    final_rms_.emplace(std::move(last.inverse_rms));
    return redistribute<Tokens>(last.normed);
  }

  void backward(Tensor<Residual> gradient, const Ids& ids) {
    for (std::size_t i = layers_.size(); i-- > 0;) {
      gradient = layers_[i].input_gradient(std::move(gradient), rotary_, saved_[i]);
      layers_[i].weight_gradient(saved_[i]);
    }
    embed_weight_gradient(ids, redistribute<Tokens>(gradient), embedding_.gradient_slot());
  }

  DecoderConfig config_;
  RotaryTable<Element, Target> rotary_;
  Table embedding_;
  std::vector<Layer> layers_;
  Gain final_gain_;
  std::optional<Table> head_;
  // What one microbatch keeps between its passes.
  std::vector<typename Layer::Saved> saved_;
  std::optional<Tensor<Residual>> final_in_;
  std::optional<Tensor<RowsOf<Residual>>> final_rms_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
