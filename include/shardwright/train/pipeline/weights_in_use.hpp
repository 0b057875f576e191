// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The weights of a stage's units while its passes read them.

#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/train/gradient/gather_window.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/tape/core.hpp>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The weights of units that passes read one after the other, forwards and backwards. Those of the unit in
/// use are gathered, and those of the next ones are being gathered.
class WeightsInUse {
public:
  /// Holds the gathered weights of a unit during its lifetime.
  class Use {
  public:
    explicit Use(const std::vector<ParameterBase*>& parameters) : parameters_(&parameters) {
      for (ParameterBase* const each : parameters)
        each->finish_gather();
    }
    Use(Use&& other) noexcept : parameters_(std::exchange(other.parameters_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (parameters_ != nullptr)
        for (ParameterBase* const each : *parameters_)
          each->release();
    }

  private:
    const std::vector<ParameterBase*>* parameters_;
  };

  /// Appends a unit. @param name to which its memory is attributed
  void add_unit(std::string name, const std::vector<ListedPart>& parts);
  /// Sets the last unit whose weights a backward pass reads, after all have been added.
  void read_back_to(std::size_t unit) { window_ = GatherWindow(units_.size(), unit); }
  /// Declares which pass reads the weights after the next one, so that its gathers start in time; empty if
  /// other weights may come in between.
  void expect_pass(std::optional<Pass> next) noexcept { window_.expect_pass(next); }

  [[nodiscard]] const std::string& name(std::size_t unit) const { return units_[unit].name; }
  /// Waits for the weights of a unit.
  [[nodiscard]] Use read(std::size_t unit, bool backward = false);
  /// Records where a unit begins or ends, so that the backward pass gathers its weights once.
  void mark(TapeCore& tape, std::size_t unit, bool begins);

private:
  struct Unit {
    std::string name;
    std::vector<ParameterBase*> parameters;
  };

  class Mark;

  void begin_backward(std::size_t unit);
  void end_backward();

  std::deque<Unit> units_; // in their places, where uses refer to them
  GatherWindow window_;
  std::optional<Use> backward_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void WeightsInUse::add_unit(std::string name, const std::vector<ListedPart>& parts) {
  Unit& unit = units_.emplace_back();
  unit.name = std::move(name);
  for (const ListedPart& each : parts)
    if (each.parameter != nullptr)
      unit.parameters.push_back(each.parameter);
}

SHARDWRIGHT_INLINE WeightsInUse::Use WeightsInUse::read(std::size_t unit, bool backward) {
  window_.advance(
      unit, backward,
      [this](std::size_t next) {
        for (ParameterBase* const each : units_[next].parameters)
          each->start_gather();
      },
      [this](std::size_t wrong) {
        for (ParameterBase* const each : units_[wrong].parameters)
          each->release();
      });
  return Use(units_[unit].parameters);
}

class WeightsInUse::Mark final : public TapeNode {
public:
  Mark(TapeCore& tape, WeightsInUse& weights, std::size_t unit, bool begins)
      : TapeNode(tape), weights_(weights), unit_(unit), begins_(begins) {}
  void forward() override {}
  void backward(GradientPass pass) override {
    if (pass == GradientPass::weight)
      return;
    if (begins_)
      weights_.end_backward();
    else
      weights_.begin_backward(unit_);
  }

private:
  WeightsInUse& weights_;
  std::size_t unit_;
  bool begins_;
};

SHARDWRIGHT_INLINE void WeightsInUse::mark(TapeCore& tape, std::size_t unit, bool begins) {
  if (unit >= window_.last_backward())
    tape.record<Mark>(*this, unit, begins);
}

SHARDWRIGHT_INLINE void WeightsInUse::begin_backward(std::size_t unit) {
  memory_purpose().part = name(unit);
  backward_.emplace(read(unit, true));
}

SHARDWRIGHT_INLINE void WeightsInUse::end_backward() {
  backward_.reset();
  memory_purpose().part = {};
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
