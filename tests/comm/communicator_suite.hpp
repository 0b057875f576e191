// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The requirements on every communicator, as checks that run on any world, in any memory, and throw
/// if one fails.

#include <shardwright/comm/host_communicator.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace communicator_suite {

namespace sw = shardwright;
using Sizes = std::initializer_list<std::size_t>;

/// Assertions of test frameworks belong to one thread; ranks throw instead, and launch() rethrows the first
/// exception.
template <class What> void require(bool holds, const What& what) {
  if (!holds)
    throw std::runtime_error("communicator suite: " + std::string(what));
}

/// A communicator with the memory that it carries: `put` copies numbers there, `get` copies them back after
/// everything that has been issued.
///
/// A communicator that chooses the order of its reductions itself declares a member type `chooses_order`, and
/// one whose messages match in order a member type `ignores_tags`. If elements take long, a member `fewer`
/// divides large counts.
struct HostPlace {
  HostPlace(sw::HostCommunicator ranks) // NOLINT(google-explicit-constructor): launch() passes one
      : comm(std::move(ranks)) {}
  template <class E> [[nodiscard]] std::vector<E> put(std::vector<E> numbers) const { return numbers; }
  template <class E> [[nodiscard]] const std::vector<E>& get(const std::vector<E>& numbers) const {
    return numbers;
  }

  sw::HostCommunicator comm;
};

/// Of the transport under test: an MPI library may have fewer than others.
inline int tags = sw::message_tags;

template <class Place> std::size_t large(const Place& on, std::size_t count) {
  if constexpr (requires { on.fewer; })
    return count / on.fewer;
  else
    return count;
}

inline std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// The element of a rank at a position: random, and known to every rank.
template <class E> E element_at(int rank, std::size_t place, std::uint64_t salt) {
  const std::uint64_t bits =
      scrambled((salt * 1000003 + static_cast<std::uint64_t>(rank)) * 0x9e3779b97f4a7c15U + place + 1);
  if constexpr (sw::RealElement<E>)
    return static_cast<E>(static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0);
  else if constexpr (std::is_signed_v<E>)
    return static_cast<E>(static_cast<std::int64_t>(bits % 9) - 4);
  else
    return static_cast<E>(bits % 9);
}

template <class E> std::vector<E> elements_of(int rank, std::size_t count, std::uint64_t salt) {
  std::vector<E> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = element_at<E>(rank, i, salt);
  return out;
}

template <class E> E combined(E a, E b, sw::ReduceOp op) {
  if constexpr (std::is_integral_v<E>) {
    using U = std::make_unsigned_t<E>;
    if (op == sw::ReduceOp::sum || op == sw::ReduceOp::average)
      return static_cast<E>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    if (op == sw::ReduceOp::product)
      return static_cast<E>(static_cast<U>(std::uint64_t{static_cast<U>(a)} * static_cast<U>(b)));
  } else {
    if (op == sw::ReduceOp::sum || op == sw::ReduceOp::average)
      return a + b;
    if (op == sw::ReduceOp::product)
      return a * b;
  }
  return op == sw::ReduceOp::maximum ? std::max(a, b) : std::min(a, b);
}

/// The reduction in rank order and in the element type, or in float and rounded once: every communicator must
/// return exactly these bits.
template <class E> E exact(int ranks, std::size_t place, std::uint64_t salt, sw::ReduceOp op) {
  using Main = sw::AccumulationElement<E>;
  Main out = element_at<E>(0, place, salt);
  for (int r = 1; r < ranks; ++r)
    out = combined<Main>(out, element_at<E>(r, place, salt), op);
  return static_cast<E>(op == sw::ReduceOp::average ? static_cast<Main>(out / static_cast<Main>(ranks))
                                                    : out);
}

/// The same in higher precision, to within the rounding of a short sum or product.
template <class E>
bool close_to_reference(E value, int ranks, std::size_t place, std::uint64_t salt, sw::ReduceOp op) {
  if constexpr (!sw::RealElement<E>)
    return true;
  else {
    auto out = static_cast<long double>(element_at<E>(0, place, salt));
    long double size = std::fabs(out);
    for (int r = 1; r < ranks; ++r) {
      const auto next = static_cast<long double>(element_at<E>(r, place, salt));
      out = combined(out, next, op);
      size += std::fabs(next);
    }
    if (op == sw::ReduceOp::average)
      out /= ranks;
    const auto epsilon = static_cast<long double>(std::numeric_limits<E>::epsilon());
    return std::fabs(out - static_cast<long double>(value)) <= 4 * size * epsilon;
  }
}

template <class E> bool same_bits(const E& a, const E& b) { return std::memcmp(&a, &b, sizeof(E)) == 0; }

/// There are no averages of integers.
template <class E> std::vector<sw::ReduceOp> all_ops() {
  std::vector<sw::ReduceOp> ops{sw::ReduceOp::sum, sw::ReduceOp::product, sw::ReduceOp::maximum,
                                sw::ReduceOp::minimum};
  if (sw::RealElement<E>)
    ops.push_back(sw::ReduceOp::average);
  return ops;
}

/// The subject of a check; formatted as text only if the check fails.
struct Label {
  const char* what;
  std::size_t count;
  sw::ElementType element;
  sw::ReduceOp op;
  explicit operator std::string() const {
    return std::string(what) + " of " + std::to_string(count) + " " + std::string(sw::name_of(element)) +
           " by " + std::string(sw::name_of(op));
  }
};

