// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A value's slot on a tape: its memory in every layout that is read, and its gradient.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/tape/core.hpp>
#include <shardwright/train/tape/row_axes.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A value in one layout, with counts of its readers.
struct HeldValue {
  const char* layout = nullptr;
  BufferHandle memory{};
  std::uint32_t pins = 0;        ///< Nodes that need it in a later pass.
  std::uint32_t replay_pins = 0; ///< The same, if it may be recomputed until then.
  bool brought_again = false;    ///< Redistributed by a backward pass from the value in its own layout.
  HeldValue* next = nullptr;
};

/// The sum of raw gradients in one layout, before its transition to the layout of the slot's gradient.
struct PendingGradient {
  const char* layout = nullptr;
  BufferHandle memory{};
  void (*hand_over)(void* slot, PendingGradient& pending) = nullptr;
  SourceLocation where{};
  PendingGradient* next = nullptr;
};

/// A node whose part of a gradient is still in flight from other ranks. It lives as long as the tape.
class LateGradient {
public:
  LateGradient() = default;
  LateGradient(const LateGradient&) = delete;
  LateGradient& operator=(const LateGradient&) = delete;
  /// Waits for the part and adds it.
  virtual void finish() = 0;

protected:
  ~LateGradient() = default;

private:
  friend class SlotBase;
  LateGradient* next_ = nullptr;
};

/// The type-independent part of a slot.
///
/// A value is kept as long as it has a reader: a Var, or a node that has pinned it. If it may be recomputed,
/// a pin keeps nothing until that has happened.
class SlotBase {
public:
  explicit SlotBase(TapeNode& producer) : producer_(&producer) {}
  SlotBase(const SlotBase&) = delete;
  SlotBase& operator=(const SlotBase&) = delete;
  ~SlotBase();

  [[nodiscard]] TapeNode& producer() const noexcept { return *producer_; }
  [[nodiscard]] TapeCore& tape() const noexcept { return producer_->tape(); }

  [[nodiscard]] bool wants_gradient() const noexcept { return wants_gradient_; }
  void want_gradient(bool wanted) noexcept { wants_gradient_ = wanted; }

  /// The axes that split the data from which the value is computed.
  [[nodiscard]] RowAxes rows() const noexcept { return rows_; }
  void add_rows(RowAxes more) noexcept { rows_ |= more; }

  void add_reader() noexcept { ++readers_; }
  /// Keeps the value until the next settle().
  void drop_reader() noexcept { --readers_; }

  [[nodiscard]] bool kept(const HeldValue& value) const noexcept {
    return readers_ > 0 || value.pins > 0 || ((replayed_ || value.brought_again) && value.replay_pins > 0) ||
           (&value == &own_ && replayed_ && awaited_elsewhere());
  }
  /// Releases everything without readers.
  void settle() noexcept;

  /// The value in its own layout, computed if it is missing.
  [[nodiscard]] HeldValue& own() noexcept { return own_; }
  [[nodiscard]] HeldValue& demand();
  /// Recomputes the value, for the additional state of its producer.
  void compute_again() {
    replayed_ = true;
    producer_->forward();
    settle();
  }
  /// The producer needs its own result again, until let_go().
  void keep() noexcept {
    ++(producer_->recomputes() ? own_.replay_pins : own_.pins);
    kept_by_producer_ = true;
  }
  void let_go() noexcept {
    if (!std::exchange(kept_by_producer_, false))
      return;
    --(producer_->recomputes() ? own_.replay_pins : own_.pins);
    settle();
  }
  /// For a value that nothing can recompute.
  void keep_always() noexcept { ++own_.pins; }
  void drop_gradient() noexcept { gradient_ = BufferHandle(); }
  /// The entry of the value in another layout.
  [[nodiscard]] HeldValue& other(const char* layout);

  [[nodiscard]] bool has_gradient() const noexcept { return static_cast<bool>(gradient_); }
  /// Declares that `part` follows: the first reader of the gradient completes it.
  void await(LateGradient& part) noexcept { part.next_ = std::exchange(late_, &part); }

protected:
  /// Whether a replay has yet to read the value in another layout. It could not be computed again for that,
  /// because its first replay has released the sources.
  [[nodiscard]] bool awaited_elsewhere() const noexcept {
    for (const HeldValue* other = others_; other != nullptr; other = other->next)
      if (other->replay_pins > 0 && !other->memory && !other->brought_again)
        return true;
    return false;
  }
  [[nodiscard]] PendingGradient& pending(const char* layout);
  void hand_over_pending(void* slot);

private:
  /// The entry of a layout in a list, which is in the memory of the tape; made if it is missing.
  template <class Entry> [[nodiscard]] Entry& entry_in(Entry*& first, const char* layout) {
    for (Entry* known = first; known != nullptr; known = known->next)
      if (known->layout == layout)
        return *known;
    first = new (tape().arena().take(sizeof(Entry), alignof(Entry))) Entry{.layout = layout, .next = first};
    return *first;
  }

protected:
  TapeNode* producer_;
  HeldValue own_;
  HeldValue* others_ = nullptr;
  PendingGradient* pending_ = nullptr;
  LateGradient* late_ = nullptr;
  BufferHandle gradient_;
  std::uint32_t readers_ = 0;
  RowAxes rows_;
  bool computed_ = false;
  bool replayed_ = false;
  bool wants_gradient_ = false;
  bool kept_by_producer_ = false;
};

