// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cross entropy over a vocabulary split into blocks: the local pieces before and after the ranks
/// combine them.

#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/math.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief The targets that count, and the share of each that is spread over all words.
struct TargetRule {
  std::int32_t ignored = -1; ///< Targets of this id do not count, nor do negative ones.
  double smoothing = 0;      ///< In [0, 1).
  double vocabulary = 1;     ///< Words of all blocks; for the smoothing.

  [[nodiscard]] SHARDWRIGHT_FUNCTION bool counts(std::int32_t target) const {
    return target >= 0 && target != ignored;
  }
};

namespace detail {

template <class Element>
struct RowMaximum {
  using Number = MainElement<Element>;
  MatrixSpan<const Element> logits;
  Number* maximum;
  Number lowest;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* row = logits.row(i);
    const Number filler = lowest;
    Lanes<Number> best = broadcast(filler);
    for_chunks<Number, 4>(
        0, logits.columns,
        [row, filler, &best](auto chunk, std::size_t c) {
          best = larger(chunk.load_or(row + c, filler), best);
        },
        row);
    const Number largest = largest_of<Number>(best);
    if (first_lane())
      maximum[i] = largest;
  }
};

template <class Element>
struct RowExponentials {
  using Number = MainElement<Element>;
  MatrixSpan<const Element> logits;
  const Number* maximum;
  const std::int32_t* targets;
  std::int64_t first_id;
  Number* sum;
  Number* target_logit;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* row = logits.row(i);
    const Number shift = maximum[i];
    Lanes<Number> total{};
    for_chunks<Number, 4>(
        0, logits.columns,
        [row, shift, &total](auto chunk, std::size_t c) {
          total += chunk.keep(exp_of_nonpositive<Number>(chunk.load(row + c) - shift), Number(0));
        },
        row);
    const Number whole = sum_of<Number>(total);
    const Number of_all = rule.smoothing > 0 ? smoothed(row) : Number(0);
    if (!first_lane())
      return;
    sum[i] = whole;
    const std::int64_t target = targets[i] - first_id;
    const bool here =
        rule.counts(targets[i]) && target >= 0 && target < static_cast<std::int64_t>(logits.columns);
    const Number own = here ? static_cast<Number>(row[target]) : Number(0);
    target_logit[i] = rule.smoothing > 0 ? static_cast<Number>(1 - rule.smoothing) * own + of_all : own;
  }

private:
  /// The part of all words alike in a target's logit.
  SHARDWRIGHT_FUNCTION Number smoothed(const Element* row) const {
    Lanes<Number> total{};
    for_chunks<Number, 4>(
        0, logits.columns, [row, &total](auto chunk, std::size_t c) { total += chunk.load(row + c); }, row);
    return static_cast<Number>(rule.smoothing / rule.vocabulary) * sum_of<Number>(total);
  }
};

template <class Element>
struct TokenLoss {
  const Element* maximum;
  const Element* sum;
  const Element* target_logit;
  const std::int32_t* targets;
  Element* loss;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    loss[i] = rule.counts(targets[i]) ? std::log(sum[i]) + (maximum[i] - target_logit[i]) : Element(0);
  }
};

/// Losses in result[0] and unmasked tokens in result[1]; one pass, in the order of tokens and threads, as
/// SumInOrder.
template <class Element, unsigned count_of_warps = 1>
struct SumLosses {
  static constexpr unsigned warps = count_of_warps;
  static constexpr unsigned blocks_at_once = 1;
  static constexpr std::size_t shared_bytes = 2 * warps * sizeof(double);
  const Element* loss;
  const std::int32_t* targets;
  std::size_t count;
  double* result;
  bool add;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const { (*this)(LoneWarp{}); }
  template <KernelBlock Block>
  SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
    double losses = 0.0;
    double tokens = 0.0;
    for (std::size_t i = block_thread(block); i < count; i += warps * lane_threads) {
      losses += static_cast<double>(loss[i]);
      tokens += rule.counts(targets[i]) ? 1.0 : 0.0;
    }
    auto* const shared = reinterpret_cast<double*>(block.shared());
    losses = sum_over_block<warps>(block, losses, shared);
    tokens = sum_over_block<warps>(block, tokens, shared + warps);
    if (block_thread(block) != 0)
      return;
    result[0] = add ? result[0] + losses : losses;
    result[1] = add ? result[1] + tokens : tokens;
  }
};

