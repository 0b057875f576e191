// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory of a decoder stage's passes, counted from its layouts.

#include <shardwright/nn/decoder_layer_ledger.hpp>
#include <shardwright/nn/decoder_stage.hpp>
#include <shardwright/nn/gather_window.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// DecoderStage with blocks in place of tensors.
template <class Layouts, class Element, class Target>
class DecoderStageLedger {
  using Stage = DecoderStage<Layouts, Element, Target>;
  using Layer = DecoderLayerLedger<Layouts, Element, Target>;
  using Block = MemoryLedger::Block;
  using Residual = typename Layouts::Residual;
  using Tokens = typename Layouts::Tokens;
  using Ids = typename Layouts::Ids;
  using Main = MainElement<Element>;
  using Logits = typename Stage::Scores::layout;
  using TableLayout = typename Stage::Table::compute_layout;
  using Maxima = ReductionLayout<Max, 2, ElementwiseNonlinearLayout<operation::cross_entropy, Logits>>;
  using Sums = ReductionLayout<Sum, 2, ElementwiseNonlinearLayout<operation::cross_entropy, Logits>>;
  static constexpr MemoryKind in_head = MemoryKind::head;

public:
  using Table = ParameterLedger<typename Stage::Table, 2>;
  struct Saved {
    std::vector<typename Layer::Saved> layers;
    Block final_in, final_rms, head_in, scores_gradient, embedding_gradient;
  };

  DecoderStageLedger(TensorLedger& tensors, const DecoderConfig& config, std::int64_t sequences,
                     const DecoderPart& part, std::shared_ptr<Table> table, std::int64_t bucket_bytes)
      : t_(&tensors), part_(part), tokens_{sequences, config.sequence, config.width},
        scores_{sequences, config.sequence, config.vocabulary}, rows_{sequences, config.sequence},
        window_(static_cast<std::size_t>(part.end - part.begin), part.first, part.last),
        buckets_(tensors, bucket_bytes) {
    const std::array angles{config.sequence, config.head_width() / 2};
    for (Block& each : rotary_)
      each = tensors.tensor<Layout<2>, Main>(MemoryKind::temporaries, angles);
    const auto make_table = [&] {
      return std::make_shared<Table>(tensors, std::array{config.vocabulary, config.width});
    };
    if (part.first)
      embedding_ = make_table();
    for (std::int64_t number = part.begin; number < part.end; ++number)
      layers_.emplace_back(tensors, config, number, sequences);
    if (part.last)
      make_head(config, std::move(table), make_table);
    for_each_parameter([this](auto& parameter) { parameter.set_buckets(buckets_); });
  }

  [[nodiscard]] const std::shared_ptr<Table>& embedding() const noexcept { return embedding_; }

  [[nodiscard]] Block make_input() const {
    return t_->template tensor<Residual, Element>(MemoryKind::messages, tokens_);
  }

  [[nodiscard]] Block forward(Block in, Saved& saved) {
    saved.layers.resize(layers_.size());
    typename Layer::Stream stream{part_.first ? embedded() : std::move(in), {}};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Use use(*this, i + 1);
      stream = layers_[i].forward(std::move(stream), saved.layers[i], true);
    }
    if (!part_.last)
      return stream.addition ? std::move(stream.addition) : std::move(stream.residual);
    const Use use(*this, head_unit());
    run_final_norm(std::move(stream), saved);
    saved.scores_gradient = t_->template tensor<Logits, Main>(in_head, scores_);
    take_loss(saved);
    return {};
  }

  [[nodiscard]] Block input_gradient(Block gradient, Saved& saved) {
    return back(std::move(gradient), saved, false);
  }
  void weight_gradient(Saved& saved) {
    head_weight_gradient(saved);
    for (std::size_t i = layers_.size(); i-- > 0;)
      layer_weight_gradient(i, saved);
    embedding_weight_gradient(saved);
  }
  [[nodiscard]] Block backward(Block gradient, Saved& saved) {
    Block out = back(std::move(gradient), saved, true);
    embedding_weight_gradient(saved);
    return out;
  }
  void expect_pass(std::optional<Pass> next) noexcept { window_.expect_pass(next); }
  void begin_last_gradients() noexcept { last_pass_ = true; }
  void end_gradients() {
    last_pass_ = false;
    buckets_.flush();
  }

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

