// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief IndexHalo: a plan, made once, for reading elements of a vector that other ranks own.

#include <shardwright/comm/call.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/sparse.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/sparse/index_plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

template <LayoutType Vector, class Name, Target Where> class IndexHalo;

namespace detail {

/// Names the layout of a vector whose elements have one owner along its axes.
template <class L> struct OwnedVector {
  static constexpr bool value =
      L::tensor_rank == 1 && !L::value.has_partial() && !has_halos<L> && !is_ragged<L>;
  static_assert(
      value,
      "IndexHalo: the layout must be that of a whole vector, without halos (name Layout<1, Shard<0, rows>>, or complete the sum first)");
};

template <class Plan, class Elements> struct ElementsOfPlan {
  static constexpr bool value = std::is_same_v<typename Elements::plan, Plan>;
  static_assert(
      value,
      "IndexHalo: the elements must be those of this plan, as another plan reads other elements of other vectors (make them by elements() of this one)");
};

/// Names the vector's layout and the plan's.
template <class Plan, class X> struct VectorOfPlan {
  static_assert(
      std::is_same_v<typename Plan::layout, typename X::layout>,
      "IndexHalo: the vector must have the layout that the plan is for (redistribute it, or make a plan for its layout)");
  static constexpr bool value = std::is_same_v<typename Plan::layout, typename X::layout>;
};

template <class Type> inline constexpr bool is_index_halo = false;
template <class Vector, class Name, class Where>
inline constexpr bool is_index_halo<IndexHalo<Vector, Name, Where>> = true;

template <class Value, class Where> using ListOn = ShardedTensor<Layout<1>, Value, Where>;

/// A list in the memory of a target.
template <class Value, class Where>
[[nodiscard]] ListOn<Value, Where> list_on(TargetResources<Where>& resources,
                                           const std::vector<Value>& values) {
  auto list = workspace_of<Value>(resources, values.size());
  copy_to_target<Where>(resources.execution(), values.data(), list.mutable_data(), values.size());
  return list;
}

/// An exchange that has begun, if the group has other ranks.
class BegunExchange {
public:
  BegunExchange() = default;
  explicit BegunExchange(Pending pending) : pending_(std::move(pending)), begun_(true) {}
  /// Lets messages move: over MPI they do so only inside calls.
  void poll() const {
    if (begun_)
      static_cast<void>(pending_.done());
  }
  void wait() {
    if (begun_)
      pending_.wait();
  }

private:
  Pending pending_;
  bool begun_ = false;
};

/// The plan and its lists in the memory of a target.
template <class Where> struct IndexHaloState {
  IndexPlan plan;
  ListOn<std::int32_t, Where> lent, sums, sum_begin, sum_places;

  IndexHaloState(TargetResources<Where>& resources, IndexPlan made)
      : plan(std::move(made)), lent(list_on(resources, plan.lent)), sums(list_on(resources, plan.sums)),
        sum_begin(list_on(resources, plan.sum_begin)), sum_places(list_on(resources, plan.sum_places)) {}
};

} // namespace detail

/// @brief The elements that a plan reads from other ranks, in the order of the plan's indices(): its type
/// names the plan, so that only operations which know the plan take it.
template <class Plan, class Element> class HaloElements {
public:
  using plan = Plan;
  using value_type = Element;
  using target = typename Plan::target;

  /// @brief How many this rank reads from others.
  [[nodiscard]] std::size_t size() const noexcept { return state_->plan.borrowed.size(); }
  [[nodiscard]] VectorView<const Element, target> local() const {
    return VectorView<const Element, target>(memory_.data(), size());
  }
  [[nodiscard]] VectorView<Element, target> mutable_local() {
    return VectorView<Element, target>(memory_.mutable_data(), size());
  }

private:
  friend Plan;
  explicit HaloElements(std::shared_ptr<const detail::IndexHaloState<target>> state)
      : state_(std::move(state)),
        memory_(detail::workspace_of<Element>(state_->lent.resources(), size() + state_->plan.lent.size())) {}

  std::shared_ptr<const detail::IndexHaloState<target>> state_;
  detail::ListOn<Element, target> memory_; ///< The elements, and then room for those that are lent.
};

