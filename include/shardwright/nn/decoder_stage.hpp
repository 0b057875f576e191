// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Neighbouring layers of a decoder, with the embedding before or the head after them: forward, input
/// gradient and weight gradient as passes of their own over the state of one microbatch.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/nn/cross_entropy.hpp>
#include <shardwright/nn/decoder_layer.hpp>
#include <shardwright/nn/embedding.hpp>
#include <shardwright/nn/gather_window.hpp>
#include <shardwright/nn/token_tensor.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/train/device_loss_scale.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The part of a decoder that a stage holds: layers [begin, end).
struct DecoderPart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool first = true; ///< With the embedding.
  bool last = true;  ///< With the final norm, the head and the loss.
};

/// @brief A part of a decoder on a mesh without the pipeline's axis.
///
/// Stages hand over one tensor, the residual stream with the last addition in it, and its gradient the other
/// way. All that a microbatch keeps between its passes lies in its `Saved`, so any number may be in flight.
template <class Layouts, class Element = float, class Target = DefaultTarget>
class DecoderStage {
  template <class L>
  using Tensor = ShardedTensor<L, Element, Target>;
  template <class L>
  using Handle = ShardedTensor<L, const Element, Target>;
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Layer = DecoderLayer<Layouts, Element, Target>;
  using Stream = typename Layer::Stream;
  using TableLayout = TiedLayouts<typename Layouts::Table, typename Layouts::Head>;
  using Logits = MatmulLayout<Tokens, TableLayout, MatmulForm::right_transposed>;
  using Zero = typename Layouts::Zero;

public:
  using Gain = Parameter<typename Layouts::Gain, GainGradientLayout<Residual>, Element, Zero, Target>;
  using target = Target;
  /// @brief What stages hand over: the stream forward, its gradient backward.
  using Boundary = Tensor<Residual>;
  using Input = Boundary;
  using Output = Boundary;
  /// @brief Token ids or targets, [batch, sequence], in the order that attention takes; a negative target
  /// does not count.
  using Ids = TokenTensor<typename Layouts::Order, typename Layouts::Ids, std::int32_t, Target>;
  /// @brief What the first stage reads and the last one compares with.
  struct Batch {
    typename Ids::Handle ids, targets;
    BatchOrigin origin{}; ///< What dropout is keyed by.
  };
  using Loss = CrossEntropyOn<typename Layouts::Ids, Target>;
  /// @brief Scores of the next token, [batch, sequence, vocabulary]; of narrow elements, their sums in float.
  using Scores = ShardedTensor<Logits, MainElement<Element>, Target>;
  /// @brief The embedding, or the head.
  using Table = Parameter<TableLayout, EmbeddingGradientLayout<typename Layouts::Ids, Tokens, TableLayout>,
                          Element, Zero, Target>;

  /// @brief What a microbatch keeps between its passes; its memory returns to the pool with the last one.
  struct Saved {
    std::vector<typename Layer::Saved> layers;
    // Set by the last stage's forward.
    std::optional<Tensor<Residual>> final_in;
    std::optional<ShardedTensor<RowsOf<Residual>, MainElement<Element>, Target>> final_rms;
    std::optional<Handle<Tokens>> head_in;
    std::optional<Tensor<Logits>> scores_gradient;
    // Set by the first stage's input_gradient.
    std::optional<Handle<Tokens>> embedding_gradient;
  };

  /// @brief Initial weights depend on the seed alone, not on the mesh or the part. Not collective.
  /// @param table the embedding of this rank's first stage, for a last stage that is tied to it
  /// @throws InvalidArgument where the sizes do not fit one another or the mesh.
  template <class Mesh>
  DecoderStage(const Mesh& mesh, const DecoderConfig& config, std::uint64_t seed, DecoderPart part,
               std::shared_ptr<Table> table = nullptr)
      : config_(checked<Mesh>(mesh, config)), part_(part),
        rotary_(mesh, config.sequence, config.head_width(), config.rope_base),
        window_(static_cast<std::size_t>(part.end - part.begin), part.first, part.last) {
    const auto table_of = [&](const char* name, std::uint64_t tensor) {
      return std::make_shared<Table>(
          name, normal<typename Table::stored_layout, MainElement<Element>, Target>(
                    mesh, {config.vocabulary, config.width}, seed, tensor, config.initial_deviation));
    };
    if (part.first)
      embedding_ = table_of("embedding", 0);
    layers_.reserve(static_cast<std::size_t>(part.end - part.begin));
    for (std::int64_t number = part.begin; number < part.end; ++number)
      layers_.emplace_back(mesh, config, seed, static_cast<int>(number));
    if (part.last)
      make_head(mesh, std::move(table), table_of);
    buckets_ = std::make_shared<GradientBuckets<MainElement<Element>, Target>>(
        mesh.core().template resources<Target>());
    for_each_parameter([this](auto& parameter) { parameter.set_buckets(buckets_); });
  }

