// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/product/grouped_matmul.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>

#include "tensor/kernels_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

using namespace kernels_test;

namespace kernels_test {

/// An execution space with a library of grouped products, which FakeLibrary computes one after the other.
struct GroupSpace : Execution {
  std::size_t* calls = nullptr;
};
template <class Functor>
void launch(const char*, const GroupSpace&, std::size_t count, const Functor& functor) {
  for (std::size_t i = 0; i < count; ++i)
    functor(i);
}

} // namespace kernels_test

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

/// A library of column-major products, as the documentation of cuBLAS defines them: by loops.
struct FakeLibrary {
  struct Plan {
    std::size_t number;
  };
  std::size_t planned = 0;
  std::size_t last_used = 0;

  Plan plan(const kernels::detail::GemmProblem&, const kernels::detail::GemmOperands&) { return {++planned}; }
  bool multiply(const kernels::detail::GemmProblem& p, const Plan& plan,
                const kernels::detail::GemmOperands& operands) {
    last_used = plan.number;
    switch (p.factors) {
    case sw::ElementType::float64:
      return run<double, double>(p, operands);
    case sw::ElementType::float32:
      return run<float, float>(p, operands);
    case sw::ElementType::bfloat16:
      return p.result == sw::ElementType::float32 ? run<sw::bfloat16, float>(p, operands)
                                                  : run<sw::bfloat16, sw::bfloat16>(p, operands);
    case sw::ElementType::float16:
      return p.result == sw::ElementType::float32 ? run<sw::float16, float>(p, operands)
                                                  : run<sw::float16, sw::float16>(p, operands);
    default:
      return false;
    }
  }

private:
  template <class Element, class Out>
  static bool run(const kernels::detail::GemmProblem& p, const kernels::detail::GemmOperands& o) {
    const auto at = [](const void* data, std::int64_t i, std::int64_t j, std::int64_t ld) {
      return static_cast<double>(static_cast<const Element*>(data)[i + j * ld]);
    };
    for (std::int64_t j = 0; j < p.n; ++j) {
      for (std::int64_t i = 0; i < p.m; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < p.k; ++l)
          sum += (p.transpose_a ? at(o.a, l, i, p.lda) : at(o.a, i, l, p.lda)) *
                 (p.transpose_b ? at(o.b, j, l, p.ldb) : at(o.b, l, j, p.ldb));
        Out& c = static_cast<Out*>(o.c)[i + j * p.ldc];
        c = static_cast<Out>(o.alpha * sum + (o.beta == 0 ? 0.0 : o.beta * static_cast<double>(c)));
      }
    }
    return true;
  }
};

/// Rows of every group times its matrix, and the gradients of the matrices, compared with loops.
template <class Where> void check_groups(const Where& where, const std::vector<std::int64_t>& sizes) {
  constexpr std::size_t in = 5, out = 7;
  std::vector<std::int64_t> first{0};
  for (const std::int64_t size : sizes)
    first.push_back(first.back() + size);
  const std::size_t groups = sizes.size();
  using Blocks = Kokkos::View<float***, Kokkos::LayoutRight, Memory>;
  const auto all = static_cast<std::size_t>(first.back());
  const auto x = random_matrix<float>(all, in, 1), dy = random_matrix<float>(all, out, 2);
  const Blocks weights("weights", groups, in, out), turned("turned", groups, out, in);
  const Blocks gradients("gradients", groups, in, out);
  kernels::fill_normal(where, Matrix<float>(weights.data(), groups * in, out), {{0, 0}, {groups * in, out}},
                       {42, 3}, 0.0, 1.0);
  Kokkos::deep_copy(gradients, weights);
  Matrix<float> y("y", all, out), dx("dx", all, in), y_of_turned("y", all, out);
  Matrix<double> wanted_y("y", all, out), wanted_dx("dx", all, in), sums("sums", groups * in, out);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t i = 0; i < in; ++i)
      for (std::size_t j = 0; j < out; ++j) {
        turned(g, j, i) = weights(g, i, j);
        sums(g * in + i, j) = 0.5 * static_cast<double>(weights(g, i, j));
        for (auto r = static_cast<std::size_t>(first[g]); r < static_cast<std::size_t>(first[g + 1]); ++r) {
          wanted_y(r, j) += static_cast<double>(x(r, i)) * static_cast<double>(weights(g, i, j));
          wanted_dx(r, i) += static_cast<double>(dy(r, j)) * static_cast<double>(weights(g, i, j));
          sums(g * in + i, j) += static_cast<double>(x(r, i)) * static_cast<double>(dy(r, j));
        }
      }
  using kernels::Transpose;
  kernels::grouped_matmul(where, first, x, weights, Transpose::no, y);
  kernels::grouped_matmul(where, first, x, turned, Transpose::yes, y_of_turned);
  kernels::grouped_matmul(where, first, dy, weights, Transpose::yes, dx);
  kernels::grouped_weight_gradient(where, first, x, dy, gradients, 0.5);
  REQUIRE(largest_difference(y, wanted_y) < 1e-5);
  REQUIRE(largest_difference(y_of_turned, wanted_y) < 1e-5);
  REQUIRE(largest_difference(dx, wanted_dx) < 1e-5);
  REQUIRE(largest_difference(gradients, sums) < 1e-5);
}

