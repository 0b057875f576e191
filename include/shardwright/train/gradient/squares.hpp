// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sum of the squares of gradients: in a fixed order, or exactly where the target is Reproducible.

#include <shardwright/core/exact_sum.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/exact_sums.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/memory/scalars.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>

#include <cstddef>
#include <limits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Squares of many blocks, in the order in which they are added.
template <class Target> class GradientSquares {
public:
  /// @param partial_sums of all blocks together: see kernels::reduce_workspace
  GradientSquares(TargetResources<Target>& resources, std::size_t partial_sums)
      : result_(resources), workspace_(workspace_of<double>(resources, partial_sums)),
        sum_(resources.execution(), workspace_.mutable_data()) {}

  /// Adds a block, whose memory must stay until finish().
  template <class Block> void add(const Block& block) { sum_.add(block); }
  /// The sum, in memory of the target.
  [[nodiscard]] const Scalars<1, Target>& finish() {
    sum_.finish(result_.view());
    return result_;
  }

private:
  Scalars<1, Target> result_;
  ShardedTensor<Layout<1>, double, Target> workspace_;
  kernels::SquareSum<typename Target::execution_space> sum_;
};

/// The same exactly: the sum does not depend on the blocks, whose squares are those of floats.
template <class Target>
requires is_reproducible<Target>
class GradientSquares<Target> {
public:
  GradientSquares(TargetResources<Target>& resources, std::size_t) : resources_(resources) {}

  void add(const VectorView<const float, Target>& block) {
    const std::size_t bytes = kernels::exact_sum_workspace(block.size()) * sizeof(ExactSum);
    const BufferHandle workspace(resources_.take(bytes));
    ExactSum one;
    kernels::exact_sum<kernels::ProductTerms>(resources_.execution(), block, block, &one,
                                              static_cast<ExactSum*>(workspace.data()));
    sum_ += one;
  }
  /// For a gradient with a term that did not fit.
  void add_nan() { sum_.add(std::numeric_limits<double>::quiet_NaN()); }
  [[nodiscard]] const ExactSum& finish() const { return sum_; }

private:
  TargetResources<Target>& resources_;
  ExactSum sum_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
