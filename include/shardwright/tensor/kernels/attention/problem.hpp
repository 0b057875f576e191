// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention on a fused buffer as calls of a library that expects heads at equal distances, and the
/// plans that are kept for them.

#include <shardwright/comm/stderr_line.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/device/graphs.hpp>
#include <shardwright/tensor/kernels/attention/shape.hpp>
#include <shardwright/tensor/kernels/attention/work.hpp>

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Elements from one sequence, head or row to the next; those of a row are neighbours.
struct HeadStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;

  friend auto operator<=>(const HeadStrides&, const HeadStrides&) = default;
};

/// One call of the library: [batch, heads, sequence, width] each, several query heads to one key head.
/// Contains everything by which the library chooses its kernel, and so is the key of a plan. The strides of
/// values are those of keys.
struct AttentionProblem {
  ElementType element = ElementType::bfloat16;
  bool backward = false;
  bool causal = false;
  std::int64_t window = 0; ///< Keys that a query sees, its own included; 0: no limit.
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t sequence = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_width = 0;
  HeadStrides query;
  HeadStrides key;
  HeadStrides out;
  HeadStrides sums; ///< Of log_sum_exp.
  HeadStrides d_query;
  HeadStrides d_key;
  HeadStrides d_out;

  friend auto operator<=>(const AttentionProblem&, const AttentionProblem&) = default;
};

/// The memory of one call; pointers that the direction does not use are null.
struct AttentionOperands {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  void* out = nullptr;
  float* sums = nullptr;
  const void* d_out = nullptr;
  void* d_query = nullptr;
  void* d_key = nullptr;
  void* d_value = nullptr;
  float scale = 1;
};

/// Calls of one problem, each a number of elements further on in the buffers.
struct AttentionCalls {
  AttentionProblem problem;
  std::int64_t count = 1;
  std::int64_t qkv_step = 0;
  std::int64_t d_qkv_step = 0;
  std::int64_t out_step = 0;
  std::int64_t d_out_step = 0;
  std::int64_t sums_step = 0;
};

/// Row strides of the buffers; those of gradients are 0 in the forward pass.
struct AttentionRows {
  std::size_t qkv = 0;
  std::size_t out = 0;
  std::size_t d_out = 0;
  std::size_t d_qkv = 0;

  /// Of contiguous buffers.
  [[nodiscard]] static AttentionRows contiguous(const AttentionShape& shape, bool backward) {
    return {shape.qkv_width(), shape.output_width(), backward ? shape.output_width() : 0,
            backward ? shape.qkv_width() : 0};
  }
};

/// Whether a library has the mask, and rows begin at multiples of 16 bytes.
template <class Element>
[[nodiscard]] bool library_supports(const AttentionShape& shape, const AttentionBlock& block,
                                    const AttentionRows& rows) {
  const KeyWindow& window = block.mask.window;
  const bool whole = block.queries == TokenRuns::one(shape.sequence, block.queries.first) &&
                     block.keys == block.queries && block.mask.lengths == nullptr &&
                     block.mask.positions == 0;
  const bool full = window.before == KeyWindow::unlimited && window.after == KeyWindow::unlimited;
  constexpr std::size_t step = 16 / sizeof(Element);
  const bool aligned = shape.head_dim % step == 0 && shape.value_width() % step == 0 &&
                       rows.qkv % step == 0 && rows.out % step == 0 && rows.d_out % step == 0 &&
                       rows.d_qkv % step == 0;
  return whole && (full || window.after == 0) && aligned;
}

/// The calls for whole sequences in their natural order under a causal or full mask or a causal window;
/// nothing for other masks, or if rows or the sums of a call do not begin at multiples of 16 bytes.
///
/// A group of the fused buffer is its query heads, its key and its value, so that ranks and checkpoints split
/// it by whole groups whatever their number is. Query heads are at equal distances inside a group, and over
/// all groups if each has one query head. So several query heads per key take one call for each group, over
/// all sequences, or one for each sequence, with the groups as the library's batch: whichever is fewer.
template <class Element>
[[nodiscard]] std::optional<AttentionCalls> library_calls(const AttentionShape& shape,
                                                          const AttentionBlock& block,
                                                          const AttentionRows& rows, bool backward) {
  if (!library_supports<Element>(shape, block, rows))
    return std::nullopt;
  const KeyWindow& window = block.mask.window;
  const auto size = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  const std::int64_t group = size(shape.group_width()), sequence = size(shape.sequence);
  const std::int64_t queries = size(shape.q_per_kv), groups = size(shape.kv_heads);
  const std::int64_t out_group = size(shape.q_per_kv * shape.value_width());
  AttentionCalls calls;
  AttentionProblem& problem = calls.problem;
  problem.element = element_type_of<Element>();
  problem.backward = backward;
  problem.causal = window.after == 0;
  if (window.before < shape.sequence) // else no key is hidden by it
    problem.window = size(window.before) + 1;
  problem.sequence = sequence;
  problem.head_dim = size(shape.head_dim);
  problem.value_width = size(shape.value_width());

  // Whether the library's batch is that of the sequences; else it is the groups.
  const bool by_group = queries == 1 || shape.kv_heads <= shape.batch;
  const auto place = [&](std::size_t row, std::int64_t of_group, std::int64_t of_head) {
    return HeadStrides{by_group ? sequence * size(row) : of_group, queries == 1 ? of_group : of_head,
                       size(row)};
  };
  problem.batch = by_group ? size(shape.batch) : groups;
  problem.heads = queries == 1 ? groups : queries;
  problem.kv_heads = queries == 1 ? groups : 1;
  if (queries > 1) {
    calls.count = by_group ? groups : size(shape.batch);
    const auto next = [&](std::size_t row, std::int64_t of_group) {
      return by_group ? of_group : sequence * size(row);
    };
    calls.qkv_step = next(rows.qkv, group);
    calls.d_qkv_step = backward ? next(rows.d_qkv, group) : 0;
    calls.out_step = next(rows.out, out_group);
    calls.d_out_step = backward ? next(rows.d_out, out_group) : 0;
    calls.sums_step = (by_group ? queries : groups * queries) * sequence;
    if (calls.count > 1 && calls.sums_step * std::int64_t{sizeof(float)} % 16 != 0)
      return std::nullopt;
  }
  const std::int64_t width = problem.head_dim, value = problem.value_width;
  problem.query = place(rows.qkv, group, width);
  problem.key = place(rows.qkv, group, group);
  problem.out = place(rows.out, out_group, value);
  problem.sums = {(by_group ? groups : 1) * queries * sequence, sequence, 1};
  if (backward) {
    problem.d_query = place(rows.d_qkv, group, width);
    problem.d_key = place(rows.d_qkv, group, group);
    problem.d_out = place(rows.d_out, out_group, value);
  }
  return calls;
}

