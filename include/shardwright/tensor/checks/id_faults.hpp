// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Ids beyond the vocabulary: an error at once on a host, and with the step's report on a device.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/kernels/id_check.hpp>
#include <shardwright/tensor/memory/shared_memory.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// "target 50256 at position 17 of sequence 3", or "... at [1, 2, 17]" of other ids than [batch, sequence].
[[nodiscard]] inline std::string text_of(const kernels::IdFault& fault) {
  const auto place = fault.ids.place(fault.token);
  std::string out = (fault.ids.target != 0 ? "target " : "id ") + std::to_string(fault.id) + " at ";
  if (fault.ids.dimensions == 2)
    return out + "position " + std::to_string(place[1]) + " of sequence " + std::to_string(place[0]);
  for (std::int32_t d = 0; d < fault.ids.dimensions; ++d)
    out += (d == 0 ? "[" : ", ") + std::to_string(place[static_cast<std::size_t>(d)]);
  return out + "]";
}

[[noreturn]] void reject_id(const kernels::IdFault& fault, const MeshCore& core, SourceLocation where);

/// The first fault of a rank on a target, in memory that its kernels and the host access; made at its first
/// use.
template <class Target> [[nodiscard]] kernels::IdFault* id_fault(TargetResources<Target>& resources) {
  using Memory = SharedMemory<kernels::IdFault, Target>;
  std::shared_ptr<void>& kept = resources.id_faults();
  if (!kept)
    kept = std::make_shared<Memory>(1);
  return static_cast<Memory*>(kept.get())->data();
}

/// Throws if the rank has met a fault. @pre its kernels are done
template <class Target>
void require_known_ids(TargetResources<Target>& resources, SourceLocation where = {}) {
  if constexpr (!counts_only<Target>)
    if (resources.id_faults()) {
      kernels::IdFault& fault = *id_fault(resources);
      if (fault.found != 0)
        reject_id(std::exchange(fault, {}), resources.core(), where);
    }
}

/// The check of a block of ids.
/// @param order of the rows of the batch's sequences
template <class Ids>
[[nodiscard]] kernels::IdCheck id_check(const Ids& ids, std::int64_t vocabulary, bool target,
                                        const RowOrder& order) {
  constexpr std::size_t rank = Ids::tensor_rank;
  kernels::IdCheck out;
  if constexpr (!counts_only<typename Ids::target>)
    out.fault = id_fault(ids.resources());
  out.ids.vocabulary = vocabulary;
  out.ids.target = target ? 1 : 0;
  out.ids.dimensions = static_cast<std::int32_t>(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    out.ids.offset[d] = ids.local_offset()[d];
    out.ids.extent[d] = ids.local_shape()[d];
  }
  if (rank == 2 && static_cast<std::int64_t>(order.sequence) == ids.shape()[rank - 1])
    out.ids.order = order;
  return out;
}

/// After the kernel that checks ids: throws on a host. A device continues, and the step's report throws.
template <class Ids> void reject_unknown_ids(const Ids& ids, SourceLocation where) {
  using Target = typename Ids::target;
  if constexpr (Target::host_accessible && !counts_only<Target>) {
    wait_for_kernels(ids.execution());
    require_known_ids(ids.resources(), where);
  }
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void reject_id(const kernels::IdFault& fault, const MeshCore& core, SourceLocation where) {
  const int rank = core.world().world_rank();
  throw DataError(
      "Token ids: they must be below the vocabulary of " + std::to_string(fault.ids.vocabulary) +
          (fault.ids.target != 0 ? ", or negative for targets that do not count" : " and not negative") +
          ", but rank " + std::to_string(rank) + " reads " + text_of(fault) +
          " (encode the text with the tokenizer of the model, or give the table as many rows as the tokenizer has tokens)",
      {.rank = rank, .operation = fault.ids.target != 0 ? "cross_entropy" : "embedding", .where = where});
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