/// `gradient` may be the logits.
template <class Element, class Out = Element>
struct LogitGradient {
  using Number = MainElement<Element>;
  MatrixSpan<const Element> logits;
  const Number* maximum;
  const Number* sum;
  const std::int32_t* targets;
  std::int64_t first_id;
  Number scale;
  MatrixSpan<Out> gradient;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* row = logits.row(i);
    Out* out = gradient.row(i);
    if (!rule.counts(targets[i])) {
      for_chunks<Number>(
          0, logits.columns, [out](auto chunk, std::size_t c) { chunk.store(out + c, Lanes<Number>{}); },
          out);
      return;
    }
    const Number shift = maximum[i];
    const Number factor = scale / sum[i];
    const std::int64_t target = targets[i] - first_id;
    const bool here = target >= 0 && target < static_cast<std::int64_t>(logits.columns);
    const Number target_logit = here ? static_cast<Number>(row[target]) : Number(0);
    sync_lanes(); // all have read what one overwrites
    const Number less = static_cast<Number>(rule.smoothing / rule.vocabulary) * scale;
    if (rule.smoothing > 0)
      for_chunks<Number>(
          0, logits.columns,
          [row, out, shift, factor, less](auto chunk, std::size_t c) {
            chunk.store(out + c, exp_of_nonpositive<Number>(chunk.load(row + c) - shift) * factor - less);
          },
          row, out);
    else
      for_chunks<Number>(
          0, logits.columns,
          [row, out, shift, factor](auto chunk, std::size_t c) {
            chunk.store(out + c, exp_of_nonpositive<Number>(chunk.load(row + c) - shift) * factor);
          },
          row, out);
    sync_lanes();
    if (!here || !first_lane())
      return;
    // A probability near 1 must not be rounded before the difference.
    const Number own = rule.smoothing > 0 ? static_cast<Number>(1 - rule.smoothing) * scale : scale;
    if constexpr (is_narrow<Out>)
      out[target] = Out(std::exp(target_logit - shift) * factor - (rule.smoothing > 0 ? less + own : own));
    else
      out[target] -= own;
  }
};

template <class Targets, class Logits, class... Rows>
void require_rows(const char* operation, const Targets& targets, const Logits& logits, const Rows&... rows) {
  static_assert(std::is_same_v<typename Targets::non_const_value_type, std::int32_t>,
                "cross entropy: targets must be int32.");
  require(targets.extent(0) == logits.extent(0) && ((rows.extent(0) == logits.extent(0)) && ...), operation,
          "targets and row values must have one element per row of logits.");
}

} // namespace detail

/// @brief row_max = largest logit of every row of this block; -infinity for an empty block. Row values of all
/// kernels here are of the MainElement of the logits.
/// @param logits   [tokens, block of the vocabulary]
/// @param row_max  [tokens]; combine over the ranks by maximum
template <class Execution, KernelMatrix Logits, KernelVector Rows>
void cross_entropy_row_max(const Execution& execution, const Logits& logits, const Rows& row_max) {
  using Element = typename Logits::non_const_value_type;
  detail::require(row_max.extent(0) == logits.extent(0), "cross_entropy_row_max",
                  "the result must have one element per row of logits.");
  const auto in = detail::span_of(logits);
  detail::run_lanes("sw::row_max", execution, in.rows,
                    detail::RowMaximum<Element>{{in.data, in.rows, in.columns, in.stride},
                                                row_max.data(),
                                                -std::numeric_limits<MainElement<Element>>::infinity()});
}

/// @brief row_sum = sum over the block of exp(logit - row_max); target_logit = the target's logit, or 0
/// elsewhere.
/// @param row_max       [tokens], the maximum over all blocks
/// @param targets       int32 [tokens], ids over the whole vocabulary; negative ones are masked
/// @param first_id      first id of this block
/// @param row_sum       [tokens]; combine over the ranks by sum
/// @param target_logit  [tokens]; combine over the ranks by sum
/// @param rule          with a smoothing, target_logit is the mean of logits that the target's distribution
/// gives
template <class Execution, KernelMatrix Logits, KernelVector Max, KernelVector Targets, KernelVector Rows>
void cross_entropy_row_sums(const Execution& execution, const Logits& logits, const Max& row_max,
                            const Targets& targets, std::int64_t first_id, const Rows& row_sum,
                            const Rows& target_logit, const TargetRule& rule = {}) {
  using Element = typename Logits::non_const_value_type;
  detail::require_rows("cross_entropy_row_sums", targets, logits, row_max, row_sum, target_logit);
  const auto in = detail::span_of(logits);
  detail::run_lanes("sw::row_sums", execution, in.rows,
                    detail::RowExponentials<Element>{{in.data, in.rows, in.columns, in.stride},
                                                     row_max.data(),
                                                     targets.data(),
                                                     first_id,
                                                     row_sum.data(),
                                                     target_logit.data(),
                                                     rule});
}

