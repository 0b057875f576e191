// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The core of a tape: the operations of one microbatch in the order in which they ran.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/train/gradient/pass_position.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape/first_pass.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The purpose of a recording, which determines what a tape keeps.
enum class Recording : std::uint8_t {
  evaluation, ///< Keeps nothing: no gradients follow, and dropout drops nothing.
  counting,   ///< Keeps nothing either, but computes as in training, for counts that are needed beforehand.
  training    ///< Keeps what the gradients need.
};

namespace detail {

/// Counts by address. What it has allocated stays for the next recording.
class CallCounts {
public:
  /// How often it was asked for this object before.
  [[nodiscard]] std::uint32_t next(const void* object) {
    if (2 * (used_ + 1) > entries_.size())
      grow();
    Entry& entry = place_of(object);
    if (entry.object == nullptr) {
      entry.object = object;
      ++used_;
    }
    return entry.count++;
  }
  void clear() noexcept {
    std::fill(entries_.begin(), entries_.end(), Entry{});
    used_ = 0;
  }

private:
  struct Entry {
    const void* object = nullptr;
    std::uint32_t count = 0;
  };
  /// The object's entry, or the first free one after its place.
  [[nodiscard]] Entry& place_of(const void* object) noexcept {
    const std::size_t mask = entries_.size() - 1;
    const auto mixed =
        static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(object)) * 0x9e3779b97f4a7c15u;
    for (std::size_t at = static_cast<std::size_t>(mixed >> 32) & mask;; at = (at + 1) & mask)
      if (entries_[at].object == object || entries_[at].object == nullptr)
        return entries_[at];
  }
  void grow();

  std::vector<Entry> entries_; // a power of two, at most half of them in use
  std::size_t used_ = 0;
};

/// Memory for nodes, reused for every microbatch: after the first ones nothing is allocated on the heap.
class TapeArena {
public:
  [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment);
  void reset() noexcept { chunk_ = used_ = 0; }

private:
  static constexpr std::size_t chunk_bytes = std::size_t{1} << 15;
  struct Chunk {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;
  std::size_t used_ = 0;
};

/// Which gradients a node computes.
enum class GradientPass : std::uint8_t { input, weight, both };

class TapeCore;

/// Which results backward passes recompute.
struct RecomputationScope {
  std::uint32_t region = 0; ///< Number of the enclosing recomputed function; 0: none.
  bool cheap = false;       ///< Each result by itself, whatever reads it.
};

/// One operation. A node owns its results, which count their readers.
class TapeNode {
public:
  explicit TapeNode(TapeCore& tape) noexcept;
  TapeNode(const TapeNode&) = delete;
  TapeNode& operator=(const TapeNode&) = delete;
  virtual ~TapeNode() = default;

  /// Computes the results from the operands: once when it is recorded, and again for each released result
  /// that is needed.
  virtual void forward() = 0;
  /// Computes the gradients of the operands from those of the results: either both together, or first those
  /// of its inputs and later those of its weights.
  virtual void backward(GradientPass) = 0;

  [[nodiscard]] TapeCore& tape() const noexcept { return tape_; }
  /// Whether its results may be released after the forward pass, because backward passes recompute them.
  [[nodiscard]] bool recomputes() const noexcept {
    return recomputation_.region != 0 || recomputation_.cheap;
  }
  /// Whether it belongs to a function that is recomputed as a whole, including transitions.
  [[nodiscard]] bool in_region() const noexcept { return recomputation_.region != 0; }
  /// Whether this node need not keep the result of `other`: `other` is cheap, or both are in the same region.
  [[nodiscard]] bool recovers(const TapeNode& other) const noexcept {
    return other.recomputation_.cheap ||
           (recomputation_.region != 0 && recomputation_.region == other.recomputation_.region);
  }

private:
  friend class TapeCore;
  TapeCore& tape_;
  TapeNode* before_ = nullptr;
  RecomputationScope recomputation_;
};

/// The part of a tape that does not depend on its target. It lives until the tape and all values on it are
/// gone.
class TapeCore {
public:
  TapeCore() = default;
  TapeCore(const TapeCore&) = delete;
  TapeCore& operator=(const TapeCore&) = delete;
  ~TapeCore() { clear(); }

