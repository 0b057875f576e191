// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The type-independent part of parameters: name, source location, role and copies.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/tensor/checks/operation.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The random key derived from a name.
[[nodiscard]] std::uint64_t key_of(std::string_view name) noexcept;

[[noreturn]] void reject_unlisted(SourceLocation where, std::string_view layout);

// Like all errors of parameters, in a type-independent function.
[[noreturn]] void reject_parameter(const std::string& name, const char* sentence);
[[noreturn]] void reject_second_initialization(const std::string& name, const std::string& next);

/// A gradient, which refers to its parameter by address.
class GradientOfParameter {
public:
  virtual void forget_parameter() noexcept = 0;

protected:
  ~GradientOfParameter() = default;
};

/// Properties that copies of a parameter must share, and its mesh.
struct ParameterType {
  std::string_view compute; ///< Layout in which it is read.
  std::string_view raw;     ///< Layout of a microbatch's gradient.
  ElementType element;
  std::span<const std::int64_t> shape;
  const MeshCore& core;
};

} // namespace detail

/// @brief Whether the optimizer took a step.
struct StepVerdict {
  bool taken = true;                 ///< On a device, where only the device knows, always true.
  const bool* device_take = nullptr; ///< The device's answer for kernels to read.
};

/// @brief State other than parameters that training changes, the same on all ranks that hold the part.
/// Doubles represent floats and integers below 2^53 exactly.
struct PartState {
  std::string_view name; ///< Relative to the part's path, such as "bias".
  std::vector<double> values;
};

/// @brief A part of a model that gets its name and seed from initialize(): a parameter, or a module such as
/// Dropout.
class NamedPart {
public:
  /// @param path of the part in the model, such as "layers.3.down"
  virtual void initialize(const std::string& path, std::uint64_t seed) = 0;
  /// @brief Ends a step, for parts that count per step, such as the load of experts. Collective; cost: the
  /// part's.
  virtual void end_step(const StepVerdict&) {}
  /// @brief Declares that all forward passes of a step are done, for parts that need the whole batch.
  /// Collective; cost: the part's.
  virtual void end_forwards() {}
  /// @brief Whether its loss needs the whole batch: see WholeBatchLoss.
  [[nodiscard]] virtual bool reads_whole_batch() const { return false; }
  /// @brief Sets the ranks of other meshes that hold a copy of this part, including this rank: under
  /// DualPipe, each sees half of the microbatches.
  virtual void set_copies(HostCommunicator) {}
  /// @brief Its numbers for a checkpoint, always with the same names and lengths. Waits for a device. Not
  /// collective.
  [[nodiscard]] virtual std::vector<PartState> state() const { return {}; }
  /// @brief Restores a state from state(). Not collective.
  virtual void set_state(const std::vector<PartState>&) {}

protected:
  NamedPart() = default;
  NamedPart(const NamedPart&) = default;
  NamedPart(NamedPart&&) = default;
  NamedPart& operator=(const NamedPart&) = default;
  NamedPart& operator=(NamedPart&&) = default;
  ~NamedPart() = default;
};

/// @brief The role of a parameter in its operation, which its shape does not reveal: the bias of a product
/// into heads is not a vector.
enum class ParameterRole : std::uint8_t {
  weight, ///< A matrix of a product, or a table.
  gain,   ///< Multiplied with a value elementwise.
  bias    ///< Added to a value.
};

/// @brief The part of a parameter that does not depend on its type.
class ParameterBase : public NamedPart {
public:
  /// @brief Its path in the model, such as "layers.3.down".
  [[nodiscard]] const std::string& name() const noexcept { return own_.name; }
  /// @brief The source location where it was created.
  [[nodiscard]] SourceLocation where() const noexcept { return own_.where; }
  /// @brief Returns a text that must be equal for all copies: layouts, element and shape.
  [[nodiscard]] std::string type_text() const;

  /// @brief Its mesh.
  [[nodiscard]] const detail::MeshCore& core() const { return type().core; }
  /// @brief The number of its dimensions.
  [[nodiscard]] int dimensions() const { return static_cast<int>(type().shape.size()); }

  /// @brief Starts redistributing the weights to the layout in which they are read, asynchronously; uses may
  /// overlap, and each ends with release(). Collective if they are stored in another layout.
  /// @throws LifecycleError if nothing has filled it.
  virtual void start_gather() = 0;
  /// @brief Waits for the weights.
  virtual void finish_gather() = 0;
  /// @brief Ends a use; with the last one the gathered memory returns to the pool.
  virtual void release() = 0;

  /// @brief Sets how many stages of this rank add to the gradient, which is complete after the last pass of
  /// each. Before a GradAccumulator holds it.
  void set_stages(int stages) noexcept { own_.stages = stages; }
  [[nodiscard]] int stages() const noexcept { return own_.stages; }

  /// @brief Sets the gradient to which its passes contribute; null detaches it, and drops what they have
  /// added.
  /// @throws LifecycleError for a second one.
  void hold_gradient(detail::GradientOfParameter* gradient);
  /// @brief Takes the sum of the raw gradients so far, if there is one; the next one begins a new sum.
  [[nodiscard]] virtual detail::BufferHandle take_raw_gradient() = 0;