private:
  friend class WeightUse<DecoderStageLedger>;
  using Use = WeightUse<DecoderStageLedger>;

  template <class MakeTable>
  void make_head(const DecoderConfig& config, std::shared_ptr<Table> table, MakeTable make) {
    final_gain_.emplace(*t_, std::array{config.width});
    const bool shared = config.tied_embedding && (part_.first || table);
    head_ = !shared ? make() : part_.first ? embedding_ : std::move(table);
    owns_head_ = !shared;
    if (shared && !part_.first)
      head_->set_contributors(2);
  }

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
  [[nodiscard]] Block embedded() {
    const Use use(*this, 0);
    using Embedded = EmbeddingLayout<Ids, TableLayout>;
    return t_->template redistributed<Embedded, Residual, Element>(
        MemoryKind::stream, t_->template tensor<Embedded, Element>(MemoryKind::stream, tokens_), tokens_);
  }

  void run_final_norm(typename Layer::Stream stream, Saved& saved) {
    stream = normed(std::move(stream), saved.final_rms);
    saved.final_in = std::move(stream.residual);
    saved.head_in =
        t_->template redistributed_copy<Residual, Tokens, Element>(in_head, stream.addition, tokens_);
  }
  [[nodiscard]] typename Layer::Stream normed(typename Layer::Stream in, Block& rms) const {
    Block out = t_->template tensor<Residual, Element>(in_head, tokens_);
    rms = t_->template tensor<RowsOf<Residual>, Main>(in_head, rows_);
    return {in.addition ? std::move(in.addition) : std::move(in.residual), std::move(out)};
  }

  /// cross_entropy_and_gradient: statistics of the rows, their losses, then the gradient.
  void take_loss(Saved& saved) {
    const auto row = [&](auto layout) {
      return t_->template tensor<typename decltype(layout)::type, Main>(in_head, rows_);
    };
    const Block maximum =
        t_->template redistributed<Maxima, Ids, Main>(in_head, row(std::type_identity<Maxima>{}), rows_);
    Block sum = row(std::type_identity<Sums>{});
    Block target = row(std::type_identity<Sums>{});
    const Block all = t_->template redistributed<Sums, Ids, Main>(in_head, std::move(sum), rows_);
    const Block score = t_->template redistributed<Sums, Ids, Main>(in_head, std::move(target), rows_);
    sum = target = {};
    {
      const Block losses = row(std::type_identity<Ids>{});
      const Block totals = t_->template vector<double>(MemoryKind::temporaries, 2);
    }
    if constexpr (!std::is_same_v<Element, Main>)
      saved.scores_gradient = t_->template tensor<Logits, Element>(in_head, scores_);
  }

  [[nodiscard]] Block back(Block gradient, Saved& saved, bool weights) {
    Block stream = part_.last ? head_input_gradient() : std::move(gradient);
    if (weights)
      head_weight_gradient(saved);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const Use use(*this, i + 1, true);
      stream = layers_[i].input_gradient(std::move(stream), saved.layers[i]);
      if (weights)
        layer_weight_gradient(i, saved);
    }
    if (!part_.first)
      return stream;
    saved.embedding_gradient =
        t_->template redistributed_copy<Residual, Tokens, Element>(in_head, stream, tokens_);
    return {};
  }

  [[nodiscard]] Block head_input_gradient() {
    const Use use(*this, head_unit(), true);
    return norm_input_gradient<MatmulLayout<Logits, TableLayout>, Residual, Element>(*t_, *final_gain_,
                                                                                     tokens_);
  }

  void head_weight_gradient(Saved& saved) {
    if (!part_.last)
      return;
    head_->gradient_slot();
    saved.scores_gradient = saved.head_in = {};
    if (head_ != embedding_) // else the embedding adds to it
      head_->end_pass(last_pass_);
    final_gain_->end_pass(last_pass_);
  }
  void layer_weight_gradient(std::size_t layer, Saved& saved) {
    layers_[layer].weight_gradient(saved.layers[layer],
                                   [this](auto& parameter) { parameter.end_pass(last_pass_); });
  }
  void embedding_weight_gradient(Saved& saved) {
    if (part_.first) {
      embedding_->gradient_slot();
      embedding_->end_pass(last_pass_);
    }
    saved = {};
  }

  TensorLedger* t_;
  DecoderPart part_;
  std::array<std::int64_t, 3> tokens_, scores_;
  std::array<std::int64_t, 2> rows_;
  std::array<Block, 2> rotary_;
  std::shared_ptr<Table> embedding_;
  std::deque<Layer> layers_;
  std::optional<ParameterLedger<typename Stage::Gain, 1>> final_gain_;
  std::shared_ptr<Table> head_;
  bool owns_head_ = false;
  bool last_pass_ = false;
  GatherWindow window_;
  BucketLedger buckets_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
