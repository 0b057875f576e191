// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks data that ranks must have in common: the same global shape, and equal values where the
/// layout replicates.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/kernels/checksum.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A 64-bit hash of a block; waits for it.
template <class Target, class Element>
[[nodiscard]] std::uint64_t content_hash(TargetResources<Target>& resources,
                                         const MatrixView<const Element, Target>& block) {
  Scalars<1, Target, std::uint64_t> content(resources);
  auto workspace = workspace_of<std::uint64_t>(resources, kernels::reduce_workspace(block.size()));
  kernels::checksum(resources.execution(), block, content.view(), workspace.mutable_local());
  return content.read()[0];
}
/// The hash of a tensor's local block.
template <AnyShardedTensor Tensor> [[nodiscard]] std::uint64_t content_hash(const Tensor& tensor) {
  return content_hash<typename Tensor::target, typename Tensor::value_type>(tensor.resources(),
                                                                            tensor.local_matrix());
}

/// The properties of a tensor that each rank knows.
struct InputFacts {
  std::array<std::int64_t, max_tensor_rank> shape{};
  std::uint64_t content = 0;
};

/// The subject of a comparison, and the advice if ranks differ.
struct InputSubject {
  const char* name = "Input";
  const char* layout = "the layout";
  const char* advice = "read the batch with load_rows(), or draw random data from one seed on all of them";
};

/// Compares these properties over all ranks of a mesh. The verdict is the same on every rank.
/// @throws ConfigurationMismatch.
void compare_inputs(const MeshCore& core, const InputFacts& own, std::size_t tensor_rank,
                    std::span<const std::string_view> sharded_axes, std::string_view layout,
                    SourceLocation where, const InputSubject& subject = {});

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void compare_inputs(const MeshCore& core, const InputFacts& own, std::size_t tensor_rank,
                                       std::span<const std::string_view> sharded_axes,
                                       std::string_view layout, SourceLocation where,
                                       const InputSubject& subject) {
  constexpr std::size_t words = max_tensor_rank + 1;
  std::array<std::uint64_t, words> sent{};
  for (std::size_t d = 0; d < tensor_rank; ++d)
    sent[d] = static_cast<std::uint64_t>(own.shape[d]);
  sent[max_tensor_rank] = own.content;
  HostCommunicator world = core.world();
  std::vector<std::uint64_t> all(words * static_cast<std::size_t>(world.size()));
  world.all_gather(sent, all, {}, where);
  const auto facts = [&all](int rank) { return all.data() + words * static_cast<std::size_t>(rank); };
  const auto fail = [&](const std::string& sentence) {
    throw ConfigurationMismatch(sentence, {.rank = world.rank(),
                                           .group = world.name(),
                                           .operation = "input check",
                                           .layout = std::string(layout),
                                           .where = where});
  };
  const auto shape_text = [&](int rank) {
    std::vector<std::int64_t> shape;
    for (std::size_t d = 0; d < tensor_rank; ++d)
      shape.push_back(static_cast<std::int64_t>(facts(rank)[d]));
    return text_of(shape);
  };
  for (int rank = 1; rank < world.size(); ++rank)
    if (!std::equal(facts(rank), facts(rank) + tensor_rank, facts(0)))
      fail(std::string(subject.name) + ": a tensor must have the same global shape on all ranks, but it is " +
           shape_text(0) + " on rank 0 and " + shape_text(rank) + " on rank " + std::to_string(rank) +
           " (compute the shape from what all ranks share)");
  for (int axis = 0; axis < core.axis_count(); ++axis) {
    if (core.extent(axis) == 1 || axis_index(sharded_axes, core.name(axis)) >= 0)
      continue;
    std::vector<int> odd;
    for (int rank = 0; rank < world.size(); ++rank)
      if (facts(rank)[max_tensor_rank] != facts(first_along(core, rank, axis))[max_tensor_rank])
        odd.push_back(rank);
    if (!odd.empty())
      fail(std::string(subject.name) + ": ranks along " + std::string(core.name(axis)) + ", over which " +
           subject.layout + " replicates, must have equal values, but " + ranks_text(odd) +
           (odd.size() == 1 ? " differs" : " differ") + " from the first rank along it (" + subject.advice +
           ")");
  }
}
#endif

template <AnyShardedTensor Tensor>
void compare_tensor(const Tensor& tensor, SourceLocation where, const InputSubject& subject) {
  using L = typename Tensor::layout;
  InputFacts own;
  std::copy(tensor.shape().begin(), tensor.shape().end(), own.shape.begin());
  own.content = content_hash(tensor);
  compare_inputs(tensor.core(), own, tensor.shape().size(), L::axes, LayoutText<L>::value, where, subject);
}

/// Begins an operation that reads tensors: they have memory, and in checked builds memory of the program
/// holds what its layout says.
/// @throws LifecycleError for a tensor that was moved from; ConfigurationMismatch on every rank.
template <AnyShardedTensor... Tensors> void begin_operation(SourceLocation where, const Tensors&... tensors) {
  (tensors.require_memory(where), ...);
  if constexpr (always_checked) {
    constexpr InputSubject borrowed{
        "tensor_over", "the declared layout",
        "fill the memory alike, or declare the layout that it has, such as a Partial for parts of a sum"};
    ((TensorAccess::buffer(tensors).borrowed() ? compare_tensor(tensors, where, borrowed) : void()), ...);
  }
}

} // namespace detail

/// @brief Checks that a tensor has the same global shape on all ranks of its mesh, and equal values on ranks
/// that hold copies of a block. Collective; cost: one read of the block, 56 bytes for each rank, and a wait.
/// @throws ConfigurationMismatch on every rank, naming the shapes, or the axis and the ranks.
template <AnyShardedTensor Tensor>
void require_equal_inputs(const Tensor& tensor, SourceLocation where = SourceLocation::current()) {
  detail::compare_tensor(tensor, where, {});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