/// A block of rows of a wider matrix, with the given element type.
template <class Element> auto rows_of(const Matrix<Element>& wide, std::size_t columns) {
  return Kokkos::subview(wide, Kokkos::ALL, std::make_pair(std::size_t(3), 3 + columns));
}

template <class Element, class Out = Element>
void check_column_major(bool ta, bool tb, double beta, double limit) {
  constexpr std::size_t m = 5, n = 7, k = 4;
  const auto wide_a = random_matrix<Element>(ta ? k : m, 12, 1);
  const auto wide_b = random_matrix<Element>(tb ? n : k, 13, 2);
  const auto wide_c = random_matrix<Out>(m, 14, 3);
  Matrix<Element> a("a", ta ? k : m, ta ? m : k), b("b", tb ? n : k, tb ? k : n);
  Matrix<Out> c("c", m, n), untouched = copy_of(wide_c);
  Kokkos::deep_copy(a, rows_of(wide_a, a.extent(1)));
  Kokkos::deep_copy(b, rows_of(wide_b, b.extent(1)));
  Kokkos::deep_copy(c, rows_of(wide_c, n));
  Matrix<double> expected("expected", m, n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t l = 0; l < k; ++l)
        expected(i, j) +=
            1.5 * static_cast<double>(ta ? a(l, i) : a(i, l)) * static_cast<double>(tb ? b(j, l) : b(l, j));
      expected(i, j) += beta * static_cast<double>(c(i, j));
    }
  }
  const auto [problem, operands] = kernels::detail::column_major(
      kernels::detail::Product<Element, Out>{m,
                                             n,
                                             k,
                                             1.5,
                                             {wide_a.data() + 3, 12, ta},
                                             {wide_b.data() + 3, 13, tb},
                                             static_cast<sw::AccumulationElement<Element>>(beta),
                                             wide_c.data() + 3,
                                             14},
      false);
  kernels::detail::GemmPlans<FakeLibrary> plans(FakeLibrary{});
  REQUIRE(plans.multiply(problem, operands));
  Kokkos::deep_copy(c, rows_of(wide_c, n));
  REQUIRE(largest_difference(c, expected) < limit);
  // Nothing outside the block is written.
  Kokkos::deep_copy(rows_of(untouched, n), c);
  REQUIRE(largest_difference(wide_c, untouched) == 0);
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
  const detail::Product<Element> product{m,
                                         n,
                                         k,
                                         static_cast<Element>(alpha),
                                         {a.data(), ta ? m : k, ta},
                                         {b.data(), tb ? k : n, tb},
                                         static_cast<Element>(beta),
                                         nullptr,
                                         n};
  auto tiles = product;
  out = copy_of(c);
  tiles.c = out.data();
  detail::run_product(e, tiles);
  REQUIRE(largest_difference(out, expected) < limit);

  auto elements = product;
  out = copy_of(c);
  elements.c = out.data();
  kernels::run("elements", e, m * n, detail::ProductElement<Element>{elements});
  REQUIRE(largest_difference(out, expected) < limit);
}

} // namespace

