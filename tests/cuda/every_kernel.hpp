// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Every kernel of tensor/kernels on one target and one element, with all results kept.

#include <shardwright/tensor/elementwise/binary.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/checksum.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/copy_rows.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/experts/balance.hpp>
#include <shardwright/tensor/kernels/experts/routing.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/kernels/experts/sort_by_expert.hpp>
#include <shardwright/tensor/kernels/formulas.hpp>
#include <shardwright/tensor/kernels/id_check.hpp>
#include <shardwright/tensor/kernels/insert_columns.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/optimizer/adamw.hpp>
#include <shardwright/tensor/kernels/optimizer/lion.hpp>
#include <shardwright/tensor/kernels/optimizer/sgd.hpp>
#include <shardwright/tensor/kernels/positions.hpp>
#include <shardwright/tensor/kernels/product/grouped_matmul.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/repeat.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/softmax.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>
#include <shardwright/tensor/kernels/transpose.hpp>

#include "cuda/compare.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuda_test {

namespace kernels = sw::kernels;

/// @brief Extents of the problems. Odd ones make rows begin off multiples of 16 bytes.
struct Sizes {
  std::size_t rows;
  std::size_t columns;
  std::size_t depth;
  kernels::AttentionShape attention;
  bool unaligned = false; ///< Every matrix, too, except those of products, experts and attention.
};

inline constexpr Sizes small_sizes{
    38, 24, 11, {.batch = 2, .sequence = 9, .kv_heads = 2, .q_per_kv = 3, .head_dim = 8}};