  /// Discards everything and starts again. @throws LifecycleError while values on it are in use.
  void restart(Recording recording, const std::optional<BatchOrigin>& origin, const RowOrder& rows);

  /// Appends an operation to the tape and executes it.
  template <class Node, class... Arguments> Node& record(Arguments&&... arguments) {
    Node& node = add<Node>(std::forward<Arguments>(arguments)...);
    node.forward();
    return node;
  }
  /// Appends an operation to the tape whose result is not needed yet.
  /// @throws LifecycleError once backward passes run, which would miss it.
  template <class Node, class... Arguments> Node& add(Arguments&&... arguments) {
    static_assert(std::is_base_of_v<TapeNode, Node>);
    if (phase_ != Phase::recording)
      reject_use(
          "Tape: an operation must be recorded before the backward pass, but this one comes after it and "
          "would get no gradient (call restart() before the next microbatch)");
    Node* const node =
        new (arena_.take(sizeof(Node), alignof(Node))) Node(*this, std::forward<Arguments>(arguments)...);
    node->before_ = std::exchange(last_, node);
    return *node;
  }
  /// Memory for data of a node, which destroys it.
  [[nodiscard]] TapeArena& arena() noexcept { return arena_; }

  /// Computes the gradients of all nodes, from the last to the first: both together, or those of inputs and
  /// then those of weights, each once.
  /// @param position of the pass that gives the gradients of weights
  /// @throws LifecycleError in any other order, and in an evaluation.
  void backward(GradientPass pass, PassPosition position);
  /// The place of this backward pass in its step.
  [[nodiscard]] PassPosition position() const noexcept { return position_; }
  /// Factor on losses of routed tokens, which are summed with those of targets and divided by these.
  [[nodiscard]] double counted_share() const noexcept { return counted_share_; }
  void set_counted_share(double share) noexcept { counted_share_ = share; }
  /// The factor on the gradients of its losses.
  [[nodiscard]] const LossScale& loss_scale() const noexcept { return loss_scale_; }
  /// The number of this recording, of which no other has the same; `several` if gradients from elsewhere are
  /// in it.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// A bit for the next loss that is recorded; 0 after the first 64.
  [[nodiscard]] std::uint64_t next_loss() noexcept { return std::exchange(next_loss_, next_loss_ << 1); }
  void note_seed() noexcept { number_ = PassOfTape::several; }
  void set_loss_scale(LossScale scale) noexcept { loss_scale_ = std::move(scale); }
  /// Whether nothing has been recorded.
  [[nodiscard]] bool empty() const noexcept { return last_ == nullptr; }
  /// Whether the current forward computation is a replay.
  [[nodiscard]] bool replays() const noexcept { return phase_ != Phase::recording; }
  [[nodiscard]] std::optional<FirstPass> first_pass() const noexcept {
    if (trains() && !replays())
      return FirstPass();
    return std::nullopt;
  }

  /// Whether data that enters the tape is compared between ranks.
  [[nodiscard]] bool checks_inputs() const noexcept { return checks_inputs_; }
  void check_inputs(bool on) noexcept { checks_inputs_ = on || always_checked; }
  [[nodiscard]] bool trains() const noexcept { return recording_ == Recording::training; }
  /// Whether a training pass follows that needs the counts of this one.
  [[nodiscard]] bool counts_ahead() const noexcept { return recording_ == Recording::counting; }
  /// Empty if it was not set.
  [[nodiscard]] const std::optional<BatchOrigin>& origin() const noexcept { return origin_; }
  /// Positions of the rows of the batch's sequences.
  [[nodiscard]] const RowOrder& rows() const noexcept { return rows_; }
  /// How often a module has been called before in this recording.
  [[nodiscard]] std::uint32_t next_call_of(const void* module) { return calls_.next(module); }
  /// How often a parameter has been used before; a module may have the address of its first parameter.
  [[nodiscard]] std::uint32_t next_use_of(const void* parameter) { return uses_.next(parameter); }

  /// Sets the recomputation of nodes from now on; returns the previous one.
  RecomputationScope recompute(RecomputationScope next) noexcept {
    return std::exchange(recomputation_, next);
  }
  [[nodiscard]] const RecomputationScope& recomputation() const noexcept { return recomputation_; }
  [[nodiscard]] std::uint32_t new_region() noexcept { return ++regions_; }