  [[nodiscard]] const DecoderConfig& config() const noexcept { return config_; }
  [[nodiscard]] const DecoderPart& part() const noexcept { return part_; }
  /// @brief The embedding of a first stage, else null.
  [[nodiscard]] const std::shared_ptr<Table>& embedding() const noexcept { return embedding_; }
  /// @brief The output table of a last stage, else null.
  [[nodiscard]] const std::shared_ptr<Table>& head() const noexcept { return head_; }

  /// @brief The factor on the loss's gradient, which all gradients of a step have: the same on all stages.
  [[nodiscard]] const LossScaleOn<Target>& loss_scale() const noexcept { return loss_scale_; }
  /// @throws InvalidArgument for a scale that a device changes where elements are not narrow.
  void set_loss_scale(LossScaleOn<Target> scale) {
    if constexpr (!Target::host_accessible && !is_narrow<Element>)
      if (scale.dynamic())
        throw InvalidArgument(
            "DecoderStage: a loss scale that the device changes must be for narrow elements, whose range needs one (leave it out, or use bfloat16 or float16)");
    loss_scale_ = std::move(scale);
  }

  /// @brief Memory for what another stage hands over of a microbatch.
  [[nodiscard]] Boundary make_input(const Batch& batch) const {
    return {batch.ids.resources(), {batch.ids.shape()[0], batch.ids.shape()[1], config_.width}};
  }

  /// @brief The stream after this part, or the summed loss of the microbatch, added to `loss`.
  /// @param in what the stage before returned; nothing for the first stage
  [[nodiscard]] std::optional<Boundary> forward(std::optional<Boundary> in, const Batch& batch, Saved& saved,
                                                Loss& loss) {
    Stream stream = run_layers(FirstPass{}, std::move(in), batch, saved);
    if (!part_.last)
      return joined(std::move(stream));
    const Use use(*this, head_unit());
    run_final_norm(std::move(stream), saved);
    Scores scores = head_scores(saved);
    saved.scores_gradient.emplace(add_loss(std::move(scores), batch, loss));
    return std::nullopt;
  }

  /// @brief The gradient of what forward was given, from that of what it returned. Adds to the gains'
  /// gradients.
  [[nodiscard]] std::optional<Boundary> input_gradient(std::optional<Boundary> gradient, Saved& saved) {
    return back(
        std::move(gradient), saved, [] {}, [](Layer&, typename Layer::Saved&) {});
  }

  /// @brief Adds the matrices' gradients of a microbatch after its input_gradient, and releases `saved`.
  void weight_gradient(const Batch& batch, Saved& saved) {
    head_weight_gradient(saved);
    for (std::size_t i = layers_.size(); i-- > 0;)
      layer_weight_gradient(layers_[i], saved.layers[i]);
    embedding_weight_gradient(batch, saved);
  }

  /// @brief Both, layer by layer, so that each layer's memory returns, and its gradients set off, as soon as
  /// they may.
  [[nodiscard]] std::optional<Boundary> backward(std::optional<Boundary> gradient, const Batch& batch,
                                                 Saved& saved) {
    std::optional<Boundary> out = back(
        std::move(gradient), saved, [&] { head_weight_gradient(saved); },
        [this](Layer& layer, typename Layer::Saved& kept) { layer_weight_gradient(layer, kept); });
    embedding_weight_gradient(batch, saved);
    return out;
  }

  /// @brief forward() without anything kept for gradients.
  [[nodiscard]] std::optional<Boundary> evaluate(std::optional<Boundary> in, const Batch& batch, Saved& saved,
                                                 Loss& loss) {
    if (part_.last) {
      Scores scores = this->scores(std::move(in), batch, saved);
      loss += cross_entropy(scores, batch.targets);
      return std::nullopt;
    }
    std::optional<Boundary> out = joined(run_layers(Evaluation{}, std::move(in), batch, saved));
    release(saved);
    return out;
  }

