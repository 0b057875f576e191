// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Moves rows along the route of a dispatch: to the experts and back.

#include <shardwright/comm/pending.hpp>
#include <shardwright/comm/threads/ranks.hpp>
#include <shardwright/comm/typed_calls.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/experts/route.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Blocks of rows as blocks of elements.
[[nodiscard]] inline KeptVector<StridedBlock> widened(const KeptVector<StridedBlock>& rows,
                                                      std::size_t width) {
  KeptVector<StridedBlock> out(rows.get_allocator());
  out.reserve(rows.size());
  for (const StridedBlock& block : rows)
    out.push_back(contiguous_block(block.offset * width, block.count() * width));
  return out;
}

/// Kernels on a target.
template <class Target> struct KernelLoop {
  const typename Target::execution_space& execution;
  template <class Functor> void lanes(const char* label, std::size_t count, const Functor& functor) const {
    kernels::run_lanes(label, execution, count, functor);
  }
  template <class Functor> void each(const char* label, std::size_t count, const Functor& functor) const {
    kernels::run(label, execution, count, functor);
  }
};
/// The same on the calling thread.
struct PlainLoop {
  template <class Functor> void lanes(const char*, std::size_t count, const Functor& functor) const {
    const Functor here = functor; // a copy that no element aliases
    for (std::size_t i = 0; i < count; ++i)
      here(i);
  }
  template <class Functor> void each(const char* label, std::size_t count, const Functor& functor) const {
    lanes(label, count, functor);
  }
};

/// The rows that a rank publishes for others to read in place, without a copy in the order of sending.
struct ShownRows {
  const void* rows = nullptr; ///< Row i to be sent is row index[i] / divisor of these.
  const std::int32_t* index = nullptr;
  std::size_t divisor = 1;
  const KeptVector<StridedBlock>* sent = nullptr; ///< By rank.
};

/// One rank's side of an exchange of rows, as seen by the others.
struct OpenRows : DirectExchange {
  explicit OpenRows(const ShownRows& rows) : shown(rows) {}
  const ShownRows shown;
};

/// Locates the rows for this rank in the senders' memory, and calls use(rows) with a list of them, in the
/// order in which they would be received.
template <class Element, class Use> class DirectRows final : public OpenRows {
public:
  /// @param list memory for one pointer for each received row
  DirectRows(const ShownRows& own, const KeptVector<StridedBlock>& received, std::size_t rank, void* list,
             std::size_t width, const Use& use)
      : OpenRows(own), received_(received), rank_(rank), list_(static_cast<const Element**>(list)),
        width_(width), use_(use) {}

  void run(std::span<DirectExchange* const> ranks) noexcept override {
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      const ShownRows& other = static_cast<const OpenRows&>(*ranks[from]).shown;
      const std::int32_t* const index = other.index + (*other.sent)[rank_].offset;
      const auto* const rows = static_cast<const Element*>(other.rows);
      const Element** const list = list_ + received_[from].offset;
      for (std::size_t i = 0; i < received_[from].count(); ++i)
        list[i] = rows + static_cast<std::size_t>(index[i]) / other.divisor * width_;
    }
    use_(kernels::ListedRows<Element>{list_});
  }

private:
  const KeptVector<StridedBlock>& received_;
  const std::size_t rank_;
  const Element** const list_;
  const std::size_t width_;
  const Use& use_;
};

/// Calls use(communicator, call) with one all_to_all over the owners; its blocks live until `use` returns.
template <class Target, class Element, class Use>
decltype(auto) with_exchange(TargetResources<Target>& resources, const ExpertRoute& route, bool back,
                             const Element* in, Element* out, std::size_t width, SourceLocation where,
                             const Use& use) {
  const auto sent = widened(back ? route.received_rows : route.sent_rows, width);
  const auto received = widened(back ? route.sent_rows : route.received_rows, width);
  const std::size_t here = static_cast<std::size_t>(route.sent()) * width;
  const std::size_t there = static_cast<std::size_t>(route.rows()) * width;
  const std::span<const Element> from(in, back ? there : here);
  const std::span<Element> to(out, back ? here : there);
  auto& ranks = resources.core().template communicator<Target>(route.owners);
  TypedCall typed(ranks, Operation::all_to_all, Elements::of(from), Elements::of(to), where);
  const CollectiveCall call = typed.all_to_all(sent, received);
  order_call_after<Target>(resources.execution());
  return use(ranks, call);
}