  void retain() noexcept { ++references_; }
  void release() noexcept {
    if (--references_ == 0)
      delete this;
  }

private:
  /// The passes that have begun; one that throws is not repeated.
  enum class Phase : std::uint8_t { recording, inputs_done, done };

  void require_turn_of(GradientPass pass) const;

  void clear() noexcept;

  TapeArena arena_;
  TapeNode* last_ = nullptr;
  Recording recording_ = Recording::evaluation;
  std::optional<BatchOrigin> origin_;
  RowOrder rows_;
  RecomputationScope recomputation_;
  std::uint32_t regions_ = 0;
  CallCounts calls_, uses_;
  Phase phase_ = Phase::recording;
  PassPosition position_ = PassPosition::middle;
  bool checks_inputs_ = always_checked;
  LossScale loss_scale_;
  double counted_share_ = 1;
  std::uint64_t number_ = 0;
  std::uint64_t next_loss_ = 1;
  long references_ = 1;
};

inline TapeNode::TapeNode(TapeCore& tape) noexcept : tape_(tape), recomputation_(tape.recomputation()) {}

} // namespace detail
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void detail::CallCounts::grow() {
  std::vector<Entry> old =
      std::exchange(entries_, std::vector<Entry>(std::max<std::size_t>(16, 2 * entries_.size())));
  for (const Entry& entry : old)
    if (entry.object != nullptr)
      place_of(entry.object) = entry;
}

SHARDWRIGHT_INLINE void* detail::TapeArena::take(std::size_t bytes, std::size_t alignment) {
  for (;; ++chunk_, used_ = 0) {
    if (chunk_ == chunks_.size())
      chunks_.push_back({std::make_unique<std::byte[]>(std::max(bytes + alignment, chunk_bytes)),
                         std::max(bytes + alignment, chunk_bytes)});
    void* at = chunks_[chunk_].memory.get() + used_;
    std::size_t left = chunks_[chunk_].bytes - used_;
    if (std::align(alignment, bytes, at, left) != nullptr) {
      used_ = chunks_[chunk_].bytes - left + bytes;
      return at;
    }
  }
}

SHARDWRIGHT_INLINE void detail::TapeCore::restart(Recording recording,
                                                  const std::optional<BatchOrigin>& origin,
                                                  const RowOrder& rows) {
  if (references_ > 1)
    throw LifecycleError("Tape: it must not restart while " + std::to_string(references_ - 1) +
                         " values on it are in use (release every Var of the last microbatch first)");
  clear();
  recording_ = recording;
  origin_ = origin;
  rows_ = rows;
  counted_share_ = 1;
  static std::atomic<std::uint64_t> recordings = 0; // of all tapes
  number_ = recordings.fetch_add(1, std::memory_order_relaxed) + 1;
  next_loss_ = 1;
}

SHARDWRIGHT_INLINE void detail::TapeCore::backward(GradientPass pass, PassPosition position) {
  require_turn_of(pass);
  position_ = position;
  phase_ = pass == GradientPass::input ? Phase::inputs_done : Phase::done;
  for (TapeNode* node = last_; node != nullptr; node = node->before_)
    node->backward(pass);
}

SHARDWRIGHT_INLINE void detail::TapeCore::require_turn_of(GradientPass pass) const {
  if (!trains())
    reject_use(
        "Tape: a backward pass must follow a recording for training, but this tape is an evaluation, which "
        "keeps nothing for gradients (restart it with Recording::training)");
  const bool weights = pass == GradientPass::weight;
  if (weights && phase_ == Phase::recording)
    reject_use(
        "Tape: backward_weights() must follow backward_inputs(), which has not run (call that first, or "
        "backward() for both)");
  if (phase_ != (weights ? Phase::inputs_done : Phase::recording))
    reject_use(
        "Tape: every gradient must be computed once, but this backward pass has run already (call restart(), "
        "and record the microbatch again)");
}

SHARDWRIGHT_INLINE void detail::TapeCore::clear() noexcept {
  while (last_ != nullptr)
    std::exchange(last_, last_->before_)->~TapeNode();
  arena_.reset();
  recomputation_ = {};
  regions_ = 0;
  calls_.clear();
  uses_.clear();
  phase_ = Phase::recording;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