/// @brief loss = log(row_sum) + row_max - target_logit per token, with values over all blocks; 0 for masked
/// tokens.
template <class Execution, KernelVector Max, KernelVector Sum, KernelVector Target, KernelVector Targets,
          KernelVector Loss>
void cross_entropy_loss(const Execution& execution, const Max& row_max, const Sum& row_sum,
                        const Target& target_logit, const Targets& targets, const Loss& loss,
                        const TargetRule& rule = {}) {
  using Element = typename Loss::value_type;
  detail::require_rows("cross_entropy_loss", targets, loss, row_max, row_sum, target_logit);
  detail::run("sw::token_loss", execution, loss.extent(0),
              detail::TokenLoss<Element>{row_max.data(), row_sum.data(), target_logit.data(), targets.data(),
                                         loss.data(), rule});
}

/// @brief result[0] (+)= sum of the losses, result[1] (+)= number of unmasked tokens; double, in a fixed
/// order.
/// @param loss    [tokens]
/// @param result  double [2]
/// @param add     false overwrites the result
template <class Execution, KernelVector Loss, KernelVector Targets, KernelVector Result>
void sum_losses(const Execution& execution, const Loss& loss, const Targets& targets, const Result& result,
                bool add = false, const TargetRule& rule = {}) {
  using Element = typename Loss::non_const_value_type;
  static_assert(std::is_same_v<typename Result::value_type, double>,
                "sum_losses: the result must be double (pass a view of double)");
  detail::require_rows("sum_losses", targets, loss);
  detail::require(result.extent(0) >= 2, "sum_losses", "the result must have two elements.");
  if constexpr (detail::BlockLauncher<Execution>::available) {
    using Sum = detail::SumLosses<Element, 32>;
    detail::BlockLauncher<Execution>::run(
        execution, 1, Sum::shared_bytes,
        Sum{loss.data(), targets.data(), loss.extent(0), result.data(), add, rule});
  } else {
    detail::run_lanes(
        "sw::sum_losses", execution, 1,
        detail::SumLosses<Element>{loss.data(), targets.data(), loss.extent(0), result.data(), add, rule});
  }
}

/// @brief gradient = scale * (softmax - one-hot of the target); rows of masked tokens become zero. One pass,
/// also where the gradient is narrower than the logits.
/// @param row_max, row_sum  [tokens], over all blocks
/// @param scale             gradient of the objective with respect to one token's loss
/// @param gradient          as the logits, of their element or a 16-bit one; may be the logits
template <class Execution, KernelMatrix Logits, KernelVector Max, KernelVector Sum, KernelVector Targets,
          KernelMatrix Gradient>
void cross_entropy_backward(const Execution& execution, const Logits& logits, const Max& row_max,
                            const Sum& row_sum, const Targets& targets, std::int64_t first_id, double scale,
                            const Gradient& gradient, const TargetRule& rule = {}) {
  using Element = typename Logits::non_const_value_type;
  using Out = typename Gradient::value_type;
  static_assert(
      std::is_same_v<MainElement<Out>, MainElement<Element>>,
      "cross_entropy_backward: the gradient must have the element type of the logits, or one with the same accumulation type.");
  detail::require_rows("cross_entropy_backward", targets, logits, row_max, row_sum);
  detail::require(gradient.extent(0) == logits.extent(0) && gradient.extent(1) == logits.extent(1),
                  "cross_entropy_backward", "the gradient must have the shape of the logits.");
  const auto in = detail::span_of(logits);
  detail::run_lanes("sw::d_logits", execution, logits.extent(0),
                    detail::LogitGradient<Element, Out>{{in.data, in.rows, in.columns, in.stride},
                                                        row_max.data(),
                                                        row_sum.data(),
                                                        targets.data(),
                                                        first_id,
                                                        static_cast<MainElement<Element>>(scale),
                                                        detail::span_of(gradient),
                                                        rule});
}

/// @brief The same in place.
template <class Execution, KernelMatrix Logits, KernelVector Max, KernelVector Sum, KernelVector Targets>
void cross_entropy_backward(const Execution& execution, const Logits& logits, const Max& row_max,
                            const Sum& row_sum, const Targets& targets, std::int64_t first_id, double scale) {
  cross_entropy_backward(execution, logits, row_max, row_sum, targets, first_id, scale, logits);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
