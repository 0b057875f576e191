// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/layer_norm.hpp>

#include "tensor/kernels_support.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

using namespace kernels_test;

namespace {

/// Equation 4 of Ba et al. of one row, in double.
template <class Row, class Gain, class Bias>
std::vector<double> plain_norm(const Row& row, std::size_t width, const Gain& gain, const Bias& bias) {
  double mean = 0;
  for (std::size_t c = 0; c < width; ++c)
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

TEMPLATE_TEST_CASE("LayerNorm matches its formula, fused with the addition or not, biased or not",
                   "[kernels]", float, double) {
  const auto e = execution();
  for (const bool biased : {true, false})
    for (const std::size_t width : {1, 15, 64, 100}) {
      CAPTURE(biased, width);
      const std::size_t rows = 67;
      const auto residual = random_matrix<TestType>(rows, width, 1, 3.0);
      const auto branch = random_matrix<TestType>(rows, width, 2);
      const auto gain = random_vector<TestType>(width, 3, 1.0);
      const auto bias = random_vector<TestType>(biased ? width : 0, 4);
      for (std::size_t c = 0; c < width; ++c)
        residual(5, c) = branch(5, c) = 2; // no variance
      const auto sum = copy_of(residual), y = copy_of(residual), plain = copy_of(residual);
      const Vector<TestType> mean("mean", rows), inverse("inverse", rows), mean_plain("mean", rows),
          inverse_plain("inverse", rows);
      kernels::add_layer_norm_forward(e, residual, branch, gain, bias, 1e-5, sum, y, mean, inverse);
      kernels::layer_norm_forward(e, sum, gain, bias, 1e-5, plain, mean_plain, inverse_plain);
      Matrix<double> expected("expected", rows, width);
      for (std::size_t i = 0; i < rows; ++i) {
        const auto row = plain_norm(
            [&](std::size_t c) {
              return static_cast<double>(residual(i, c)) + static_cast<double>(branch(i, c));
            },
            width, [&](std::size_t c) { return static_cast<double>(gain(c)); },
            [&](std::size_t c) { return biased ? static_cast<double>(bias(c)) : 0.0; });
        for (std::size_t c = 0; c < width; ++c)
          expected(i, c) = row[c];
        REQUIRE(mean(i) == mean_plain(i));
        REQUIRE(inverse(i) == inverse_plain(i));
      }
      REQUIRE(largest_difference(y, expected) < 4 * tolerance<TestType>);
      REQUIRE(largest_difference(y, plain) == 0.0);
      kernels::layer_norm_forward(e, sum, gain, bias, 1e-5, sum, mean, inverse); // in place
      REQUIRE(largest_difference(sum, plain) == 0.0);
    }
}

TEST_CASE("LayerNorm of numbers far from zero loses nothing", "[kernels]") {
  const auto e = execution();
  Matrix<float> x("x", 1, 256), y("y", 1, 256);
  const Vector<float> gain("gain", 256), none("none", 0), mean("mean", 1), inverse("inverse", 1);
  for (std::size_t c = 0; c < 256; ++c) {
    x(0, c) = 4096.0f + static_cast<float>(c % 2);
    gain(c) = 1;
  }
  kernels::layer_norm_forward(e, x, gain, none, 0.0, y, mean, inverse);
  for (std::size_t c = 0; c < 256; ++c)
    REQUIRE(y(0, c) == (c % 2 == 0 ? -1.0f : 1.0f));
}

TEST_CASE("LayerNorm gradients match finite differences", "[kernels]") {
  const auto e = execution();
  const std::size_t rows = 70, width = 21; // more than one block of rows
  for (const bool biased : {true, false}) {
    CAPTURE(biased);
    const auto x = random_matrix<double>(rows, width, 1), dy = random_matrix<double>(rows, width, 2);
    const auto d_residual = random_matrix<double>(rows, width, 4);
    const auto gain = random_vector<double>(width, 3, 1.0),
               bias = random_vector<double>(biased ? width : 0, 5);
    const auto y = copy_of(x), dx = copy_of(x), fused = copy_of(x);
    const Vector<double> mean("mean", rows), inverse("inverse", rows), d_gain("d_gain", width),
        d_bias("d_bias", biased ? width : 0), d_gain_fused("d_gain", width),
        d_bias_fused("d_bias", biased ? width : 0);
    const Vector<double> work("work", kernels::layer_norm_workspace(rows, width));
    const auto objective = [&] {
      kernels::layer_norm_forward(e, x, gain, bias, 1e-5, y, mean, inverse);
      return weighted_sum(dy, y);
    };
    objective();
    kernels::layer_norm_backward(e, x, gain, mean, inverse, dy, dx, d_gain, d_bias, work);
    kernels::add_layer_norm_backward(e, x, gain, mean, inverse, dy, d_residual, fused, d_gain_fused,
                                     d_bias_fused, work);
    require_gradient(x, dx, objective, 7);
    require_gradient(gain, d_gain, objective);
    if (biased)
      require_gradient(bias, d_bias, objective);
    REQUIRE(largest_difference(d_gain, d_gain_fused) == 0.0);
    for (std::size_t i = 0; i < dx.size(); ++i)
      REQUIRE(std::abs(fused.data()[i] - (d_residual.data()[i] + dx.data()[i])) < 1e-14);
    // Added, and in place on the gradient of the result.
    kernels::layer_norm_backward(e, x, gain, mean, inverse, dy, dy, d_gain, d_bias, work, true, true);
    REQUIRE(largest_difference(dy, dx) == 0.0);
    for (std::size_t c = 0; c < width; ++c) {
      REQUIRE(std::abs(d_gain(c) - 2 * d_gain_fused(c)) < 1e-12);
      if (biased)
        REQUIRE(std::abs(d_bias(c) - 2 * d_bias_fused(c)) < 1e-12);
    }
    REQUIRE_THROWS_AS(kernels::layer_norm_backward(e, x, gain, mean, inverse, dy, dx, d_gain, d_bias,
                                                   Vector<double>("work", 1)),
                      sw::InvalidArgument);
  }
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
      d_bias("d_bias", width), work("work", kernels::layer_norm_workspace(rows, width));
  kernels::add_layer_norm_forward(e, x, branch, gain, bias, 1e-5, sum, y, mean, inverse);
  kernels::layer_norm_backward(e, sum, gain, mean, inverse, dy, dx, d_gain, d_bias, work);
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
  const Vector<float> exact_gain("d_gain", width), exact_bias("d_bias", width);
  kernels::layer_norm_forward(e, wide(sum), wide_vector(gain), wide_vector(bias), 1e-5, exact_y, mean,
                              inverse);
  kernels::layer_norm_backward(e, wide(sum), wide_vector(gain), mean, inverse, wide(dy), exact_dx, exact_gain,
                               exact_bias, work);
  for (std::size_t i = 0; i < wide_y.size(); ++i) {
    REQUIRE(wide_y.data()[i] == static_cast<float>(sw::bfloat16(exact_y.data()[i])));
    REQUIRE(wide_dx.data()[i] == static_cast<float>(sw::bfloat16(exact_dx.data()[i])));
  }
  REQUIRE(largest_difference(d_gain, exact_gain) == 0.0);
  REQUIRE(largest_difference(d_bias, exact_bias) == 0.0);
}
