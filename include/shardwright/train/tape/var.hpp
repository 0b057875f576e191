// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Var: a typed value on a tape, and the layout in which an operation reads it.

#include <shardwright/train/tape/slot.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {
template <LayoutType From, LayoutType To, class Element, class Target> class Edge;
} // namespace detail

/// @brief A value of layout `L` on a tape, the result of an operation whose operands are on that tape.
///
/// Vars support the same operations as tensors, and record what the gradients need. Copies refer to the same
/// value. Its memory stays until the last Var is gone and every gradient that needs it has been computed, so
/// release Vars that are no longer read: `x = block(std::move(x))`. A Var belongs to its rank's thread.
template <LayoutType L, class Element = float, class Target = DefaultTarget> class Var {
  using Slot = detail::Slot<L, Element, Target>;

public:
  using layout = L;
  using element = Element;
  using value_type = Element;
  using target = Target;
  using tape_operand = Var;
  static constexpr int tensor_rank = L::tensor_rank;
  using Shape = typename Slot::Shape;

  /// @brief Refers to the value of a slot; for operations.
  explicit Var(Slot& slot) noexcept : slot_(&slot) { retain(); }
  Var(const Var& other) noexcept : slot_(other.slot_) { retain(); }
  Var(Var&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  Var& operator=(Var other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Var() {
    if (slot_ == nullptr)
      return;
    slot_->drop_reader();
    slot_->settle();
    slot_->tape().release();
  }

  /// @brief The whole value's extents.
  [[nodiscard]] const Shape& shape() const { return slot().shape(); }
  /// @brief The value as a read-only handle; a deferred sum is computed.
  [[nodiscard]] ShardedTensor<L, const Element, Target> value() const { return slot().value(); }

  /// @brief Returns the value for the next operation to read in layout `To`: `Transition<L, To>`
  /// redistributes it, and a transition takes its gradient back from the layout in which that operation gives
  /// it.
  ///
  /// If the value is read twice in the same layout, it is redistributed once.
  template <LayoutType To>
  [[nodiscard]] detail::Edge<L, To, Element, Target>
  as(SourceLocation where = SourceLocation::current()) const& {
    return detail::Edge<L, To, Element, Target>(*this, where);
  }
  template <LayoutType To>
  [[nodiscard]] detail::Edge<L, To, Element, Target> as(SourceLocation where = SourceLocation::current()) && {
    return detail::Edge<L, To, Element, Target>(std::move(*this), where);
  }

  /// @brief The slot on the tape; for operations. @throws LifecycleError after a move.
  [[nodiscard]] Slot& slot() const {
    if (slot_ == nullptr)
      detail::reject_use("Var: it must name a value, but this one was moved from (use the one it moved to)");
    return *slot_;
  }
  /// @brief Pool and execution instance of the value.
  [[nodiscard]] detail::TargetResources<Target>& resources() const { return slot().resources(); }
  /// @brief Returns the FirstPass of its microbatch, if this is its first pass in training; see PassCounter.
  [[nodiscard]] std::optional<FirstPass> first_pass() const { return tape().first_pass(); }
  /// @brief The tape that it is on; for operations.
  [[nodiscard]] detail::TapeCore& tape() const { return slot().tape(); }

private:
  void retain() const noexcept {
    if (slot_ == nullptr)
      return;
    slot_->add_reader();
    slot_->tape().retain();
  }

  Slot* slot_;
};

namespace detail {

/// A Var of layout `From` as the next operation reads it: in layout `To`.
template <LayoutType From, LayoutType To, class Element, class Target> class Edge {
public:
  using layout = To;
  using element = Element;
  using value_type = Element;
  using target = Target;
  using tape_operand = Edge;
  static constexpr int tensor_rank = To::tensor_rank;

  Edge(Var<From, Element, Target> source, SourceLocation where) : source_(std::move(source)), where_(where) {}

  [[nodiscard]] const auto& shape() const { return source_.shape(); }
  [[nodiscard]] TargetResources<Target>& resources() const { return source_.resources(); }
  [[nodiscard]] const Var<From, Element, Target>& source() const noexcept { return source_; }
  [[nodiscard]] SourceLocation where() const noexcept { return where_; }
  [[nodiscard]] TapeCore& tape() const { return source_.tape(); }

private:
  Var<From, Element, Target> source_;
  SourceLocation where_;
};

/// The dimension that an axis shards, or -1.
template <class L> [[nodiscard]] constexpr int dimension_over(std::string_view axis) {
  const int index = axis_index(L::axes, axis);
  return index < 0 ? -1 : L::value.dimension_of(index);
}
/// Whether a transition from one layout to the other only gathers. Decided only by the types, since the sizes
/// of uneven parts differ between ranks.
template <class From, class To> [[nodiscard]] constexpr bool only_gathers() {
  if (std::is_same_v<From, To> || From::value.has_partial() || To::value.has_partial())
    return false;
  return std::all_of(To::axes.begin(), To::axes.end(), [](std::string_view axis) {
    return dimension_over<From>(axis) == dimension_over<To>(axis);
  });
}

/// What operands of all types share, out of line. `to` is the type identity of the layout in which the value
/// is read, or null if that is its own.
class VarOperandBase {
public:
  VarOperandBase& operator=(VarOperandBase&&) = delete;
  [[nodiscard]] TapeCore& tape() const noexcept { return slot_->tape(); }
  [[nodiscard]] bool wants_gradient() const noexcept { return slot_->wants_gradient(); }
  /// Declares that a part of the gradient follows. @pre wants_gradient()
  void await(LateGradient& part) noexcept { slot_->await(part); }

protected:
  VarOperandBase(SlotBase& slot, SourceLocation where) : slot_(&slot), where_(where) { slot_->add_reader(); }
  VarOperandBase(VarOperandBase&& other) noexcept
      : slot_(other.slot_), where_(other.where_), reads_(std::exchange(other.reads_, false)) {
  } // nothing is kept yet
  ~VarOperandBase();

  [[nodiscard]] HeldValue& place(const char* to) { return to == nullptr ? slot_->own() : slot_->other(to); }
  /// @param gathers whether the transition to the layout only gathers
  void keep(const TapeNode& reader, bool for_gradient, const char* to, bool gathers);
  /// Before a read: releases the Var, and in a replay what was kept only for it.
  void begin_read(const char* to);
  /// Keeps the value itself from now on; returns whether a replay would have brought it.
  [[nodiscard]] bool secures(const char* to);
  void let_go_of_source() noexcept {
    if (std::exchange(keeps_source_, false))
      --slot_->own().pins;
  }
  void let_go(const char* to) noexcept;

  SlotBase* slot_;
  SourceLocation where_;

private:
  /// Keeps the value until the next settle(); returns whether it was kept.
  bool unpin(const char* to) noexcept;

  std::uint32_t HeldValue::*pins_ = nullptr;
  bool reads_ = true;
  bool for_gradient_ = false;
  bool keeps_source_ = false; // in its own layout, beside the pin
};

/// An operand of a node: a Var in the layout in which the node reads it.
template <class From, class To, class Element, class Target> class VarOperand : public VarOperandBase {
  using Slot = detail::Slot<From, Element, Target>;

public:
  using layout = To;
  using element = Element;
  using target = Target;
  using Value = ShardedTensor<To, const Element, Target>;
  static constexpr bool is_parameter = false;
  static constexpr bool is_frozen = false;
  /// Whether the node reads the value in its own layout.
  static constexpr bool in_own_layout = std::is_same_v<From, To>;

  VarOperand(const Var<From, Element, Target>& source, SourceLocation where)
      : VarOperandBase(source.slot(), where) {}
  VarOperand(VarOperand&&) noexcept = default;

  [[nodiscard]] const auto& shape() const noexcept { return slot().shape(); }
  [[nodiscard]] TargetResources<Target>& resources() const noexcept { return slot().resources(); }
  [[nodiscard]] Slot& slot() const noexcept { return static_cast<Slot&>(*slot_); }
  /// The axes that split its data, as it is read.
  [[nodiscard]] RowAxes rows() const {
    if constexpr (in_own_layout)
      return slot_->rows();
    else
      return slot_->rows().template after<From, To>(resources().core());
  }

  /// Declares that `reader` needs the value again: for its gradient, until let_go(), or only to be recomputed
  /// itself. Called before the first read.
  void keep(const TapeNode& reader, bool for_gradient) {
    VarOperandBase::keep(reader, for_gradient, read_as, only_gathers<From, To>());
  }
  /// Declares that a later pass reads the value, when its sources may be gone: it is kept from now on.
  void secure() {
    if (!secures(read_as))
      return;
    static_cast<void>(read());
    let_go_of_source();
    slot_->settle();
  }
  void let_go() noexcept { VarOperandBase::let_go(read_as); }
  /// The value; the last handle to it if nothing else keeps it. The first read releases the Var, and the read
  /// of a replay releases what was kept only for it: each node is recomputed at most once.
  [[nodiscard]] Value read() {
    begin_read(read_as);
    Value out = [this] {
      if constexpr (in_own_layout)
        return slot().value();
      else
        return slot().template value_in<To>(place(read_as), where_);
    }();
    slot_->settle();
    return out;
  }
  /// The value for the last time: nothing else of the node keeps it.
  [[nodiscard]] Value read_last() {
    Value out = read();
    let_go();
    return out;
  }
  /// Does nothing before a read, unlike for a parameter.
  template <bool reads = true> [[nodiscard]] static constexpr bool reading() noexcept { return true; }
  static constexpr void note_use(const TapeCore&) noexcept {}
  static constexpr void end_pass() noexcept {}
  /// The shape of the value, without its memory.
  [[nodiscard]] Value outline() const { return TensorAccess::outline<Value>(resources().core(), shape()); }
  /// The deferred sum, if the value is one that has not been computed.
  [[nodiscard]] LazySum<Value>* sum() {
    if constexpr (in_own_layout)
      return slot().sum();
    else
      return nullptr;
  }
  /// The gradient from other readers so far, for an operation that adds it to its own; empty if there is
  /// none.
  [[nodiscard]] std::optional<ShardedTensor<Gradient<To>, const Element, Target>> take_gradient() {
    if constexpr (in_own_layout)
      if (slot_->has_gradient())
        return slot().take_gradient();
    return std::nullopt;
  }
  /// The sum of the gradients that other readers have given in a layout, to be given again with this node's
  /// added; nothing if there is none.
  template <class Raw> [[nodiscard]] auto take_sum() { return slot().template take_sum<Raw>(); }
  /// Adds to the gradient. @pre wants_gradient()
  template <class Raw, class E> void give(ShardedTensor<Raw, E, Target>&& raw) {
    slot().give(std::move(raw), where_);
  }

private:
  static constexpr const char* read_as = in_own_layout ? nullptr : &type_identity<To>;
};

/// An operand of an operation as its node holds it. A moved-in operand is no longer kept alive by the caller.
template <class L, class Element, class Target>
[[nodiscard]] VarOperand<L, L, Element, Target> operand_of(const Var<L, Element, Target>& var,
                                                           SourceLocation where) {
  return {var, where};
}
template <class L, class Element, class Target>
[[nodiscard]] VarOperand<L, L, Element, Target> operand_of(Var<L, Element, Target>&& var,
                                                           SourceLocation where) {
  const Var<L, Element, Target> given = std::move(var);
  return {given, where};
}
template <class From, class To, class Element, class Target>
[[nodiscard]] VarOperand<From, To, Element, Target> operand_of(const Edge<From, To, Element, Target>& edge,
                                                               SourceLocation) {
  return {edge.source(), edge.where()};
}
template <class From, class To, class Element, class Target>
[[nodiscard]] VarOperand<From, To, Element, Target> operand_of(Edge<From, To, Element, Target>&& edge,
                                                               SourceLocation) {
  const Edge<From, To, Element, Target> given = std::move(edge);
  return {given.source(), given.where()};
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE VarOperandBase::~VarOperandBase() {
  if (!reads_)
    return;
  slot_->drop_reader();
  slot_->settle();
}

SHARDWRIGHT_INLINE void VarOperandBase::keep(const TapeNode& reader, bool for_gradient, const char* to,
                                             bool gathers) {
  if (!for_gradient && !reader.recomputes())
    return;
  for_gradient_ = for_gradient;
  bool again = reader.recovers(slot_->producer());
  // A recomputed function gathers again, too: between the passes the rank's own part is enough.
  if (gathers && !again && reader.in_region()) {
    again = keeps_source_ = true;
    ++slot_->own().pins;
  }
  pins_ = again ? &HeldValue::replay_pins : &HeldValue::pins;
  ++(place(to).*pins_);
}

SHARDWRIGHT_INLINE void VarOperandBase::begin_read(const char* to) {
  if (std::exchange(reads_, false))
    slot_->drop_reader();
  if (!for_gradient_ && tape().replays())
    unpin(to);
}

SHARDWRIGHT_INLINE bool VarOperandBase::secures(const char* to) {
  if (pins_ != &HeldValue::replay_pins)
    return false;
  HeldValue& held = place(to);
  --held.replay_pins;
  ++held.pins;
  pins_ = &HeldValue::pins;
  return true;
}

SHARDWRIGHT_INLINE void VarOperandBase::let_go(const char* to) noexcept {
  if (unpin(to))
    slot_->settle();
}

SHARDWRIGHT_INLINE bool VarOperandBase::unpin(const char* to) noexcept {
  if (pins_ == nullptr)
    return false;
  --(place(to).*std::exchange(pins_, nullptr));
  let_go_of_source();
  return true;
}
#endif

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