/// Reads addresses as cuBLAS does, from memory that kernels wrote.
template <> struct kernels::detail::LibraryGemmGroup<GroupSpace> {
  static constexpr bool available = true;

  static bool multiply(const GroupSpace& space, const GemmGroup& group) {
    std::vector<const void*> addresses(3 * group.size());
    for (std::size_t first = 0; first < group.size(); first += PlaceAddresses::most) {
      const auto place = PlaceAddresses::of(group, first, addresses.data());
      run("addresses", space, place.size(), place);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      GemmProblem one = group.shared;
      one.m = group.m[i], one.n = group.n[i], one.k = group.k[i];
      one.lda = group.lda[i], one.ldb = group.ldb[i], one.ldc = group.ldc[i];
      REQUIRE(one.k > 0); // the library does not define a depth of 0
      const GemmOperands& with = group.operands[i];
      FakeLibrary().multiply(one, {},
                             {addresses[i], addresses[group.size() + i],
                              const_cast<void*>(addresses[2 * group.size() + i]), with.alpha, with.beta});
    }
    ++*space.calls;
    return true;
  }
};

TEST_CASE("Groups of rows are multiplied by their matrices, one after the other or by one call",
          "[kernels]") {
  std::size_t calls = 0;
  GroupSpace space{execution()};
  space.calls = &calls;
  std::vector<std::int64_t> many(300); // more addresses than fit into one launch
  for (std::size_t g = 0; g < many.size(); ++g)
    many[g] = static_cast<std::int64_t>(g % 4);
  for (const auto& sizes : {std::vector<std::int64_t>{3, 0, 9, 1}, many, {0, 0}, {6}}) {
    check_groups(execution(), sizes);
    const std::size_t before = calls;
    check_groups(space, sizes);
    REQUIRE(calls - before == (sizes.size() > 2 ? 4 : 0)); // nothing to group
  }
}

TEST_CASE("A call for several groups invalidates a capture before it starts", "[kernels]") {
  std::size_t calls = 0;
  GroupSpace space{execution()};
  space.calls = &calls;
  const std::vector<std::int64_t> first{0, 2, 3};
  const auto x = random_matrix<float>(3, 5, 1);
  const Kokkos::View<float***, Kokkos::LayoutRight, Memory> weights("weights", 2, 5, 7);
  const Matrix<float> y("y", 3, 7);
  const auto multiply = [&] { kernels::grouped_matmul(space, first, x, weights, kernels::Transpose::no, y); };
  {
    const sw::detail::CaptureMark mark;
    multiply();
    CHECK(mark.spoilt());
    CHECK(calls == 0);
  }
  multiply();
  CHECK(calls == 1);
}

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

/// One element of an ordered product, by the definition: each part is the sums of 256 products in order, and
/// parts join in a binary tree; FixedPoint terms are the sums of a leaf.
template <class Element, class Out>
Out ordered_element(const kernels::detail::Product<Element, Out>& p, std::size_t i, std::size_t j, bool fused,
                    const kernels::ReproducibleProducts& order = {}) {
  using Number = sw::AccumulationElement<Element>;
  const std::size_t run = p.k / order.parts / order.runs, length = order.runs * run;
  const auto block_sum = [&](std::size_t part, std::size_t first, std::size_t count) {
    Number sum = 0;
    for (std::size_t q = first; q < std::min(first + count, length); ++q) {
      const std::size_t k = (q / run * order.parts + part) * run + q % run;
      const auto a = static_cast<Number>(*p.a.from(i, k).data), b = static_cast<Number>(*p.b.from(k, j).data);
      const volatile Number rounded = a * b;
      sum = fused ? std::fma(a, b, sum) : sum + rounded;
    }
    return sum;
  };
  if constexpr (std::is_same_v<Out, sw::FixedPoint>) {
    sw::FixedPoint out;
    for (std::size_t first = 0; first < p.k; first += order.leaf)
      out += sw::FixedPoint::of(block_sum(0, first, order.leaf));
    return out;
  } else {
    std::vector<Out> nodes(order.parts);
    for (std::size_t part = 0; part < order.parts; ++part) {
      Number sum = 0;
      for (std::size_t first = 0; first < length; first += 256)
        sum += block_sum(part, first, 256);
      nodes[part] = static_cast<Out>(sum);
    }
    for (; nodes.size() > 1; nodes.resize(nodes.size() / 2))
      for (std::size_t node = 0; node < nodes.size() / 2; ++node)
        nodes[node] =
            static_cast<Out>(static_cast<Number>(nodes[2 * node]) + static_cast<Number>(nodes[2 * node + 1]));
    return nodes[0];
  }
}

