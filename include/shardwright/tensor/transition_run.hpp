// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Executes the steps of a transition on one rank's memory.

#include <shardwright/comm/pending.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/block_copy.hpp>
#include <shardwright/tensor/bound_transition.hpp>
#include <shardwright/tensor/step_geometry.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The steps of one transition of one tensor, from `in` to `out`; temporaries come from the pool.
///
/// Not templated on layouts: one instance per element and target serves every transition. The object must
/// stay where it is while a started step is pending.
template <class Element, class Target>
class TransitionRun {
public:
  template <std::size_t rank>
  TransitionRun(TargetResources<Target>& resources, const BoundTransition& bound,
                const std::array<std::int64_t, rank>& shape, const Element* in, Element* out,
                const CallSubject& subject, SourceLocation where)
      : resources_(&resources), binding_(bound.binding), next_(bound.steps), in_(in), out_(out),
        subject_(subject), where_(where), remaining_(bound.effective) {
    std::copy(shape.begin(), shape.end(), shape_.begin());
  }
  TransitionRun(const TransitionRun&) = delete;
  TransitionRun& operator=(const TransitionRun&) = delete;
  ~TransitionRun() { recycle_blocks(); }

  /// Runs all steps that are left.
  void run() {
    while (remaining_ > 0) {
      const Stage stage = prepare();
      if (is_collective(stage.geometry.step().kind)) {
        order_call_after<Target>(resources_->execution());
        group_of(stage).run(call(stage));
      } else {
        run_local(stage);
      }
      finish(stage);
    }
  }

  /// Runs local steps until a collective, and starts that; `complete` does the rest.
  void start() {
    while (remaining_ > 0) {
      const Stage stage = prepare();
      if (is_collective(stage.geometry.step().kind)) {
        order_call_after<Target>(resources_->execution());
        pending_.emplace(group_of(stage).start(call(stage)));
        started_ = stage;
        return;
      }
      run_local(stage);
      finish(stage);
    }
  }

  [[nodiscard]] bool ready() const { return !pending_ || (remaining_ <= 1 && pending_->ready()); }

  /// Waits for the started step and runs what is left.
  void complete() {
    if (pending_) {
      pending_->wait();
      pending_.reset();
      finish(*started_);
    }
    run();
  }

private:
  struct Stage {
    StepGeometry geometry;
    Element* destination = nullptr;
    BufferHandle memory{};
  };

  Stage prepare() {
    while (!does_something(next_.front(), binding_))
      next_ = next_.subspan(1);
    Stage stage{StepGeometry(next_.front(), binding_, shape_)};
    next_ = next_.subspan(1);
    const bool in_place = stage.geometry.step().kind == StepKind::all_reduce && temporary_;
    if (remaining_ == 1) {
      stage.destination = out_;
    } else if (in_place) {
      stage.destination = static_cast<Element*>(temporary_.data());
      stage.memory = temporary_;
    } else {
      stage.memory = BufferHandle(resources_->take(stage.geometry.count_after() * sizeof(Element)));
      stage.destination = static_cast<Element*>(stage.memory.data());
    }
    return stage;
  }

  [[nodiscard]] CommunicatorOf<Target>& group_of(const Stage& stage) {
    return resources_->core().template communicator<Target>(stage.geometry.mask());
  }
  CollectiveCall call(const Stage& stage) {
    const auto take_blocks = [this]() -> std::vector<StridedBlock>& {
      if (!blocks_)
        blocks_.emplace(resources_->core().take_blocks());
      blocks_->clear();
      return *blocks_;
    };
    CollectiveCall out =
        stage.geometry.call(element_type_of<Element>(), in_, stage.destination, take_blocks, where_);
    out.subject = subject_;
    return out;
  }

  void finish(const Stage& stage) {
    in_ = stage.destination;
    temporary_ = stage.memory;
    --remaining_;
    if (remaining_ == 0) {
      temporary_ = BufferHandle();
      started_.reset();
      recycle_blocks();
    }
  }

  void run_local(const Stage& stage) {
    const StepGeometry& geometry = stage.geometry;
    if (geometry.step().kind == StepKind::slice) {
      copy_block<Target>(resources_->execution(), in_, geometry.slice_block(), stage.destination);
    } else if (geometry.first()) {
      copy_block<Target>(resources_->execution(), in_, contiguous_block(0, geometry.count_before()),
                         stage.destination);
    } else {
      fill_zero<Target>(resources_->execution(), stage.destination, geometry.count_after());
    }
  }

  void recycle_blocks() {
    if (!blocks_)
      return;
    resources_->core().give_back_blocks(std::move(*blocks_));
    blocks_.reset();
  }

  TargetResources<Target>* resources_;
  AxisBinding binding_;
  Extents shape_{};
  std::span<const TransitionStep> next_;
  const Element* in_;
  Element* out_;
  CallSubject subject_;
  SourceLocation where_;
  int remaining_;
  BufferHandle temporary_;
  std::optional<std::vector<StridedBlock>> blocks_;
  std::optional<Stage> started_;
  std::optional<Pending> pending_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