/// A deferred sum.
template <class Value> class LazySum {
public:
  using Pair = std::pair<Value, Value>;
  [[nodiscard]] virtual Pair take_terms() = 0;

protected:
  ~LazySum() = default;
};

/// The slot of a typed value. A node holds one for each of its results.
template <class L, class Element, class Target> class Slot : public SlotBase {
public:
  using Value = ShardedTensor<L, const Element, Target>;
  using Shape = typename Value::Shape;
  using GradientLayout = Gradient<L>;
  using GradientHandle = ShardedTensor<GradientLayout, const Element, Target>;
  static_assert(
      FieldElement<Element>,
      "Var: a value that has a gradient must have floating-point elements (pass integers, such as token ids, to the operation as a tensor)");

  using SlotBase::SlotBase;

  /// Stores the value; called only by its producer.
  template <class E> void set(ShardedTensor<L, E, Target>&& value) {
    shape_ = value.shape();
    local_ = value.local_shape();
    resources_ = &value.resources();
    own_.memory = TensorAccess::take_memory(std::move(value));
    computed_ = true;
  }
  /// Describes the value before it is computed.
  void expect(TargetResources<Target>& resources, const Shape& shape, LazySum<Value>* sum) {
    resources_ = &resources;
    shape_ = shape;
    local_ = local_shape_of<L>(resources.core(), shape);
    sum_ = sum;
  }
  /// The deferred sum, if the value is one that has not been computed: whoever takes its terms must set the
  /// value.
  [[nodiscard]] LazySum<Value>* sum() noexcept {
    if (own_.memory)
      return nullptr;
    replayed_ = replayed_ || computed_;
    return sum_;
  }

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] TargetResources<Target>& resources() const noexcept { return *resources_; }

  /// A handle to the value, computed if it is missing; the last handle if nothing else keeps the value.
  [[nodiscard]] Value value() {
    HeldValue& held = demand();
    return TensorAccess::in_memory<Value>(kept(held) ? held.memory : std::move(held.memory), shape_, local_);
  }
  /// The value in layout `To`, by the transition that the types determine.
  template <class To>
  [[nodiscard]] ShardedTensor<To, const Element, Target> value_in(HeldValue& place, SourceLocation where) {
    using Wanted = ShardedTensor<To, const Element, Target>;
    if (!place.memory) {
      place.brought_again = tape().replays(); // first: this layout no longer awaits the value
      place.memory = TensorAccess::take_memory(moved<To>(value(), where));
    }
    return TensorAccess::in_memory<Wanted>(kept(place) ? place.memory : std::move(place.memory), shape_);
  }

  /// The extents of the value, without its memory.
  [[nodiscard]] Value outline() const { return TensorAccess::outline<Value>(resources_->core(), shape_); }
  /// The gradient, once every reader has added its part. @pre has_gradient()
  [[nodiscard]] GradientHandle take_gradient() { return gradient_in(std::move(gradient_)); }
  [[nodiscard]] GradientHandle gradient() const { return gradient_in(gradient_); }
  /// Adds a raw gradient. Those of the same layout are summed before they are redistributed to the layout in
  /// which gradients of this value are passed back, unless that would round the parts of two ordered sums
  /// together.
  template <class Raw, class E> void give(ShardedTensor<Raw, E, Target>&& raw, SourceLocation where) {
    using RawHandle = ShardedTensor<Raw, const Element, Target>;
    auto handle = TensorAccess::take<RawHandle>(std::move(raw));
    if constexpr (std::is_same_v<Raw, GradientLayout>) {
      add_gradient(std::move(handle));
    } else {
      PendingGradient& place = pending(&type_identity<Raw>);
      if (place.memory) {
        if constexpr (sums_parts<Raw>)
          handle =
              sum_of(TensorAccess::in_memory<RawHandle>(std::move(place.memory), shape_), std::move(handle));
        else
          place.hand_over(this, place);
      }
      place.memory = TensorAccess::take_memory(std::move(handle));
      place.where = where;
      place.hand_over = [](void* slot, PendingGradient& given) {
        auto* const self = static_cast<Slot*>(slot);
        self->add_gradient(moved<GradientLayout>(
            TensorAccess::in_memory<RawHandle>(std::move(given.memory), self->shape_), given.where));
      };
    }
  }
  /// The sum of the raw gradients so far in a layout, for a node that adds its own in that memory; nothing if
  /// there is none, or if it has other handles. Nor on a Reproducible target: the mesh decides whether a
  /// transition shares memory, and a sum in place rounds otherwise.
  template <class Raw> [[nodiscard]] std::optional<ShardedTensor<Raw, Element, Target>> take_sum() {
    if constexpr (is_reproducible<Target>) {
      return std::nullopt;
    } else {
      BufferHandle& memory = [this]() -> BufferHandle& {
        if constexpr (std::is_same_v<Raw, GradientLayout>)
          return gradient_;
        else
          return pending(&type_identity<Raw>).memory;
      }();
      if (!memory || !memory.reusable())
        return std::nullopt;
      return TensorAccess::in_memory<ShardedTensor<Raw, Element, Target>>(std::move(memory), shape_);
    }
  }
  /// Completes the gradient; returns whether there is one.
  [[nodiscard]] bool receive_gradient() {
    hand_over_pending(this);
    return has_gradient();
  }

