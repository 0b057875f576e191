// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief redistribute: converts a tensor from one layout to another with the collectives that the two types
/// imply.

#include <shardwright/layout/transition.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/halo/exchange.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/run.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

template <class To, class From>
using TensorIn = ShardedTensor<To, typename From::value_type, typename From::target>;

/// The shape of a tensor in `memory` that ranks compare when they move it.
[[nodiscard]] inline SubjectShape subject_of(const BufferHandle& memory,
                                             std::span<const std::int64_t> shape) noexcept {
  static_assert(max_tensor_rank == SubjectShape::most_dimensions);
  return memory.reduced_from().known() ? memory.reduced_from() : SubjectShape::of(shape);
}

/// The block in `memory` after the transition: the same memory if nothing moves, or if an all_reduce may
/// overwrite it because nothing else, the user's view included, refers to it.
template <class Element, class Place>
[[nodiscard]] BufferHandle memory_after(TargetResources<Place>& resources, const TransitionSteps& table,
                                        std::span<const std::int64_t> shape, BufferHandle memory,
                                        SourceLocation where) {
  const BoundTransition bound = bind_transition(resources.core(), table);
  if (bound.trivial())
    return memory;
  const SubjectShape subject = subject_of(memory, shape);
  BufferHandle to;
  if (bound.is_all_reduce() && memory.reusable()) {
    memory.reduced_from() = {}; // as it would be in new memory
    to = memory;
  } else {
    to = new_block<Element>(resources, block_elements(resources.core(), table, *table.to, shape), where);
  }
  TransitionRun<Element, Place>(resources, bound, extents_of(shape),
                                static_cast<const Element*>(memory.data()), static_cast<Element*>(to.data()),
                                subject, where)
      .run();
  return to;
}

#if defined(SHARDWRIGHT_COMPILED)
extern template BufferHandle memory_after<float>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                                 std::span<const std::int64_t>, BufferHandle, SourceLocation);
extern template BufferHandle memory_after<double>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                                  std::span<const std::int64_t>, BufferHandle,
                                                  SourceLocation);
extern template BufferHandle memory_after<bfloat16>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                                    std::span<const std::int64_t>, BufferHandle,
                                                    SourceLocation);
#endif

template <class From, class To> inline constexpr bool moves_halos = has_halos<From> || has_halos<To>;

/// `from` in another layout, one of them with halos: the owned elements move between layouts without halos.
template <class To, class From>
[[nodiscard]] TensorIn<To, From> transition_with_halos(const From& from, SourceLocation where);

} // namespace detail

/// @brief `from` in layout `To`: a read-only handle.
///
/// The types determine which collectives run. If none is effective on this mesh, the result shares the memory
/// of `from` and costs nanoseconds; otherwise it has new memory from the mesh's pool, and a rank sends, or
/// receives, at most `Transition<L, To>::bytes`. Collective over the axes that change.
///
/// Halos of `To` are filled from their owners, corners included, and are 0 beyond the ends of the tensor;
/// between equal layouts halos are not refreshed (refresh_halos does that).
/// @throws the typed errors of the mesh's communicators; InvalidArgument on every rank if a halo is wider
/// than a block that fills it.
template <LayoutType To, class L, class E, class Where>
[[nodiscard]] ShardedTensor<To, const std::remove_const_t<E>, Where>
redistribute(const ShardedTensor<L, E, Where>& from, SourceLocation where = SourceLocation::current()) {
  using Handle = ShardedTensor<To, const std::remove_const_t<E>, Where>;
  static_cast<void>(Transition<L, To>::is_identity);
  detail::begin_operation(where, from);
  if constexpr (!detail::moves_halos<L, To>)
    return detail::TensorAccess::in_memory<Handle>(
        detail::memory_after<std::remove_const_t<E>>(from.resources(),
                                                     detail::transition_steps<Transition<L, To>>,
                                                     from.shape(), detail::TensorAccess::buffer(from), where),
        from.shape());
  else if constexpr (std::is_same_v<L, To>)
    return detail::TensorAccess::adopt<Handle>(from);
  else
    return detail::TensorAccess::take<Handle>(detail::transition_with_halos<To>(from, where));
}

/// @brief The same for a moved-in owner: the result owns its memory, and a single all_reduce works in place,
/// except in memory that the program owns (tensor_over).
template <LayoutType To, class L, class E, class Where>
requires(!std::is_const_v<E>)
    [[nodiscard]] ShardedTensor<To, E, Where> redistribute(ShardedTensor<L, E, Where>&& from,
                                                           SourceLocation where = SourceLocation::current()) {
  static_cast<void>(Transition<L, To>::is_identity);
  detail::begin_operation(where, from);
  if constexpr (!detail::moves_halos<L, To>) {
    auto& resources = from.resources();
    return detail::TensorAccess::in_memory<ShardedTensor<To, E, Where>>(
        detail::memory_after<E>(resources, detail::transition_steps<Transition<L, To>>, from.shape(),
                                detail::TensorAccess::take_memory(std::move(from)), where),
        from.shape());
  } else if constexpr (std::is_same_v<L, To>)
    return std::move(from);
  else
    return detail::transition_with_halos<To>(ShardedTensor<L, E, Where>(std::move(from)), where);
}

/// @brief Rejects anything but a sharded tensor, with an error sentence.
template <LayoutType To, class From>
requires(!AnyShardedTensor<From>) void redistribute(const From&) {
  static_assert(
      AnyShardedTensor<From>,
      "redistribute: the input must be a ShardedTensor, whose layout says what moves (make one on the mesh, and fill or scatter the plain data into it)");
}

