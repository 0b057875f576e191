// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Executes the steps of a transition on one rank's memory.

#include <shardwright/comm/pending.hpp>
#include <shardwright/core/low_precision.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/ordered_axes.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>
#include <shardwright/tensor/transition/bound.hpp>
#include <shardwright/tensor/transition/step_geometry.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The steps of one transition of one tensor, from `in` to `out`; temporaries come from the pool.
///
/// Not templated on layouts: one instance per element and target serves every transition. The object must
/// stay where it is while a started step is pending.
template <class Element, class Target> class TransitionRun {
public:
  TransitionRun(TargetResources<Target>& resources, const BoundTransition& bound, const Extents& shape,
                const Element* in, Element* out, const SubjectShape& subject, SourceLocation where)
      : resources_(&resources), binding_(bound.binding), shape_(shape), next_(bound.steps), in_(in),
        out_(out), subject_(subject), where_(where), remaining_(bound.effective) {}
  TransitionRun(const TransitionRun&) = delete;
  TransitionRun& operator=(const TransitionRun&) = delete;
  ~TransitionRun() = default;

  /// Runs all steps that are left.
  void run() {
    while (const auto next = next_collective()) {
      next->group->run(next->call);
      finish();
    }
  }

  /// Runs local steps until a collective, and starts it; `complete` does the rest.
  void start() {
    if (const auto next = next_collective())
      pending_.emplace(next->group->start(next->call));
  }

  [[nodiscard]] bool ready() const { return !pending_ || (remaining_ <= 1 && pending_->ready()); }

  /// Waits for the started step and runs the remaining steps.
  void complete() {
    if (pending_) {
      pending_->wait();
      pending_.reset();
      finish();
    }
    run();
  }

private:
  struct Collective {
    CommunicatorOf<Target>* group;
    CollectiveCall call;
  };

  /// Runs local steps until a collective; nothing if none is left.
  [[nodiscard]] std::optional<Collective> next_collective() {
    while (remaining_ > 0) {
      while (!does_something(next_.front(), binding_))
        next_ = next_.subspan(1);
      const TransitionStep& step = next_.front();
      next_ = next_.subspan(1);
      if (!is_collective(step.kind)) {
        run_local(step);
        continue;
      }
      const PreparedCollective& bound = prepared_collective(resources_->core(), step, binding_, shape_);
      prepare(bound.count_after, step.kind == StepKind::all_reduce);
      Collective next{&resources_->core().template communicator<Target>(bound.mask),
                      bound.with(in_, destination_, where_)};
      next.call.subject = subject_;
      if constexpr (is_reproducible<Target> && FieldElement<Element>) {
        if ((step.kind == StepKind::all_reduce || step.kind == StepKind::reduce_scatter) &&
            is_linear(step.op))
          next.call.order = ordered_tree(resources_->core(), bound.mask, where_);
      }
      order_call_after<Target>(resources_->execution());
      return next;
    }
    return std::nullopt;
  }

  void run_local(const TransitionStep& step) {
    const StepGeometry geometry(step, binding_, shape_);
    prepare(geometry.count_after(), false);
    if (step.kind == StepKind::slice) {
      copy_block<Target>(resources_->execution(), in_, geometry.slice_block(), destination_);
    } else if (geometry.first()) {
      copy_block<Target>(resources_->execution(), in_, contiguous_block(0, geometry.count_before()),
                         destination_);
    } else {
      fill_zero<Target>(resources_->execution(), destination_, geometry.count_after());
    }
    finish();
  }

  /// Selects the memory that a step writes: that of the result for the last one.
  void prepare(std::size_t elements, bool in_place) {
    if (remaining_ == 1) {
      destination_ = out_;
      return;
    }
    if (!in_place || !temporary_)
      written_ = BufferHandle(resources_->take(elements * sizeof(Element), where_));
    else
      written_ = temporary_;
    destination_ = static_cast<Element*>(written_.data());
  }

  /// The step's result is the next one's input.
  void finish() {
    in_ = destination_;
    temporary_ = std::exchange(written_, BufferHandle());
    --remaining_;
  }

  TargetResources<Target>* resources_;
  AxisBinding binding_;
  Extents shape_;
  std::span<const TransitionStep> next_;
  const Element* in_;
  Element* out_;
  SubjectShape subject_;
  SourceLocation where_;
  int remaining_;
  Element* destination_ = nullptr; // of the current step
  BufferHandle temporary_;         // of `in_`, unless that is the input
  BufferHandle written_;           // of `destination_`, unless that is the result
  std::optional<Pending> pending_;
};

#if defined(SHARDWRIGHT_COMPILED)
extern template class TransitionRun<float, DefaultTarget>;
extern template class TransitionRun<double, DefaultTarget>;
extern template class TransitionRun<bfloat16, DefaultTarget>;
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
