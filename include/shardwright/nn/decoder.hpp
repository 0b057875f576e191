// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A Llama-style decoder language model over typed layouts: loss, gradients, evaluation, next-token
/// scores.

#include <shardwright/nn/decoder_stage.hpp>
#include <shardwright/train/grad_accumulator.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Token embedding, decoder layers, final norm and vocabulary-parallel cross entropy: the one stage
/// that holds all of a decoder.
///
/// `Layouts` chooses where everything lives, and with it every collective; the code names none. The output
/// table may be the input table (`DecoderConfig::tied_embedding`), whose layouts are equal by type.
template <class Layouts, class Element = float, class Target = DefaultTarget>
class Decoder {
  using Stage = DecoderStage<Layouts, Element, Target>;

public:
  using layouts = Layouts;
  using target = Target;
  using element = Element;
  /// @brief Token ids or targets, [batch, sequence]; a negative target does not count.
  using Ids = typename Stage::Ids;
  /// @brief Scores of the next token, [batch, sequence, vocabulary].
  using Scores = typename Stage::Scores;
  using Loss = typename Stage::Loss;

  /// @brief Initial weights depend on the seed alone, not on the mesh. Not collective.
  /// @throws InvalidArgument where the sizes do not fit one another or the mesh.
  template <class Mesh>
  Decoder(const Mesh& mesh, const DecoderConfig& config, std::uint64_t seed)
      : whole_(mesh, config, seed, {.begin = 0, .end = config.layers}) {}

  [[nodiscard]] const DecoderConfig& config() const noexcept { return whole_.config(); }
  /// @brief The factor on the loss's gradient, which GradAccumulator takes back.
  [[nodiscard]] const LossScaleOn<Target>& loss_scale() const noexcept { return whole_.loss_scale(); }
  void set_loss_scale(LossScaleOn<Target> scale) { whole_.set_loss_scale(std::move(scale)); }

  /// @brief One microbatch: the summed loss of its tokens, and its gradients added to the parameters' slots.
  ///
  /// Collective. Gradients that are reduced for each microbatch (ZeRO-2, ZeRO-3) set off layer by layer;
  /// those that are reduced once in a step do with the last microbatch, or else in GradAccumulator::finish.
  /// @param origin what dropout is keyed by: another one for each microbatch of the run
  /// @param last whether no microbatch of the step follows
  [[nodiscard]] Loss forward_backward(const Ids& ids, const Ids& targets, const BatchOrigin& origin = {},
                                      bool last = false) {
    const typename Stage::Batch batch{ids.share(), targets.share(), origin};
    Loss loss;
    whole_.expect_pass(Pass::backward);
    static_cast<void>(whole_.forward(std::nullopt, batch, saved_, loss));
    whole_.expect_pass(std::nullopt);
    if (last)
      whole_.begin_last_gradients();
    static_cast<void>(whole_.backward(std::nullopt, batch, saved_));
    if (last)
      whole_.end_gradients();
    return loss;
  }
  /// @brief Bytes at which a bucket of gradients is sent off; the same on all ranks.
  void set_bucket_bytes(std::size_t bytes) { whole_.set_bucket_bytes(bytes); }

  /// @brief The summed loss of a batch without gradients.
  [[nodiscard]] Loss evaluate(const Ids& ids, const Ids& targets) {
    Loss loss;
    static_cast<void>(whole_.evaluate(std::nullopt, {ids.share(), targets.share()}, saved_, loss));
    return loss;
  }

  /// @brief The next token's scores at every position.
  [[nodiscard]] Scores scores(const Ids& ids) {
    return whole_.scores(std::nullopt, {ids.share(), ids.share()}, saved_);
  }

  template <class Visitor>
  void for_each_parameter(Visitor&& visit) {
    whole_.for_each_parameter(std::forward<Visitor>(visit));
  }

private:
  Stage whole_;
  typename Stage::Saved saved_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