/// An ordered product of random factors in memory of its own, of which blocks can be taken.
template <class Element, class Out> struct OrderedCase {
  std::size_t m, n, k;
  bool ta, tb;
  kernels::ReproducibleProducts order;
  Matrix<Element> a = random_matrix<Element>(ta ? k : m, ta ? m : k, 1);
  Matrix<Element> b = random_matrix<Element>(tb ? n : k, tb ? k : n, 2);

  [[nodiscard]] kernels::detail::Product<Element, Out> product(Out* out) const {
    return {m, n, k, 1, {a.data(), a.extent(1), ta}, {b.data(), b.extent(1), tb}, 0, out, n};
  }
  [[nodiscard]] std::vector<Out> run() const {
    std::vector<Out> out(m * n);
    bool fault = false;
    auto with_fault = order;
    with_fault.fault = &fault;
    kernels::detail::start_ordered_product(execution(), product(out.data()), with_fault);
    REQUIRE_FALSE(fault);
    return out;
  }
  /// Elements that have other bits than those of the definition, on a processor that adds in one of two ways.
  [[nodiscard]] std::size_t differences(const std::vector<Out>& found) const {
    std::size_t fused = 0, separate = 0;
    auto p = product(nullptr);
    for (std::size_t i = 0; i < m; i += i + 13 < m ? 13 : 1)
      for (std::size_t j = 0; j < n; j += j + 3 < n ? 3 : 1) {
        fused += ordered_element(p, i, j, true, order) == found[i * n + j] ? 0 : 1;
        separate += ordered_element(p, i, j, false, order) == found[i * n + j] ? 0 : 1;
      }
    return std::min(fused, separate);
  }
  /// That of rows, columns and a share of the parts, copied.
  [[nodiscard]] OrderedCase cut(std::size_t i, std::size_t rows, std::size_t j, std::size_t columns,
                                std::size_t share, std::size_t shares) const {
    const std::size_t length = k / order.runs / shares;
    OrderedCase out{rows, columns, k / shares, ta, tb, order, {}, {}};
    out.order.parts = std::max<std::size_t>(1, order.parts / shares);
    out.a = Matrix<Element>("a", ta ? out.k : rows, ta ? rows : out.k);
    out.b = Matrix<Element>("b", tb ? columns : out.k, tb ? out.k : columns);
    for (std::size_t q = 0; q < out.k; ++q) {
      const std::size_t from = (q / length * shares + share) * length + q % length;
      for (std::size_t r = 0; r < rows; ++r)
        (ta ? out.a(q, r) : out.a(r, q)) = ta ? a(from, i + r) : a(i + r, from);
      for (std::size_t c = 0; c < columns; ++c)
        (tb ? out.b(c, q) : out.b(q, c)) = tb ? b(j + c, from) : b(from, j + c);
    }
    return out;
  }
};

/// The block of rows and columns from (i, j) on, as ranks compute it that each have a share of the depth.
template <class Element, class Out>
std::vector<Out> added_by_ranks(const OrderedCase<Element, Out>& all, std::size_t i, std::size_t rows,
                                std::size_t j, std::size_t columns, std::size_t ranks) {
  using Number = sw::AccumulationElement<Element>;
  std::vector<std::vector<Out>> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    parts.push_back(all.cut(i, rows, j, columns, rank, ranks).run());
  for (; parts.size() > 1; parts.resize(parts.size() / 2))
    for (std::size_t node = 0; node < parts.size() / 2; ++node)
      for (std::size_t e = 0; e < rows * columns; ++e) {
        Out sum = parts[2 * node][e];
        if constexpr (std::is_same_v<Out, sw::FixedPoint>)
          sum += parts[2 * node + 1][e];
        else
          sum = static_cast<Out>(static_cast<Number>(sum) + static_cast<Number>(parts[2 * node + 1][e]));
        parts[node][e] = sum;
      }
  return parts[0];
}