template <class E> Label label(const char* what, std::size_t count, sw::ReduceOp op) {
  return {what, count, sw::element_type_of<E>(), op};
}

/// Whether numbers from [-1, 1] have been reduced in the order of ranks, bit by bit; if the communicator
/// chooses the order, whether the results are close.
template <class Place, class E> bool is_reduced(const E& found, const E& wanted) {
  if constexpr (sw::RealElement<E> && requires { typename std::remove_cvref_t<Place>::chooses_order; })
    return std::fabs(static_cast<double>(found) - static_cast<double>(wanted)) <=
           64 * static_cast<double>(std::numeric_limits<E>::epsilon());
  else
    return same_bits(found, wanted);
}

template <class E, class Place>
void all_reduce_agrees(const Place& on, std::size_t count, sw::ReduceOp op, std::uint64_t salt) {
  auto comm = on.comm;
  const std::vector<E> numbers = elements_of<E>(comm.rank(), count, salt);
  const auto in = on.put(numbers);
  auto summed = on.put(std::vector<E>(count)), started = on.put(std::vector<E>(count));
  auto placed = on.put(numbers), placed_started = on.put(numbers);
  comm.all_reduce(in, summed, op);
  sw::Pending first = comm.async().all_reduce(in, started, op);
  sw::Pending second = comm.async().all_reduce_in_place(placed_started, op);
  comm.all_reduce_in_place(placed, op);
  second.wait();
  first.wait();
  // Compares forms with one another in full, and long ones with the reference at some positions: all within
  // one vector's width of the ends, and one in every few cache lines between them.
  const std::vector<E> out = on.get(summed);
  const std::size_t stride = count > 4096 ? 61 : 1;
  for (std::size_t i = 0; i < count; i += (i < 64 || i + 64 > count) ? 1 : stride) {
    require(is_reduced<Place>(out[i], exact<E>(comm.size(), i, salt, op)), label<E>("all_reduce", count, op));
    require(close_to_reference(out[i], comm.size(), i, salt, op),
            label<E>("all_reduce in higher precision", count, op));
  }
  const auto equal = [&](const auto& other) {
    const std::vector<E> found = on.get(other);
    return count == 0 || std::memcmp(found.data(), out.data(), count * sizeof(E)) == 0;
  };
  require(equal(placed), label<E>("all_reduce in place", count, op));
  require(equal(started), label<E>("started all_reduce", count, op));
  require(equal(placed_started), label<E>("started all_reduce in place", count, op));
}

/// all_reduce: every element type, operation and form; sizes around the vector and line widths.
template <class E, class Place> void all_reduces_of(const Place& on) {
  std::uint64_t salt = 1;
  for (const sw::ReduceOp op : all_ops<E>())
    for (const std::size_t count : Sizes{0, 1, 3, 17, 64, 1003})
      all_reduce_agrees<E>(on, count, op, salt++);
}
template <class Place> void all_reduces(Place on) {
  all_reduces_of<float>(on);
  all_reduces_of<double>(on);
  all_reduces_of<std::int32_t>(on);
  all_reduces_of<std::uint32_t>(on);
  all_reduces_of<std::int64_t>(on);
  all_reduces_of<std::uint64_t>(on);
  all_reduces_of<unsigned char>(on);
  all_reduces_of<sw::bfloat16>(on);
  all_reduces_of<sw::float16>(on);
}

