// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/matmul.hpp>

#include "tensor/kernels_support.hpp"

using namespace kernels_test;

namespace {

/// C = alpha op(A) op(B) + beta C in double.
template <class Element>
Matrix<double> reference(const Matrix<Element>& a, bool ta, const Matrix<Element>& b, bool tb,
                         const Matrix<Element>& c, double alpha, double beta) {
  Matrix<double> out("out", c.extent(0), c.extent(1));
  const std::size_t depth = ta ? a.extent(0) : a.extent(1);
  for (std::size_t i = 0; i < out.extent(0); ++i) {
    for (std::size_t j = 0; j < out.extent(1); ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < depth; ++k) {
        sum += static_cast<double>(ta ? a(k, i) : a(i, k)) * static_cast<double>(tb ? b(j, k) : b(k, j));
      }
      out(i, j) = alpha * sum + (beta == 0 ? 0.0 : beta * static_cast<double>(c(i, j)));
    }
  }
  return out;
}

/// Every implementation of the product, on one problem.
template <class Element>
void check_all(std::size_t m, std::size_t n, std::size_t k, bool ta, bool tb, double alpha, double beta) {
  const auto a = ta ? random_matrix<Element>(k, m, 1) : random_matrix<Element>(m, k, 1);
  const auto b = tb ? random_matrix<Element>(n, k, 2) : random_matrix<Element>(k, n, 2);
  const auto c = random_matrix<Element>(m, n, 3);
  if (beta == 0 && c.size() > 0)
    c(0, 0) = std::numeric_limits<Element>::quiet_NaN();
  const auto expected = reference<Element>(a, ta, b, tb, c, alpha, beta);
  const double limit = tolerance<Element> * (1 + std::sqrt(static_cast<double>(k)));
  const auto e = execution();

  auto out = copy_of(c);
  kernels::matmul(e, a, kernels::Transpose(ta), b, kernels::Transpose(tb), out, alpha, beta);
  REQUIRE(largest_difference(out, expected) < limit);

  namespace detail = kernels::detail;
  const detail::Product<Element> product{
      m,        n,          k,          static_cast<Element>(alpha), {a.data(), ta ? 1 : k, ta ? m : 1},
      b.data(), tb ? 1 : n, tb ? k : 1, static_cast<Element>(beta),  nullptr,
      n};
  auto tiles = product;
  out = copy_of(c);
  tiles.c = out.data();
  detail::run_product(e, tiles);
  REQUIRE(largest_difference(out, expected) < limit);

  auto elements = product;
  out = copy_of(c);
  elements.c = out.data();
  detail::run("elements", e, m * n, detail::ProductElement<Element>{elements});
  REQUIRE(largest_difference(out, expected) < limit);
}

} // namespace

TEMPLATE_TEST_CASE("Products match plain loops for every transposition and odd sizes", "[kernels]", float,
                   double) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const std::size_t m : {1, 6, 13, 50}) {
        for (const std::size_t n : {1, 31, 64, 70}) {
          for (const std::size_t k : {0, 1, 33, 130}) {
            check_all<TestType>(m, n, k, ta, tb, 1.0, 0.0);
            check_all<TestType>(m, n, k, ta, tb, -0.5, 2.0);
          }
        }
      }
    }
  }
  check_all<TestType>(0, 5, 3, false, false, 1.0, 0.0);
}

TEST_CASE("Every tile shape of a product gives the same sums", "[kernels]") {
  namespace detail = kernels::detail;
  for (std::size_t rows = 1; rows <= 26; ++rows) {
    for (const std::size_t columns : {16, 32, 48, 64, 112}) {
      const auto a = random_matrix<float>(rows, 9, 1);
      const auto b = random_matrix<float>(9, columns, 2);
      const auto c = random_matrix<float>(rows, columns, 3);
      const auto expected = reference<float>(a, false, b, false, c, 1.0, 1.0);
      detail::product_in_tiles<detail::TileStore::accumulate, float>(rows, columns, 9, {a.data(), 9, 1},
                                                                     b.data(), columns, c.data(), columns);
      REQUIRE(largest_difference(c, expected) < 1e-5);
    }
  }
}

TEST_CASE("A NaN in a factor reaches its row and no other", "[kernels]") {
  const auto a = random_matrix<float>(9, 20, 1);
  const auto b = random_matrix<float>(20, 17, 2);
  a(4, 7) = std::numeric_limits<float>::quiet_NaN();
  Matrix<float> c("c", 9, 17);
  kernels::matmul(execution(), a, kernels::Transpose::no, b, kernels::Transpose::no, c);
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t j = 0; j < 17; ++j)
      REQUIRE(std::isnan(c(i, j)) == (i == 4));
  }
}

TEST_CASE("Shapes that do not fit are refused", "[kernels]") {
  const auto a = random_matrix<float>(3, 4, 1);
  const auto c = random_matrix<float>(3, 5, 2);
  const auto multiply = [&](const Matrix<float>& b) {
    kernels::matmul(execution(), a, kernels::Transpose::no, b, kernels::Transpose::no, c);
  };
  REQUIRE_NOTHROW(multiply(random_matrix<float>(4, 5, 3)));
  REQUIRE_THROWS_AS(multiply(random_matrix<float>(5, 5, 3)), sw::InvalidArgument);
  REQUIRE_THROWS_AS(multiply(random_matrix<float>(4, 6, 3)), sw::InvalidArgument);
}