/// The plans of one stream, each made at the first call of its problem.
///
/// `Library` has a type Plan; `std::optional<Plan> plan(const AttentionProblem&)`, nothing if it has no
/// kernel for the problem; `std::size_t workspace(const Plan&)` in bytes; and `void run(const
/// AttentionProblem&, Plan&, const AttentionOperands&, void* workspace)`, which only starts the work.
template <class Library> class AttentionPlans {
public:
  /// Bytes, as other kernels can compute the problem, too. On compute capability 9.0 cuDNN's
  /// deterministic gradient keeps 2 bytes for each pair of a query and a key (cudnn_frontend,
  /// CompositeSDPABackwardNode).
  static constexpr std::size_t most_workspace = std::size_t{2} << 30;

  explicit AttentionPlans(Library library) : library_(std::move(library)) {}

  /// Bytes of workspace of a problem; nothing if the library has no kernel for it.
  [[nodiscard]] std::optional<std::size_t> workspace(const AttentionProblem& problem) {
    const std::optional<typename Library::Plan>& plan = plan_of(problem);
    if (!plan)
      return std::nullopt;
    return library_.workspace(*plan);
  }

  /// Starts the calls, each with its part of the operands; false if the library has no kernel or needs more
  /// workspace.
  template <class Element>
  [[nodiscard]] bool run(const AttentionCalls& calls, const AttentionOperands& first, void* workspace,
                         std::size_t bytes) {
    std::optional<typename Library::Plan>& plan = plan_of(calls.problem);
    if (!plan || library_.workspace(*plan) > bytes)
      return false;
    for (std::int64_t call = 0; call < calls.count; ++call)
      library_.run(calls.problem, *plan, operands<Element>(calls, first, call), workspace);
    return true;
  }

  /// The operands of one of the calls.
  template <class Element>
  [[nodiscard]] static AttentionOperands operands(const AttentionCalls& calls, AttentionOperands at,
                                                  std::int64_t call) {
    const auto move = [call]<class Pointer>(Pointer& pointer, std::int64_t step) {
      using Bytes =
          std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte*, std::byte*>;
      if (pointer != nullptr)
        pointer = static_cast<Bytes>(pointer) + call * step * std::int64_t{sizeof(Element)};
    };
    move(at.query, calls.qkv_step);
    move(at.key, calls.qkv_step);
    move(at.value, calls.qkv_step);
    move(at.out, calls.out_step);
    move(at.d_out, calls.d_out_step);
    move(at.d_query, calls.d_qkv_step);
    move(at.d_key, calls.d_qkv_step);
    move(at.d_value, calls.d_qkv_step);
    at.sums += call * calls.sums_step;
    return at;
  }

private:
  std::optional<typename Library::Plan>& plan_of(const AttentionProblem& problem) {
    if (const auto found = plans_.find(problem); found != plans_.end())
      return found->second;
    std::optional<typename Library::Plan> plan = library_.plan(problem);
    if (!plan && shardwright::detail::CaptureMark::spoil()) // planning may do what a capture forbids
      return none_; // the capture is discarded, so other kernels will do
    if (plan && library_.workspace(*plan) > most_workspace) {
      tell_refused(library_.workspace(*plan));
      plan.reset();
    }
    return plans_.emplace(problem, std::move(plan)).first->second;
  }

  /// Once in a process: the step is slower than the program may expect.
  static void tell_refused(std::size_t bytes) {
    static std::atomic_flag told;
    if (!told.test_and_set())
      shardwright::detail::write_stderr_line(
          "attention: the library's kernel must need at most 2 GiB of workspace, but it needs " +
          std::to_string(bytes >> 20) + " MiB, so slower kernels of shardwright run (use a smaller batch).");
  }

  Library library_;
  std::map<AttentionProblem, std::optional<typename Library::Plan>> plans_;
  std::optional<typename Library::Plan> none_; // never a plan
};

/// The library of an execution space; specialized by headers of targets.
template <class Execution> struct LibraryAttention { static constexpr bool available = false; };

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