template <class Element, class Out>
void check_reproducible(std::size_t m, std::size_t n, std::size_t k,
                        const kernels::ReproducibleProducts& order) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const OrderedCase<Element, Out> all{m, n, k, ta, tb, order};
      const std::vector<Out> whole = all.run();
      REQUIRE(all.differences(whole) == 0);
      for (const std::size_t ranks : {1, 2, 8})
        for (const auto& [i, j] : {std::pair<std::size_t, std::size_t>{0, 0}, {m / 3, n / 2}}) {
          const std::size_t rows = (m - i + 1) / 2, columns = n - j;
          const std::vector<Out> part = added_by_ranks(all, i, rows, j, columns, ranks);
          std::size_t differ = 0;
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
              differ += part[r * columns + c] == whole[(i + r) * n + j + c] ? 0 : 1;
          REQUIRE(differ == 0);
        }
    }
}

TEMPLATE_TEST_CASE("Ordered products have the bits of a plain loop, wherever a product is cut", "[kernels]",
                   float, double) {
  using Product = kernels::detail::Product<TestType>;
  // Beyond one block of rows, columns and depth each.
  constexpr std::size_t m = 250, n = 1030, k = 300;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const auto a = random_matrix<TestType>(ta ? k : m, ta ? m : k, 1);
      const auto b = random_matrix<TestType>(tb ? n : k, tb ? k : n, 2);
      Matrix<TestType> whole("whole", m, n);
      const Product all{m, n, k, 1, {a.data(), a.extent(1), ta}, {b.data(), b.extent(1), tb}, 0, whole.data(),
                        n};
      kernels::detail::start_ordered_product(execution(), all);
      bool fused = true, separate = true;
      for (const std::size_t i : {0, 7, 239, 240, 249})
        for (std::size_t j = 0; j < n; j += 3) {
          fused = fused && whole(i, j) == ordered_element(all, i, j, true);
          separate = separate && whole(i, j) == ordered_element(all, i, j, false);
        }
      CHECK((fused || separate)); // as the processor adds
      std::size_t differ = 0;
      for (const auto& [rows, columns] : {std::pair{5, 1000}, std::pair{101, 77}, std::pair{249, 513}}) {
        const auto row = static_cast<std::size_t>(rows), column = static_cast<std::size_t>(columns);
        const std::size_t height = std::min<std::size_t>(m - row, 60),
                          width = std::min<std::size_t>(n - column, 100);
        Matrix<TestType> part("part", height, width + 3); // another leading dimension
        Product some = all;
        some.m = height;
        some.n = width;
        some.a = all.a.from(row, 0);
        some.b = all.b.from(0, column);
        some.c = part.data();
        some.c_stride = width + 3;
        kernels::detail::start_ordered_product(execution(), some);
        for (std::size_t i = 0; i < height; ++i)
          for (std::size_t j = 0; j < width; ++j)
            differ += part(i, j) == whole(row + i, column + j) ? 0 : 1;
      }
      CHECK(differ == 0);
    }
}

TEST_CASE("A product that underflows has the same zeros in every panel", "[kernels]") {
  constexpr std::size_t n = 131;
  const Matrix<float> a("a", 1, 1), b("b", 1, n), c("c", 1, n);
  a(0, 0) = -1e-30F;
  Kokkos::deep_copy(b, 1e-30F);
  kernels::matmul(execution(), a, kernels::Transpose::no, b, kernels::Transpose::no, c, 1.0, 0.0,
                  kernels::OrderedProducts{});
  std::size_t differ = 0;
  for (std::size_t j = 0; j < n; ++j)
    differ += std::memcmp(&c(0, j), &c(0, 0), sizeof(float)) == 0 ? 0 : 1;
  CHECK(differ == 0);
}

TEST_CASE("Ordered products scale, accumulate and overwrite as others do", "[kernels]") {
  for (const std::size_t depth : {std::size_t{0}, std::size_t{40}})
    for (const double beta : {0.0, 1.0, -0.5}) {
      const auto a = random_matrix<double>(13, depth, 1);
      const auto b = random_matrix<double>(depth, 37, 2);
      const auto c = random_matrix<double>(13, 37, 3);
      const auto expected = reference<double>(a, false, b, false, c, 2.0, beta);
      if (beta == 0)
        Kokkos::deep_copy(c, std::numeric_limits<double>::quiet_NaN());
      kernels::matmul(execution(), a, kernels::Transpose::no, b, kernels::Transpose::no, c, 2.0, beta,
                      kernels::OrderedProducts{});
      CHECK(largest_difference(c, expected) < 1e-13);
    }
}