  void set_copies(HostCommunicator ranks) override { own_.copies = std::move(ranks); }
  /// @brief The ranks that set_copies() named; a handle without a group if there are none.
  [[nodiscard]] const HostCommunicator& copies() const noexcept { return own_.copies; }
  /// @brief Returns whether this rank's copy is the one that counts.
  [[nodiscard]] bool first_copy() const { return !copies().valid() || copies().rank() == 0; }

  /// @brief Notes whether the adapters of its model are merged: checkpoints then refuse it.
  void set_merged(bool merged) noexcept { own_.merged = merged; }
  [[nodiscard]] bool merged() const noexcept { return own_.merged; }

  /// @brief Its role in its operation.
  [[nodiscard]] ParameterRole role() const noexcept { return own_.role; }
  /// @brief How often its weights have been written.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  /// @brief A number that is unique in this process; it moves with the parameter.
  [[nodiscard]] std::uint64_t number() const noexcept { return own_.number; }

protected:
  // Out of line: they would be compiled again for every parameter.
  ParameterBase(std::string name, SourceLocation where, ParameterRole role = ParameterRole::weight);
  /// Before anything of the parameter is moved. @throws LifecycleError if a gradient belongs to it.
  ParameterBase(ParameterBase&& other);            // NOLINT(performance-noexcept-move-constructor)
  ParameterBase& operator=(ParameterBase&& other); // NOLINT(performance-noexcept-move-constructor)
  ~ParameterBase();

  /// @throws LifecycleError if there is none.
  [[nodiscard]] detail::GradientOfParameter& held_gradient() const {
    if (gradient_ == nullptr)
      detail::reject_parameter(
          name(),
          ": a GradAccumulator must hold its gradient before a backward pass runs (make one for the model that lists the parameter)");
    return *gradient_;
  }
  /// The weights are about to be written.
  void note_write() noexcept { ++version_; }
  void set_name(const std::string& name) { own_.name = name; }

private:
  [[nodiscard]] virtual detail::ParameterType type() const noexcept = 0;
  [[nodiscard]] ParameterBase& movable() {
    if (gradient_ != nullptr)
      detail::reject_parameter(
          name(),
          ": it must stay where it is while a GradAccumulator holds its gradient (construct the model where it stays, or move it before you make the GradAccumulator)");
    return *this;
  }
  [[nodiscard]] static std::uint64_t next_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  /// The members that move with the parameter.
  struct Own {
    std::string name{};
    SourceLocation where{};
    ParameterRole role = ParameterRole::weight;
    HostCommunicator copies{};
    std::uint64_t number = next_number();
    int stages = 1;
    bool merged = false;
  };

  Own own_;
  std::uint64_t version_ = 0;
  detail::GradientOfParameter* gradient_ = nullptr;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::uint64_t detail::key_of(std::string_view name) noexcept {
  std::uint64_t key = 0;
  for (const char letter : name)
    key = mixed(key, static_cast<unsigned char>(letter));
  return key;
}

SHARDWRIGHT_INLINE void detail::reject_unlisted(SourceLocation where, std::string_view layout) {
  throw LifecycleError(
      "Parameter: the one of " + std::string(layout) + where.text_after(" that was made at ") +
      " must have values before it is read or changed (list it in members(), and call initialize() with the whole model)");
}

SHARDWRIGHT_INLINE void detail::reject_parameter(const std::string& name, const char* sentence) {
  throw LifecycleError("Parameter " + name + sentence);
}

SHARDWRIGHT_INLINE void detail::reject_second_initialization(const std::string& name,
                                                             const std::string& next) {
  throw LifecycleError("Parameter " + name + ": it must be initialized once, but it is listed again as " +
                       next + " (list it in one module, or make it a TiedParameter)");
}

SHARDWRIGHT_INLINE std::string ParameterBase::type_text() const {
  const detail::ParameterType own = type();
  return std::string(own.compute) + " with gradients in " + std::string(own.raw) + ", " +
         std::string(name_of(own.element)) + " " + detail::text_of(own.shape);
}

SHARDWRIGHT_INLINE void ParameterBase::hold_gradient(detail::GradientOfParameter* gradient) {
  if (gradient != nullptr && gradient_ != nullptr)
    detail::reject_parameter(
        name(),
        ": only one GradAccumulator may hold its gradient, but there is a second one (destroy the first)");
  gradient_ = gradient;
  static_cast<void>(take_raw_gradient());
}

[[gnu::noinline]] SHARDWRIGHT_INLINE ParameterBase::ParameterBase(std::string name, SourceLocation where,
                                                                  ParameterRole role)
    : own_{.name = std::move(name), .where = where, .role = role} {}

[[gnu::noinline]] SHARDWRIGHT_INLINE
ParameterBase::ParameterBase(ParameterBase&& other) // NOLINT(performance-noexcept-move-constructor)
    : NamedPart(), own_(std::exchange(other.movable().own_, {})) {}

[[gnu::noinline]] SHARDWRIGHT_INLINE ParameterBase&
ParameterBase::operator=(ParameterBase&& other) { // NOLINT(performance-noexcept-move-constructor)
  static_cast<void>(movable());
  static_cast<void>(other.movable());
  if (this != &other)
    own_ = std::exchange(other.own_, {});
  return *this;
}

[[gnu::noinline]] SHARDWRIGHT_INLINE ParameterBase::~ParameterBase() {
  if (gradient_ != nullptr)
    gradient_->forget_parameter();
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
