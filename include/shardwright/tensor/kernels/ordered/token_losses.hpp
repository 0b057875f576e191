// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Cross entropy whose bits depend neither on how the vocabulary is cut into blocks nor on how the
/// tokens are: sums of equal parts of the vocabulary that join in a binary tree, and exact sums of losses.

#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief Elements (AccumulationElement) of workspace for the parts of a block of the vocabulary.
[[nodiscard]] constexpr std::size_t vocabulary_parts_workspace(std::size_t rows, std::size_t parts) {
  return 3 * rows * parts;
}

namespace detail {

struct LargerOf {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V left, V right) const {
    return chosen(left > right, left, right);
  }
};

/// Row values of the parts: [parts, rows] each.
template <class Number> struct VocabularyParts {
  std::size_t rows;
  std::size_t parts;
  Number* memory;

  [[nodiscard]] Number* maxima(std::size_t part) const { return memory + part * rows; }
  [[nodiscard]] Number* sums(std::size_t part) const { return maxima(parts + part); }
  [[nodiscard]] Number* target_logits(std::size_t part) const { return maxima(2 * parts + part); }
};

template <class Execution, class Number>
void copy_part(const Execution& execution, std::size_t rows, const Number* from, Number* to) {
  moves("sw::copy", execution, 2 * rows * sizeof(Number));
  run_pieces("sw::copy", execution, 1, rows, 4096, ConvertElements<Number, Number>{to, from});
}

/// out = function(left, right), for the rows of two parts.
template <class Function, class Execution, class Number>
void join_parts(const Execution& execution, std::size_t rows, const Number* left, const Number* right,
                Number* out) {
  store_formula("sw::join_parts", execution, CombineOf<Function>{}, NoElements{}, Elements<Number>{left},
                Elements<Number>{right}, out, rows);
}

/// out = the sum of the parts' values, [parts, rows], in a binary tree; overwrites them.
template <class Execution, class Number>
void add_parts(const Execution& execution, std::size_t rows, std::size_t parts, Number* values, Number* out) {
  for (std::size_t step = 1; step < parts; step *= 2)
    for (std::size_t p = 0; p < parts; p += 2 * step)
      join_parts<operation::Add>(execution, rows, values + p * rows, values + (p + step) * rows,
                                 values + p * rows);
  copy_part(execution, rows, values, out);
}

/// As SumLosses, of loss_term().
template <class Element> struct ExactLosses {
  const Element* loss;
  const std::int32_t* targets;
  std::size_t count;
  double* result;
  TargetRule rule;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    double losses = 0;
    double tokens = 0;
    for (std::size_t i = 0; i < count; ++i) {
      losses += shardwright::detail::loss_term(static_cast<double>(loss[i]));
      tokens += rule.counts(targets[i]) ? 1.0 : 0.0;
    }
    result[0] = losses;
    result[1] = tokens;
  }
};

} // namespace detail

/// @brief cross_entropy_statistics() of equal parts of the vocabulary: row_max and target_logit over this
/// block, in a binary tree over its parts; the parts' maxima and sums stay in the workspace for
/// vocabulary_parts_sum().
/// @param parts      of this block, a power of two; they divide its columns
/// @param workspace  AccumulationElement [vocabulary_parts_workspace()]
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelMatrix Logits, KernelVector Targets, KernelVector Rows>
void vocabulary_parts_statistics(const Execution& execution, const Logits& logits, const Targets& targets,
                                 std::int64_t first_id, std::size_t parts, const Rows& row_max,
                                 const Rows& target_logit, typename Rows::value_type* workspace,
                                 const TargetRule& rule = {}, const IdCheck& check = {}) {
  using Element = typename Logits::non_const_value_type;
  detail::require_rows("vocabulary_parts_statistics", targets, logits, row_max, target_logit);
  const auto all = span_of(logits);
  require(parts > 0 && (parts & (parts - 1)) == 0 && all.columns % parts == 0, "vocabulary_parts_statistics",
          "the number of parts must be a power of two that divides the columns.");
  const std::size_t width = all.columns / parts;
  const detail::VocabularyParts<typename Rows::value_type> of{all.rows, parts, workspace};
  moves("sw::row_stats", execution, logits, targets,
        3 * parts * all.rows * sizeof(typename Rows::value_type));
  for (std::size_t p = 0; p < parts; ++p)
    run_lanes("sw::row_stats", execution, all.rows,
              detail::RowStatistics<Element>{all.columns_from(p * width, width), targets.data(),
                                             first_id + static_cast<std::int64_t>(p * width), of.maxima(p),
                                             of.sums(p), of.target_logits(p), rule,
                                             p == 0 ? check : IdCheck{}});
  detail::copy_part(execution, all.rows, of.maxima(0), row_max.data());
  for (std::size_t p = 1; p < parts; ++p)
    detail::join_parts<detail::LargerOf>(execution, all.rows, row_max.data(), of.maxima(p), row_max.data());
  detail::add_parts(execution, all.rows, parts, of.target_logits(0), target_logit.data());
}

/// @brief row_sum = the sum of exp(logit - row_max) over this block, in a binary tree over its parts.
/// @param row_max    [tokens], over all blocks
/// @param workspace  as vocabulary_parts_statistics() has left it
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Max, KernelVector Sum>
void vocabulary_parts_sum(const Execution& execution, std::size_t parts, const Max& row_max,
                          const Sum& row_sum, typename Sum::value_type* workspace) {
  using Number = typename Sum::value_type;
  const std::size_t rows = row_sum.extent(0);
  require(row_max.extent(0) == rows, "vocabulary_parts_sum",
          "maxima and sums must have one element per token.");
  const detail::VocabularyParts<Number> of{rows, parts, workspace};
  moves("sw::rebase", execution, 4 * parts * rows * sizeof(Number));
  for (std::size_t p = 0; p < parts; ++p)
    run_elementwise<Number>("sw::rebase", execution, rows,
                            detail::RebaseSums<Number>{of.maxima(p), row_max.data(), of.sums(p)});
  detail::add_parts(execution, rows, parts, of.sums(0), row_sum.data());
}

/// @brief As sum_losses(), of loss_term() of the losses, so that the sum does not depend on the order.
/// @param loss    [tokens]
/// @param result  double [2]
/// @throws InvalidArgument for other shapes.
template <class Execution, KernelVector Loss, KernelVector Targets, KernelVector Result>
void sum_losses_exactly(const Execution& execution, const Loss& loss, const Targets& targets,
                        const Result& result, const TargetRule& rule = {}) {
  using Element = typename Loss::non_const_value_type;
  detail::require_rows("sum_losses_exactly", targets, loss);
  require(result.extent(0) >= 2, "sum_losses_exactly", "the result must have two elements.");
  moves("sw::sum_losses", execution, loss, targets, 2 * sizeof(double));
  run("sw::sum_losses", execution, 1,
      detail::ExactLosses<Element>{loss.data(), targets.data(), loss.extent(0), result.data(), rule});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
