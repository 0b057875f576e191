// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Collectives bound to the ranks and blocks of a mesh, which keeps them for the next transition.

#include <shardwright/comm/call.hpp>
#include <shardwright/core/exact_sum.hpp>
#include <shardwright/core/strided_block.hpp>
#include <shardwright/layout/layout_value.hpp>
#include <shardwright/layout/transition_step.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One collective step of a transition, bound to a shape and a mesh. Buffers, element type and location vary
/// between uses.
struct PreparedCollective {
  PreparedCollective() = default;
  PreparedCollective(const PreparedCollective&) = delete;
  PreparedCollective& operator=(const PreparedCollective&) = delete;
  PreparedCollective(PreparedCollective&&) = default;
  PreparedCollective& operator=(PreparedCollective&&) = default;
  ~PreparedCollective() = default;

  /// The call for these buffers. It refers to the blocks until it has run or started.
  template <class Element>
  [[nodiscard]] CollectiveCall with(const Element* in, Element* out, SourceLocation where) const {
    CollectiveCall ready = call;
    if constexpr (std::is_same_v<Element, ExactSum>) { // of rank 0: the call has no blocks
      ready.element = ElementType::int64;
      ready.count *= ExactSum::words;
    } else {
      ready.element = element_type_of<Element>();
    }
    ready.in = in;
    ready.out = out;
    ready.where = where;
    return ready;
  }

  /// Whether one call may combine blocks of both.
  [[nodiscard]] bool joins(const PreparedCollective& other) const {
    return mask == other.mask && call.operation == other.call.operation &&
           call.reduce_op == other.call.reduce_op && call.order == other.call.order;
  }

  unsigned mask = 0;            ///< Axes of its group.
  std::size_t count_before = 0; ///< Elements of this rank's block before the step.
  std::size_t count_after = 0;  ///< And after it.
  CollectiveCall call{};
  std::vector<StridedBlock> blocks{}; ///< The blocks that the call refers to.
};

#if !defined(SHARDWRIGHT_COMPILED)
/// Calls by step and shape; of two in the same slot, the newer one. With a hit, a transition of a small
/// tensor costs a few nanoseconds on top of its collective.
class PreparedCollectives {
public:
  using Shape = std::array<std::int64_t, max_tensor_rank>;

  /// The call of a step for a shape; `bind(call)` fills it in if it is missing. Valid until the next lookup.
  template <class Bind>
  [[nodiscard]] const PreparedCollective& find(const void* step, const Shape& shape, Bind bind) {
    if (places_.empty())
      places_.resize(std::size_t{1} << place_bits);
    auto hash = reinterpret_cast<std::uintptr_t>(step);
    for (const std::int64_t extent : shape)
      hash = hash * 31 + static_cast<std::uintptr_t>(extent);
    Place& place = places_[(hash * 0x9e3779b97f4a7c15u) >> (64 - place_bits)];
    if (place.step != step || place.shape != shape) {
      place.step = nullptr; // if bind() throws, the place must not match
      bind(place.call);
      place.shape = shape;
      place.step = step;
    }
    return place.call;
  }

private:
  struct Place {
    const void* step = nullptr; ///< Null for an empty place.
    Shape shape{};
    PreparedCollective call;
  };

  static constexpr int place_bits = 7;
  static_assert(sizeof(std::uintptr_t) == 8);

  std::vector<Place> places_;
};

/// The steps that a mesh needs in place of compile-time ones.
class PlannedSteps {
public:
  /// @param key the address of the compile-time steps; `plan` makes those of the mesh once
  template <class Plan> [[nodiscard]] std::span<const TransitionStep> find(const void* key, Plan plan) {
    for (const Planned& known : planned_) // spans of pointer and size: those of ranges compile slowly
      if (known.key == key)
        return {known.steps.data(), known.steps.size()};
    planned_.push_back({key, plan()});
    return {planned_.back().steps.data(), planned_.back().steps.size()};
  }

private:
  /// Spans of the steps stay valid when this moves.
  struct Planned {
    const void* key;
    std::vector<TransitionStep> steps;
  };
  std::vector<Planned> planned_;
};
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
