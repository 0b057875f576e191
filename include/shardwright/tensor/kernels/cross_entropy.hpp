// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cross entropy over a vocabulary split into blocks: the local computations before and after the
/// ranks combine their results.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/id_check.hpp>
#include <shardwright/tensor/kernels/lanes/math.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/loss_factor.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Which targets count, and the share of each that is spread over the vocabulary.
struct TargetRule {
  std::int32_t ignored = -1; ///< Targets with this id do not count; neither do negative ones.
  double smoothing = 0;      ///< In [0, 1).
  double vocabulary = 1;     ///< Words of all blocks; for the smoothing.

  [[nodiscard]] SHARDWRIGHT_FUNCTION bool counts(std::int32_t target) const {
    return target >= 0 && target != ignored;
  }
};

namespace detail {

/// The largest of a row's numbers and the sum of exp(number - largest): a larger number shrinks the sum so
/// far (Milakov and Gimelshein 2018, arXiv 1805.02867). The threads of a device combine theirs at the end.
template <class Number> class RunningSoftmax {
public:
  static constexpr Number infinity = std::numeric_limits<Number>::infinity();

  /// Adds registers that hold some of the first `length` numbers; lanes past them are -infinity.
  template <std::size_t count>
  SHARDWRIGHT_FUNCTION void add(const Lanes<Number> (&x)[count], std::size_t length) {
    constexpr std::size_t width = WholeChunk<Number>::width;
    Lanes<Number> largest = broadcast<Number>(largest_);
    SHARDWRIGHT_UNROLL
    for (std::size_t k = 0; k < count && k * width < length; ++k)
      largest = larger(x[k], largest);
    const Number now = fold_own<Number, lane_count<Number>>(largest, LargerLanes{});
    if (now > largest_) {
      if (largest_ > lowest)
        sum_ = sum_ * exp_of_nonpositive<Number>(broadcast<Number>(largest_ - now));
      largest_ = now;
    }
    const Number shift = largest_;
    SHARDWRIGHT_UNROLL
    for (std::size_t k = 0; k < count && k * width < length; ++k)
      sum_ += exp_of_nonpositive<Number>(x[k] - shift);
  }
  /// Of all threads; -infinity if there are no other numbers.
  SHARDWRIGHT_FUNCTION Number largest() const {
    const Number all = over_threads(largest_, LargerLanes{});
    return all == lowest ? -infinity : all;
  }
  /// With the largest() of all threads.
  SHARDWRIGHT_FUNCTION Number sum(Number largest) const {
    if constexpr (lane_threads == 1)
      return sum_of<Number>(sum_);
    else
      return sum_of<Number>(sum_ * exp_of_nonpositive<Number>(
                                       broadcast<Number>(largest_ - (largest < lowest ? lowest : largest))));
  }

private:
  /// Finite, so that a row may begin with -infinity.
  static constexpr Number lowest = std::numeric_limits<Number>::lowest();
  Number largest_ = lowest;
  Lanes<Number> sum_{};
};

/// Everything that a token's loss needs of a row, in one read.
template <class Element> struct RowStatistics {
  using Number = AccumulationElement<Element>;
  static constexpr std::size_t together = lane_threads == 1 ? 16 : 4;
  MatrixSpan<const Element> logits;
  const std::int32_t* targets;
  std::int64_t first_id;
  Number* maximum;
  Number* sum;
  Number* target_logit;
  TargetRule rule;
  IdCheck check;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    if (rule.smoothing > 0)
      statistics<true>(i);
    else
      statistics<false>(i);
  }

private:
  template <bool smooth> SHARDWRIGHT_FUNCTION void statistics(std::size_t i) const {
    const Element* row = logits.row(i);
    RunningSoftmax<Number> running;
    Lanes<Number> total{}; // of the logits
    for_registers<Number, together>(row, logits.columns, -RunningSoftmax<Number>::infinity,
                                    [&running, &total](const auto& x, std::size_t length) {
                                      running.add(x, length);
                                      if constexpr (smooth)
                                        add_below(length, x, total);
                                      else
                                        static_cast<void>(total);
                                    });
    const Number largest = running.largest();
    const Number whole = running.sum(largest);
    const Number of_all = smooth ? sum_of<Number>(total) : Number(0);
    if (!first_lane())
      return;
    if (rule.counts(targets[i]))
      check(targets[i], i);
    maximum[i] = largest;
    sum[i] = whole;
    const std::int64_t target = targets[i] - first_id;
    const bool here =
        rule.counts(targets[i]) && target >= 0 && target < static_cast<std::int64_t>(logits.columns);
    const Number own = here ? static_cast<Number>(row[target]) : Number(0);
    // A smoothed target has a part of every word's logit.
    target_logit[i] = smooth ? static_cast<Number>(1 - rule.smoothing) * own +
                                   static_cast<Number>(rule.smoothing / rule.vocabulary) * of_all
                             : own;
  }
  SHARDWRIGHT_FUNCTION static void add_below(std::size_t length, const Lanes<Number> (&x)[together],
                                             Lanes<Number>& total) {
    constexpr std::size_t width = WholeChunk<Number>::width;
    SHARDWRIGHT_UNROLL
    for (std::size_t k = 0; k < together && k * width < length; ++k)
      total += lanes_below<Element>(x[k], length - k * width);
  }
};