/// Sizes at which implementations change their algorithm.
template <class Place> void large_all_reduces(Place on) {
  all_reduce_agrees<float>(on, large(on, 100'003), sw::ReduceOp::sum, 77);
  all_reduce_agrees<float>(on, large(on, 400'001), sw::ReduceOp::sum, 78);
  all_reduce_agrees<double>(on, large(on, 200'001), sw::ReduceOp::average, 79);
  all_reduce_agrees<sw::bfloat16>(on, large(on, 400'001), sw::ReduceOp::sum, 80);
}

/// Blocks of a [rows, columns] buffer cut along its columns.
inline std::vector<sw::StridedBlock> column_blocks(std::size_t rows, const std::vector<std::size_t>& widths) {
  std::size_t columns = 0;
  for (const std::size_t width : widths)
    columns += width;
  std::vector<sw::StridedBlock> out;
  std::size_t offset = 0;
  for (const std::size_t width : widths) {
    out.push_back({offset, rows, width, columns});
    offset += width;
  }
  return out;
}

/// Index in the buffer of element i of a block.
inline std::size_t place_of(const sw::StridedBlock& block, std::size_t i) {
  return block.offset + i / block.row_length * block.row_stride + i % block.row_length;
}

/// A group of size A*B: reducing over the minor part and then over the major one is one call with nested
/// levels.
/// @param each  elements of a rank's block
template <class E, class Place> void nested_orders_of(const Place& on, std::size_t each) {
  auto comm = on.comm;
  const int ranks = comm.size();
  for (int minor = 1; minor <= ranks; ++minor) {
    if (ranks % minor != 0)
      continue;
    const int major = ranks / minor;
    auto inner = comm.split(comm.rank() / minor, comm.rank(), "inner");
    auto outer = comm.split(comm.rank() % minor, comm.rank(), "outer");
    sw::ReductionOrder inside_first;
    inside_first.count = 2;
    inside_first.levels[0] = {minor, 1};
    inside_first.levels[1] = {major, minor};
    sw::ReductionOrder outside_first;
    outside_first.count = 2;
    outside_first.levels[0] = {major, minor};
    outside_first.levels[1] = {minor, 1};
    for (const sw::ReduceOp op : all_ops<E>()) {
      // Blocks begin at multiples of 16 bytes, and the last one ends off them.
      std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), each);
      counts.back() += 3;
      const std::size_t count = static_cast<std::size_t>(ranks) * each + 3;
      const std::vector<E> numbers = elements_of<E>(comm.rank(), count, 5);
      const auto in = on.put(numbers);
      for (const bool inside : {true, false}) {
        auto by_two = on.put(numbers), by_one = on.put(std::vector<E>(count)), in_place = on.put(numbers),
             own_block = on.put(std::vector<E>(counts[static_cast<std::size_t>(comm.rank())]));
        (inside ? inner : outer).all_reduce_in_place(by_two, op);
        (inside ? outer : inner).all_reduce_in_place(by_two, op);
        const sw::ReductionOrder& order = inside ? inside_first : outside_first;
        comm.all_reduce(in, by_one, op, order);
        comm.all_reduce_in_place(in_place, op, order);
        comm.reduce_scatter(in, own_block, sw::packed_blocks(counts), op, order);
        const std::vector<E> apart = on.get(by_two), merged = on.get(by_one), placed = on.get(in_place),
                             own = on.get(own_block);
        for (std::size_t i = 0; i < count; ++i) {
          require(same_bits(apart[i], merged[i]), label<E>("merged all_reduce", count, op));
          require(same_bits(apart[i], placed[i]), label<E>("merged all_reduce in place", count, op));
        }
        for (std::size_t i = 0; i < own.size(); ++i)
          require(same_bits(own[i], apart[static_cast<std::size_t>(comm.rank()) * each + i]),
                  label<E>("merged reduce_scatter", count, op));
        const auto blocks = column_blocks(2, std::vector<std::size_t>(static_cast<std::size_t>(ranks), 16));
        const sw::StridedBlock& mine = blocks[static_cast<std::size_t>(comm.rank())];
        auto with_rows = on.put(std::vector<E>(mine.count()));
        comm.reduce_scatter(in, with_rows, blocks, op, order);
        const std::vector<E> in_rows = on.get(with_rows);
        for (std::size_t i = 0; i < in_rows.size(); ++i)
          require(same_bits(in_rows[i], apart[place_of(mine, i)]),
                  label<E>("merged reduce_scatter of rows", count, op));
      }
    }
  }
}
template <class Place> void nested_orders(Place on) {
  nested_orders_of<float>(on, 704);
  nested_orders_of<sw::bfloat16>(on, 704);
  nested_orders_of<double>(on, 32);
  nested_orders_of<sw::float16>(on, 32);
}

/// Complex elements are reduced as their parts are, bit for bit, and moved as one element.
template <class Real, class Place> void complex_elements_of(const Place& on) {
  using Complex = std::complex<Real>;
  auto comm = on.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto own = static_cast<std::size_t>(comm.rank());
  const std::size_t count = ranks * 40;
  const std::vector<Real> reals = elements_of<Real>(comm.rank(), 2 * count, 9);
  std::vector<Complex> numbers(count);
  std::memcpy(static_cast<void*>(numbers.data()), reals.data(), count * sizeof(Complex));
  const auto blocks = column_blocks(4, std::vector<std::size_t>(ranks, 10));
  const auto halves = column_blocks(4, std::vector<std::size_t>(ranks, 20));
  const auto in = on.put(numbers);
  const auto parts = on.put(reals);
  const auto same = [&](const auto& found, const auto& wanted, const char* what, sw::ReduceOp op) {
    const auto a = on.get(found);
    const auto b = on.get(wanted);
    require(a.size() * sizeof(a[0]) == b.size() * sizeof(b[0]) &&
                std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0,
            label<Complex>(what, count, op));
  };
  for (const sw::ReduceOp op : {sw::ReduceOp::sum, sw::ReduceOp::average}) {
    auto whole = on.put(std::vector<Complex>(count));
    auto whole_parts = on.put(std::vector<Real>(2 * count));
    comm.all_reduce(in, whole, op);
    comm.all_reduce(parts, whole_parts, op);
    same(whole, whole_parts, "complex all_reduce", op);
    auto block = on.put(std::vector<Complex>(40));
    auto block_parts = on.put(std::vector<Real>(80));
    comm.reduce_scatter(in, block, blocks, op);
    comm.reduce_scatter(parts, block_parts, halves, op);
    same(block, block_parts, "complex reduce_scatter of rows", op);
  }
  auto exchanged = on.put(std::vector<Complex>(count));
  auto exchanged_parts = on.put(std::vector<Real>(2 * count));
  comm.all_to_all(in, exchanged, blocks, sw::packed_blocks(std::vector<std::size_t>(ranks, 40)));
  comm.all_to_all(parts, exchanged_parts, halves, sw::packed_blocks(std::vector<std::size_t>(ranks, 80)));
  same(exchanged, exchanged_parts, "complex all_to_all", sw::ReduceOp::sum);
  auto gathered = on.put(std::vector<Complex>(ranks));
  comm.all_gather(on.put(std::vector<Complex>{numbers[own]}), gathered);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    require(on.get(gathered)[rank].imag() == element_at<Real>(static_cast<int>(rank), 2 * rank + 1, 9),
            label<Complex>("complex all_gather", ranks, sw::ReduceOp::sum));
}
template <class Place> void complex_elements(Place on) {
  complex_elements_of<float>(on);
  complex_elements_of<double>(on);
}

/// A NaN on any rank, at any position of a vector, is the result everywhere.
template <class Place> void nans(Place on) {
  auto comm = on.comm;
  const std::size_t count = 200;
  for (int source = 0; source < comm.size(); ++source)
    for (const sw::ReduceOp op : all_ops<double>()) {
      std::vector<double> numbers = elements_of<double>(comm.rank(), count, 6);
      const std::size_t place = static_cast<std::size_t>(source) * 31 % count;
      if (comm.rank() == source)
        numbers[place] = std::numeric_limits<double>::quiet_NaN();
      auto reduced = on.put(numbers);
      comm.all_reduce_in_place(reduced, op);
      const std::vector<double> data = on.get(reduced);
      for (std::size_t i = 0; i < count; ++i)
        require(std::isnan(data[i]) == (i == place), label<double>("a NaN in an all_reduce", count, op));
    }
}

/// Counts by the ceil-chunk rule: uneven, the last ones empty.
inline std::vector<std::size_t> chunk_counts(std::size_t total, int ranks) {
  const std::size_t chunk = (total + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
  std::vector<std::size_t> out;
  for (std::size_t left = total; out.size() < static_cast<std::size_t>(ranks);) {
    out.push_back(std::min(chunk, left));
    left -= out.back();
  }
  return out;
}

template <class E, class Place>
void gather_agrees(const Place& on, const std::vector<sw::StridedBlock>& blocks, std::size_t total) {
  auto comm = on.comm;
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<E> numbers = elements_of<E>(comm.rank(), blocks[rank].count(), 9);
  std::vector<E> wanted(total);
  for (int r = 0; r < comm.size(); ++r)
    for (std::size_t i = 0; i < blocks[static_cast<std::size_t>(r)].count(); ++i)
      wanted[place_of(blocks[static_cast<std::size_t>(r)], i)] = element_at<E>(r, i, 9);
  const auto in = on.put(numbers);
  auto out = on.put(std::vector<E>(total)), started = on.put(std::vector<E>(total));
  comm.all_gather(in, out, blocks);
  sw::Pending pending = comm.async().all_gather(in, started, std::vector<sw::StridedBlock>(blocks));
  pending.wait();
  require(on.get(out) == wanted && on.get(started) == wanted, "all_gather with blocks");
  if (!blocks[rank].contiguous())
    return;
  bool all_contiguous = true;
  for (const sw::StridedBlock& block : blocks)
    all_contiguous = all_contiguous && block.contiguous();
  if (!all_contiguous)
    return;
  std::vector<E> whole(total);
  std::copy(numbers.begin(), numbers.end(), whole.begin() + static_cast<std::ptrdiff_t>(blocks[rank].offset));
  auto placed = on.put(whole);
  comm.all_gather_in_place(placed, blocks);
  require(on.get(placed) == wanted, "all_gather in place");
}

/// Blocks of rows from every rank to every rank.
template <class E, class Place>
void rows_exchanged(const Place& on, const std::vector<sw::StridedBlock>& blocks) {
  auto comm = on.comm;
  const std::size_t total = blocks.size() * blocks[0].count();
  const auto in = on.put(elements_of<E>(comm.rank(), total, 10));
  auto out = on.put(std::vector<E>(total));
  comm.all_to_all(in, out, blocks, blocks);
  const std::vector<E> found = on.get(out);
  for (int r = 0; r < comm.size(); ++r) {
    const sw::StridedBlock &from = blocks[static_cast<std::size_t>(comm.rank())],
                           &to = blocks[static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < to.count(); ++i)
      require(same_bits(found[place_of(to, i)], element_at<E>(r, place_of(from, i), 10)),
              "all_to_all of rows");
  }
}

/// Blocks that allow accesses of every width up to 16 bytes, with rows, or with an end that is off it.
template <class E, class Place> void gather_widths(const Place& on) {
  const auto ranks = static_cast<std::size_t>(on.comm.size());
  std::vector<std::size_t> counts(ranks, 2002);
  counts.back() = 2001;
  gather_agrees<E>(on, sw::packed_blocks(counts), ranks * 2002 - 1);
  for (const std::size_t width : Sizes{31, 32}) {
    const auto blocks = column_blocks(150, std::vector<std::size_t>(ranks, width));
    gather_agrees<E>(on, blocks, 150 * ranks * width);
    rows_exchanged<E>(on, blocks);
  }
}

template <class Place> void all_gathers(Place on) {
  auto comm = on.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const std::size_t count : Sizes{0, 1, 5, 1000, large(on, 70'000)}) {
    const std::vector<float> numbers = elements_of<float>(comm.rank(), count, 8);
    std::vector<float> whole(count * ranks);
    const auto in = on.put(numbers);
    auto gathered = on.put(whole);
    comm.all_gather(in, gathered);
    std::copy(numbers.begin(), numbers.end(),
              whole.begin() + static_cast<std::ptrdiff_t>(count) * comm.rank());
    auto placed = on.put(whole);
    comm.all_gather_in_place(placed);
    const std::vector<float> out = on.get(gathered);
    for (std::size_t i = 0; i < out.size(); ++i)
      require(out[i] == element_at<float>(static_cast<int>(i / count), i % count, 8),
              "all_gather of equal blocks");
    require(on.get(placed) == out, "all_gather in place of equal blocks");
  }
  gather_widths<unsigned char>(on);
  gather_widths<sw::bfloat16>(on);
  gather_widths<float>(on);
  gather_widths<double>(on);
  for (const std::size_t total : Sizes{1, 2, 7, 23}) {
    const std::vector<std::size_t> counts = chunk_counts(total, comm.size());
    gather_agrees<double>(on, sw::packed_blocks(counts), total);
    gather_agrees<sw::float16>(on, sw::packed_blocks(counts), total);
    gather_agrees<unsigned char>(on, column_blocks(11, counts), 11 * total);
    auto gathered = on.put(std::vector<std::int64_t>(total));
    const auto in =
        on.put(std::vector<std::int64_t>(counts[static_cast<std::size_t>(comm.rank())], comm.rank()));
    comm.all_gather(in, gathered, counts);
    const std::vector<std::int64_t> out = on.get(gathered);
    std::size_t at = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < counts[r]; ++i)
        require(out[at++] == static_cast<std::int64_t>(r), "all_gather by counts");
  }
}

template <class E, class Place>
void scatter_agrees(const Place& on, const std::vector<sw::StridedBlock>& blocks, std::size_t total,
                    sw::ReduceOp op) {
  auto comm = on.comm;
  const sw::StridedBlock& own = blocks[static_cast<std::size_t>(comm.rank())];
  const auto in = on.put(elements_of<E>(comm.rank(), total, 12));
  auto scattered = on.put(std::vector<E>(own.count())), begun = on.put(std::vector<E>(own.count()));
  comm.reduce_scatter(in, scattered, blocks, op);
  sw::Pending pending = comm.async().reduce_scatter(in, begun, std::vector<sw::StridedBlock>(blocks), op);
  pending.wait();
  const std::vector<E> out = on.get(scattered), started = on.get(begun);
  for (std::size_t i = 0; i < own.count(); ++i) {
    const E wanted = exact<E>(comm.size(), place_of(own, i), 12, op);
    require(is_reduced<Place>(out[i], wanted) && is_reduced<Place>(started[i], wanted),
            label<E>("reduce_scatter with blocks", total, op));
    require(close_to_reference(out[i], comm.size(), place_of(own, i), 12, op),
            label<E>("reduce_scatter", total, op));
  }
}

/// The same with rows: of any length, and of whole vectors of 16 bytes.
template <class E, class Place> void scatter_rows(const Place& on) {
  const auto ranks = static_cast<std::size_t>(on.comm.size());
  for (const std::size_t width : Sizes{3, 16})
    for (const sw::ReduceOp op : all_ops<E>())
      scatter_agrees<E>(on, column_blocks(5, std::vector<std::size_t>(ranks, width)), 5 * ranks * width, op);
}

template <class Place> void rows_scattered(const Place& on) {
  scatter_rows<float>(on);
  scatter_rows<double>(on);
  scatter_rows<std::int32_t>(on);
  scatter_rows<std::int64_t>(on);
  scatter_rows<std::uint32_t>(on);
  scatter_rows<std::uint64_t>(on);
  scatter_rows<unsigned char>(on);
  scatter_rows<sw::bfloat16>(on);
  scatter_rows<sw::float16>(on);
}

template <class Place> void reduce_scatters(Place on) {
  auto comm = on.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  rows_scattered(on);
  for (const sw::ReduceOp op : all_ops<float>()) {
    for (const std::size_t count : Sizes{0, 1, 5, 1000, large(on, 60'000)}) {
      const std::vector<float> in = elements_of<float>(comm.rank(), count * ranks, 13);
      const auto whole = on.put(in);
      auto scattered = on.put(std::vector<float>(count)), in_place = on.put(in);
      comm.reduce_scatter(whole, scattered, op);
      comm.reduce_scatter_in_place(in_place, {}, op);
      const std::vector<float> out = on.get(scattered), placed = on.get(in_place);
      for (std::size_t i = 0; i<count; i += count> 4096 ? 61 : 1)
        require(is_reduced<Place>(out[i], exact<float>(comm.size(), rank * count + i, 13, op)),
                label<float>("reduce_scatter", count, op));
      for (std::size_t i = 0; i < in.size(); ++i)
        require(
            same_bits(placed[i], i / std::max<std::size_t>(count, 1) == rank ? out[i - rank * count] : in[i]),
            label<float>("reduce_scatter in place", count, op));
    }
    for (const std::size_t total : Sizes{1, 7, 23}) {
      const std::vector<std::size_t> counts = chunk_counts(total, comm.size());
      scatter_agrees<double>(on, sw::packed_blocks(counts), total, op);
      scatter_agrees<float>(on, column_blocks(13, counts), 13 * total, op);
      scatter_agrees<sw::float16>(on, column_blocks(13, counts), 13 * total, op);
      if (op != sw::ReduceOp::average)
        scatter_agrees<std::int32_t>(on, column_blocks(3, counts), 3 * total, op);
    }
  }
}

template <class Place> void all_to_alls(Place on) {
  auto comm = on.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  for (const std::size_t count : Sizes{0, 1, 6, 5000}) {
    const auto in = on.put(elements_of<float>(comm.rank(), count * ranks, 20));
    auto exchanged = on.put(std::vector<float>(count * ranks)),
         started = on.put(std::vector<float>(count * ranks));
    comm.all_to_all(in, exchanged);
    sw::Pending pending = comm.async().all_to_all(in, started);
    pending.wait();
    const std::vector<float> out = on.get(exchanged);
    for (std::size_t i = 0; i < out.size(); ++i)
      require(out[i] == element_at<float>(static_cast<int>(i / count), rank * count + i % count, 20),
              "all_to_all");
    require(on.get(started) == out, "started all_to_all");
  }
  // From rows to columns: rank r holds rows of a [ranks * 2 + 1, 5] matrix and wants columns of it.
  const std::size_t rows = ranks * 2 + 1, columns = 5;
  const std::vector<std::size_t> row_counts = chunk_counts(rows, comm.size());
  const std::vector<std::size_t> widths = chunk_counts(columns, comm.size());
  std::size_t first_row = 0, first_column = 0;
  for (std::size_t r = 0; r < rank; ++r) {
    first_row += row_counts[r];
    first_column += widths[r];
  }
  const std::vector<sw::StridedBlock> sent = column_blocks(row_counts[rank], widths);
  std::vector<std::size_t> received_counts;
  for (const std::size_t count : row_counts)
    received_counts.push_back(count * widths[rank]);
  std::vector<double> own_rows(row_counts[rank] * columns);
  for (std::size_t i = 0; i < own_rows.size(); ++i)
    own_rows[i] = static_cast<double>((first_row + i / columns) * 100 + i % columns);
  const auto in = on.put(own_rows);
  auto own_columns = on.put(std::vector<double>(rows * widths[rank]));
  comm.all_to_all(in, own_columns, sent, sw::packed_blocks(received_counts));
  const std::vector<double> out = on.get(own_columns);
  for (std::size_t i = 0; i < out.size(); ++i)
    require(out[i] == static_cast<double>(i / widths[rank] * 100 + first_column + i % widths[rank]),
            "all_to_all with blocks");
  // Rank s sends s + r elements to rank r.
  std::vector<std::size_t> to, from;
  for (std::size_t r = 0; r < ranks; ++r) {
    to.push_back(rank + r);
    from.push_back(rank + r);
  }
  std::size_t total = 0;
  for (const std::size_t count : to)
    total += count;
  const auto data = on.put(std::vector<std::uint32_t>(total, static_cast<std::uint32_t>(rank)));
  auto received = on.put(std::vector<std::uint32_t>(total, 99));
  comm.all_to_all(data, received, to, from);
  const std::vector<std::uint32_t> got = on.get(received);
  std::size_t at = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < from[r]; ++i)
      require(got[at++] == r, "all_to_all by counts");
}

template <class Place> void broadcasts(Place on) {
  auto comm = on.comm;
  for (int root = 0; root < comm.size(); ++root)
    for (const std::size_t count : Sizes{0, 1, 33, large(on, 20'000)}) {
      const std::vector<double> numbers = elements_of<double>(comm.rank(), count, 30);
      auto data = on.put(numbers), started = on.put(numbers);
      comm.broadcast(data, root);
      sw::Pending pending = comm.async().broadcast(started, root);
      pending.wait();
      const std::vector<double> wanted = elements_of<double>(root, count, 30);
      require(on.get(data) == wanted && on.get(started) == wanted, "broadcast");
    }
  comm.barrier();
  comm.async().barrier().wait();
}

/// Messages around the ring and against it, exchanged in one order.
template <class Place> void messages_in_order(Place on) {
  auto comm = on.comm;
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  for (const std::size_t count : Sizes{0, 1, 1000, large(on, 100'000)}) {
    const auto one = on.put(elements_of<float>(comm.rank(), count, 40)),
               two = on.put(elements_of<float>(comm.rank(), count, 41));
    auto first = on.put(std::vector<float>(count)), second = on.put(std::vector<float>(count));
    std::vector<sw::Pending> pending;
    {
      const auto exchange = comm.exchange();
      pending.push_back(comm.async().send(one, next, 1));
      pending.push_back(comm.async().receive(first, before, 1));
      if (comm.size() > 2) { // of two messages between two ranks, the first sent is the first received
        pending.push_back(comm.async().receive(second, next, 2));
        pending.push_back(comm.async().send(two, before, 2));
      }
    }
    if (comm.size() == 2) {
      const auto exchange = comm.exchange();
      pending.push_back(comm.async().receive(second, next, 2));
      pending.push_back(comm.async().send(two, before, 2));
    }
    for (sw::Pending& each : pending)
      each.wait();
    require(on.get(first) == elements_of<float>(before, count, 40) &&
                on.get(second) == elements_of<float>(next, count, 41),
            "messages that cross in an exchange");
  }
  auto word = on.put(std::vector<std::int32_t>{comm.rank()});
  for (int from = 0; from + 1 < comm.size(); ++from) { // along the line, one after the other
    if (comm.rank() == from)
      comm.send(word, from + 1);
    if (comm.rank() == from + 1)
      comm.receive(word, from);
  }
  require(on.get(word)[0] == 0, "a message that is passed on");
}

/// Messages around the ring, tags out of order, and crossing each other.
template <class Place> void messages(Place on) {
  auto comm = on.comm;
  if (comm.size() == 1)
    return;
  messages_in_order(on);
  if constexpr (requires { typename std::remove_cvref_t<Place>::ignores_tags; })
    return;
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  for (const std::size_t count : Sizes{0, 1, 1000, large(on, 100'000)}) {
    const auto one = on.put(elements_of<float>(comm.rank(), count, 40)),
               two = on.put(elements_of<float>(comm.rank(), count, 41));
    auto first = on.put(std::vector<float>(count)), second = on.put(std::vector<float>(count));
    sw::Pending a = comm.async().send(one, next, 1);
    sw::Pending b = comm.async().send(two, next, 2);
    comm.receive(second, before, 2);
    comm.receive(first, before, 1);
    a.wait();
    b.wait();
    require(on.get(first) == elements_of<float>(before, count, 40) &&
                on.get(second) == elements_of<float>(before, count, 41),
            "messages by tag");
    sw::Pending highest = comm.async().send(one, next, tags - 1);
    comm.receive(second, before, tags - 1);
    highest.wait();
    require(on.get(second) == elements_of<float>(before, count, 40), "a message under the highest tag");
    sw::Pending received = comm.async().receive(first, before);
    sw::Pending sent = comm.async().send(two, next);
    sent.wait();
    received.wait();
    require(on.get(first) == elements_of<float>(before, count, 41), "started messages that cross");
  }
  // Messages of one tag keep their order.
  const std::vector<std::int32_t> values{7, 8, 9};
  using Number = decltype(on.put(values));
  std::vector<Number> given, got;
  for (const std::int32_t value : values) {
    given.push_back(on.put(std::vector<std::int32_t>{value}));
    got.push_back(on.put(std::vector<std::int32_t>(1)));
  }
  std::vector<sw::Pending> sends;
  for (const Number& each : given)
    sends.push_back(comm.async().send(each, next, 5));
  for (Number& each : got)
    comm.receive(each, before, 5);
  for (sw::Pending& send : sends)
    send.wait();
  for (std::size_t i = 0; i < values.size(); ++i)
    require(on.get(got[i])[0] == values[i], "the order of messages under one tag");
}

/// Groups by colour and key, by lists, and inside one another.
template <class Place> void splits(Place on) {
  auto comm = on.comm;
  const int rank = comm.rank();
  const int ranks = comm.size();
  auto reversed = comm.split(0, -rank, "reversed");
  require(reversed.size() == ranks && reversed.rank() == ranks - 1 - rank, "the order of a split by key");
  require(reversed.world_rank() == comm.world_rank() && reversed.name() == "reversed",
          "world rank and name of a split");
  auto half = comm.split(rank % 2, rank);
  auto sum = on.put(std::vector<std::int64_t>{comm.world_rank()});
  half.all_reduce_in_place(sum);
  std::int64_t wanted = 0;
  for (int r = rank % 2; r < ranks; r += 2)
    wanted += comm.world_rank(r);
  require(on.get(sum)[0] == wanted, "a collective on part of the ranks");
  auto alone = half.split(half.rank(), 0);
  require(alone.size() == 1 && alone.rank() == 0 && alone.world_rank() == comm.world_rank(),
          "a split of a split");
  alone.all_reduce_in_place(sum);
  require(on.get(sum)[0] == wanted, "a collective of one rank");
  auto some = comm.split(rank == 0 ? -1 : 3, rank);
  require(some.valid() == (rank != 0), "a negative colour joins no group");
  if (some.valid())
    some.barrier();
  std::vector<int> evens;
  for (int r = ranks - 1; r >= 0; --r)
    if (r % 2 == 0)
      evens.push_back(r);
  auto listed = comm.subgroup(evens, "evens");
  require(listed.valid() == (rank % 2 == 0), "a subgroup has its members alone");
  if (listed.valid())
    require(listed.world_rank(0) == comm.world_rank(evens[0]), "a subgroup keeps the order of its list");
}

/// Lists of a subgroup that differ are named on a rank whose list is not the group.
template <class Place> void lists_that_differ(Place on) {
  auto comm = on.comm;
  const int rank = comm.rank(), ranks = comm.size();
  const auto told = [&](std::vector<int> list) {
    try {
      static_cast<void>(comm.subgroup(list));
      return std::string();
    } catch (const sw::CollectiveMismatch& error) {
      return std::string(error.what());
    }
  };
  const auto names = [](const std::string& text, const char* named, const char* formed) {
    return text.find(named) != std::string::npos && text.find(formed) != std::string::npos;
  };
  if (ranks > 1) {
    const std::string order = told(rank == 0   ? std::vector{0, 1}
                                   : rank == 1 ? std::vector{1, 0}
                                               : std::vector{rank});
    require(rank == 1 ? names(order, "rank 1 named {1, 0}", "became {0, 1}") : order.empty(),
            "another order of a list: " + order);
  }
  if (ranks > 2) {
    const std::string other = told(rank == 0   ? std::vector{0, 1}
                                   : rank == 2 ? std::vector{0, 2}
                                               : std::vector{rank});
    require(rank == 0 ? names(other, "rank 0 named {0, 1}", "became {0, 2}") : other.empty(),
            "another list: " + other);
  }
  comm.barrier();
}

/// Splits of groups by their own ranks, which the other ranks of the world do not take part in.
template <class Place> void splits_of_some(Place on) {
  auto comm = on.comm;
  const int rank = comm.rank(), ranks = comm.size();
  const auto works = [&on](auto& group, int size) {
    auto sum = on.put(std::vector<std::int64_t>{1});
    group.all_reduce_in_place(sum);
    require(group.size() == size && on.get(sum)[0] == size, "a group that some ranks have split off");
  };
  const int middle = (ranks + 1) / 2;
  const bool lower = rank < middle;
  const int own = lower ? middle : ranks - middle;
  auto half = comm.split(lower ? 0 : 1, rank);
  // One half splits while the other meets at a barrier.
  if (lower) {
    auto part = half.split(rank % 2, rank);
    works(part, (middle + 1 - rank % 2) / 2);
  }
  comm.barrier();
  // One half splits once, the other three times, each time the group before.
  auto nested = half;
  for (int time = 0; time < (lower ? 1 : 3); ++time) {
    nested = nested.split(0, -nested.rank());
    works(nested, own);
  }
  // One rank belongs to no group while the others split theirs.
  const bool watches = ranks > 1 && rank == ranks - 1;
  if (auto workers = comm.split(watches ? -1 : 0, rank); workers.valid()) {
    auto alone = workers.split(rank, 0);
    works(alone, 1);
    works(workers, std::max(1, ranks - 1));
  }
  // One half drops its handle, the other one splits its own.
  auto dropped = comm.split(lower ? 0 : 1, rank);
  if (lower) {
    auto part = dropped.split(0, rank);
    works(part, own);
  } else {
    dropped = {};
  }
  // A message orders the splits of the two halves.
  auto word = on.put(std::vector<std::int32_t>{1});
  if (!lower && rank == middle)
    comm.receive(word, 0);
  auto part = half.split(0, rank);
  works(part, own);
  if (rank == 0 && ranks > 1)
    comm.send(word, middle);
  comm.barrier();
  // A message is under way while its group is split.
  std::vector<sw::Pending> sent;
  if (rank == 0)
    for (int to = 1; to < ranks; ++to)
      sent.push_back(comm.async().send(word, to, 0));
  auto all = comm.split(0, rank);
  works(all, ranks);
  if (rank != 0)
    comm.receive(word, 0, 0);
  for (sw::Pending& each : sent)
    each.wait();
}

/// Many calls in flight at once, of several kinds and groups, waited for in another order.
template <class Place> void started_calls(Place on) {
  auto comm = on.comm;
  auto other = comm.split(0, -comm.rank(), "other");
  constexpr std::size_t calls = 12;
  for (int round = 0; round < 3; ++round) {
    using Numbers = decltype(on.put(std::vector<double>()));
    std::vector<Numbers> sums, maxima;
    for (std::size_t c = 0; c < calls; ++c) {
      sums.push_back(on.put(elements_of<double>(comm.rank(), 100 * c, c)));
      maxima.push_back(on.put(elements_of<double>(other.rank(), 50 * c, c)));
    }
    std::vector<sw::Pending> pending;
    for (std::size_t c = 0; c < calls; ++c) {
      pending.push_back(comm.async().all_reduce_in_place(sums[c]));
      pending.push_back(other.async().all_reduce_in_place(maxima[c], sw::ReduceOp::maximum));
    }
    auto now = on.put(std::vector<double>{1.0});
    comm.all_reduce_in_place(now);
    require(on.get(now)[0] == comm.size(), "a blocking call behind started ones");
    for (std::size_t p = pending.size(); p-- > 0;)
      pending[p].wait();
    for (std::size_t c = 0; c < calls; ++c) {
      const std::vector<double> first = on.get(sums[c]), second = on.get(maxima[c]);
      for (std::size_t i = 0; i < first.size(); ++i)
        require(is_reduced<Place>(first[i], exact<double>(comm.size(), i, c, sw::ReduceOp::sum)),
                "started sums");
      for (std::size_t i = 0; i < second.size(); ++i)
        require(second[i] == exact<double>(comm.size(), i, c, sw::ReduceOp::maximum), "started maxima");
    }
  }
}

/// A named part of the suite.
template <class Place> struct PartOn {
  const char* name;
  void (*run)(Place);
};
using Part = PartOn<HostPlace>;

/// All parts; run every part on every world, each on all ranks.
template <class Place = HostPlace> const std::vector<PartOn<Place>>& parts() {
  static const std::vector<PartOn<Place>> all{{"all_reduce", all_reduces<Place>},
                                              {"large all_reduce", large_all_reduces<Place>},
                                              {"complex elements", complex_elements<Place>},
                                              {"nested reduction orders", nested_orders<Place>},
                                              {"NaN", nans<Place>},
                                              {"all_gather", all_gathers<Place>},
                                              {"reduce_scatter", reduce_scatters<Place>},
                                              {"all_to_all", all_to_alls<Place>},
                                              {"broadcast and barrier", broadcasts<Place>},
                                              {"send and receive", messages<Place>},
                                              {"split and subgroup", splits<Place>},
                                              {"splits of some ranks", splits_of_some<Place>},
                                              {"lists that differ", lists_that_differ<Place>},
                                              {"started calls", started_calls<Place>}};
  return all;
}

} // namespace communicator_suite