private:
  template <class Raw>
  static constexpr bool sums_parts = !is_reproducible<Target> || !Raw::value.has_partial();

  [[nodiscard]] GradientHandle gradient_in(BufferHandle memory) const {
    if constexpr (std::is_same_v<GradientLayout, L>)
      return TensorAccess::in_memory<GradientHandle>(std::move(memory), shape_, local_);
    else
      return TensorAccess::in_memory<GradientHandle>(std::move(memory), shape_);
  }
  void add_gradient(GradientHandle&& gradient) {
    if (gradient_)
      gradient = sum_of(take_gradient(), std::move(gradient));
    gradient_ = TensorAccess::take_memory(std::move(gradient));
  }

  /// By the transition of an owner if this is the last handle: a single all_reduce then works in place.
  template <class To, class From>
  [[nodiscard]] static auto moved(ShardedTensor<From, const Element, Target>&& from, SourceLocation where) {
    using Out = ShardedTensor<To, const Element, Target>;
    if (!TensorAccess::reusable(from))
      return redistribute<To>(from, where);
    return TensorAccess::take<Out>(
        redistribute<To>(TensorAccess::take<ShardedTensor<From, Element, Target>>(std::move(from)), where));
  }

  TargetResources<Target>* resources_ = nullptr;
  LazySum<Value>* sum_ = nullptr;
  Shape shape_{};
  typename Value::LocalShape local_{}; ///< This rank's extents, which every reader needs.
};

#if !defined(SHARDWRIGHT_COMPILED)
// Like everything that slots of all types share, out of line.
[[gnu::noinline]] SHARDWRIGHT_INLINE SlotBase::~SlotBase() {
  while (others_ != nullptr)
    std::exchange(others_, others_->next)->~HeldValue();
  while (pending_ != nullptr)
    std::exchange(pending_, pending_->next)->~PendingGradient();
}

[[gnu::noinline]] SHARDWRIGHT_INLINE void SlotBase::settle() noexcept {
  if (!kept(own_))
    own_.memory = BufferHandle();
  for (HeldValue* other = others_; other != nullptr; other = other->next)
    if (!kept(*other))
      other->memory = BufferHandle();
}

[[gnu::noinline]] SHARDWRIGHT_INLINE HeldValue& SlotBase::demand() {
  if (!own_.memory) {
    replayed_ = replayed_ || computed_;
    producer_->forward();
  }
  return own_;
}

[[gnu::noinline]] SHARDWRIGHT_INLINE void SlotBase::hand_over_pending(void* slot) {
  while (late_ != nullptr)
    std::exchange(late_, late_->next_)->finish();
  for (PendingGradient* each = pending_; each != nullptr; each = each->next)
    if (each->memory)
      each->hand_over(slot, *each);
}

[[gnu::noinline]] SHARDWRIGHT_INLINE PendingGradient& SlotBase::pending(const char* layout) {
  return entry_in(pending_, layout);
}

[[gnu::noinline]] SHARDWRIGHT_INLINE HeldValue& SlotBase::other(const char* layout) {
  return entry_in(others_, layout);
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
