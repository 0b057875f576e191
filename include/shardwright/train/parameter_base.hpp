// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The part of parameters that does not depend on their types: name, place, role and copies.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/mix.hpp>
#include <shardwright/tensor/operation_checks.hpp>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The key of random numbers that follows from a name.
[[nodiscard]] inline std::uint64_t key_of(std::string_view name) noexcept {
  std::uint64_t key = 0;
  for (const char letter : name)
    key = mixed(key, static_cast<unsigned char>(letter));
  return key;
}

[[noreturn]] inline void reject_unlisted(SourceLocation where, std::string_view layout) {
  throw LifecycleError(
      "Parameter: the one of " + std::string(layout) + " that was made at " + where.text() +
      " must have values before it is read (list it in members(), and call initialize() with the whole model)");
}

// As all errors of parameters, in functions that do not depend on their types.
[[noreturn]] inline void reject_parameter(const std::string& name, const char* sentence) {
  throw LifecycleError("Parameter " + name + sentence);
}
[[noreturn]] inline void reject_second_initialization(const std::string& name, const std::string& next) {
  throw LifecycleError("Parameter " + name + ": it must be initialized once, but it is listed again as " +
                       next + " (list it in one module, or make it a TiedParameter)");
}

/// Properties that copies of a parameter must share.
struct ParameterType {
  std::string_view compute; ///< Layout in which it is read.
  std::string_view raw;     ///< Layout of a microbatch's gradient.
  ElementType element;
  std::span<const std::int64_t> shape;
};

} // namespace detail

/// @brief Whether the optimizer took a step.
struct StepVerdict {
  bool taken = true;                         ///< On a device, where only that knows: always.
  const std::int32_t* device_take = nullptr; ///< The answer of a device, 0 for no, where kernels read it.
};

/// @brief Numbers that training changes beside parameters, the same on all ranks that hold the part. Doubles
/// hold floats, and integers below 2^53, as they are.
struct PartState {
  std::string_view name; ///< Below the part's path, such as "bias".
  std::vector<double> values;
};

/// @brief A part of a model that takes its name and seed from initialize(): a parameter, or a place such as
/// dropout's.
class NamedPart {
public:
  /// @param path of the part in the model, such as "layers.3.down"
  virtual void initialize(const std::string& path, std::uint64_t seed) = 0;
  /// @brief Says that a step is over: for parts that count in one, such as the load of experts. Collective.
  virtual void end_step(const StepVerdict&) {}
  /// @brief Says that all forward passes of a step have been; for parts that need the whole batch.
  /// Collective.
  virtual void end_forwards() {}
  /// @brief Names the ranks of other meshes that hold a copy of this part, this rank among them: those of
  /// DualPipe, each of which sees half of the microbatches.
  virtual void set_copies(HostCommunicator) {}
  /// @brief The numbers that a checkpoint holds of it: always of the same names and lengths. Waits for a
  /// device. Not collective.
  [[nodiscard]] virtual std::vector<PartState> state() const { return {}; }
  /// @brief Goes on from what state() gave. Not collective.
  virtual void set_state(const std::vector<PartState>&) {}

protected:
  NamedPart() = default;
  NamedPart(const NamedPart&) = default;
  NamedPart(NamedPart&&) = default;
  NamedPart& operator=(const NamedPart&) = default;
  NamedPart& operator=(NamedPart&&) = default;
  ~NamedPart() = default;
};

/// @brief The role of a parameter in its operation, which its shape does not tell: the bias of a product into
/// heads is no vector.
enum class ParameterRole : std::uint8_t {
  weight, ///< A matrix of a product, or a table.
  gain,   ///< A value is multiplied with it, element by element.
  bias    ///< It is added to a value.
};

/// @brief The part of a parameter that does not depend on its type.
class ParameterBase : public NamedPart {
public:
  /// @brief Its path in the model, such as "layers.3.down".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// @brief The place in the source where it was made.
  [[nodiscard]] SourceLocation where() const noexcept { return where_; }
  /// @brief Returns the text that all copies of it must have in common: layouts, element and shape.
  [[nodiscard]] std::string type_text() const {
    const detail::ParameterType own = type();
    return std::string(own.compute) + " with gradients in " + std::string(own.raw) + ", " +
           std::string(name_of(own.element)) + " " + detail::text_of(own.shape);
  }