/// @brief A plan, made once, for reading elements of vectors by their global indices: columns of a sparse
/// matrix, neighbours in a mesh.
///
/// The vectors have the layout `Vector`, such as Layout<1, Shard<0, rows>>. `Name` keeps plans for different
/// purposes apart: their elements have different types. A plan is a handle; copies share its lists. An
/// exchange is one all_to_all in which a rank sends one message to every neighbour, in pieces above the
/// transport's segment (512 KiB for MPI), and allocates nothing.
template <LayoutType Vector, class Name = void, Target Where = DefaultTarget> class IndexHalo {
  static_assert(sizeof(detail::OwnedVector<Vector>) != 0);

public:
  using layout = Vector;
  using target = Where;
  template <class Element> using Elements = HaloElements<IndexHalo, Element>;

  /// @brief Collective over the axes of the layout: makes the plan for `indices`, in any order and as often
  /// as they come; those that this rank owns cost nothing.
  ///
  /// Cost: the indices are sent once to their owners; 4 bytes are kept for each, 12 for each that is lent.
  /// @param extent elements of the vectors, the same on all ranks
  /// @throws InvalidArgument on every rank for an index that is out of range on one of them, or more elements
  /// on a rank than 32 bits can number; ConfigurationMismatch if the extents differ.
  template <class... Axes>
  IndexHalo(const DeviceMesh<Axes...>& mesh, std::int64_t extent, std::span<const std::int64_t> indices,
            SourceLocation where = SourceLocation::current()) {
    static_cast<void>(fits_mesh<Vector, typename DeviceMesh<Axes...>::axis_list>);
    detail::MeshCore& core = mesh.core();
    detail::IndexPlan plan = detail::index_plan(
        core, detail::VectorBlocks(core, Vector::value, Vector::axes, extent), indices, where);
    state_ =
        std::make_shared<detail::IndexHaloState<Where>>(core.template resources<Where>(), std::move(plan));
  }

  /// @brief Global indices of the elements that this rank reads from others, each once, ascending.
  [[nodiscard]] const std::vector<std::int64_t>& indices() const noexcept { return state_->plan.borrowed; }
  /// @brief Ranks from which this one reads.
  [[nodiscard]] std::size_t neighbours() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(state_->plan.borrowed_blocks.begin(), state_->plan.borrowed_blocks.end(),
                      [](const StridedBlock& block) { return block.count() > 0; }));
  }
  /// @brief Its lists, for the layers above.
  [[nodiscard]] const detail::IndexPlan& plan() const noexcept { return state_->plan; }
  /// @brief The place of an element that was planned for: in this rank's block, or after it, among the
  /// elements of others.
  /// @throws InvalidArgument for another rank's element that was not.
  [[nodiscard]] std::int32_t local_index(std::int64_t index,
                                         SourceLocation where = SourceLocation::current()) const {
    if (!state_->plan.knows(index))
      detail::reject_operation(
          "IndexHalo",
          "the plan must read an element to know its place, but it does not read element " +
              std::to_string(index) + " (plan for it)",
          state_->lent.core(), where);
    return state_->plan.local_index(index);
  }

  /// @brief Uninitialised memory for the elements that the plan reads.
  template <class Element> [[nodiscard]] Elements<Element> elements() const {
    return Elements<Element>(state_);
  }

  /// @brief local[i] = x[indices()[i]]. Collective; one message to and from each neighbour.
  /// @throws InvalidArgument for elements of another plan, or a vector of another extent.
  template <class Local, AnyShardedTensor X>
  void gather_into(Local& local, const X& x, SourceLocation where = SourceLocation::current()) const {
    if constexpr (fits<Local, X>()) {
      const CollectiveCall call = gather_call(local, x, where);
      if (meets())
        group(x).run(call);
    }
  }

  /// @brief x[indices()[i]] += local[i] over all ranks: the adjoint of gather_into. An owner adds what it
  /// receives to its element in the order of the ranks. Collective; cost and errors as gather_into.
  template <class Local, AnyShardedTensor X>
  void scatter_add(Local& local, X& x, SourceLocation where = SourceLocation::current()) const {
    if constexpr (fits<Local, X>()) {
      const CollectiveCall call = scatter_call(local, x, where);
      if (meets())
        group(x).run(call);
      add_arrived(local, x);
    }
  }