/// sum *= exp(from - to): sums relative to one maximum become sums relative to a larger one.
template <class Number> struct RebaseSums {
  const Number* from;
  const Number* to;
  Number* sum;

  template <class Chunk> SHARDWRIGHT_FUNCTION void operator()(Chunk chunk, std::size_t i) const {
    chunk.store(sum + i,
                chunk.load(sum + i) * exp_of_nonpositive<Number>(chunk.load(from + i) - chunk.load(to + i)));
  }
  template <class Use> SHARDWRIGHT_FUNCTION void with_memory(const Use& use) const { use(from, to, sum); }
};

template <class Element> struct TokenLoss {
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
template <class Element, unsigned count_of_warps = 1> struct SumLosses {
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
  template <KernelBlock Block> SHARDWRIGHT_FUNCTION void operator()(const Block& block) const {
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
template <class Element> struct LogitGradient {
  using Number = AccumulationElement<Element>;
  MatrixSpan<const Element> logits;
  const Number* maximum;
  const Number* sum;
  const std::int32_t* targets;
  std::int64_t first_id;
  LossFactor factor_of_loss;
  MatrixSpan<Element> gradient;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const Element* row = logits.row(i);
    Element* out = gradient.row(i);
    if (!rule.counts(targets[i])) {
      for_chunks<Number, 1, true>(
          0, logits.columns, [out](auto chunk, std::size_t c) { chunk.store(out + c, Lanes<Number>{}); },
          out);
      return;
    }
    const Number shift = maximum[i];
    const Number scale = static_cast<Number>(factor_of_loss.value());
    const Number factor = scale / sum[i];
    const std::int64_t target = targets[i] - first_id;
    const bool here = target >= 0 && target < static_cast<std::int64_t>(logits.columns);
    const Number target_logit = here ? static_cast<Number>(row[target]) : Number(0);
    sync_lanes(); // all threads have read what one overwrites
    const Number less = static_cast<Number>(rule.smoothing / rule.vocabulary) * scale;
    for_chunks<Number, 2, true>(
        0, logits.columns,
        [row, out, shift, factor, less](auto chunk, std::size_t c) {
          chunk.store(out + c, exp_of_nonpositive<Number>(chunk.load(row + c) - shift) * factor - less);
        },
        row, out);
    sync_lanes();
    if (!here || !first_lane())
      return;
    // A probability near 1 must not be rounded before the difference.
    const Number own = static_cast<Number>(1 - rule.smoothing) * scale;
    if constexpr (is_narrow<Element>)
      out[target] = rounded_to<Element>(std::exp(target_logit - shift) * factor - (less + own));
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

/// @brief Reads every row of this block once: row_max = the largest logit, -infinity for an empty block;
/// row_sum = the sum of exp(logit - row_max); target_logit = the target's logit, or 0 elsewhere.
///
/// Row values of all kernels here have the AccumulationElement of the logits.
/// @param logits        [tokens, block of the vocabulary]
/// @param targets       int32 [tokens], ids over the whole vocabulary; negative ones are masked
/// @param first_id      first id of this block
/// @param row_max       [tokens]; combine over the ranks by maximum
/// @param row_sum       [tokens]; cross_entropy_rebase, then combine over the ranks by sum
/// @param target_logit  [tokens]; combine over the ranks by sum
/// @param rule          with smoothing, target_logit is the mean of logits under the target's distribution
/// @param check         notes a target beyond the vocabulary
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Logits, KernelVector Targets, KernelVector Rows>
void cross_entropy_statistics(const Execution& execution, const Logits& logits, const Targets& targets,
                              std::int64_t first_id, const Rows& row_max, const Rows& row_sum,
                              const Rows& target_logit, const TargetRule& rule = {},
                              const IdCheck& check = {}) {
  using Element = typename Logits::non_const_value_type;
  detail::require_rows("cross_entropy_statistics", targets, logits, row_max, row_sum, target_logit);
  moves("sw::row_stats", execution, logits, targets, row_max, row_sum, target_logit);
  run_lanes("sw::row_stats", execution, logits.extent(0),
            detail::RowStatistics<Element>{span_of(logits), targets.data(), first_id, row_max.data(),
                                           row_sum.data(), target_logit.data(), rule, check});
}

/// @brief row_sum *= exp(block_max - row_max): a block's sums relative to the largest logit of all blocks.
/// @param block_max  [tokens], the maximum that the sums were made with
/// @param row_max [tokens], over all blocks
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Block, KernelVector Max, KernelVector Sum>
void cross_entropy_rebase(const Execution& execution, const Block& block_max, const Max& row_max,
                          const Sum& row_sum) {
  using Number = typename Sum::value_type;
  require(block_max.extent(0) == row_sum.extent(0) && row_max.extent(0) == row_sum.extent(0),
          "cross_entropy_rebase", "maxima and sums must have one element per token.");
  moves("sw::rebase", execution, block_max, row_max, row_sum, row_sum);
  run_elementwise<Number>("sw::rebase", execution, row_sum.extent(0),
                          detail::RebaseSums<Number>{block_max.data(), row_max.data(), row_sum.data()});
}

/// @brief loss = log(row_sum) + row_max - target_logit per token, with values over all blocks; 0 for masked
/// tokens.
/// @throws InvalidArgument unless all have one element per token.
template <class Execution, KernelVector Max, KernelVector Sum, KernelVector Target, KernelVector Targets,
          KernelVector Loss>
void cross_entropy_loss(const Execution& execution, const Max& row_max, const Sum& row_sum,
                        const Target& target_logit, const Targets& targets, const Loss& loss,
                        const TargetRule& rule = {}) {
  using Element = typename Loss::value_type;
  detail::require_rows("cross_entropy_loss", targets, loss, row_max, row_sum, target_logit);
  moves("sw::token_loss", execution, row_max, row_sum, target_logit, targets, loss);
  run("sw::token_loss", execution, loss.extent(0),
      detail::TokenLoss<Element>{row_max.data(), row_sum.data(), target_logit.data(), targets.data(),
                                 loss.data(), rule});
}

/// @brief result[0] (+)= sum of the losses, result[1] (+)= number of unmasked tokens; double, in a fixed
/// order.
/// @param loss    [tokens]
/// @param result  double [2]
/// @param add     false overwrites the result
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Loss, KernelVector Targets, KernelVector Result>
void sum_losses(const Execution& execution, const Loss& loss, const Targets& targets, const Result& result,
                bool add = false, const TargetRule& rule = {}) {
  using Element = typename Loss::non_const_value_type;
  static_assert(std::is_same_v<typename Result::value_type, double>,
                "sum_losses: the result must be double (pass a view of double)");
  detail::require_rows("sum_losses", targets, loss);
  require(result.extent(0) >= 2, "sum_losses", "the result must have two elements.");
  moves("sw::sum_losses", execution, loss, targets, (add ? 4 : 2) * sizeof(double));
  if constexpr (detail::BlockLauncher<Execution>::available) {
    using Sum = detail::SumLosses<Element, 32>;
    detail::BlockLauncher<Execution>::run(
        execution, 1, Sum::shared_bytes,
        Sum{loss.data(), targets.data(), loss.extent(0), result.data(), add, rule});
  } else {
    run_lanes(
        "sw::sum_losses", execution, 1,
        detail::SumLosses<Element>{loss.data(), targets.data(), loss.extent(0), result.data(), add, rule});
  }
}

/// @brief gradient = scale * (softmax - one-hot of the target); rows of masked tokens become zero. One pass.
/// @param row_max, row_sum  [tokens], over all blocks
/// @param scale             gradient of the objective with respect to one token's loss
/// @param gradient          as the logits; may be the logits
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Logits, KernelVector Max, KernelVector Sum, KernelVector Targets,
          KernelMatrix Gradient>
void cross_entropy_backward(const Execution& execution, const Logits& logits, const Max& row_max,
                            const Sum& row_sum, const Targets& targets, std::int64_t first_id,
                            const LossFactor& scale, const Gradient& gradient, const TargetRule& rule = {}) {
  using Element = typename Logits::non_const_value_type;
  static_assert(std::is_same_v<typename Gradient::value_type, Element>,
                "cross_entropy_backward: the gradient must have the element type of the logits.");
  detail::require_rows("cross_entropy_backward", targets, logits, row_max, row_sum);
  require(gradient.extent(0) == logits.extent(0) && gradient.extent(1) == logits.extent(1),
          "cross_entropy_backward", "the gradient must have the shape of the logits.");
  moves("sw::d_logits", execution, logits, row_max, row_sum, targets, gradient);
  run_lanes("sw::d_logits", execution, logits.extent(0),
            detail::LogitGradient<Element>{span_of(logits), row_max.data(), row_sum.data(), targets.data(),
                                           first_id, scale, span_of(gradient), rule});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
