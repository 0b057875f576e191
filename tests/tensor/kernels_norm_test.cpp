// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/norm.hpp>

#include "tensor/norm_of.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

using namespace kernels_test;

namespace {

/// Of an RMSNorm, a LayerNorm without a bias, and one with a bias.
template <class Check> void for_each_kind(const Check& check) {
  check.template operator()<false>(false);
  check.template operator()<true>(false);
  check.template operator()<true>(true);
}

/// One row in double; see the sources of kernels::Norm.
template <class Row, class Gain, class Bias>
std::vector<double> plain_norm(bool centred, const Row& row, std::size_t width, const Gain& gain,
                               const Bias& bias) {
  double mean = 0;
  for (std::size_t c = 0; c < width && centred; ++c)
    mean += row(c) / static_cast<double>(width);
  double variance = 0;
  for (std::size_t c = 0; c < width; ++c)
    variance += (row(c) - mean) * (row(c) - mean) / static_cast<double>(width);
  std::vector<double> out(width);
  for (std::size_t c = 0; c < width; ++c)
    out[c] = (row(c) - mean) / std::sqrt(variance + 1e-5) * gain(c) + bias(c);
  return out;
}

} // namespace

TEMPLATE_TEST_CASE("A norm matches its formula, fused with the addition or not, biased or not", "[kernels]",
                   float, double) {
  const auto check = []<bool centred>(bool biased) {
    for (const std::size_t width : std::array<std::size_t, 4>{1, 15, 64, 100}) {
      CAPTURE(centred, biased, width);
      const std::size_t rows = 67;
      const auto residual = random_matrix<TestType>(rows, width, 1, 3.0);
      const auto branch = random_matrix<TestType>(rows, width, 2);
      const auto gain = random_vector<TestType>(width, 3, 1.0);
      const auto bias = random_vector<TestType>(biased ? width : 0, 4);
      for (std::size_t c = 0; c < width; ++c)
        residual(5, c) = branch(5, c) = centred ? 2 : 0; // no variance
      const auto sum = copy_of(residual), y = copy_of(residual), plain = copy_of(residual);
      const Vector<TestType> mean("mean", rows), inverse("inverse", rows), mean_plain("mean", rows),
          inverse_plain("inverse", rows);
      auto fused = norm_of(residual, gain, inverse, mean);
      auto norm = norm_of(sum, gain, inverse_plain, mean_plain);
      fused.bias = norm.bias = span_of(bias);
      run_norm<centred>(fused, branch, sum, y);
      run_norm<centred>(norm, plain);
      Matrix<double> expected("expected", rows, width), total("total", rows, width);
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t c = 0; c < width; ++c)
          total(i, c) = static_cast<double>(residual(i, c)) + static_cast<double>(branch(i, c));
        const auto row = plain_norm(
            centred, [&](std::size_t c) { return total(i, c); }, width,
            [&](std::size_t c) { return static_cast<double>(gain(c)); },
            [&](std::size_t c) { return biased ? static_cast<double>(bias(c)) : 0.0; });
        for (std::size_t c = 0; c < width; ++c)
          expected(i, c) = row[c];
        REQUIRE(mean(i) == mean_plain(i));
        REQUIRE(inverse(i) == inverse_plain(i));
      }
      REQUIRE(largest_difference(sum, total) < tolerance<TestType>);
      REQUIRE(largest_difference(y, expected) < 4 * tolerance<TestType>);
      REQUIRE(largest_difference(y, plain) == 0.0);
      run_norm<centred>(fused, branch, residual, y); // in place
      REQUIRE(largest_difference(residual, sum) == 0.0);
      REQUIRE(largest_difference(y, plain) == 0.0);
      run_norm<centred>(norm, sum); // in place
      REQUIRE(largest_difference(sum, plain) == 0.0);
    }
  };
  for_each_kind(check);
}

TEST_CASE("LayerNorm of numbers far from zero loses nothing", "[kernels]") {
  Matrix<float> x("x", 1, 256), y("y", 1, 256);
  const Vector<float> gain("gain", 256), mean("mean", 1), inverse("inverse", 1);
  for (std::size_t c = 0; c < 256; ++c) {
    x(0, c) = 4096.0f + static_cast<float>(c % 2);
    gain(c) = 1;
  }
  auto norm = norm_of(x, gain, inverse, mean);
  norm.epsilon = 0;
  run_norm<true>(norm, y);
  for (std::size_t c = 0; c < 256; ++c)
    REQUIRE(y(0, c) == (c % 2 == 0 ? -1.0f : 1.0f));
}

