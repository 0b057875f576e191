// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Token embedding from a table that may be sharded over the vocabulary.

#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/layers/adapter.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/ordered/layer_gradients.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The rows of the table. `order` is that of the rows of the batch's sequences, for errors.
template <LayoutType I, class Id, class Target, LayoutType T, class E>
[[nodiscard]] auto embedded(const ShardedTensor<I, Id, Target>& ids, const ShardedTensor<T, E, Target>& table,
                            const RowOrder& order, SourceLocation where) {
  require_one_mesh("embed", table, ids, where);
  constexpr std::size_t rank = I::tensor_rank;
  std::array<std::int64_t, rank + 1> shape{};
  for (std::size_t d = 0; d < rank; ++d)
    shape[d] = ids.shape()[d];
  shape[rank] = table.shape()[1];
  ShardedTensor<EmbeddingLayout<I, T>, std::remove_const_t<E>, Target> out(table.resources(), shape);
  kernels::embedding_forward(table.execution(), vector_of(ids), table.local_matrix(), table.local_offset()[0],
                             out.mutable_local_matrix(), id_check(ids, table.shape()[0], false, order));
  reject_unknown_ids(ids, where);
  return out;
}

} // namespace detail

/// @brief out[..., :] = table[ids[...], :]; Partial<Sum> over the axes that shard the vocabulary, since each
/// rank has only its own words.
/// @param ids int32, within [0, vocabulary)
/// @param table [vocabulary, width]
/// @throws DataError for another id, which names its place; on a device, the step's report throws it.
template <LayoutType I, class Id, class Target, LayoutType T, class E>
[[nodiscard]] auto embed(const ShardedTensor<I, Id, Target>& ids, const ShardedTensor<T, E, Target>& table,
                         SourceLocation where = SourceLocation::current()) {
  return detail::embedded(ids, table, {}, where);
}

namespace operation {

/// @brief embed() of ids as a function of the table, whose gradient adds tokens in order.
template <class Ids> struct Embed {
  static constexpr std::string_view name = "embedding";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  Ids ids;
  RowOrder order{}; ///< That of the rows of the batch's sequences, for errors.

  template <class G, class Table>
  using GradientTensor =
      ShardedTensor<EmbeddingGradientLayout<typename Ids::layout, typename G::layout, typename Table::layout>,
                    typename G::value_type, typename G::target>;

  template <AnyShardedTensor Table>
  [[nodiscard]] auto forward(SourceLocation where, const Table& table) const {
    return detail::embedded(ids, table, order, where);
  }
  template <AnyShardedTensor G, AnyShardedTensor Table, AnyShardedTensor Y>
  [[nodiscard]] GradientTensor<G, Table> gradient(const G& y_gradient, const Table& table, const Y&) const {
    static_cast<void>(detail::TermsOfParameter<typename G::target>::value);
    GradientTensor<G, Table> out(y_gradient.resources(), table.shape());
    add_to(out, y_gradient, false);
    return out;
  }
  /// @brief The same, added to the gradient of a parameter.
  template <class Slot, AnyShardedTensor G> void gradient_into(const Slot& slot, const G& y_gradient) const {
    if constexpr (is_reproducible<typename G::target>)
      add_to(slot.tensor, y_gradient, slot.beta != 0, slot.fault);
    else
      add_to(slot.tensor, y_gradient, slot.beta != 0);
  }

private:
  template <class Out, class G, class... Fault>
  void add_to(Out& out, const G& y_gradient, bool add, Fault... fault) const {
    kernels::embedding_backward(y_gradient.execution(), detail::vector_of(ids), y_gradient.local_matrix(),
                                out.local_offset()[0], out.mutable_local_matrix(), add, fault...);
  }
};

} // namespace operation

/// @brief The same on a tape, with a table that is a parameter.
/// @throws DataError as above.
template <LayoutType I, class Id, class Target, class C, class R, class E, class Z>
[[nodiscard]] auto embed(Tape<Target>& tape, const ShardedTensor<I, Id, Target>& ids,
                         Parameter<C, R, E, Z, Target>& table,
                         SourceLocation where = SourceLocation::current()) {
  if (tape.core().checks_inputs())
    require_equal_inputs(ids, where);
  using Handle = ShardedTensor<I, const std::remove_const_t<Id>, Target>;
  auto out = detail::record_on(tape.core(), operation::Embed<Handle>{ids.share(), tape.core().rows()}, where,
                               detail::operand_of(table, where));
  out.slot().add_rows(detail::RowAxes::of<I>(ids.core(), I::tensor_rank));
  return out;
}