inline constexpr Sizes odd_sizes{
    258, 1'023, 75, {.batch = 2, .sequence = 147, .kv_heads = 2, .q_per_kv = 2, .head_dim = 64}};
inline constexpr Sizes even_sizes{
    260, 672, 128, {.batch = 1, .sequence = 190, .kv_heads = 1, .q_per_kv = 2, .head_dim = 112}};
/// Rows that a warp reads in several turns, and the widest heads.
inline constexpr Sizes long_rows{
    5, 4104, 16, {.batch = 1, .sequence = 70, .kv_heads = 1, .q_per_kv = 2, .head_dim = 128}};
inline constexpr Sizes long_odd_rows{
    7, 1859, 9, {.batch = 2, .sequence = 33, .kv_heads = 1, .q_per_kv = 1, .head_dim = 24}, true};
/// For norms: rows of which blocks of two warps have room for sums, and rows of which none has.
inline constexpr Sizes wide_rows[] = {
    {4, 8'084, 1, {}},       {1, 8'084, 1, {}},        {1, 8'003, 1, {}, true},
    {1, 8'071, 1, {}, true}, {4, 8'003, 1, {}, true},  {4, 8'071, 1, {}, true},
    {3, 29'588, 1, {}},      {2, 29'507, 1, {}, true}, {2, 29'575, 1, {}, true}};

/// The same with a third of the sequence: without tiles, a thread does a whole row of attention, which takes
/// an interpreter long.
[[nodiscard]] constexpr Sizes shorter(Sizes sizes) {
  sizes.attention.sequence /= 3;
  return sizes;
}

/// The same with heads and values of widths that unrolled loops do not divide, for attention without tiles.
[[nodiscard]] constexpr Sizes odd_heads(Sizes sizes, std::size_t key, std::size_t value) {
  sizes.attention.head_dim = key;
  sizes.attention.value_dim = value;
  sizes.attention.rotary_dim = key / 2 * 2;
  return sizes;
}

/// Begins a step of AdamW in memory that the kernels read.
struct OpenStep {
  kernels::OptimizerStep* step;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    step->learning_rate = 0.01;
    kernels::OpenAdamWStep{step, 0.9, 0.95}.open(true, 0.7);
  }
};

/// A term of a sum over rows.
struct SameTerm {
  template <class V> SHARDWRIGHT_FUNCTION V operator()(V x, sw::Unread, sw::Unread) const { return x; }
};

/// Runs kernels on random data and hands on every result, in order. Kernels are in groups: if each has a
/// process of its own, an error of the device ends only one.
template <class Target, class Element> class EveryKernel {
public:
  /// @param keep is told each result when it is known
  EveryKernel(const Sizes& sizes, std::function<void(std::string, std::vector<double>)> keep)
      : rows(sizes.rows), columns(sizes.columns), depth(sizes.depth), shape(sizes.attention),
        unaligned(sizes.unaligned), keep_(std::move(keep)) {}

  struct Group {
    std::string_view name;
    void (EveryKernel::*run)();
  };
  [[nodiscard]] static std::array<Group, 10> groups() {
    return {{{"random_numbers", &EveryKernel::random_numbers},
             {"copies", &EveryKernel::copies},
             {"elementwise", &EveryKernel::elementwise},
             {"products", &EveryKernel::products},
             {"experts", &EveryKernel::experts},
             {"norms", &EveryKernel::norms},
             {"attention", &EveryKernel::attention},
             {"losses", &EveryKernel::losses},
             {"update", &EveryKernel::update},
             {"update_together", &EveryKernel::update_together}}};
  }
  /// @param group its name, or nothing for all
  void run(std::string_view group) {
    for (const Group& known : groups())
      if (group.empty() || known.name == group) {
        shifted_ =
            unaligned && known.name != "products" && known.name != "experts" && known.name != "attention";
        (this->*known.run)();
        memory_.clear();
      }
  }

private:
  using Execution = typename Target::execution_space;
  /// The element of statistics, tables, workspaces and sums.
  using Main = sw::AccumulationElement<Element>;
  /// Kernels that know only this element, or integers, are run by the program of this element alone.
  static constexpr bool has_own_sums = std::is_same_v<Main, Element>;
  template <class Value>
  using Matrix = Kokkos::View<Value**, Kokkos::LayoutRight, typename Target::memory_space>;
  template <class Value>
  using Vector = Kokkos::View<Value*, Kokkos::LayoutRight, typename Target::memory_space>;

  Matrix<Element> matrix() { return matrix(rows, columns); }
  Matrix<Element> matrix(std::size_t m, std::size_t n) { return matrix_of<Element>(m, n); }
  Matrix<Main> sums() { return sums(rows, columns); }
  Matrix<Main> sums(std::size_t m, std::size_t n) { return matrix_of<Main>(m, n); }
  template <class Value> Matrix<Value> matrix_of(std::size_t m, std::size_t n) {
    if (!shifted_)
      return Matrix<Value>("matrix", m, n);
    return Matrix<Value>(behind_alignment<Value>(m * n), m, n);
  }
  Vector<Main> vector(std::size_t size) { return vector_of<Main>(size); }
  template <class Value> Vector<Value> vector_of(std::size_t size) {
    return shifted_ ? Vector<Value>(behind_alignment<Value>(size), size) : Vector<Value>("vector", size);
  }
  /// Memory that lies behind its alignment by another number of elements than the one before it.
  template <class Value> Value* behind_alignment(std::size_t size) {
    const std::size_t behind = 1 + memory_.size() % 3;
    const auto& memory = memory_.emplace_back("matrix", (size + behind) * sizeof(Value));
    return reinterpret_cast<Value*>(memory.data()) + behind;
  }
  /// Memory whose bytes do not count as moved.
  static Vector<Main> workspace(std::size_t size) { return Vector<Main>("workspace", size); }
  /// Random numbers, different for each tensor. Normal ones would take half of the program's time, and other
  /// bounds would round differently on a device, which multiplies and adds at once.
  Matrix<Element> random() { return random(rows, columns); }
  Matrix<Element> random(std::size_t m, std::size_t n) {
    const auto out = matrix(m, n);
    fill(out);
    return out;
  }
  /// Of drawn numbers, each tensor takes others or in another order: to draw takes an interpreter long.
  void fill(const Matrix<Element>& out) {
    const std::size_t first = ++tensors_ * 8072 % 32768, needed = first + out.size();
    if (drawn_.size() < needed) {
      drawn_ = Matrix<Element>("drawn", needed / columns + 1, columns);
      kernels::fill_uniform(execution_, drawn_, {{0, 0}, {drawn_.extent(0), columns}}, {42, tensors_}, -1, 1);
    }
    kernels::copy_rows(execution_, drawn_.data() + first, 1, out.size(), out.size(), out.data());
  }
  Vector<Element> random_vector(std::size_t size) {
    const auto out = vector_of<Element>(size);
    kernels::fill_uniform(execution_, out, {{0}, {size}}, {42, ++tensors_}, 0.5, 1.5);
    return out;
  }
  /// Random numbers in the element of sums. They are drawn as Element: the kernel that draws is compiled
  /// once.
  Matrix<Main> random_sums() { return random_sums(rows, columns); }
  Matrix<Main> random_sums(std::size_t m, std::size_t n) {
    const auto drawn = random(m, n);
    if constexpr (has_own_sums) {
      return drawn;
    } else {
      const auto out = sums(m, n);
      kernels::copy(execution_, drawn, out);
      return out;
    }
  }
  static Vector<std::int32_t> ids(std::size_t size, std::int32_t vocabulary) {
    std::vector<std::int32_t> numbers(size);
    for (std::size_t i = 0; i < size; ++i)
      numbers[i] = i % 5 == 4 ? -1 : static_cast<std::int32_t>(7 * i + 3) % vocabulary;
    return on_target(numbers);
  }

  /// Bytes: copies of views would compile kernels for every type and rank.
  template <class Byte, class Space>
  using Bytes = Kokkos::View<Byte*, Kokkos::LayoutRight, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  template <class Value> static Vector<Value> on_target(const std::vector<Value>& numbers) {
    const Vector<Value> out("numbers", numbers.size());
    const std::size_t bytes = numbers.size() * sizeof(Value);
    Kokkos::deep_copy(Bytes<unsigned char, typename Target::memory_space>(
                          reinterpret_cast<unsigned char*>(out.data()), bytes),
                      Bytes<const unsigned char, Kokkos::HostSpace>(
                          reinterpret_cast<const unsigned char*>(numbers.data()), bytes));
    return out;
  }
  /// The elements of a view, after the kernels that have been waited for.
  template <class View> static std::vector<typename View::non_const_value_type> on_host(const View& view) {
    std::vector<typename View::non_const_value_type> out(view.size());
    const std::size_t bytes = out.size() * sizeof out[0];
    Kokkos::deep_copy(
        Bytes<unsigned char, Kokkos::HostSpace>(reinterpret_cast<unsigned char*>(out.data()), bytes),
        Bytes<const unsigned char, typename Target::memory_space>(
            reinterpret_cast<const unsigned char*>(view.data()), bytes));
    return out;
  }

  /// Hands on the results of the kernels that have just been started, in a name that says which they are.
  template <class... Views> void keep(const std::string& name, const Views&... views) {
    execution_.fence();
    int number = 0;
    const auto tell = [&](const auto& view) {
      const auto numbers = on_host(view);
      ++number;
      keep_(sizeof...(Views) == 1 ? name : name + ", result " + std::to_string(number),
            {numbers.begin(), numbers.end()});
    };
    (tell(views), ...);
  }

  void random_numbers() {
    const auto x = matrix();
    kernels::fill_normal(execution_, x, {{0, 0}, {rows, columns}}, {42, ++tensors_}, 0.0, 1.0);
    keep("fill_normal", x);
    kernels::dropout_into(execution_, x, x, {{2, 0}, {rows + 2, columns}}, {42, 99}, 0.3);
    const auto dropped = matrix();
    kernels::dropout_into(execution_, x, dropped, {{2, 0}, {rows + 2, columns}}, {42, 98}, 0.3);
    keep("dropout_into, fill_uniform", x, dropped, random_vector(columns));
    // Rows that begin within a group of random words.
    kernels::dropout_into(execution_, x, dropped, {{1, 3}, {rows + 1, columns + 5}}, {42, 97}, 0.3);
    keep("dropout_into, shifted rows", dropped);
    for (std::size_t ordered = 0; ordered < 3; ++ordered)
      random_blocks(ordered);
  }

  /// Blocks of a tensor of four dimensions, one of which has an order; rows begin at every place of a group
  /// of random words.
  void random_blocks(std::size_t ordered) {
    using Block = Kokkos::View<Element****, Kokkos::LayoutRight, typename Target::memory_space>;
    const Block uniform("uniform", 2, 3, 2, 11), normal("normal", 2, 3, 2, 11), kept("kept", 2, 3, 2, 11);
    for (std::size_t shift = 0; shift < 4; ++shift) {
      kernels::BlockPosition at{{1, 3, 2, shift}, {8, 8, 8, 64}, {.sequence = 8, .chunk = 2}, ordered};
      if (shift == 3)
        at.order = {};
      const sw::RandomKey key{42, 200 + 4 * ordered + shift};
      kernels::fill_uniform(execution_, uniform, at, key, -1, 1);
      kernels::fill_normal(execution_, normal, at, key, 0, 1);
      kernels::dropout_into(execution_, normal, kept, at, key, 0.4);
      keep("random blocks", uniform, normal, kept);
    }
  }

  void copies() {
    const auto x = random();
    const auto packed = matrix(rows, columns - 3);
    kernels::copy_rows(execution_, x.data() + 1, rows, columns - 3, columns, packed.data());
    keep("copy_rows", packed);
    kernels::zero_elements(execution_, packed.data() + 1, packed.size() - 2);
    keep("zero_elements", packed);
    const auto same = matrix();
    kernels::copy(execution_, x, same);
    keep("copy", same);
    if constexpr (has_own_sums)
      if (smallest)
        zero_integers();
  }

  void zero_integers() {
    const auto numbers = on_target(std::vector<std::int64_t>(10'700, 5));
    const std::pair<std::size_t, std::size_t> parts[] = {{0, 215}, {301, 215}, {551, 101}, {700, 9'900}};
    for (const auto& [first, count] : parts)
      kernels::zero_elements(execution_, numbers.data() + first, count);
    keep("zero_elements of integers", numbers);
  }

  template <class Function>
  void function_and_slope(const std::string& name, const Function& function, const Matrix<Element>& x,
                          const Matrix<Element>& dy, const Matrix<Element>& y) {
    const kernels::NoElements none;
    const kernels::Elements<Element> from{x.data()};
    kernels::store_formula("map", execution_, kernels::MapOf<Function>{function}, none, from, none, y.data(),
                           y.size());
    keep(name, y);
    const kernels::Elements<Element> at{Function::slope_of_result ? y.data() : x.data()};
    kernels::store_formula("slopes", execution_, kernels::SlopeOf<Function>{function},
                           kernels::Elements<Element>{dy.data()}, at, none, y.data(), y.size());
    keep(name + ", slope", y);
  }

  template <class Function>
  void combine(const Function& function, const Matrix<Element>& left, const Matrix<Element>& right,
               const Matrix<Element>& out) {
    kernels::store_formula("combine", execution_, kernels::CombineOf<Function>{function},
                           kernels::NoElements{}, kernels::Elements<Element>{left.data()},
                           kernels::Elements<Element>{right.data()}, out.data(), out.size());
  }

  void elementwise() {
    const auto x = random(), dy = random(), y = matrix();
    function_and_slope("GeluTanh", sw::operation::GeluTanh(), x, dy, y);
    function_and_slope("GeluErf", sw::operation::GeluErf(), x, dy, y);
    function_and_slope("Silu", sw::operation::Silu(), x, dy, y);
    function_and_slope("Relu", sw::operation::Relu(), x, dy, y);
    function_and_slope("Sigmoid", sw::operation::Sigmoid(), x, dy, y);
    function_and_slope("Tanh", sw::operation::Tanh(), x, dy, y);
    function_and_slope("Exp", sw::operation::Exp(), x, dy, y);
    function_and_slope("Square", sw::operation::Square(), x, dy, y);
    const auto positive = matrix();
    combine(sw::operation::Multiply(), x, x, positive);
    function_and_slope("Log", sw::operation::Log(), positive, dy, y);
    function_and_slope("Sqrt", sw::operation::Sqrt(), positive, dy, y);
    combine(sw::operation::Divide(), dy, y, y);
    combine(sw::operation::Subtract(), y, dy, y);
    keep("Log, Sqrt, Divide, Subtract", y);
    kernels::fill(execution_, positive, Element(std::numeric_limits<float>::infinity()));
    function_and_slope("Log of infinity", sw::operation::Log(), positive, dy, y);
    kernels::softmax_forward<true>(execution_, positive, y);
    keep("log softmax_forward of infinity", y);
    kernels::add(execution_, x, dy, y);
    keep("add", y);
    combine(sw::operation::Multiply(), x, dy, y);
    keep("Multiply", y);
    using sw::operation::Multiply;
    const kernels::NoElements absent;
    const kernels::Elements<Element> of_dy{dy.data()}, other{x.data()};
    kernels::store_formula("d_left", execution_, sw::detail::LeftGradientOf<Multiply>{Multiply()}, of_dy,
                           absent, other, y.data(), y.size());
    keep("Multiply, left gradient", y);
    kernels::store_formula("d_right", execution_, sw::detail::RightGradientOf<Multiply>{Multiply()}, of_dy,
                           other, absent, y.data(), y.size());
    keep("Multiply, right gradient", y);
    kernels::axpy(execution_, -1.5, x, y);
    keep("axpy", y);
    kernels::fill(execution_, y, Element(3));
    keep("fill", y);
    kernels::softmax_forward<false>(execution_, x, y);
    keep("softmax_forward", y);
    kernels::softmax_backward<false>(execution_, y, dy, y);
    keep("softmax_backward", y);
    kernels::softmax_forward<true>(execution_, x, y);
    keep("log softmax_forward", y);
    kernels::softmax_backward<true>(execution_, y, dy, y);
    keep("log softmax_backward", y);
    const auto turned = matrix(columns, rows);
    kernels::transpose(execution_, x, turned, {.first = rows, .second = columns});
    keep("transpose", turned);
    const auto table = random(2 * rows + 6, columns);
    const auto d_table = sums(2 * rows + 6, columns);
    kernels::add_positions(execution_, x, table, rows, {3, {8, 2}}, y);
    kernels::add_positions_backward(execution_, y, rows, {3, {8, 2}}, d_table);
    keep("add_positions", y, d_table);
    const auto repeated = matrix(rows * 3, columns);
    kernels::repeat(execution_, 0.5, x, 3, columns, repeated);
    keep("repeat, long", repeated);
    const auto of_row = matrix(3, columns);
    kernels::repeat(execution_, 0.5, Vector<Element>(x.data(), columns), 3, 1, of_row);
    keep("repeat, short", of_row);
    const auto of_five = matrix(5, 1'003);
    kernels::repeat(execution_, 0.5, Vector<Element>(x.data(), 5), of_five.extent(1), 1, of_five);
    keep("repeat, numbers", of_five);
    const auto joined = matrix(rows, 2 * columns);
    kernels::insert_columns(execution_, x, dy, joined, columns / 2, 1);
    keep("insert_columns", joined);
    kernels::remove_columns(execution_, joined, y, columns / 3);
    keep("remove_columns", y);
    kernels::inserted_columns(execution_, joined, y, columns / 3, 1);
    keep("inserted_columns", y);
    kernels::add_columns(execution_, y, joined, columns / 4, 0.75);
    keep("add_columns", joined);
    // Blocks of `joined`: one of long rows, one of short ones, from an element that is not aligned.
    const auto block = matrix(rows, columns), pair = matrix(rows, 2);
    kernels::copy_rows(execution_, joined.data(), rows, columns, joined.extent(1), block.data());
    keep("copy_rows, long rows", block);
    kernels::copy_rows(execution_, joined.data() + 1, rows, 2, joined.extent(1), pair.data());
    keep("copy_rows, short rows", pair);
    kernels::zero_elements(execution_, block.data(), columns + 1);
    keep("zero_elements, odd count", block);
    const auto column_work = workspace(kernels::column_sums_workspace(rows, columns)),
               column = vector(columns);
    const kernels::NoElements none;
    const auto terms =
        kernels::terms_of<Element>(SameTerm(), kernels::Elements<Element>{x.data()}, none, none);
    kernels::column_sums(execution_, terms, rows, columns, column.data(), column_work.data(), false);
    keep("column_sums", column);
    const auto wide = matrix_of<double>(rows, columns);
    kernels::copy(execution_, x, wide);
    keep("copy, wider", wide);
    const Vector<double> totals("totals", 2), work("workspace", kernels::reduce_workspace(x.size()));
    kernels::dot(execution_, x, dy, totals, work);
    kernels::squared_distance(execution_, x, dy, totals, work, true);
    keep("dot, squared_distance", totals);
    const auto gradient = random_sums();
    kernels::SquareSum squares(execution_, work.data());
    squares.add(gradient);
    squares.finish(totals);
    keep("SquareSum", totals);
    kernels::SquareSum wide_squares(execution_, work.data());
    wide_squares.add(wide);
    wide_squares.finish(totals);
    kernels::count_nonfinite(execution_, x, totals, work, true);
    keep("SquareSum, count_nonfinite", totals);
    kernels::sum_of_absolutes(execution_, x, totals, work);
    keep("sum_of_absolutes", totals);
    kernels::run_sum_in_order(execution_, gradient.data(), gradient.size(), totals.data(), false);
    kernels::run_sum_in_order(execution_, gradient.data(), gradient.size(), totals.data(), true);
    keep("run_sum_in_order", totals);
    kernels::largest_absolute(execution_, x, totals, work);
    keep("largest_absolute", totals);
    // Of numbers that agree on both to the last bit.
    const Vector<std::uint64_t> hash("hash", 1), hashes("workspace", kernels::reduce_workspace(x.size()));
    const Vector<Element> exact("exact", x.size());
    kernels::copy(execution_, ids(x.size(), 200), exact);
    kernels::checksum(execution_, exact, hash, hashes);
    keep("checksum", hash);
    const auto fused = random(rows, 2 * columns), out = matrix(), d_fused = matrix(rows, 2 * columns);
    kernels::swiglu_forward(execution_, fused, out);
    kernels::swiglu_backward(execution_, fused, out, d_fused);
    keep("swiglu", out, d_fused);
  }

  void products() {
    using kernels::Transpose;
    const auto c = random(rows, columns);
    kernels::matmul(execution_, random(rows, depth), Transpose::no, random(depth, columns), Transpose::no, c,
                    0.5, 2.0);
    keep("matmul", c);
    kernels::matmul(execution_, random(depth, rows), Transpose::yes, random(columns, depth), Transpose::yes,
                    c);
    keep("matmul, transposed", c);
    const auto in_main = random_sums(rows, columns);
    kernels::matmul(execution_, random(rows, depth), Transpose::no, random(depth, columns), Transpose::no,
                    in_main, 1.0, 1.0);
    keep("matmul, into sums", in_main);
    // Blocks of wider matrices.
    const auto left = random(rows, depth + 16), right = random(depth, columns + 8);
    const auto block = [](const auto& wide, std::size_t first, std::size_t count) {
      return Kokkos::subview(wide, Kokkos::ALL, std::make_pair(first, first + count));
    };
    const auto wide = random(rows, columns + 24);
    kernels::matmul(execution_, block(left, 8, depth), Transpose::no, block(right, 8, columns), Transpose::no,
                    block(wide, 16, columns), 1.0, 0.0);
    keep("matmul, blocks", wide);
    // Of shapes whose kernels are timed first: a result that is written, and one that is added to.
    kernels::use_timed_products(true);
    const auto timed = matrix(rows - 1, columns);
    const auto added = random_sums(rows - 1, columns);
    kernels::matmul(execution_, random(rows - 1, depth), Transpose::no, random(depth, columns), Transpose::no,
                    timed);
    kernels::matmul(execution_, random(rows - 1, depth), Transpose::no, random(depth, columns), Transpose::no,
                    added, 1.0, 1.0);
    kernels::use_timed_products(false);
    keep("matmul, timed", timed, added);
  }

  /// Groups of rows with their matrices, one of them without rows, and the kernel that orders them.
  void experts() {
    using kernels::Transpose;
    constexpr std::size_t groups = 4;
    const auto whole = static_cast<std::int64_t>(rows);
    const std::vector<std::int64_t> first{0, whole / 3, whole / 3, whole - 1, whole};
    const auto x = random(rows, depth), y = matrix(), dx = matrix(rows, depth);
    const Kokkos::View<Element***, Kokkos::LayoutRight, typename Target::memory_space> weights(
        "weights", groups, depth, columns);
    fill(Matrix<Element>(weights.data(), groups * depth, columns));
    kernels::grouped_matmul(execution_, first, x, weights, Transpose::no, y);
    kernels::grouped_matmul(execution_, first, y, weights, Transpose::yes, dx);
    keep("grouped_matmul", y, dx);
    kernels::grouped_weight_gradient(execution_, first, x, random(), weights, 0.5);
    const Kokkos::View<Main***, Kokkos::LayoutRight, typename Target::memory_space> wide("wide", groups,
                                                                                         depth, columns);
    kernels::grouped_weight_gradient(execution_, first, x, random(), wide, 0.0);
    keep("grouped_weight_gradient", weights, wide);
    for (const std::size_t slots : {3, 5})
      expert_rows(slots);
    if constexpr (has_own_sums) {
      sort_choices("sort_by_expert", ids(rows * columns, 150), 150);
      sort_choices("sort_by_expert, two digits", ids(rows * 20, 700), 700);
      routes();
      if (smallest)
        experts_of_fixed_sizes();
    }
  }

  void experts_of_fixed_sizes() {
    sort_choices("sort_by_expert, three digits", ids(17'500, 70'000), 70'000); // two tiles of CUB's
    sort_choices("sort_by_expert, less than a tile", ids(4'800, 150), 150);
    sort_choices("sort_by_expert, one expert", Vector<std::int32_t>("choices", 10'001), 5);
    sort_choices("sort_by_expert, no expert", on_target(std::vector<std::int32_t>(10'200, 300)), 254);
    const auto runs = on_target(std::vector<kernels::RowRun>{{0, 500, 500}, {500, 7, 0}, {500, 0, 9}});
    const Vector<std::int32_t> numbers("numbers", 509);
    kernels::run_lanes("runs", execution_, runs.size(), kernels::NumberRuns{runs.data(), numbers.data()});
    keep("numbers of rows", numbers);
  }

  void sort_choices(const std::string& name, const Vector<std::int32_t>& choices, std::int32_t known) {
    const Vector<std::int32_t> order("order", choices.size()), places("places", choices.size()),
        counts("counts", static_cast<std::size_t>(known) + 2);
    const Vector<unsigned char> memory("workspace",
                                       kernels::sort_by_expert_workspace(execution_, choices.size(), known));
    kernels::sort_by_expert(execution_, choices.data(), choices.size(), known, order.data(), places.data(),
                            counts.data(), memory.data());
    keep(name, order, places, counts);
  }

  /// Rows of tokens to experts and back, the last first, with gates and places of none.
  void expert_rows(std::size_t slots) {
    using Rows = kernels::PackedRows<Element>;
    const auto x = random(), value = random(), sent = matrix(), back = matrix(), sum = matrix();
    std::vector<std::int32_t> last_first(rows), some(rows * slots);
    for (std::size_t i = 0; i < rows; ++i)
      last_first[i] = static_cast<std::int32_t>(rows - 1 - i);
    for (std::size_t i = 0; i < some.size(); ++i)
      some[i] = i % 7 == 6 ? -1 : static_cast<std::int32_t>(5 * i % rows);
    const auto index = on_target(last_first), places = on_target(some);
    const auto gates = weights(rows * slots), d_gates = vector(rows), taken = vector(rows);
    kernels::run_lanes("gather", execution_, rows,
                       kernels::GatherRows<Element>{x.data(), index.data(), slots, sent.data(), columns});
    kernels::run_lanes(
        "scatter", execution_, rows,
        kernels::ScatterRows<Element, Rows>{{sent.data(), columns}, index.data(), back.data(), columns});
    keep("expert rows there", sent, back);
    for (const bool gated : {false, true}) {
      kernels::run_lanes("sum", execution_, rows,
                         kernels::SumSlots<Element, Rows>{{x.data(), columns},
                                                          places.data(),
                                                          gated ? gates.data() : nullptr,
                                                          slots,
                                                          sum.data(),
                                                          columns});
      keep("expert rows back", sum);
    }
    kernels::run_lanes(
        "gate", execution_, rows,
        kernels::GateRows<Element>{sent.data(), value.data(), gates.data(), d_gates.data(), columns});
    kernels::run_lanes("gate", execution_, rows,
                       kernels::GateRows<Element>{back.data(), nullptr, gates.data(), nullptr, columns});
    kernels::run("take", execution_, rows,
                 kernels::TakeNumbers<Main, kernels::PackedRows<Main>>{
                     {gates.data(), 1}, places.data(), taken.data()});
    keep("gates of rows", sent, d_gates, back, taken);
  }

  Vector<Main> weights(std::size_t size) {
    const Vector<Main> out("weights", size);
    kernels::copy(execution_, random_vector(size), out);
    return out;
  }

  /// Experts that rows of logits choose, by every rule, with padding, and logits that cannot be used.
  void routes() {
    constexpr std::size_t experts = 12;
    using Scores = kernels::RouterScores;
    const kernels::RoutingRule rules[] = {
        {.experts = experts, .chosen = 2},
        {.experts = experts, .chosen = 5, .scores = Scores::softmax},
        {.experts = experts, .chosen = 3, .scores = Scores::softmax, .renormalise = true},
        {.experts = experts, .chosen = 1, .scores = Scores::sigmoid},
        {.experts = experts,
         .chosen = 6,
         .scores = Scores::sigmoid,
         .scale = 2.5,
         .groups = 4,
         .kept_groups = 2,
         .group_terms = 2},
        // Loops over numbers of experts that nvcc's unrolling does not divide.
        {.experts = 7, .chosen = 7, .scores = Scores::softmax},
        {.experts = 11, .chosen = 11, .scores = Scores::softmax, .renormalise = true},
        {.experts = 15,
         .chosen = 7,
         .scores = Scores::sigmoid,
         .groups = 3,
         .kept_groups = 2,
         .group_terms = 3}};
    std::vector<std::int32_t> pads(rows);
    for (std::size_t i = 0; i < rows; ++i)
      pads[i] = i % 6 == 1 ? -1 : 0;
    std::vector<float> biases(15);
    for (std::size_t e = 0; e < biases.size(); ++e)
      biases[e] = 0.01F * static_cast<float>(e);
    const auto padding = on_target(pads);
    const auto bias = on_target(biases);
    for (const kernels::RoutingRule& rule : rules) {
      const auto logits = random_sums(rows, rule.experts);
      const Vector<float> with = rule.chosen == 2 ? Vector<float>() : bias;
      route("routes", logits, with, rule.chosen == 3 ? Vector<std::int32_t>() : padding, rule);
    }
    constexpr Main infinity = std::numeric_limits<Main>::infinity();
    for (const Main odd : {infinity, -infinity}) {
      const auto logits = sums(2, experts);
      kernels::fill(execution_, Vector<Main>(logits.data() + experts, experts), odd);
      route("routes of odd logits", logits, bias, {}, rules[0]);
    }
  }
  void route(const std::string& name, const Matrix<Main>& logits, const Vector<float>& bias,
             const Vector<std::int32_t>& padding, const kernels::RoutingRule& rule) {
    const std::size_t count = logits.extent(0);
    const Matrix<std::int32_t> chosen("chosen", count, rule.chosen);
    const auto scores = sums(count, rule.experts + rule.groups), gates = sums(count, rule.chosen),
               d_logits = sums(count, rule.experts);
    const Vector<std::int64_t> fault("fault", 1);
    kernels::run("choose", execution_, count,
                 kernels::ChooseExperts<Main>{logits.data(), bias.data(), padding.data(), scores.data(),
                                              chosen.data(), fault.data(), count, rule});
    kernels::run("gates", execution_, count,
                 kernels::GatesOfExperts<Main>{logits.data(), chosen.data(), gates.data(), rule});
    const auto slopes = random_sums(count, rule.chosen);
    kernels::run("d_gates", execution_, count,
                 kernels::GatesBackward<Main>{logits.data(), chosen.data(), gates.data(), slopes.data(),
                                              d_logits.data(), rule});
    const Matrix<std::int64_t> counts("counts", 2, rule.experts + 1);
    kernels::run(
        "count", execution_, count,
        kernels::CountExperts{chosen.data(), counts.data(), (count + 1) / 2, rule.chosen, rule.experts});
    keep(name, chosen, gates, d_logits, fault, counts);
  }

  /// Backward the branch is the gradient of the result.
  template <bool centred>
  void norms_of(const Matrix<Element>& x, const Matrix<Element>& branch, bool fused, bool biased) {
    const std::string name = std::string(centred ? "layer_norm" : "rms_norm") + (fused ? " of a sum" : "") +
                             (biased ? " with bias" : "");
    using kernels::span_of;
    const auto sum = matrix(), y = matrix(), dx = matrix();
    const auto gain = random_vector(columns), bias = random_vector(biased ? columns : 0);
    const auto mean = vector(centred ? rows : 0), inverse = vector(rows), d_gain = vector(columns),
               d_bias = vector(biased ? columns : 0);
    const auto work = workspace(kernels::norm_workspace(rows, columns, biased));
    kernels::Norm<Element> norm{.x = span_of(x),
                                .gain = span_of(gain),
                                .bias = span_of(bias),
                                .epsilon = 1e-5,
                                .y = span_of(y),
                                .mean = span_of(mean),
                                .inverse = span_of(inverse)};
    if (fused) {
      norm.branch = span_of(branch);
      norm.sum = span_of(sum);
    }
    kernels::norm_forward<centred>(execution_, norm);
    keep(name + "_forward", sum, y, mean, inverse);
    if (fused) {
      norm.d_residual = span_of(x);
      norm.x = span_of(sum);
    }
    norm.dy = span_of(branch);
    norm.dx = span_of(dx);
    norm.d_gain = span_of(d_gain);
    norm.d_bias = span_of(d_bias);
    norm.workspace = span_of(work);
    kernels::norm_backward<centred>(execution_, norm);
    norm.add_gain = norm.add_bias = true;
    kernels::norm_backward<centred>(execution_, norm);
    keep(name + "_backward", dx, d_gain, d_bias);
    norm.d_gain = norm.d_bias = {}; // of a frozen norm
    kernels::norm_backward<centred, false>(execution_, norm);
    keep(name + "_backward, frozen", dx);
  }

  void norms() {
    const auto x = random(), branch = random();
    for (const bool fused : {false, true}) {
      norms_of<false>(x, branch, fused, false);
      norms_of<true>(x, branch, fused, false);
      norms_of<true>(x, branch, fused, true);
    }
  }

  /// As in a model: larger ones make softmax so steep that the roundings of narrow elements show.
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape.head_dim)); }

  void attention() {
    const auto qkv = random(shape.tokens(), shape.qkv_width());
    const auto cosines = sums(shape.sequence, shape.rotary_width() / 2),
               sines = sums(shape.sequence, shape.rotary_width() / 2);
    kernels::fill_rotary_tables(execution_, cosines, sines);
    kernels::rotary_forward(execution_, qkv, cosines, sines, shape, sw::TokenRuns::one(shape.sequence));
    keep("rotary_forward", cosines, sines, qkv);
    const auto out = matrix(shape.tokens(), shape.output_width());
    const auto log_sum_exp = vector(shape.tokens() * shape.heads());
    const auto d_qkv = matrix(shape.tokens(), shape.qkv_width());
    const std::size_t n = shape.sequence; // two runs that follow one another
    const kernels::Rotation<Main> rotation{kernels::span_of(cosines),
                                           kernels::span_of(sines),
                                           {.rows = n, .split = n / 2, .first = 0, .second = n / 2}};
    const sw::KeyWindow windows[] = {sw::full.window, sw::causal.window};
    for (const sw::KeyWindow& window : windows) {
      const bool causal = window.after == 0;
      const std::string kind = causal ? ", causal, rotation undone" : ", full";
      const auto block = kernels::AttentionBlock::whole(shape.sequence, {window});
      kernels::attention_forward(
          execution_, qkv, out, log_sum_exp, shape, block, scale(),
          workspace(kernels::attention_forward_workspace<Element>(execution_, shape, {window})));
      kernels::attention_backward(
          execution_, qkv, out, log_sum_exp, random(shape.tokens(), shape.output_width()), d_qkv, shape,
          block, scale(),
          workspace(kernels::attention_backward_workspace<Element>(execution_, shape, {window})),
          causal ? rotation : kernels::Rotation<Main>());
      keep("attention" + kind, out, log_sum_exp, d_qkv);
    }
    if constexpr (!std::is_same_v<Main, Element>) {
      attention_into_sums(qkv, rotation, {sw::causal.window});
      attention_of_unaligned_rows(qkv, out, log_sum_exp, d_qkv);
    }
    attention_of_other_keys(qkv, out, log_sum_exp, d_qkv, {sw::causal.window});
    attention_of_documents(qkv, rotation);
    kernels::rotary_backward(execution_, d_qkv, cosines, sines, shape, sw::TokenRuns::one(shape.sequence));
    keep("rotary_backward", d_qkv);
    if (smallest)
      heads_behind_alignment();
  }

  /// Of what attention needs, the kernels that take rows of any alignment.
  void heads_behind_alignment() {
    const kernels::AttentionShape odd{.batch = 1,
                                      .sequence = 5,
                                      .kv_heads = 2,
                                      .q_per_kv = 1,
                                      .head_dim = 131,
                                      .value_dim = 130,
                                      .rotary_dim = 130};
    const auto qkv = random(odd.tokens(), odd.qkv_width());
    const auto cosines = sums(odd.sequence, odd.rotary_width() / 2),
               sines = sums(odd.sequence, odd.rotary_width() / 2);
    kernels::fill_rotary_tables(execution_, cosines, sines);
    kernels::rotary_forward(execution_, qkv, cosines, sines, odd, sw::TokenRuns::one(odd.sequence));
    const auto keys = matrix(odd.tokens(), odd.kv_heads * odd.key_value_width());
    kernels::pack_key_values(execution_, qkv, keys, odd);
    const auto d_keys = random_sums(odd.tokens(), odd.kv_heads * odd.key_value_width()),
               d_qkv = random_sums(odd.tokens(), odd.qkv_width());
    kernels::add_key_values(execution_, d_keys, d_qkv, odd);
    keep("heads behind their alignment", qkv, keys, d_qkv);
  }

  /// Results in the AccumulationElement.
  void attention_into_sums(const Matrix<Element>& qkv, const kernels::Rotation<Main>& rotation,
                           const kernels::KeyMask& mask) {
    const auto out = sums(shape.tokens(), shape.output_width());
    const auto rounded = matrix(shape.tokens(), shape.output_width());
    const auto d_qkv = sums(shape.tokens(), shape.qkv_width());
    const auto log_sum_exp = vector(shape.tokens() * shape.heads());
    const auto block = kernels::AttentionBlock::whole(shape.sequence, mask);
    kernels::attention_forward(
        execution_, qkv, out, log_sum_exp, shape, block, scale(),
        workspace(kernels::attention_forward_workspace<Element, Main>(execution_, shape)));
    kernels::copy(execution_, out, rounded);
    kernels::attention_backward(
        execution_, qkv, rounded, log_sum_exp, random(shape.tokens(), shape.output_width()), d_qkv, shape,
        block, scale(), workspace(kernels::attention_backward_workspace<Element, Main>(execution_, shape)),
        rotation);
    keep(mask.starts == nullptr ? "attention into sums" : "attention of documents into sums", out,
         log_sum_exp, d_qkv);
  }

  /// Rows that do not begin at multiples of 16 bytes are refused on a device, whichever buffer has them.
  void attention_of_unaligned_rows(const Matrix<Element>& qkv, const Matrix<Element>& out,
                                   const Vector<Main>& log_sum_exp, const Matrix<Element>& d_qkv) {
    const sw::KeyWindow& window = sw::causal.window;
    const auto block = kernels::AttentionBlock::whole(shape.sequence, {window});
    const auto work = workspace(kernels::attention_backward_workspace<Element>(execution_, shape, {window}));
    const auto wide = matrix(shape.tokens() + 1, shape.qkv_width() + 1);
    const Matrix<Element> strided = Kokkos::subview(wide, std::pair(std::size_t{0}, shape.tokens()),
                                                    std::pair(std::size_t{0}, shape.qkv_width()));
    const Matrix<Element> late(wide.data() + 1, shape.tokens(), shape.qkv_width()),
        late_out(wide.data() + 1, shape.tokens(), shape.output_width());
    std::vector<double> refused;
    const auto refuses = [&](const auto& call) {
      bool as_it_must = kernels::runs_on_host<Execution>;
      try {
        if (!as_it_must)
          call();
      } catch (const sw::InvalidArgument& error) {
        as_it_must = std::string_view(error.what()).find("rows must begin at multiples of 16 bytes") !=
                     std::string_view::npos;
      }
      refused.push_back(as_it_must);
    };
    const auto forward = [&](const Matrix<Element>& x, const Matrix<Element>& y) {
      refuses(
          [&] { kernels::attention_forward(execution_, x, y, log_sum_exp, shape, block, scale(), work); });
    };
    const auto backward = [&](const Matrix<Element>& x, const Matrix<Element>& y, const Matrix<Element>& dy,
                              const Matrix<Element>& dx) {
      refuses([&] {
        kernels::attention_backward(execution_, x, y, log_sum_exp, dy, dx, shape, block, scale(), work);
      });
    };
    forward(late, out);
    forward(strided, out);
    forward(qkv, late_out);
    backward(late, out, out, d_qkv);
    backward(strided, out, out, d_qkv);
    backward(qkv, late_out, out, d_qkv);
    backward(qkv, out, late_out, d_qkv);
    backward(qkv, out, out, late);
    keep_("attention of unaligned rows", refused);
  }

  /// The same keys once more, as keys of tokens some of which come after some of the queries.
  void attention_of_other_keys(const Matrix<Element>& qkv, const Matrix<Element>& out,
                               const Vector<Main>& log_sum_exp, const Matrix<Element>& d_qkv,
                               const kernels::KeyMask& mask) {
    const std::size_t n = shape.sequence;
    const sw::TokenRuns queries{.rows = n, .split = n / 2, .first = n / 3, .second = n + 2};
    const kernels::AttentionBlock block(queries, sw::TokenRuns::one(n, 1), mask);
    const auto keys = matrix(shape.tokens(), shape.kv_heads * shape.key_value_width());
    const auto d_keys = sums(shape.tokens(), shape.kv_heads * shape.key_value_width());
    const auto joined = sums(shape.tokens(), shape.output_width());
    const auto d_joined = sums(shape.tokens(), shape.qkv_width());
    kernels::copy(execution_, out, joined);
    kernels::copy(execution_, d_qkv, d_joined);
    kernels::pack_key_values(execution_, qkv, keys, shape);
    kernels::attention_forward_block(
        execution_, qkv, keys, joined, log_sum_exp, shape, block, scale(),
        workspace(kernels::attention_forward_workspace<Element>(execution_, shape)));
    kernels::copy(execution_, joined, out);
    kernels::attention_backward_block(
        execution_, qkv, keys, out, log_sum_exp, random(shape.tokens(), shape.output_width()), d_joined,
        d_keys, shape, block, scale(),
        workspace(kernels::attention_backward_workspace<Element>(execution_, shape)));
    kernels::add_key_values(execution_, d_keys, d_joined, shape);
    kernels::copy(execution_, d_joined, d_qkv);
    keep(mask.starts == nullptr ? "attention of other keys" : "attention of other keys of documents", keys,
         joined, log_sum_exp, d_keys, d_joined);
  }

  /// Documents of one token, up to the borders of tiles and across them, in the first sequence; one document
  /// in the others. Then the same keys once more, as keys that few queries see, before or after them.
  void attention_of_documents(const Matrix<Element>& qkv, const kernels::Rotation<Main>& rotation) {
    const std::size_t n = shape.sequence, positions = 2 * n + 2;
    std::vector<std::int32_t> numbers(shape.batch * positions);
    const std::size_t firsts[] = {0, 1, 3, n / 3, n / 3 + 1, n / 2, n - 1, n, n + n / 3};
    for (std::size_t i = 0; i < positions; ++i)
      for (const std::size_t first : firsts)
        if (first <= i)
          numbers[i] = static_cast<std::int32_t>(first);
    const Vector<std::int32_t> starts = on_target(numbers);
    kernels::KeyMask mask{.starts = starts.data(), .positions = positions};
    const auto out = matrix(shape.tokens(), shape.output_width());
    const auto log_sum_exp = vector(shape.tokens() * shape.heads());
    const auto d_qkv = matrix(shape.tokens(), shape.qkv_width());
    for (const bool causal : {false, true}) {
      if (has_own_sums && !causal) // rows meet the other mask below; a thread for each takes long
        continue;
      mask.window = causal ? sw::causal.window : sw::full.window;
      const auto block = kernels::AttentionBlock::whole(n, mask);
      kernels::attention_forward(
          execution_, qkv, out, log_sum_exp, shape, block, scale(),
          workspace(kernels::attention_forward_workspace<Element>(execution_, shape, mask)));
      kernels::attention_backward(
          execution_, qkv, out, log_sum_exp, random(shape.tokens(), shape.output_width()), d_qkv, shape,
          block, scale(), workspace(kernels::attention_backward_workspace<Element>(execution_, shape, mask)),
          causal ? rotation : kernels::Rotation<Main>());
      keep(causal ? "attention of documents, causal" : "attention of documents", out, log_sum_exp, d_qkv);
    }
    if constexpr (!std::is_same_v<Main, Element>) {
      mask.window = sw::sliding_window<3>.window;
      attention_into_sums(qkv, rotation, mask);
    }
    mask.window = sw::full.window;
    attention_of_other_keys(qkv, out, log_sum_exp, d_qkv, mask);
  }

  void losses() {
    const auto vocabulary = static_cast<std::int32_t>(columns);
    const auto targets = ids(rows, vocabulary);
    embedding(targets, vocabulary, 6);
    embedding(targets, 40, columns);
    if (smallest)
      embedding(ids(9'000, 40), 40, 6); // more than a block collects at once
    unknown_id();
    const auto logits = random(rows, vocabulary);
    const auto row_max = vector(rows), row_sum = vector(rows), target_logit = vector(rows),
               loss = vector(rows);
    kernels::cross_entropy_statistics(execution_, logits, targets, 0, row_max, row_sum, target_logit);
    kernels::cross_entropy_loss(execution_, row_max, row_sum, target_logit, targets, loss);
    const Vector<double> totals("totals", 2);
    kernels::sum_losses(execution_, loss, targets, totals);
    const auto gradient = matrix(rows, vocabulary);
    kernels::cross_entropy_backward(execution_, logits, row_max, row_sum, targets, 0, 0.5, gradient);
    keep("cross_entropy", row_max, row_sum, target_logit, loss, totals, gradient);
    const kernels::TargetRule smooth{
        .ignored = 10, .smoothing = 0.1, .vocabulary = static_cast<double>(columns)};
    kernels::cross_entropy_statistics(execution_, logits, targets, 0, row_max, row_sum, target_logit, smooth);
    kernels::cross_entropy_loss(execution_, row_max, row_sum, target_logit, targets, loss, smooth);
    kernels::sum_losses(execution_, loss, targets, totals, true, smooth);
    const auto exponent = on_target(std::vector<std::int32_t>{-2});
    kernels::cross_entropy_backward(execution_, logits, row_max, row_sum, targets, 0, {2.0, exponent.data()},
                                    logits, smooth);
    const auto larger = vector(rows);
    kernels::copy(execution_, row_max, larger);
    kernels::axpy(execution_, 1, row_max, larger);
    kernels::cross_entropy_rebase(execution_, row_max, larger, row_sum);
    keep("cross_entropy, smooth", target_logit, loss, totals, logits, row_sum);
    const auto from = random_sums(1, columns), to = random_sums(1, columns),
               rebased = random_sums(1, columns);
    const auto flat = [](const Matrix<Main>& row) { return Vector<Main>(row.data(), row.size()); };
    kernels::cross_entropy_rebase(execution_, flat(from), flat(to), flat(rebased));
    keep("cross_entropy_rebase", rebased);
  }

  /// Of the first ids of a vocabulary.
  void embedding(const Vector<std::int32_t>& tokens, std::int32_t known, std::size_t width) {
    const auto table = random(static_cast<std::size_t>(known), width),
               embedded = matrix(tokens.size(), width);
    const auto d_table = sums(static_cast<std::size_t>(known), width);
    kernels::embedding_forward(execution_, tokens, table, 0, embedded);
    kernels::embedding_backward(execution_, tokens, embedded, 0, d_table);
    kernels::embedding_backward(execution_, tokens, embedded, 0, d_table, true);
    keep("embedding", embedded, d_table);
  }

  /// An id beyond the vocabulary is noted by the kernels that meet it.
  void unknown_id() {
    const auto known = static_cast<std::int32_t>(columns);
    std::vector<std::int32_t> numbers(rows, 2);
    numbers[rows / 2] = known + 3;
    const auto tokens = on_target(numbers);
    const Vector<kernels::IdFault> faults("faults", 3);
    kernels::IdCheck check;
    check.fault = faults.data();
    check.ids.vocabulary = known;
    check.ids.dimensions = 1;
    check.ids.extent[0] = static_cast<std::int64_t>(rows);
    const auto table = random(columns, 6), embedded = matrix(rows, 6);
    kernels::embedding_forward(execution_, tokens, table, 0, embedded, check);
    check.ids.target = 1;
    const auto row_max = vector(rows), row_sum = vector(rows), target_logit = vector(rows);
    kernels::TargetRule rule;
    rule.vocabulary = static_cast<double>(columns);
    for (const double smoothing : {0.0, 0.1}) {
      rule.smoothing = smoothing;
      check.fault = faults.data() + (smoothing > 0 ? 1 : 2);
      kernels::cross_entropy_statistics(execution_, random(), tokens, 0, row_max, row_sum, target_logit, rule,
                                        check);
    }
    execution_.fence();
    for (const kernels::IdFault& fault : on_host(faults))
      keep_("unknown id",
            {static_cast<double>(fault.found), static_cast<double>(fault.id),
             static_cast<double>(fault.ids.place(fault.token)[0]), static_cast<double>(fault.ids.target)});
  }

  template <class Update>
  void update_with(const char* label, Update update, std::int64_t number, double scale, double rate,
                   double decay) {
    kernels::OptimizerStep step{.step = number - 1};
    kernels::OpenAdamWStep{&step, 0.9, 0.95}.open(true, scale);
    update.set_step(step, rate, decay);
    kernels::run_elementwise<Main>(label, execution_, rows * columns, update);
  }

  void update() {
    const auto parameter = random_sums(), gradient = random_sums(), first = sums(), second = sums();
    for (std::int64_t step = 1; step <= 3; ++step)
      update_with("sw::adamw", kernels::adamw_of(parameter, gradient, first, second, 0.9, 0.95, 1e-8), step,
                  0.7, 3e-4, 0.1);
    keep("adamw", parameter, first, second);
    update_with("sw::lion", kernels::lion_of(parameter, gradient, first, 0.9, 0.99), 1, 0.7, 1e-4, 0.1);
    update_with("sw::sgd", kernels::sgd_of(parameter, gradient, second, 0.9, true), 1, 1, 0.1, 0.1);
    update_with("sw::sgd", kernels::sgd_of(parameter, gradient, Matrix<Main>(), 0, false), 1, 1, 0.1, 0);
    keep("lion, sgd", parameter, first, second);
  }

  /// More parameters than fit into one launch, at odd addresses.
  void update_together() {
    const Vector<kernels::OptimizerStep> step("step", 1);
    kernels::run("open", execution_, 1, OpenStep{step.data()});
    kernels::OptimizerLaunches<Execution, kernels::AdamWUpdate<Main>, Element> launches("sw::adamw",
                                                                                        execution_);
    constexpr std::size_t count = 40;
    std::vector<Matrix<Main>> parameters, gradients, moments;
    std::vector<Matrix<Element>> rounded;
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t m = i == 5 ? rows : 1 + i % 3, n = i == 5 ? columns : 1 + i % 11;
      parameters.push_back(random_sums(m, n));
      gradients.push_back(random_sums(m, n));
      rounded.push_back(matrix(m, n));
      moments.push_back(sums(m, n));
      moments.push_back(sums(m, n));
      launches.add(
          kernels::adamw_of(parameters[i], gradients[i], moments[2 * i], moments[2 * i + 1], 0.9, 0.95, 1e-8),
          m * n, rounded[i].data(), i % 2 == 0 ? 0.1 : 0.0, step.data());
      blocks += kernels::reduce_workspace(m * n);
    }
    launches.launch();
    const Vector<double> total("total", 1), work("workspace", blocks);
    kernels::SquareSum<Execution> squares(execution_, work.data());
    for (const auto& gradient : gradients)
      squares.add(gradient);
    squares.finish(total);
    keep("SquareSum of many", total);
    for (std::size_t i = 0; i < count; ++i) {
      keep("adamw of many " + std::to_string(i), parameters[i], moments[2 * i], moments[2 * i + 1]);
      if constexpr (!std::is_same_v<Main, Element>)
        keep("adamw of many, rounded " + std::to_string(i), rounded[i]);
    }
  }

  const std::size_t rows;
  const std::size_t columns;
  const std::size_t depth;
  const kernels::AttentionShape shape;
  const bool unaligned;
  /// What does not depend on the sizes is done with one of them only.
  const bool smallest = columns == small_sizes.columns;
  bool shifted_ = false;
  std::vector<Vector<unsigned char>> memory_; // of matrices that are not aligned
  Matrix<Element> drawn_;
  Execution execution_ = Target::make_execution_space();
  std::uint64_t tensors_ = 0;
  std::function<void(std::string, std::vector<double>)> keep_;
};

/// @brief Whether the results of the kernels of a group on the device agree with those on the host, which
/// run first; tolerances are relative to 1 + the value.
template <class Element>
[[nodiscard]] bool kernels_agree(const char* what, const Sizes& sizes, double tolerance,
                                 std::string_view group) {
  Results host;
  EveryKernel<Host, Element>(sizes, [&](auto... result) { host.add(std::move(result)...); }).run(group);
  Comparison comparison(what, host, tolerance);
  EveryKernel<Device, Element>(sizes, [&](auto... result) {
    comparison.add(std::move(result)...);
  }).run(group);
  return comparison.sound();
}

/// @brief The same for norms, of rows that are too wide for blocks of many warps that sum over rows.
template <class Element>
[[nodiscard]] bool wide_norms_agree(const char* what, double tolerance, std::string_view group) {
  bool sound = true;
  if (group.empty() || group == "norms")
    for (const Sizes& sizes : wide_rows)
      sound &= kernels_agree<Element>(what, sizes, tolerance, "norms");
  return sound;
}

/// @brief The main of a program of kernels: `check(group)`, with the program's argument, or with an empty
/// name for all groups.
template <class Check> int kernel_program(int argc, char** argv, const Check& check) {
  const std::string_view asked = argc > 1 ? argv[1] : "";
  std::string names;
  bool known = asked.empty();
  for (const auto& group : EveryKernel<Host, double>::groups()) {
    known = known || group.name == asked;
    names.append(" ").append(group.name);
  }
  if (!known) {
    std::fprintf(stderr, "the argument must be nothing or one of the groups%s\n", names.c_str());
    return 2;
  }
  return device_program(argc, argv, [&] { return check(asked); });
}

} // namespace cuda_test
