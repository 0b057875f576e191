// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A parameter as an operand: its weights are gathered for each use, and its gradient is computed in a
/// separate pass.

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/pipeline/shared_parts.hpp>
#include <shardwright/train/tape/core.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Holds the weights of a parameter while a node reads them. Costs nothing if a stage has already gathered
/// them.
class WeightReading {
public:
  explicit WeightReading(ParameterBase& parameter) : parameter_(&parameter) {
    parameter.start_gather();
    parameter.finish_gather();
  }
  WeightReading(WeightReading&& other) noexcept : parameter_(std::exchange(other.parameter_, nullptr)) {}
  WeightReading& operator=(WeightReading&&) = delete;
  ~WeightReading() {
    if (parameter_ != nullptr)
      parameter_->release();
  }

private:
  ParameterBase* parameter_;
};

/// An operand of a node that is a parameter.
template <class P> class ParameterOperand {
public:
  using layout = typename P::compute_layout;
  using element = typename P::element;
  using gradient_element = typename P::gradient_element;
  using target = typename P::target;
  using Value = ShardedTensor<layout, const element, target>;
  static constexpr bool is_parameter = true;
  static constexpr bool is_frozen = !P::trained;

  explicit ParameterOperand(P& parameter) : parameter_(&parameter), version_(parameter.version()) {}

  [[nodiscard]] static constexpr bool wants_gradient() noexcept { return !is_frozen; }
  [[nodiscard]] const auto& shape() const noexcept { return parameter_->shape(); }

  /// Records whether this is the first use on the tape, which is the last one in the backward pass.
  void note_use(TapeCore& tape) {
    if (!is_frozen && tape.next_use_of(parameter_) == 0)
      ends_pass_of_ = &tape;
  }
  // Weights are not kept: they are gathered again when a gradient reads them.
  void keep(const TapeNode&, bool) noexcept {}
  void secure() noexcept {}
  void let_go() noexcept {}
  /// The weights are available during the lifetime of the result.
  template <bool reads = true> [[nodiscard]] auto reading() const {
    if constexpr (reads) {
      require_unchanged();
      return WeightReading(*parameter_);
    } else {
      return true;
    }
  }
  [[nodiscard]] Value read() const { return parameter_->weight(); }
  [[nodiscard]] Value outline() const {
    return TensorAccess::outline<Value>(parameter_->stored().core(), parameter_->shape());
  }

  /// Checks that a gradient has the parameter's raw layout, with an error sentence if not.
  template <class Given> [[nodiscard]] static constexpr bool takes() noexcept {
    constexpr bool fits = std::is_same_v<Given, typename P::raw_layout>;
    static_assert(
        fits,
        "Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another (use a separate parameter, or read both operands in the layouts of the first use)");
    return fits;
  }
  /// The sum to which the gradient is added.
  [[nodiscard]] typename P::Slot slot() const {
    require_unchanged();
    return parameter_->gradient_slot();
  }
  /// Adds a gradient that has been computed elsewhere.
  template <AnyShardedTensor Raw> void give(const Raw& raw) const {
    constexpr bool ordered = !is_reproducible<target> || std::is_same_v<typename Raw::value_type, FixedPoint>;
    static_assert(
        ordered,
        "Parameter: on a Reproducible target an operation must add its gradient term by term to the parameter's sum, but this one gives floats that are already summed (add FixedPoint terms to the slot, or choose a target that is not Reproducible)");
    if constexpr (ordered && takes<typename Raw::layout>()) {
      const typename P::Slot to = slot();
      if (to.beta == 0)
        kernels::copy(raw.execution(), raw.local_matrix(), to.tensor.mutable_local_matrix());
      else
        kernels::add(raw.execution(), to.tensor.local_matrix(), raw.local_matrix(),
                     to.tensor.mutable_local_matrix());
    }
  }
  /// The operand that was read first is the last to add to the gradient.
  void end_pass() const {
    if constexpr (!is_frozen)
      if (ends_pass_of_ != nullptr)
        parameter_->gradient_state().end_pass(
            ends_pass_of_->position(),
            {.scale = ends_pass_of_->loss_scale(), .pass = {ends_pass_of_->number()}});
  }

private:
  /// A pass must see the weights with which its microbatch was recorded.
  void require_unchanged() const {
    if (parameter_->version() != version_)
      reject_parameter(
          parameter_->name(),
          ": its weights must stay the same from a forward pass until the backward pass of that microbatch, but they were written in between (run the backward pass first, or record the microbatch again)");
  }

  P* parameter_;
  std::uint64_t version_;
  const TapeCore* ends_pass_of_ = nullptr; // null: of none
};

template <class C, class R, class E, class Z, class T>
[[nodiscard]] ParameterOperand<Parameter<C, R, E, Z, T>> operand_of(Parameter<C, R, E, Z, T>& parameter,
                                                                    SourceLocation) {
  return ParameterOperand<Parameter<C, R, E, Z, T>>(parameter);
}

template <class P>
[[nodiscard]] ParameterOperand<P> operand_of(const TiedParameter<P>& tied, SourceLocation) {
  return ParameterOperand<P>(*tied);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
