// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The head of a language model: its scores are products with a table that other parts may read, too.

#include <shardwright/nn/layers/adapter.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/train/pipeline/shared_parts.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// For the two layers of an adapter of a table [out, in].
struct OutputTableKind : MatrixKind {
  static constexpr bool is_table = true;
  struct Turned {
    template <class Weight> struct Of {
      static constexpr LayoutValue value = [] {
        LayoutValue out = Weight::value;
        std::swap(out.shard(0), out.shard(1));
        return out;
      }();
    };
  };
  template <LayoutType Weight> using Matrix = LayoutOf<typename Weight::axis_list, Turned::Of<Weight>>;
  template <class Shape> [[nodiscard]] static Shape matrix(const Shape& weight) {
    return {weight[1], weight[0]};
  }
  template <LayoutType In, LayoutType Weight, class Plan> using Down = PlainLinear<In, Weight, Plan>;
  template <LayoutType In, LayoutType Weight, class Plan> using Up = PlainLinear<In, Weight, Plan>;
  /// out = (A B)^T: the blocks of a rank fit, as A is split as the table's second dimension and B as its
  /// first.
  template <class Out, class A, class B> static void multiply(Out& out, const A& a, const B& b) {
    kernels::matmul(out.execution(), b.local_matrix(), kernels::Transpose::yes, a.local_matrix(),
                    kernels::Transpose::yes, out.mutable_local_matrix(), 1.0, 0.0,
                    ProductsOn<kernels::FastProducts, typename Out::target>{});
  }
};

} // namespace detail

/// @brief Scores x table^T of words, with a table [vocabulary, width] that is a TiedParameter, and x in
/// layout `In`. If the table is frozen, adapt() may add a low-rank adapter.
template <LayoutType In, class Table> class OutputTable {
  using Plan = ModelPlan<typename Table::element, typename Table::zero, typename Table::target>;

public:
  explicit OutputTable(TiedParameter<Table> table) : table_(std::move(table)) {}

  /// @brief linear_cross_entropy(). @throws what it does. With an adapter, 16-bit scores are rounded twice:
  /// as products with the table, and when the adapter has added to them.
  template <detail::TapeOperand X, LayoutType I, class Id, class Target>
  [[nodiscard]] auto loss(X&& x, const ShardedTensor<I, Id, Target>& targets,
                          const CrossEntropyOptions& options = {},
                          SourceLocation where = SourceLocation::current()) {
    if constexpr (Table::trained)
      return linear_cross_entropy(std::forward<X>(x), *table_, targets, options, where);
    else
      return cross_entropy(adapter_.sum_with(
                               [&](auto&& read) {
                                 return matmul_transposed(std::forward<decltype(read)>(read), *table_, where);
                               },
                               std::forward<X>(x), where),
                           targets, options, where);
  }
  /// @brief linear_scores(), for predictions in an evaluation.
  template <detail::TapeOperand X>
  [[nodiscard]] auto scores(X&& x, SourceLocation where = SourceLocation::current()) {
    return adapter_.add_to_value(linear_scores(x, *table_, where), x, where);
  }
  [[nodiscard]] Table& weight() noexcept { return *table_; }
  /// @brief Adds an adapter to a frozen table; called by adapt().
  [[nodiscard]] std::size_t adapt(const LoraOptions& options, const std::string& path,
                                  detail::AddedAdapters& added) requires(!Table::trained) {
    return adapter_.add(weight(), options, path, added);
  }
  /// @brief Called by merge_adapters() and unmerge_adapters().
  void merge_adapter(bool merged) requires(!Table::trained) { adapter_.merge(weight(), merged); }
  [[nodiscard]] auto members() { return adapter_.members_with(table_); }

private:
  TiedParameter<Table> table_;
  using Scores = MatmulLayout<In, typename Table::compute_layout, MatmulForm::right_transposed>;
  [[no_unique_address]] detail::AdapterOf<detail::OutputTableKind, In, typename Table::compute_layout, Plan,
                                          Scores>
      adapter_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
