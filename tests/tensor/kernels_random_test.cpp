// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/random.hpp>

#include "tensor/kernels_support.hpp"

using namespace kernels_test;

TEST_CASE("A block's random numbers are those of the whole tensor", "[kernels]") {
  using View = Kokkos::View<float****, Kokkos::LayoutRight, Memory>;
  const std::array<std::size_t, 4> global{3, 4, 5, 7};
  const auto e = execution();
  const sw::RandomKey key{1, 2};
  for (int kind = 0; kind < 3; ++kind) {
    const auto draw = [&](const View& view, const kernels::BlockPosition& position) {
      Kokkos::deep_copy(view, 1.0f);
      if (kind == 0)
        kernels::fill_uniform(e, view, position, key, -1.0, 2.0);
      if (kind == 1)
        kernels::fill_normal(e, view, position, key, 0.0, 1.0);
      if (kind == 2)
        kernels::dropout_into(e, view, view, position, key, 0.3);
    };
    const View whole("whole", 3, 4, 5, 7);
    draw(whole, {{0, 0, 0, 0}, global});
    const std::array<std::size_t, 4> offset{1, 2, 0, 3};
    const View block("block", 2, 1, 5, 3);
    draw(block, {offset, global});
    for (std::size_t a = 0; a < 2; ++a) {
      for (std::size_t c = 0; c < 5; ++c) {
        for (std::size_t d = 0; d < 3; ++d)
          REQUIRE(block(a, 0, c, d) == whole(a + 1, 2, c, d + 3));
      }
    }
    const View ordered("ordered", 2, 4, 4, 7); // positions 0, 3, 1, 2 of the second or third dimension
    const std::array<std::size_t, 4> first{1, 0, 1, 0};
    const sw::RowOrder order{4, 1};
    const auto position = [&order](bool here, std::size_t row) { return here ? order.position(row) : row; };
    for (const std::size_t dimension : {1, 2}) {
      draw(ordered, {first, global, order, dimension});
      for (std::size_t a = 0; a < 2; ++a)
        for (std::size_t b = 0; b < 4; ++b)
          for (std::size_t c = 0; c < 3; ++c)
            for (std::size_t d = 0; d < 7; ++d)
              REQUIRE(ordered(a, b, c, d) ==
                      whole(a + 1, position(dimension == 1, b), position(dimension == 2, c + 1), d));
    }
  }
  const View outside("outside", 3, 4, 5, 7);
  REQUIRE_THROWS_AS(kernels::fill_uniform(e, outside, {{0, 0, 0, 1}, global}, key, 0.0, 1.0),
                    sw::InvalidArgument);
}

TEST_CASE("Long rows split over columns agree with the whole row", "[kernels]") {
  const std::size_t columns = 5000;
  const auto whole = random_matrix<double>(2, columns, 9);
  Matrix<double> block("block", 1, 1777);
  kernels::fill_normal(execution(), block, {{1, 1501}, {2, columns}}, {42, 9}, 0.0, 1.0);
  for (std::size_t i = 0; i < 1777; ++i)
    REQUIRE(block(0, i) == whole(1, 1501 + i));
}

TEST_CASE("Uniform and normal numbers have the right moments, and keys differ", "[kernels]") {
  const std::size_t size = 200000;
  const double n = static_cast<double>(size);
  const auto x = random_vector<double>(size, 1);
  double mean = 0, square = 0, fourth = 0;
  for (std::size_t i = 0; i < size; ++i) {
    mean += x(i) / n;
    square += x(i) * x(i) / n;
    fourth += x(i) * x(i) * x(i) * x(i) / n;
  }
  REQUIRE(std::abs(mean) < 5 / std::sqrt(n));
  REQUIRE(std::abs(square - 1) < 5 * std::sqrt(2 / n));
  REQUIRE(std::abs(fourth - 3) < 5 * std::sqrt(96 / n));
  const auto other = random_vector<double>(size, 2);
  REQUIRE(std::abs(weighted_sum(x, other)) / n < 5 / std::sqrt(n));

  Vector<double> uniform("uniform", size);
  kernels::fill_uniform(execution(), uniform, {{0}, {size}}, {3, 4}, 2.0, 4.0);
  mean = 0;
  for (std::size_t i = 0; i < size; ++i) {
    REQUIRE((uniform(i) > 2.0 && uniform(i) < 4.0));
    mean += uniform(i) / n;
  }
  REQUIRE(std::abs(mean - 3) < 5 * 2 / std::sqrt(12 * n));
}

TEST_CASE("Single and double precision start from the same numbers", "[kernels]") {
  REQUIRE(largest_difference(random_matrix<float>(11, 13, 6), random_matrix<double>(11, 13, 6)) < 1e-6);
}

TEST_CASE("Dropout keeps the expectation, is repeatable, and rejects a probability of one", "[kernels]") {
  const std::size_t size = 100000;
  Vector<float> x("x", size);
  Kokkos::deep_copy(x, 2.0f);
  kernels::dropout_into(execution(), x, x, {{0}, {size}}, {1, 1}, 0.25);
  double kept = 0;
  for (std::size_t i = 0; i < size; ++i) {
    REQUIRE((x(i) == 0.0f || x(i) == 2.0f / 0.75f));
    kept += x(i) != 0.0f ? 1 : 0;
  }
  REQUIRE(std::abs(kept / static_cast<double>(size) - 0.75) < 0.01);
  REQUIRE_THROWS_AS(kernels::dropout_into(execution(), x, x, {{0}, {size}}, {1, 1}, 1.0),
                    sw::InvalidArgument);
}

TEST_CASE("Words are dropped if and only if their number in (0, 1) is below the probability", "[kernels]") {
  for (const double probability :
       {0.0, 0x1p-34, 0x1p-33, 0x1.8p-32, 0.1, 0.25, 1.0 / 3, 0.5, 0.9, 1 - 0x1p-20}) {
    const std::uint32_t count = kernels::detail::words_below(probability);
    CAPTURE(probability, count);
    REQUIRE((count == 0 || sw::unit_interval(count - 1) < probability));
    REQUIRE(!(sw::unit_interval(count) < probability));
  }
}

TEST_CASE("Words of many groups equal those of each group", "[kernels]") {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{0xfffffffb}, std::uint64_t{1} << 40}) {
    std::uint32_t words[64];
    const sw::RandomKey key{0x123456789abcdef, 0xfedcba987654321};
    kernels::detail::fill_words<16>(key, first, words);
    for (std::size_t i = 0; i < 64; ++i)
      REQUIRE(words[i] == sw::random_words(key, first + i / 4).word[i % 4]);
  }
}
