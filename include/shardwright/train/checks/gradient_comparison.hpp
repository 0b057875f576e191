// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares gradients with difference quotients, independently of the types of the function and its
/// inputs.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/layout/token_order.hpp>
#include <shardwright/train/step/batch_origin.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The options of check_gradients.
struct GradientCheck {
  double step = 1e-5;      ///< Of the central differences.
  double tolerance = 1e-6; ///< Of a slope, relative to the norm of its input's gradient.
  int directions = 2;      ///< Random directions in which each input is perturbed.
  int elements = 0; ///< Elements of each input that are perturbed one by one; up to 100 if a direction fails.
  std::uint64_t seed = 1;
  BatchOrigin origin{}; ///< Of the function's batch; the tape passes it to operations such as dropout.
  RowOrder rows{};      ///< Positions of the rows of its sequences.
};

/// @brief The place where gradient and difference quotient differ most.
struct GradientDifference {
  std::string input; ///< Its name and, for an element, the indices: "w[2, 3]".
  double gradient = 0;
  double quotient = 0;
  double error = 0; ///< |gradient - quotient|, relative to the norm of the input's gradient.
};

/// @brief A gradient is not the slope of its function.
class GradientMismatch : public Error {
public:
  GradientMismatch(const std::string& sentence, GradientDifference difference, ErrorContext context = {})
      : Error(sentence, std::move(context)), difference_(std::move(difference)) {}
  [[nodiscard]] const GradientDifference& difference() const noexcept { return difference_; }

private:
  GradientDifference difference_;
};

namespace detail {

/// A perturbed input: a tensor or a parameter.
class PerturbedInput {
public:
  virtual ~PerturbedInput() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> shape() const = 0;
  virtual void point_randomly(RandomKey key) = 0;
  virtual void point_at(std::size_t element) = 0;
  /// Sets the input to this distance from its original value; 0 restores it.
  virtual void perturb(double step) = 0;
  /// This rank's part of the gradient times the direction, and of the gradient's square.
  [[nodiscard]] virtual double slope() = 0;
  [[nodiscard]] virtual double square() = 0;
};

/// The function's value: a loss, or the sum of a value's elements with random factors.
class NumberedFunction {
public:
  virtual ~NumberedFunction() = default;
  /// This rank's part.
  [[nodiscard]] virtual double value() = 0;
};

class GradientCheckRun {
public:
  GradientCheckRun(const GradientCheck& options, HostCommunicator ranks, NumberedFunction& function)
      : options_(options), ranks_(std::move(ranks)), function_(function) {}

  /// Compares in random directions and, if one fails or if requested, element by element.
  void check(PerturbedInput& input, std::uint64_t number) {
    std::array<double, 1> square{input.square()};
    sum_over_ranks(ranks_, square);
    const double norm = std::sqrt(square[0]);
    GradientDifference direction, element;
    for (int d = 0; d < options_.directions; ++d) {
      input.point_randomly({options_.seed, (number << 16) + static_cast<std::uint64_t>(d)});
      compare(input, norm, direction, [&] { return input.name(); });
    }
    const bool sound = direction.error <= options_.tolerance;
    std::size_t size = 1;
    for (const std::int64_t extent : input.shape())
      size *= static_cast<std::size_t>(extent);
    const std::size_t looked_at =
        std::min<std::size_t>(size, static_cast<std::size_t>(sound ? options_.elements : 100));
    for (std::size_t i = 0; i < looked_at; ++i) {
      const std::size_t place = i * size / looked_at;
      input.point_at(place);
      compare(input, norm, element, [&] { return name_of(input, place); });
    }
    input.perturb(0);
    // A wrong element says more than a direction in which it fails with others. If all tested elements are
    // right, the wrong one is among the rest.
    const bool by_element =
        (!sound && !(element.error <= options_.tolerance)) || is_worse(element, direction);
    keep_worse(std::move(by_element ? element : direction), worst_);
  }
  [[nodiscard]] const GradientDifference& worst() const noexcept { return worst_; }

private:
  /// NaN is the worst.
  [[nodiscard]] static bool is_worse(const GradientDifference& one, const GradientDifference& other) {
    return !std::isnan(other.error) && !(one.error <= other.error);
  }
  static void keep_worse(GradientDifference&& found, GradientDifference& worst) {
    if (is_worse(found, worst))
      worst = std::move(found);
  }
  template <class Name>
  void compare(PerturbedInput& input, double norm, GradientDifference& worst, const Name& name) {
    std::array<double, 3> totals{};
    input.perturb(options_.step);
    totals[0] = function_.value();
    input.perturb(-options_.step);
    totals[1] = function_.value();
    totals[2] = input.slope();
    sum_over_ranks(ranks_, totals);
    const double quotient = (totals[0] - totals[1]) / (2 * options_.step);
    // The last term keeps rounding errors of gradients that are zero from counting.
    const double error = std::abs(totals[2] - quotient) / (norm + std::abs(quotient) + 1e-3);
    keep_worse({name(), totals[2], quotient, error}, worst);
  }
  [[nodiscard]] static std::string name_of(const PerturbedInput& input, std::size_t element) {
    const std::vector<std::int64_t> shape = input.shape();
    std::string indices;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto extent = static_cast<std::size_t>(shape[d]);
      indices = std::to_string(element % extent) + (indices.empty() ? "" : ", ") + indices;
      element /= extent;
    }
    return input.name() + "[" + indices + "]";
  }

  const GradientCheck& options_;
  HostCommunicator ranks_;
  NumberedFunction& function_;
  GradientDifference worst_;
};

inline void require_slopes(const GradientDifference& worst, const GradientCheck& options,
                           SourceLocation where) {
  if (worst.error <= options.tolerance)
    return;
  std::ostringstream sentence;
  sentence.precision(10);
  sentence << "check_gradients: a gradient must be the slope of its function, but that of " << worst.input
           << " is " << worst.gradient << ", and the difference quotient " << worst.quotient
           << " (look at the gradient of the operations that read it)";
  throw GradientMismatch(sentence.str(), worst, {.where = where});
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