/// @brief Writes `from`, in the layout of `to`, into the memory of `to`; the shapes must agree.
/// @throws InvalidArgument if the global shapes differ or the tensors are on two meshes.
template <LayoutType To, class L, class E, class Element, class Where>
void redistribute_into(const ShardedTensor<L, E, Where>& from, ShardedTensor<To, Element, Where>& to,
                       SourceLocation where = SourceLocation::current()) {
  using Steps = Transition<L, To>;
  static_assert(
      !std::is_const_v<Element>,
      "redistribute_into: the destination must own its memory, not be a read-only handle (write into the tensor that owns the memory, or into a new one)");
  static_assert(std::is_same_v<std::remove_const_t<E>, std::remove_const_t<Element>>,
                "redistribute_into: both tensors must have the same element type (convert one first)");
  if constexpr (std::is_same_v<std::remove_const_t<E>, Element>) {
    detail::begin_operation(where, from);
    to.require_memory(where);
    detail::require_one_mesh("redistribute_into", from, to, where);
    detail::require_shape("redistribute_into", "destination", to.shape(), from.shape(), from.core(), where);
    if constexpr (detail::moves_halos<L, To> && !std::is_same_v<L, To>) {
      if constexpr (std::is_same_v<L, WithoutHalos<To>>)
        detail::fill_with_halos(from, to, where);
      else if constexpr (std::is_same_v<WithoutHalos<L>, To>)
        detail::drop_halos(from, to);
      else if constexpr (detail::has_halos<L>)
        redistribute_into(detail::without_halos(from), to, where);
      else
        detail::fill_with_halos(redistribute<WithoutHalos<To>>(from, where), to, where);
      return;
    }
    const detail::BoundTransition bound = detail::bind_transition<Steps>(from.core());
    if (!bound.trivial()) {
      detail::TransitionRun<Element, Where>(
          from.resources(), bound, detail::extents_of(from.shape()), from.data(), to.mutable_data(),
          detail::subject_of(detail::TensorAccess::buffer(from), from.shape()), where)
          .run();
    } else {
      detail::copy_block<Where>(from.execution(), from.data(), contiguous_block(0, from.local_size()),
                                to.mutable_data());
    }
  }
}

namespace detail {

template <class To, class From>
[[nodiscard]] TensorIn<To, From> transition_with_halos(const From& from, SourceLocation where) {
  TensorIn<To, From> to(from.resources(), from.shape(), where);
  redistribute_into(from, to, where);
  return to;
}

} // namespace detail

/// @brief A transition in progress; wait for it exactly once.
template <class To, class Element, class Where>
class [[nodiscard(
    "redistribute_async: the transition that it starts must be waited for (keep the PendingTensor, and call wait() once)")]] PendingTensor {
public:
  /// @brief Returns whether wait() would return without waiting for another rank.
  [[nodiscard]] bool ready() const { return !run_ || run_->ready(); }

  /// @brief The tensor in its new layout.
  /// @throws LifecycleError on a second wait, else the collective's own error.
  [[nodiscard]] ShardedTensor<To, const Element, Where> wait() {
    if (!result_) {
      throw LifecycleError(
          "PendingTensor: wait() was called twice or on an empty handle (wait once, and keep the result)");
    }
    if (run_)
      run_->complete();
    ShardedTensor<To, const Element, Where> result = std::move(*result_);
    result_.reset();
    run_.reset();
    source_ = {};
    return result;
  }

private:
  template <LayoutType T, class L, class E, class W>
  friend PendingTensor<T, std::remove_const_t<E>, W> redistribute_async(const ShardedTensor<L, E, W>&,
                                                                        SourceLocation);

  detail::BufferHandle source_; // the input's memory, kept until the wait
  std::optional<ShardedTensor<To, const Element, Where>> result_;
  std::unique_ptr<detail::TransitionRun<Element, Where>> run_;
};

/// @brief Starts the transition: its first collective runs while the caller continues; the rest follows in
/// wait().
///
/// `from` must not be written until the wait; its memory is kept alive.
template <LayoutType To, class L, class E, class Where>
[[nodiscard(
    "redistribute_async: the transition that it starts must be waited for (keep the PendingTensor, and call wait() once)")]] auto
redistribute_async(const ShardedTensor<L, E, Where>& from, SourceLocation where = SourceLocation::current())
    -> PendingTensor<To, std::remove_const_t<E>, Where> {
  using Steps = Transition<L, To>;
  static_assert(!detail::moves_halos<L, To>,
                "redistribute_async: neither layout may have halos (call redistribute, or refresh_halos)");
  using Element = std::remove_const_t<E>;
  using Handle = ShardedTensor<To, const Element, Where>;
  PendingTensor<To, Element, Where> pending;
  detail::begin_operation(where, from);
  const detail::BoundTransition bound = detail::bind_transition<Steps>(from.core());
  if (bound.trivial()) {
    pending.result_.emplace(detail::TensorAccess::adopt<Handle>(from));
    return pending;
  }
  ShardedTensor<To, Element, Where> to(from.resources(), from.shape(), where);
  pending.run_ = std::make_unique<detail::TransitionRun<Element, Where>>(
      from.resources(), bound, detail::extents_of(from.shape()), from.data(), to.mutable_data(),
      detail::subject_of(detail::TensorAccess::buffer(from), from.shape()), where);
  pending.source_ = detail::TensorAccess::buffer(from);
  pending.result_.emplace(detail::TensorAccess::take<Handle>(std::move(to)));
  pending.run_->start();
  return pending;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