/// @brief Rows of a value on a tape, by their numbers: the same with a table that is not a parameter.
/// @throws DataError as above.
template <LayoutType I, class Id, class Target, detail::TapeValue Table>
[[nodiscard]] auto embed(const ShardedTensor<I, Id, Target>& ids, Table&& table,
                         SourceLocation where = SourceLocation::current()) {
  detail::TapeCore& tape = table.tape();
  if (tape.checks_inputs())
    require_equal_inputs(ids, where);
  using Handle = ShardedTensor<I, const std::remove_const_t<Id>, Target>;
  auto out = apply(operation::Embed<Handle>{ids.share(), tape.rows()}, where, std::forward<Table>(table));
  out.slot().add_rows(detail::RowAxes::of<I>(ids.core(), I::tensor_rank));
  return out;
}

namespace detail {

/// The trace shows both tensors.
template <class Given, class Wanted> struct EmbeddingIds {
  static constexpr bool value = std::is_same_v<Given, Wanted>;
  static_assert(
      value,
      "Embedding: the ids must be in the layout and on the target that the module is made for (redistribute them, or change the module's Ids)");
};

} // namespace detail

template <LayoutType Ids, LayoutType Weight, class Plan, bool tied, LayoutType Result> class Embedding;

namespace detail {

/// Ids to look up, on the tape that records it.
template <class Target, class Ids> struct Lookup {
  Tape<Target>& tape;
  const Ids& ids;
  template <class Module> [[nodiscard]] auto in(Module& embedding, SourceLocation where) const {
    return embedding(tape, ids, where);
  }
};

/// For the two layers of an adapter.
struct EmbeddingKind : MatrixKind {
  static constexpr bool is_table = true;
  template <LayoutType Ids, LayoutType Weight, class Plan>
  using Down = Embedding<Ids, Weight, Plan, false, EmbeddingLayout<Ids, Weight>>;
  template <LayoutType In, LayoutType Weight, class Plan> using Up = PlainLinear<In, Weight, Plan>;
};

} // namespace detail

/// @brief A row of a table in layout `Weight`, [vocabulary, width], for each id of a tensor in layout `Ids`.
///
/// The result is Partial over the axes that shard the vocabulary, and `.as<Stream>()` completes it. If the
/// plan is frozen, adapt() may add a low-rank adapter; on a Reproducible target a Partial result is then
/// redistributed to layout `Result`, or completed.
/// @tparam tied whether the table is a TiedParameter<Table>, which other parts of a model may read, too
template <LayoutType Ids, LayoutType Weight, class Plan = ModelPlan<>, bool tied = false,
          LayoutType Result = EmbeddingLayout<Ids, Weight>>
class Embedding {
  using Rows = EmbeddingLayout<Ids, Weight>;

public:
  using Out = typename detail::AdaptedLayout<Rows, Result, Plan>::type;
  using Table = Parameter<Weight, EmbeddingGradientLayout<Ids, Gradient<Rows>, Weight>,
                          typename Plan::element, typename Plan::zero, typename Plan::target>;

  template <class Mesh>
  Embedding(const Mesh& mesh, std::int64_t vocabulary, std::int64_t width, const Initial& initial,
            SourceLocation where = SourceLocation::current()) requires(!tied)
      : table_(mesh, {vocabulary, width}, initial, where) {}
  template <class Mesh>
  Embedding(const Mesh& mesh, const std::array<std::int64_t, 2>& shape, const Initial& initial,
            SourceLocation where = SourceLocation::current()) requires(!tied)
      : table_(mesh, shape, initial, where) {}
  explicit Embedding(TiedParameter<Table> table) requires(tied) : table_(std::move(table)) {}

  template <LayoutType L, class Id, class Place>
  [[nodiscard]] auto operator()(Tape<typename Plan::target>& tape, const ShardedTensor<L, Id, Place>& ids,
                                SourceLocation where = SourceLocation::current()) {
    using Wanted = ShardedTensor<Ids, Id, typename Plan::target>;
    if constexpr (detail::EmbeddingIds<ShardedTensor<L, Id, Place>, Wanted>::value)
      return adapter_.sum_with([&](const auto&) { return embed(tape, ids, weight(), where); },
                               detail::Lookup<typename Plan::target, Wanted>{tape, ids}, where);
  }
  [[nodiscard]] Table& weight() noexcept {
    if constexpr (tied)
      return *table_;
    else
      return table_;
  }
  /// @brief Adds an adapter to a frozen table; called by adapt().
  [[nodiscard]] std::size_t adapt(const LoraOptions& options, const std::string& path,
                                  detail::AddedAdapters& added) requires(!Table::trained) {
    return adapter_.add(weight(), options, path, added);
  }
  /// @brief Called by merge_adapters() and unmerge_adapters().
  void merge_adapter(bool merged) requires(!Table::trained) { adapter_.merge(weight(), merged); }
  [[nodiscard]] auto members() { return adapter_.members_with(table_); }

private:
  std::conditional_t<tied, TiedParameter<Table>, Table> table_;
  [[no_unique_address]] detail::AdapterOf<detail::EmbeddingKind, Ids, Weight, Plan, Out> adapter_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