  /// @brief Starts to bring the weights to the layout in which they are read, beside what the caller does;
  /// uses may overlap, and each ends with release(). Collective where they are stored in another one.
  /// @throws LifecycleError if nothing has filled it.
  virtual void start_gather() = 0;
  /// @brief Waits for the weights.
  virtual void finish_gather() = 0;
  /// @brief Ends a use; with the last one the gathered memory returns to the pool.
  virtual void release() = 0;

  /// @brief Returns whether this is its first use on a recording of a tape: in the backward pass, that is the
  /// last.
  [[nodiscard]] bool first_use(std::uint64_t recording) noexcept {
    return std::exchange(recording_, recording) != recording;
  }
  /// @brief Says that several stages of this rank add to the gradient, so that only the end of a step's
  /// passes completes it.
  void complete_with_step() noexcept { completes_with_step_ = true; }
  [[nodiscard]] bool completes_with_step() const noexcept { return completes_with_step_; }
  void set_copies(HostCommunicator ranks) override { copies_ = std::move(ranks); }
  /// @brief The ranks that set_copies() named; without a group where there are none.
  [[nodiscard]] const HostCommunicator& copies() const noexcept { return copies_; }
  /// @brief Returns whether this rank's copy stands for all copies.
  [[nodiscard]] bool first_copy() const { return !copies_.valid() || copies_.rank() == 0; }

  /// @brief Its role in its operation.
  [[nodiscard]] ParameterRole role() const noexcept { return role_; }
  /// @brief A number that no other parameter of this process has or had; it goes with the parameter where
  /// that is moved.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

protected:
  // These would be compiled again for every parameter.
  [[gnu::noinline]] ParameterBase(std::string name, SourceLocation where,
                                  ParameterRole role = ParameterRole::weight)
      : name_(std::move(name)), where_(where), role_(role) {}
  /// Before anything of the parameter is moved. @throws LifecycleError if a gradient belongs to it.
  [[gnu::noinline]] ParameterBase(ParameterBase&& other) // NOLINT(performance-noexcept-move-constructor)
      : NamedPart(), name_(std::move(other.movable().name_)), where_(other.where_), role_(other.role_),
        copies_(std::move(other.copies_)), number_(std::exchange(other.number_, next_number())),
        recording_(std::exchange(other.recording_, 0)),
        completes_with_step_(std::exchange(other.completes_with_step_, false)) {}
  [[gnu::noinline]] ParameterBase&
  operator=(ParameterBase&& other) { // NOLINT(performance-noexcept-move-constructor)
    static_cast<void>(movable());
    static_cast<void>(other.movable());
    if (this == &other)
      return *this;
    name_ = std::move(other.name_);
    where_ = other.where_;
    role_ = other.role_;
    copies_ = std::move(other.copies_);
    number_ = std::exchange(other.number_, next_number());
    recording_ = std::exchange(other.recording_, 0);
    completes_with_step_ = std::exchange(other.completes_with_step_, false);
    return *this;
  }
  [[gnu::noinline]] ~ParameterBase() {} // NOLINT(modernize-use-equals-default)

  /// Says whether a gradient belongs to it, which knows it by its place.
  void stay(bool on) noexcept { stays_ = on; }

  std::string name_;
  SourceLocation where_;

private:
  [[nodiscard]] virtual detail::ParameterType type() const noexcept = 0;
  [[nodiscard]] ParameterBase& movable() {
    if (stays_)
      detail::reject_parameter(
          name_,
          ": it must stay where it is while a GradAccumulator holds its gradient (construct the model where it stays, or move it before you make the GradAccumulator)");
    return *this;
  }
  [[nodiscard]] static std::uint64_t next_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  ParameterRole role_;
  HostCommunicator copies_;
  std::uint64_t number_ = next_number();
  std::uint64_t recording_ = 0;
  bool completes_with_step_ = false;
  bool stays_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