  /// @brief The next token's scores at every position; of a last stage.
  [[nodiscard]] Scores scores(std::optional<Boundary> in, const Batch& batch, Saved& saved) {
    Stream stream = run_layers(Evaluation{}, std::move(in), batch, saved);
    const Use use(*this, head_unit());
    run_final_norm(std::move(stream), saved);
    Scores out = head_scores(saved);
    release(saved);
    return out;
  }

  /// @brief Visits the parameters that this stage owns, embedding first and head last.
  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    if (embedding_)
      visit(*embedding_);
    for (Layer& layer : layers_)
      layer.for_each_parameter(visit);
    if (final_gain_)
      visit(*final_gain_);
    if (owns_head_)
      visit(*head_);
  }

  /// @brief Says which pass reads the weights after the coming one, so that its weights are on their way in
  /// time; nothing where other weights may come in between.
  void expect_pass(std::optional<Pass> next) noexcept { window_.expect_pass(next); }

  /// @brief Says that the next pass with weight gradients is the last of the step: their reductions start
  /// layer by layer.
  void begin_last_gradients() noexcept { last_pass_ = true; }
  /// @brief Says that this pass is over: what is left in the buckets sets off.
  void end_gradients() {
    last_pass_ = false;
    buckets_->flush();
  }

  /// @brief Bytes at which a bucket of gradients is sent off; the same on all ranks.
  void set_bucket_bytes(std::size_t bytes) { buckets_->set_bucket_bytes(bytes); }