TEST_CASE("Gradients of norms match finite differences", "[kernels]") {
  const auto check = []<bool centred>(bool biased) {
    CAPTURE(centred, biased);
    const std::size_t rows = 70, width = 21; // more than one block of rows
    const auto x = random_matrix<double>(rows, width, 1), dy = random_matrix<double>(rows, width, 2);
    const auto d_residual = random_matrix<double>(rows, width, 4);
    const auto gain = random_vector<double>(width, 3, 1.0),
               bias = random_vector<double>(biased ? width : 0, 5);
    const auto y = copy_of(x), dx = copy_of(x), fused = copy_of(x);
    const Vector<double> mean("mean", rows), inverse("inverse", rows), d_gain("d_gain", width),
        d_bias("d_bias", biased ? width : 0), d_gain_fused("d_gain", width),
        d_bias_fused("d_bias", biased ? width : 0);
    const Vector<double> work("work", kernels::norm_workspace(rows, width, biased));
    auto norm = norm_of(x, gain, inverse, mean);
    norm.bias = span_of(bias);
    norm.d_gain = span_of(d_gain);
    norm.d_bias = span_of(d_bias);
    norm.workspace = span_of(work);
    const auto objective = [&] {
      run_norm<centred>(norm, y);
      return weighted_sum(dy, y);
    };
    objective();
    run_norm_gradient<centred>(norm, dy, dx);
    auto with_residual = norm;
    with_residual.d_gain = span_of(d_gain_fused);
    with_residual.d_bias = span_of(d_bias_fused);
    run_norm_gradient<centred>(with_residual, dy, fused, d_residual);
    require_gradient(x, dx, objective, 7);
    require_gradient(gain, d_gain, objective);
    if (biased)
      require_gradient(bias, d_bias, objective);
    REQUIRE(largest_difference(d_gain, d_gain_fused) == 0.0);
    for (std::size_t i = 0; i < dx.size(); ++i)
      REQUIRE(std::abs(fused.data()[i] - (d_residual.data()[i] + dx.data()[i])) < 1e-14);
    run_norm_gradient<centred>(with_residual, dy, d_residual, d_residual); // in place on the residual's
    REQUIRE(largest_difference(d_residual, fused) == 0.0);
    // Added, and in place on the gradient of the result.
    norm.add_gain = norm.add_bias = true;
    run_norm_gradient<centred>(norm, dy, dy);
    REQUIRE(largest_difference(dy, dx) == 0.0);
    for (std::size_t c = 0; c < width; ++c) {
      REQUIRE(std::abs(d_gain(c) - 2 * d_gain_fused(c)) < 1e-12);
      if (biased)
        REQUIRE(std::abs(d_bias(c) - 2 * d_bias_fused(c)) < 1e-12);
    }
    --norm.workspace.size;
    REQUIRE_THROWS_AS(run_norm_gradient<centred>(norm, dy, dx), sw::InvalidArgument);
  };
  for_each_kind(check);
}

TEST_CASE("Norms reject extents that do not agree, and need a workspace only for what they sum",
          "[kernels]") {
  STATIC_REQUIRE(kernels::norm_workspace(130, 7, true) == 2 * kernels::norm_workspace(130, 7, false));
  const Matrix<float> x("x", 3, 8), y("y", 3, 8), other("other", 3, 7);
  const Vector<float> gain("gain", 8), inverse("inverse", 3), mean("mean", 3), few("few", 2);
  REQUIRE_NOTHROW(run_norm<false>(norm_of(x, gain, inverse), y));
  REQUIRE_THROWS_AS(run_norm<true>(norm_of(x, gain, inverse), y), sw::InvalidArgument); // no mean
  REQUIRE_THROWS_AS(run_norm<false>(norm_of(x, gain, inverse), other), sw::InvalidArgument);
  REQUIRE_THROWS_AS(run_norm<false>(norm_of(x, gain, few), y), sw::InvalidArgument);
  REQUIRE_THROWS_AS(run_norm<false>(norm_of(x, few, inverse), y), sw::InvalidArgument);
  REQUIRE_THROWS_AS(run_norm<false>(norm_of(x, gain, inverse), other, y, y), sw::InvalidArgument);
  auto biased = norm_of(x, gain, inverse, mean);
  biased.bias = span_of(few);
  REQUIRE_THROWS_AS(run_norm<true>(biased, y), sw::InvalidArgument);
  auto frozen = norm_of(x, gain, inverse, mean);
  frozen.dy = span_of(y);
  frozen.dx = span_of(y);
  const auto frozen_gradient = [&] { kernels::norm_backward<true, false>(execution(), frozen); };
  REQUIRE_NOTHROW(frozen_gradient());
  frozen.d_bias = span_of(gain);
  REQUIRE_THROWS_AS(frozen_gradient(), sw::InvalidArgument); // it would stay as it is
}