template <class Target, class Element>
void exchange_rows(TargetResources<Target>& resources, const ExpertRoute& route, bool back, const Element* in,
                   Element* out, std::size_t width, SourceLocation where) {
  with_exchange<Target>(resources, route, back, in, out, width, where,
                        [](auto& ranks, const CollectiveCall& call) { ranks.run(call); });
}

/// Sends rows to other ranks.
///
/// Buffers are allocated in every case, so that a dry run accounts for them. Ranks that are threads of one
/// process read one another's rows in place: `shown` describes this rank's rows, and use(list) reads those of
/// all ranks instead of received ones, in a plain loop, since it may run on the thread of any rank. Otherwise
/// `pack(memory)` copies the rows in the order of sending, and use(rows) processes the received ones.
template <class Target, class Element, class Pack, class Use>
void move_rows(TargetResources<Target>& resources, const ExpertRoute& route, bool back, ShownRows shown,
               std::size_t width, SourceLocation where, const Pack& pack, const Use& use) {
  const auto here = static_cast<std::size_t>(route.sent());
  const auto there = static_cast<std::size_t>(route.rows());
  BufferHandle leaving = new_block<Element>(resources, (back ? there : here) * width, where);
  const BufferHandle arrived = new_block<Element>(resources, (back ? here : there) * width, where);
  auto* const out = static_cast<Element*>(leaving.data());
  auto* const in = static_cast<Element*>(arrived.data());
  if constexpr (Target::host_accessible) {
    auto& ranks = resources.core().communicator(route.owners);
    ThreadRanks* const threads = ThreadRanks::of(ranks);
    if (threads != nullptr && width > 1 && width * sizeof(Element) >= sizeof(void*)) { // room for the list
      shown.sent = back ? &route.received_rows : &route.sent_rows;
      const auto take = [&](const auto& rows) { use(rows, PlainLoop()); };
      DirectRows<Element, decltype(take)> direct(shown, back ? route.sent_rows : route.received_rows,
                                                 static_cast<std::size_t>(ranks.rank()), in, width, take);
      const ThreadRanks::MovedBy moved_by(*threads, direct);
      return exchange_rows<Target, Element>(resources, route, back, out, in, width, where);
    }
  }
  pack(out);
  exchange_rows<Target, Element>(resources, route, back, out, in, width, where);
  leaving = BufferHandle();
  use(kernels::PackedRows<Element>{in, width}, KernelLoop<Target>{resources.execution()});
}

/// What a kernel moves that copies rows to or from places that an index names.
template <class Element> [[nodiscard]] std::size_t indexed_row_bytes(std::int64_t rows, std::size_t width) {
  return static_cast<std::size_t>(rows) * (2 * width * sizeof(Element) + sizeof(std::int32_t));
}

/// Dispatches the rows of tokens to their experts: `rows` [route.rows(), width] from `tokens` [tokens,
/// width].
template <class Target, class Element>
void send_rows(TargetResources<Target>& resources, const ExpertRoute& route, const Element* tokens,
               Element* rows, std::size_t width, SourceLocation where) {
  const auto divisor = static_cast<std::size_t>(route.slots);
  const auto moves = [&](const char* label, std::int64_t count) {
    kernels::moves(label, resources.execution(), indexed_row_bytes<Element>(count, width));
  };
  const auto gather = [&](Element* to) {
    moves("sw::gather_rows", route.sent());
    kernels::run_lanes("sw::gather_rows", resources.execution(), static_cast<std::size_t>(route.sent()),
                       kernels::GatherRows<Element>{tokens, route.pair(), divisor, to, width});
  };
  if (!route.exchanges())
    return gather(rows);
  ShownRows shown;
  shown.rows = tokens;
  shown.index = route.pair();
  shown.divisor = divisor;
  move_rows<Target, Element>(resources, route, false, shown, width, where, gather,
                             [&]<class Rows>(const Rows& received, const auto& loop) {
                               moves("sw::group_rows", route.rows());
                               loop.lanes(
                                   "sw::group_rows", static_cast<std::size_t>(route.rows()),
                                   kernels::ScatterRows<Element, Rows>{received, route.group(), rows, width});
                             });
}

