// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The work of a training run per step, independent of the plan: batch, sequence, precision,
/// optimizer.

#include <shardwright/core/config.hpp>
#include <shardwright/core/fixed_point.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <cstdint>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Bytes of Adam's state per parameter, as defined in the ZeRO paper (arXiv 1910.02054, section 3.1).
struct OptimizerSpec {
  double parameter_bytes = 2; ///< Of the copy that computes.
  double gradient_bytes = 4;  ///< Of the accumulated gradient.
  double state_bytes = 12;    ///< fp32 parameter and both moments.
  double gathered_bytes = 0;  ///< On the wire per gathered parameter; 0 takes `parameter_bytes`.
  double reduced_bytes = 0;   ///< On the wire per reduced gradient; 0 takes what is usual.
  friend constexpr bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

/// @brief The origin of the kernels between the matrix products.
enum class KernelStack : std::uint8_t {
  tuned,   ///< The vendor's fused kernels (Megatron-LM with Transformer Engine, XLA).
  plain,   ///< A framework's own operators, fused little or not (PyTorch FSDP).
  compiled ///< The same, fused by its compiler (torch.compile) except for attention.
};

/// @brief How copies of tokens reach their experts and return.
enum class ExpertDispatch : std::uint8_t {
  fused,      ///< Kernels that send one copy per domain and sort on the way (DeepEP, HybridEP).
  all_to_all, ///< Sorting, an all-to-all that the host sizes once it knows the counts, and sorting again.
  padded      ///< The same of a fixed number of rows per expert, so that no host waits.
};

/// @brief One training step as the user specifies it.
struct RunSpec {
  std::int64_t sequences = 0; ///< Of the global batch.
  std::int64_t sequence_length = 0;
  Precision precision = Precision::bf16;
  OptimizerSpec optimizer{};
  double expert_capacity = 1; ///< Rows per expert over the mean load: 1 without padding, else often 1.25.
  KernelStack stack = KernelStack::tuned;
  ExpertDispatch dispatch = ExpertDispatch::fused;
  bool captured_experts = false; ///< Layers with experts run from captured graphs, without the host.
  bool overlapped_experts =
      false; ///< All-to-alls run beside another microbatch's passes, whatever the schedule.
  bool overlapped_tensor = false; ///< Tensor-parallel traffic runs beside parts of its own products.
  bool fused_attention = true;    ///< Scores never leave the chip's registers; false for runs before 2022.
  bool flash_2 = false;           ///< Attention is that of FlashAttention-2 whatever the stack.
  bool vendors_attention = false; ///< Attention is the vendor's (cuDNN's) whatever the stack.
  double logit_bytes =
      0; ///< Kept per logit of a microbatch; 0 takes what is usual, a chunked loss much less.
  /// Age of the chip's generation when the program was written; infinite: old enough.
  double chip_months = std::numeric_limits<double>::infinity();
  bool offloads_layers = false; ///< What layers that are recomputed keep waits in the host's memory.
  bool stops_early = false;     ///< A full recomputation ends once it has what gradients read (PyTorch's):
                                ///< without last products, and experts' return of tokens.
  bool reproducible = false;    ///< The bits do not depend on the mesh: `reproducible`.

  [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return sequences * sequence_length; }
  /// @brief Returns whether tp, or cp in a ring, may have this extent: a reproducible sum has eight parts.
  [[nodiscard]] constexpr bool allows_extent(std::int64_t extent) const noexcept {
    return !reproducible || 8 % extent == 0;
  }
  friend constexpr bool operator==(const RunSpec&, const RunSpec&) = default;
};

/// @brief The run on a `Reproducible` target: gradients are integers of 8 bytes, in memory and on the wire,
/// tp and cp are 1, 2, 4 or 8, and products take longer.
[[nodiscard]] constexpr RunSpec reproducible(RunSpec run) noexcept {
  run.reproducible = true;
  run.optimizer.gradient_bytes = run.optimizer.reduced_bytes = sizeof(FixedPoint);
  return run;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