TEMPLATE_TEST_CASE("Parts of a reproducible product join in a tree, however ranks share them", "[kernels]",
                   float, sw::bfloat16) {
  using Number = sw::AccumulationElement<TestType>;
  check_reproducible<TestType, TestType>(29, 75, 8 * 40, {.parts = 8});
  check_reproducible<TestType, TestType>(3, 5, 8 * 520, {.parts = 8}); // too deep to keep packed
  check_reproducible<TestType, Number>(7, 130, 3 * 8 * 20, {.parts = 8, .runs = 3});
  check_reproducible<TestType, TestType>(245, 9, 8 * 2, {.parts = 8}); // two blocks of rows
}

TEMPLATE_TEST_CASE("A weight's gradient sums leaves of tokens exactly, however ranks share them", "[kernels]",
                   float, sw::bfloat16) {
  check_reproducible<TestType, sw::FixedPoint>(29, 75, 16 * 16, {.leaf = 16});
  check_reproducible<TestType, sw::FixedPoint>(5, 130, 8 * 3, {.leaf = 1});
  check_reproducible<TestType, sw::FixedPoint>(245, 70, 8 * 256, {.leaf = 256});
  check_reproducible<TestType, sw::FixedPoint>(3, 5, 8 * 576, {.leaf = 64});
}

TEST_CASE("Leaves may have differing sizes, and none is cut", "[kernels]") {
  const std::vector<std::int64_t> leaves{7, 8, 19, 200, 261, 270, 500, 521}; // of 514 indices
  OrderedCase<float, sw::FixedPoint> all{13, 75, 514, true, false, {}};
  all.order.leaves = leaves;
  std::vector<sw::FixedPoint> wanted(all.m * all.n);
  bool fault = false;
  for (std::size_t leaf = 0; leaf + 1 < leaves.size(); ++leaf) {
    auto one = all.product(wanted.data());
    one.k = static_cast<std::size_t>(leaves[leaf + 1] - leaves[leaf]);
    one.a = one.a.from(0, static_cast<std::size_t>(leaves[leaf] - 7));
    one.b = one.b.from(static_cast<std::size_t>(leaves[leaf] - 7), 0);
    one.beta = 1;
    kernels::detail::start_ordered_product(execution(), one, {.fault = &fault});
  }
  CHECK(all.run() == wanted);
  CHECK_FALSE(fault);
  all.order.leaves = std::span(leaves).first(6); // not all indices
  CHECK_THROWS_AS(all.run(), sw::InvalidArgument);
  const std::vector<std::int64_t> large{0, 257, 514};
  all.order.leaves = large;
  CHECK_THROWS_AS(all.run(), sw::InvalidArgument);
}

TEST_CASE("A gradient of FixedPoint is near the sum, accumulates, and reports what does not fit",
          "[kernels]") {
  const auto x = random_matrix<float>(64, 9, 1);
  const auto dy = random_matrix<float>(64, 70, 2);
  const auto wanted = reference<float>(x, true, dy, false, Matrix<float>("c", 9, 70), 1.0, 0.0);
  Kokkos::View<sw::FixedPoint**, Kokkos::LayoutRight, Memory> sum("sum", 9, 70);
  bool fault = false;
  const auto add = [&](double beta) {
    kernels::matmul(execution(), x, kernels::Transpose::yes, dy, kernels::Transpose::no, sum, 1.0, beta,
                    kernels::ReproducibleProducts{.leaf = 16, .fault = &fault});
  };
  const auto worst = [&](double times) {
    double out = 0;
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t j = 0; j < 70; ++j)
        out = std::max(out,
                       std::abs(static_cast<double>(static_cast<float>(sum(i, j))) - times * wanted(i, j)));
    return out;
  };
  sum(2, 3).units = 77;
  add(0.0);
  CHECK(worst(1) < 1e-5);
  add(1.0);
  CHECK(worst(2) < 1e-5);
  CHECK_FALSE(fault);
  for (const std::size_t column : {std::size_t{3}, std::size_t{69}}) // in a register, and after the last one
    for (const float number :
         {2e4F, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      const float old = std::exchange(dy(40, column), number);
      fault = false;
      add(1.0);
      CHECK(fault);
      dy(40, column) = old;
    }
}