/// Returns the experts' rows to the senders' order, and calls use(rows, loop) to read them in a loop over
/// tokens.
template <class Target, class Element, class Use>
void return_rows(TargetResources<Target>& resources, const ExpertRoute& route, const Element* rows,
                 std::size_t width, SourceLocation where, const Use& use) {
  if (!route.exchanges())
    return use(kernels::PackedRows<Element>{rows, width}, KernelLoop<Target>{resources.execution()});
  ShownRows shown;
  shown.rows = rows;
  shown.index = route.group();
  const auto ungroup = [&](Element* to) {
    kernels::moves("sw::pack_rows", resources.execution(), indexed_row_bytes<Element>(route.rows(), width));
    kernels::run_lanes("sw::pack_rows", resources.execution(), static_cast<std::size_t>(route.rows()),
                       kernels::GatherRows<Element>{rows, route.group(), 1, to, width});
  };
  move_rows<Target, Element>(resources, route, true, shown, width, where, ungroup, use);
}

/// Sends one number per row along a route, asynchronously.
template <class Target, class Number> class MovingNumbers {
public:
  /// Starts sending one number per pair, [tokens * slots], to the experts.
  [[nodiscard]] static MovingNumbers to_experts(TargetResources<Target>& resources, const ExpertRoute& route,
                                                const Number* pairs) {
    return {resources, route, false, pairs, route.pair()};
  }
  /// Starts sending one number per grouped row, [route.rows()], back. @pre route.exchanges()
  [[nodiscard]] static MovingNumbers to_tokens(TargetResources<Target>& resources, const ExpertRoute& route,
                                               const Number* rows) {
    return {resources, route, true, rows, route.group()};
  }

  /// Waits; returns the numbers of pairs by grouped row, or those of rows in the senders' order.
  [[nodiscard]] const Number* wait() {
    if (!route_->exchanges())
      return data(packed_);
    under_way_.wait();
    packed_ = BufferHandle();
    if (back_)
      return data(arrived_);
    const auto count = static_cast<std::size_t>(route_->rows());
    BufferHandle grouped = new_block<Number>(*resources_, count, {});
    kernels::run_lanes("sw::group_gates", resources_->execution(), count,
                       kernels::ScatterRows<Number, kernels::PackedRows<Number>>{
                           {data(arrived_), 1}, route_->group(), static_cast<Number*>(grouped.data()), 1});
    arrived_ = std::move(grouped);
    return data(arrived_);
  }

private:
  MovingNumbers(TargetResources<Target>& resources, const ExpertRoute& route, bool back, const Number* in,
                const std::int32_t* index)
      : resources_(&resources), route_(&route), back_(back),
        packed_(new_block<Number>(resources, size(back), {})) {
    kernels::run_lanes("sw::pack_gates", resources.execution(), size(back),
                       kernels::GatherRows<Number>{in, index, 1, static_cast<Number*>(packed_.data()), 1});
    if (!route.exchanges())
      return;
    arrived_ = new_block<Number>(resources, size(!back), {});
    under_way_ =
        with_exchange<Target>(resources, route, back, data(packed_), static_cast<Number*>(arrived_.data()), 1,
                              {}, [](auto& ranks, auto& call) { return ranks.start(call); });
  }

  [[nodiscard]] std::size_t size(bool at_experts) const {
    return static_cast<std::size_t>(at_experts ? route_->rows() : route_->sent());
  }
  [[nodiscard]] static const Number* data(const BufferHandle& block) {
    return static_cast<const Number*>(block.data());
  }

  TargetResources<Target>* resources_;
  const ExpertRoute* route_;
  bool back_;
  BufferHandle packed_;
  BufferHandle arrived_;
  Pending under_way_; // last, so that a call that is dropped ends before its memory
};

/// Checks that two tensors hold rows of the same dispatch; arrays have an overload of this name.
inline void require_equal_extents(const char* operation, const char* sentence, const RaggedShape& shape,
                                  std::size_t, const RaggedShape& other, std::size_t, std::size_t,
                                  const MeshCore& core, SourceLocation where) {
  if (!shape.one_dispatch(other))
    reject_operation(
        operation,
        "both operands must come from the same dispatch, but they come from two (dispatch the tokens once, and compute both from those rows)",
        core, where);
  if (shape != other)
    reject_extents(operation, sentence, shape, other, core, where);
}

/// The same under the name that checks of equal shapes have.
inline void require_shape(const char* operation, const char* what, const RaggedShape& shape,
                          const RaggedShape& wanted, const MeshCore& core, SourceLocation where) {
  const std::string sentence = std::string("the ") + what + " must have the shape of the other one";
  require_equal_extents(operation, sentence.c_str(), shape, 0, wanted, 0, 2, core, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