private:
  friend Name; // which may compute while an exchange is under way, if it is a class

  // Exchanges beside kernels that do not touch the elements of the halo.
  template <class Local, class X>
  [[nodiscard]] detail::BegunExchange start_gather(Local& local, const X& x, SourceLocation where) const {
    const CollectiveCall call = gather_call(local, x, where);
    return meets() ? detail::BegunExchange(group(x).start(call)) : detail::BegunExchange();
  }
  /// Followed by a wait and add_arrived.
  template <class Local, class X>
  [[nodiscard]] detail::BegunExchange start_scatter(Local& local, const X& x, SourceLocation where) const {
    const CollectiveCall call = scatter_call(local, x, where);
    return meets() ? detail::BegunExchange(group(x).start(call)) : detail::BegunExchange();
  }
  template <class Local, class X> void add_arrived(const Local& local, X& x) const {
    using Element = typename X::value_type;
    kernels::moves("sw::halo_add", x.execution(),
                   state_->plan.lent.size() * (sizeof(std::int32_t) + sizeof(Element)),
                   state_->plan.sums.size() * 2 * (sizeof(std::int32_t) + sizeof(Element)));
    kernels::run("sw::halo_add", x.execution(), state_->plan.sums.size(),
                 kernels::AddIndices<Element>{local.memory_.data() + local.size(), state_->sums.data(),
                                              state_->sum_begin.data(), state_->sum_places.data(),
                                              x.mutable_data()});
  }

  template <class Local, class X> [[nodiscard]] static consteval bool fits() {
    if constexpr (detail::ElementsOfPlan<IndexHalo, Local>::value &&
                  detail::VectorOfPlan<IndexHalo, X>::value)
      return detail::SameElementAndTarget<Local, X>::value;
    else
      return false;
  }
  [[nodiscard]] bool meets() const noexcept { return state_->plan.vector.ranks() > 1; }
  template <class X> [[nodiscard]] CommunicatorOf<Where>& group(const X& x) const {
    return x.core().template communicator<Where>(state_->plan.vector.mask());
  }

  template <class Local, class X>
  void check(const Local& local, const X& x, const SourceLocation& where) const {
    x.require_memory(where);
    if (local.state_ != state_)
      detail::reject_operation(
          "IndexHalo",
          "the elements must be those of this plan, but another one made them (make them by elements() of this plan)",
          x.core(), where);
    if (&x.core() != &state_->lent.core())
      detail::reject_second_mesh("IndexHalo", x.core(), where);
    if (x.shape()[0] != state_->plan.vector.extent())
      detail::reject_shape("IndexHalo", "vector", x.shape(), std::array{state_->plan.vector.extent()},
                           x.core(), where);
  }

  /// Packs what others read, and describes the exchange.
  template <class Local, class X>
  [[nodiscard]] CollectiveCall gather_call(Local& local, const X& x, const SourceLocation& where) const {
    using Element = typename X::value_type;
    check(local, x, where);
    Element* const elements = local.memory_.mutable_data();
    kernels::moves("sw::halo_gather", x.execution(),
                   state_->plan.lent.size() * (sizeof(std::int32_t) + 2 * sizeof(Element)));
    kernels::run("sw::halo_gather", x.execution(), state_->plan.lent.size(),
                 kernels::GatherIndices<Element>{x.data(), state_->lent.data(), elements + local.size()});
    return exchange_call(x, elements + local.size(), state_->plan.lent_blocks, elements,
                         state_->plan.borrowed_blocks, where);
  }
  template <class Local, class X>
  [[nodiscard]] CollectiveCall scatter_call(Local& local, const X& x, const SourceLocation& where) const {
    check(local, x, where);
    auto* const elements = local.memory_.mutable_data();
    return exchange_call(x, elements, state_->plan.borrowed_blocks, elements + local.size(),
                         state_->plan.lent_blocks, where);
  }
  template <class X, class Element>
  [[nodiscard]] static CollectiveCall
  exchange_call(const X& x, const Element* from, std::span<const StridedBlock> from_blocks, Element* to,
                std::span<const StridedBlock> to_blocks, const SourceLocation& where) {
    detail::order_call_after<Where>(x.execution()); // the call reads what kernels packed
    return {.operation = Operation::all_to_all,
            .element = element_type_of<Element>(),
            .in = from,
            .out = to,
            .in_blocks = from_blocks,
            .out_blocks = to_blocks,
            .subject = detail::SubjectShape::of(x.shape()),
            .where = where};
  }

  std::shared_ptr<const detail::IndexHaloState<Where>> state_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