TEST_CASE("FixedPoint terms near the limit are exact, in tiles and beside them", "[kernels]") {
  const auto x = random_matrix<float>(32, 12, 1);
  const auto dy = random_matrix<float>(32, 70, 2);
  for (std::size_t j = 0; j < 70; ++j)
    dy(17, j) = 8191.999F;
  for (std::size_t i = 0; i < 12; ++i)
    x(17, i) = i % 2 == 0 ? 1.0F : -0.625F - 0.01F * static_cast<float>(i);
  Kokkos::View<sw::FixedPoint**, Kokkos::LayoutRight, Memory> sum("sum", 12, 70);
  bool fault = false;
  kernels::matmul(execution(), x, kernels::Transpose::yes, dy, kernels::Transpose::no, sum, 1.0, 0.0,
                  kernels::ReproducibleProducts{.leaf = 1, .fault = &fault});
  CHECK_FALSE(fault);
  bool large = false, equal = true;
  for (std::size_t i = 0; i < 12; ++i)
    for (std::size_t j = 0; j < 70; ++j) {
      sw::FixedPoint wanted;
      for (std::size_t k = 0; k < 32; ++k) {
        const float term = x(k, i) * dy(k, j);
        large = large || std::abs(term) > 8191;
        wanted += sw::FixedPoint::of(term);
      }
      equal = equal && sum(i, j) == wanted;
    }
  CHECK(large);
  CHECK(equal);
}

TEST_CASE("FixedPoint terms at the ends of the split integers, and ties, are rounded like others",
          "[kernels]") {
  std::vector<float> terms{4095.9997F, -4095.9997F, -4096.0F, 0x1p-33F, 0x3p-33F, -0x1p-33F, -0x3p-33F, 1.5F};
  for (const float more : {0.0F, 4096.0F, 4097.25F, -4096.25F}) { // not in the split integers, but for 0
    terms.push_back(more);
    Matrix<float> x("x", 64, 12), dy("dy", 64, 70);
    for (std::size_t k = 0; k < 64; ++k) {
      std::fill_n(&x(k, 0), 12, 1.0F);
      for (std::size_t j = 0; j < 70; ++j)
        dy(k, j) = terms[(k + j) % terms.size()];
    }
    Kokkos::View<sw::FixedPoint**, Kokkos::LayoutRight, Memory> sum("sum", 12, 70);
    bool fault = false;
    kernels::matmul(execution(), x, kernels::Transpose::yes, dy, kernels::Transpose::no, sum, 1.0, 0.0,
                    kernels::ReproducibleProducts{.leaf = 1, .fault = &fault});
    CHECK_FALSE(fault);
    std::size_t equal = 0;
    for (std::size_t j = 0; j < 70; ++j) {
      sw::FixedPoint wanted;
      for (std::size_t k = 0; k < 64; ++k)
        wanted += sw::FixedPoint::of(dy(k, j));
      for (std::size_t i = 0; i < 12; ++i)
        equal += sum(i, j) == wanted ? 1U : 0U;
    }
    CHECK(equal == 12 * 70);
  }
}

TEST_CASE("A NaN in a factor reaches only its row", "[kernels]") {
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

TEST_CASE("Shapes that do not fit are rejected", "[kernels]") {
  const auto a = random_matrix<float>(3, 4, 1);
  const auto c = random_matrix<float>(3, 5, 2);
  const auto multiply = [&](const Matrix<float>& b) {
    kernels::matmul(execution(), a, kernels::Transpose::no, b, kernels::Transpose::no, c);
  };
  REQUIRE_NOTHROW(multiply(random_matrix<float>(4, 5, 3)));
  REQUIRE_THROWS_AS(multiply(random_matrix<float>(5, 5, 3)), sw::InvalidArgument);
  REQUIRE_THROWS_AS(multiply(random_matrix<float>(4, 6, 3)), sw::InvalidArgument);
}

TEST_CASE("A product is requested column-major with its types, strides and transposes") {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const double beta : {0.0, 1.0}) {
        check_column_major<double>(ta, tb, beta, 1e-12);
        check_column_major<float>(ta, tb, beta, 1e-5);
        check_column_major<sw::bfloat16>(ta, tb, beta, 0.1);
        check_column_major<sw::bfloat16, float>(ta, tb, beta, 1e-5);
        check_column_major<sw::float16>(ta, tb, beta, 0.02);
        check_column_major<sw::float16, float>(ta, tb, beta, 1e-5);
      }
    }
  }
}