private:
  friend class detail::WeightUse<DecoderStage>;
  using Use = detail::WeightUse<DecoderStage>;

  template <class Mesh>
  static DecoderConfig checked(const Mesh& mesh, const DecoderConfig& config) {
    check_decoder(config, mesh.template extent<axis::tp>(), Layouts::sharded_sequence,
                  Layouts::Context::extents(mesh.template extent<axis::cp>()));
    return config;
  }

  template <class Mesh, class MakeTable>
  void make_head(const Mesh& mesh, std::shared_ptr<Table> table, MakeTable make) {
    final_gain_.emplace("final_norm", ones<typename Gain::stored_layout, MainElement<Element>, Target>(
                                          mesh, {config_.width}));
    if (!config_.tied_embedding)
      head_ = make("head", 1);
    else if (part_.first || table != nullptr)
      head_ = part_.first ? embedding_ : std::move(table);
    else
      head_ = make("embedding", 0);
    owns_head_ = head_.use_count() == 1;
    if (!owns_head_ && !part_.first)
      head_->set_contributors(2);
  }

  // Units, whose weights are gathered and released together: 0 the embedding, then the layers, then final
  // norm and head.
  [[nodiscard]] static std::size_t layer_unit(std::size_t layer) noexcept { return layer + 1; }
  [[nodiscard]] std::size_t head_unit() const noexcept { return window_.head_unit(); }

  template <class Visitor>
  void for_each_of_unit(std::size_t unit, Visitor visit) {
    if (unit == 0)
      return visit(*embedding_);
    if (unit < head_unit())
      return layers_[unit - 1].for_each_parameter(visit);
    visit(*final_gain_);
    visit(*head_);
  }

  template <ForwardPass Pass>
  [[nodiscard]] Stream run_layers(Pass pass, std::optional<Boundary> in, const Batch& batch, Saved& saved) {
    saved.layers.resize(layers_.size());
    const auto positions = batch.ids.positions();
    Stream stream{embedding_ ? embedded(batch) : std::move(in).value(), std::nullopt};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Use use(*this, layer_unit(i));
      stream = layers_[i].forward(pass, std::move(stream), rotary_, positions, batch.origin, saved.layers[i]);
    }
    return stream;
  }

  [[nodiscard]] Boundary embedded(const Batch& batch) {
    const Use use(*this, 0);
    return redistribute<Residual>(embed(batch.ids, embedding_->weight()));
  }

  /// One tensor costs the pass of an addition, two would cost a second message.
  [[nodiscard]] static Boundary joined(Stream stream) {
    if (!stream.addition)
      return std::move(stream.residual);
    add_into(*stream.addition, stream.residual, *stream.addition);
    return *std::move(stream.addition);
  }

  void run_final_norm(Stream stream, Saved& saved) {
    auto last = norm_stream(std::move(stream), final_gain_->weight(), config_.norm_epsilon);
    saved.final_in.emplace(std::move(last.sum));
    saved.final_rms.emplace(std::move(last.inverse_rms));
    saved.head_in.emplace(redistribute<Tokens>(last.normed));
  }

  [[nodiscard]] Scores head_scores(const Saved& saved) const {
    const auto& in = *saved.head_in;
    Scores out(in.resources(), {in.shape()[0], in.shape()[1], config_.vocabulary});
    matmul_input_gradient_into(out, in, head_->weight());
    return out;
  }

  /// Adds the loss; returns its gradient.
  [[nodiscard]] Tensor<Logits> add_loss(Scores scores, const Batch& batch, Loss& loss) const {
    const auto fixed = [&] {
      if constexpr (Target::host_accessible)
        return loss_scale_;
      else
        return loss_scale_.fixed();
    }();
    if constexpr (!Target::host_accessible && is_narrow<Element>)
      if (loss_scale_.dynamic()) {
        loss += cross_entropy_with_gradient(scores, batch.targets, fixed);
        return detail::scale_and_narrow<Element>(std::move(scores), loss_scale_);
      }
    auto [own, gradient] = cross_entropy_and_gradient<Element>(std::move(scores), batch.targets, fixed);
    loss += own;
    return std::move(gradient);
  }

  [[nodiscard]] Boundary head_input_gradient(Saved& saved) {
    const Use use(*this, head_unit(), true);
    return rms_norm_gradient(redistribute<Residual>(matmul(*saved.scores_gradient, head_->weight())),
                             *saved.final_in, final_gain_->weight(), *saved.final_rms,
                             final_gain_->gradient_slot());
  }

  template <class AfterHead, class AfterLayer>
  [[nodiscard]] std::optional<Boundary> back(std::optional<Boundary> gradient, Saved& saved,
                                             AfterHead after_head, AfterLayer after) {
    Boundary stream = part_.last ? head_input_gradient(saved) : std::move(gradient).value();
    after_head();
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const Use use(*this, layer_unit(i), true);
      stream = layers_[i].input_gradient(std::move(stream), rotary_, saved.layers[i]);
      after(layers_[i], saved.layers[i]);
    }
    if (!part_.first)
      return stream;
    saved.embedding_gradient.emplace(redistribute<Tokens>(stream));
    return std::nullopt;
  }

  void head_weight_gradient(Saved& saved) {
    if (!part_.last)
      return;
    const auto slot = head_->gradient_slot();
    matmul_weight_gradient_into(slot.tensor, *saved.scores_gradient, *saved.head_in, slot.beta);
    saved.scores_gradient.reset();
    saved.head_in.reset();
    if (head_ != embedding_) // else the embedding adds to it
      head_->end_pass(last_pass_);
    final_gain_->end_pass(last_pass_);
  }
  void layer_weight_gradient(Layer& layer, typename Layer::Saved& saved) {
    layer.weight_gradient(saved, [this](auto& parameter) { parameter.end_pass(last_pass_); });
  }
  void embedding_weight_gradient(const Batch& batch, Saved& saved) {
    if (part_.first) {
      embed_weight_gradient(batch.ids, *saved.embedding_gradient, embedding_->gradient_slot());
      embedding_->end_pass(last_pass_);
    }
    release(saved);
  }

  /// Everything but the vector's own memory.
  static void release(Saved& saved) {
    for (auto& layer : saved.layers)
      layer = {};
    saved.final_in.reset();
    saved.final_rms.reset();
    saved.head_in.reset();
    saved.scores_gradient.reset();
    saved.embedding_gradient.reset();
  }

  DecoderConfig config_;
  DecoderPart part_;
  LossScaleOn<Target> loss_scale_;
  RotaryTable<Element, Target> rotary_;
  std::shared_ptr<Table> embedding_;
  std::vector<Layer> layers_;
  std::optional<Gain> final_gain_;
  std::shared_ptr<Table> head_;
  bool owns_head_ = false;
  bool last_pass_ = false; // of the step that adds weight gradients
  detail::GatherWindow window_;
  std::shared_ptr<GradientBuckets<MainElement<Element>, Target>> buckets_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
