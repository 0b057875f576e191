// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The one collective of a transition, bound to a mesh and a shape, for buckets and gathers to issue.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/bound_transition.hpp>
#include <shardwright/tensor/step_geometry.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// What a transition of one parameter comes to on its mesh; worked out at the first use.
class BucketCollective {
public:
  enum class Kind : std::uint8_t {
    unknown,
    nothing, ///< The memory is that of the result.
    one,     ///< One collective: `call`.
    several  ///< More steps, or one without communication.
  };

  BucketCollective() = default;
  BucketCollective(const BucketCollective&) = delete;
  BucketCollective& operator=(const BucketCollective&) = delete;
  /// `call` refers to the blocks.
  BucketCollective(BucketCollective&&) = default;
  BucketCollective& operator=(BucketCollective&&) = default;

  /// Collective over the ranks that the transition is of, in one order with their passes.
  /// @param where the line of the program that the calls are for
  void bind(MeshCore& core, const TransitionSteps& table, std::span<const std::int64_t> shape,
            Background purpose, SourceLocation where) {
    if (kind != Kind::unknown)
      return;
    const BoundTransition bound = bind_transition(core, table);
    kind = bound.trivial()                                            ? Kind::nothing
           : bound.effective == 1 && is_collective(bound.first->kind) ? Kind::one
                                                                      : Kind::several;
    if (kind != Kind::one)
      return;
    const StepGeometry geometry(*bound.first, bound.binding, shape);
    call = geometry.call(
        ElementType{}, nullptr, nullptr, [this]() -> std::vector<StridedBlock>& { return blocks_; }, where);
    mask_ = geometry.mask();
    core_ = &core;
    purpose_ = purpose;
    before_ = geometry.count_before();
    after_ = geometry.count_after();
  }

  /// Whether both may be parts of one call.
  [[nodiscard]] bool shares_call(const BucketCollective& other) const {
    return mask_ == other.mask_ && call.operation == other.call.operation &&
           call.reduce_op == other.call.reduce_op && call.order == other.call.order;
  }

  /// Issues a call of this kind on a communicator apart from the one that passes use.
  template <class Target>
  [[nodiscard]] Pending start(CollectiveCall ready) const {
    const std::size_t larger = ready.operation == Operation::all_reduce
                                   ? ready.count
                                   : ready.count * static_cast<std::size_t>(ranks());
    ready.times = core_->note_background(purpose_, larger * size_of(ready.element));
    return core_->template background<Target>(mask_, purpose_).start(ready);
  }

  [[nodiscard]] int ranks() const { return core_->background(mask_, purpose_).size(); }
  [[nodiscard]] std::size_t count_before() const noexcept { return before_; }
  [[nodiscard]] std::size_t count_after() const noexcept { return after_; }

  Kind kind = Kind::unknown;
  CollectiveCall call{};

private:
  unsigned mask_ = 0;
  MeshCore* core_ = nullptr;
  Background purpose_{};
  std::size_t before_ = 0;
  std::size_t after_ = 0;
  std::vector<StridedBlock> blocks_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
