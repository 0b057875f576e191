// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tables of the angles of rotary embeddings.

#include <shardwright/core/element.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Cosines and sines of the rotary angles, replicated, in the AccumulationElement (Su et al., arXiv
/// 2104.09864).
template <class Element, class Target> class RotaryTable {
public:
  template <class Mesh>
  RotaryTable(const Mesh& mesh, std::int64_t positions, std::int64_t head_width, double base,
              SourceLocation where = SourceLocation::current())
      : cosines_(mesh, {positions, head_width / 2}),
        sines_(mesh, {positions, head_width / 2}), numbers_{GivenNumber("base", base)} {
    agree(mesh.core(), where);
    kernels::fill_rotary_tables(cosines_.execution(), cosines_.mutable_local_matrix(),
                                sines_.mutable_local_matrix(), base);
  }
  /// @param frequencies angles per position, from rotary_frequencies()
  /// @param factor on all cosines and sines, as in context extensions
  template <class Mesh>
  RotaryTable(const Mesh& mesh, std::int64_t positions, const std::vector<double>& frequencies,
              double factor = 1, SourceLocation where = SourceLocation::current())
      : cosines_(mesh, {positions, static_cast<std::int64_t>(frequencies.size())}),
        sines_(mesh, {positions, static_cast<std::int64_t>(frequencies.size())}), numbers_{GivenNumber(
                                                                                      "factor of the angles",
                                                                                      factor)} {
    for (const double frequency : frequencies)
      numbers_.emplace_back("frequency", frequency, static_cast<std::int64_t>(numbers_.size()) - 1);
    agree(mesh.core(), where);
    std::vector<AccumulationElement<Element>> cosines, sines;
    for (std::int64_t position = 0; position < positions; ++position)
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        cosines.push_back(static_cast<AccumulationElement<Element>>(factor * std::cos(angle)));
        sines.push_back(static_cast<AccumulationElement<Element>>(factor * std::sin(angle)));
      }
    detail::copy_to_target<Target>(cosines_.execution(), cosines.data(), cosines_.mutable_data(),
                                   cosines.size());
    detail::copy_to_target<Target>(sines_.execution(), sines.data(), sines_.mutable_data(), sines.size());
  }
  [[nodiscard]] auto cosines() const { return cosines_.local_matrix(); }
  [[nodiscard]] auto sines() const { return sines_.local_matrix(); }
  /// @brief The rotation of rows at these positions.
  [[nodiscard]] kernels::Rotation<AccumulationElement<Element>> at(const TokenRuns& positions) const {
    return {kernels::span_of(cosines()), kernels::span_of(sines()), positions};
  }
  /// @brief The numbers that all ranks must give alike: its base, or its frequencies and their factor.
  [[nodiscard]] const std::vector<GivenNumber>& numbers() const noexcept { return numbers_; }

private:
  void agree([[maybe_unused]] const detail::MeshCore& core, [[maybe_unused]] SourceLocation where) const {
    if constexpr (always_checked)
      detail::require_agreement(core, "RotaryTable", numbers_, detail::no_axes, where);
  }

  ShardedTensor<Layout<2>, AccumulationElement<Element>, Target> cosines_;
  ShardedTensor<Layout<2>, AccumulationElement<Element>, Target> sines_;
  std::vector<GivenNumber> numbers_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