TEST_CASE("A product that cannot be planned is an error, but during a capture invalidates the capture") {
  struct NoPlan {
    struct Plan {};
    int* asked;
    [[nodiscard]] Plan plan(const kernels::detail::GemmProblem&, const kernels::detail::GemmOperands&) {
      if (++*asked < 3)
        throw sw::DeviceError(14, "the heuristic failed");
      return {};
    }
    [[nodiscard]] bool multiply(const kernels::detail::GemmProblem&, Plan&,
                                const kernels::detail::GemmOperands&) {
      return false;
    }
  };
  int asked = 0;
  kernels::detail::GemmPlans<NoPlan> plans(NoPlan{&asked});
  CHECK_THROWS_AS(plans.multiply({}, {}), sw::DeviceError);
  {
    const sw::detail::CaptureMark mark;
    CHECK(plans.multiply({}, {}));
    CHECK(mark.spoilt());
  }
  CHECK(plans.size() == 0);
  CHECK(!plans.multiply({}, {})); // planned anew
}

TEST_CASE("A product that is timed is not planned in a capture") {
  kernels::detail::GemmPlans<FakeLibrary> plans(FakeLibrary{});
  kernels::use_timed_products(true);
  {
    const sw::detail::CaptureMark mark;
    CHECK(plans.multiply({}, {}));
    CHECK(mark.spoilt());
    CHECK(plans.size() == 0);
  }
  static_cast<void>(plans.multiply({}, {}));
  CHECK(plans.size() == 1);
  {
    const sw::detail::CaptureMark mark;
    static_cast<void>(plans.multiply({}, {})); // has its plan
    CHECK_FALSE(mark.spoilt());
  }
  kernels::use_timed_products(false);
  const sw::detail::CaptureMark mark;
  kernels::detail::GemmProblem other{};
  other.m = 2;
  static_cast<void>(plans.multiply(other, {}));
  CHECK_FALSE(mark.spoilt());
}

TEST_CASE("Products of one shape share a plan, others have separate plans") {
  using kernels::detail::GemmCompute;
  alignas(256) static float memory[512] = {};
  kernels::detail::GemmPlans<FakeLibrary> plans(FakeLibrary{});
  const auto multiply = [&](std::size_t m, float* c, float beta, bool tf32) {
    const auto [problem, operands] = kernels::detail::column_major(
        kernels::detail::Product<float>{m, 4, 4, 1, {memory, 4, false}, {memory, 4, false}, beta, c, 4},
        tf32);
    REQUIRE(problem.compute == (tf32 ? GemmCompute::tf32 : GemmCompute::float32));
    REQUIRE(plans.multiply(problem, operands));
    return plans.library().last_used;
  };
  REQUIRE(multiply(4, memory + 256, 0, false) == 1);
  REQUIRE(multiply(8, memory + 256, 0, false) == 2);
  REQUIRE(multiply(4, memory + 256, 1, false) == 1); // alpha and beta are not part of the shape
  REQUIRE(multiply(4, memory + 256, 0, true) == 3);
  REQUIRE(multiply(4, memory + 257, 0, false) == 4); // another alignment
  REQUIRE(plans.size() == 4);
  REQUIRE_FALSE(kernels::detail::tf32_choice());
  kernels::use_tf32(true);
  REQUIRE(kernels::detail::tf32_choice());
  kernels::use_tf32(false);
  REQUIRE_FALSE(kernels::detail::tf32_choice());
  REQUIRE(kernels::detail::alignment_of(memory) == 256);
  REQUIRE(kernels::detail::alignment_of(memory + 257) == 4);
  REQUIRE(kernels::detail::gemm_compute<double>(true) == GemmCompute::float64);
  REQUIRE(kernels::detail::gemm_compute<sw::bfloat16>(true) == GemmCompute::float32);
}