TEST_CASE("A NaN stays in its row of a norm, and reaches the gain's gradient", "[kernels]") {
  const auto x = random_matrix<double>(4, 19, 1), dy = random_matrix<double>(4, 19, 2), y = copy_of(x);
  const auto gain = random_vector<double>(19, 3);
  const Vector<double> rms("rms", 4), d_gain("d_gain", 19),
      work("work", kernels::norm_workspace(4, 19, false));
  x(2, 18) = std::numeric_limits<double>::quiet_NaN();
  auto norm = norm_of(x, gain, rms);
  norm.d_gain = span_of(d_gain);
  norm.workspace = span_of(work);
  run_norm<false>(norm, y);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t c = 0; c < 19; ++c)
      REQUIRE(std::isnan(y(i, c)) == (i == 2));
  }
  run_norm_gradient<false>(norm, dy, y);
  for (std::size_t c = 0; c < 19; ++c)
    REQUIRE(std::isnan(d_gain(c)));
}

TEST_CASE("LayerNorm of 16-bit elements equals that of the same numbers in float, rounded once",
          "[kernels]") {
  const auto e = execution();
  const std::size_t rows = 5, width = 37;
  const auto x = random_matrix<sw::bfloat16>(rows, width, 1),
             branch = random_matrix<sw::bfloat16>(rows, width, 2),
             dy = random_matrix<sw::bfloat16>(rows, width, 3), y = copy_of(x), sum = copy_of(x),
             dx = copy_of(x);
  const auto gain = random_vector<sw::bfloat16>(width, 4, 1.0), bias = random_vector<sw::bfloat16>(width, 5);
  const Vector<float> mean("mean", rows), inverse("inverse", rows), d_gain("d_gain", width),
      d_bias("d_bias", width), work("work", kernels::norm_workspace(rows, width, true));
  auto forward = norm_of(x, gain, inverse, mean);
  forward.bias = span_of(bias);
  run_norm<true>(forward, branch, sum, y);
  auto backward = norm_of(sum, gain, inverse, mean);
  backward.d_gain = span_of(d_gain);
  backward.d_bias = span_of(d_bias);
  backward.workspace = span_of(work);
  run_norm_gradient<true>(backward, dy, dx);
  const auto wide = [&](const auto& narrow) {
    Matrix<float> out("wide", narrow.extent(0), narrow.extent(1));
    kernels::copy(e, narrow, out);
    return out;
  };
  const auto wide_vector = [&](const auto& narrow) {
    Vector<float> out("wide", narrow.extent(0));
    kernels::copy(e, narrow, out);
    return out;
  };
  const auto wide_y = wide(y), wide_dx = wide(dx), exact_y = wide(y), exact_dx = wide(dx);
  const auto wide_sum = wide(sum);
  const auto wide_gain = wide_vector(gain), wide_bias = wide_vector(bias);
  const Vector<float> exact_gain("d_gain", width), exact_bias("d_bias", width);
  auto exact = norm_of(wide_sum, wide_gain, inverse, mean);
  exact.bias = span_of(wide_bias);
  exact.d_gain = span_of(exact_gain);
  exact.d_bias = span_of(exact_bias);
  exact.workspace = span_of(work);
  run_norm<true>(exact, exact_y);
  run_norm_gradient<true>(exact, wide(dy), exact_dx);
  for (std::size_t i = 0; i < wide_y.size(); ++i) {
    REQUIRE(wide_y.data()[i] == static_cast<float>(sw::bfloat16(exact_y.data()[i])));
    REQUIRE(wide_dx.data()[i] == static_cast<float>(sw::bfloat16(exact_dx.data()[i])));
  }
  REQUIRE(largest_difference(d_gain, exact_gain) == 0.0);
  REQUIRE(largest_difference(d_bias, exact_bias) == 0.0);
}
