// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Combines the runs of several ranks elementwise in rank order, for every element type and operation.

#include <shardwright/core/element.hpp>
#include <shardwright/core/vector_lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Sum; integers wrap, so that overflow is defined.
struct SumOf {
  template <class V> static V apply(const V& a, const V& b) noexcept { return static_cast<V>(a + b); }
};

/// Product; integers wrap.
struct ProductOf {
  template <class V> static V apply(const V& a, const V& b) noexcept { return static_cast<V>(a * b); }
};

/// The larger, or NaN if either is NaN: `a != a` holds only for a NaN, and a comparison with a NaN chooses b.
struct MaximumOf {
  template <class V> static V apply(const V& a, const V& b) noexcept {
    return ((a > b) | (a != a)) ? a : b; // NOLINT(misc-redundant-expression): a NaN
  }
};

/// The smaller, or NaN if either is NaN.
struct MinimumOf {
  template <class V> static V apply(const V& a, const V& b) noexcept {
    return ((a < b) | (a != a)) ? a : b; // NOLINT(misc-redundant-expression): a NaN
  }
};

/// One reduction over runs: `outs[j][i] = divide(op over s of ins[s][i])`, s ascending, or in a binary tree.
///
/// Any output may be one of the inputs: element i of every input is read before element i of any output is
/// written, and whole registers move in between, so other overlaps are not allowed.
struct ReduceRun {
  const void* const* ins = nullptr;
  int in_count = 0;
  void* const* outs = nullptr;
  int out_count = 0;
  std::size_t count = 0; ///< Elements.
  int divisor = 1;       ///< Applied once, after the last input; 1 unless the operation is an average.
  bool stream = false;   ///< Use non-temporal stores if the outputs allow it.
  bool tree = false;     ///< Four or eight inputs of a sum of reals are added as a binary tree.
};

template <class Element, class Op> class ReduceKernel {
  using Lanes = LanesOf<Element>;
  using Register = typename Lanes::Register;
  static constexpr std::size_t width = lane_bytes / sizeof(Element);
  static constexpr std::size_t block = 4 * width;
  /// Large messages and averages are floating-point sums; other kernels do without the second set of loops,
  /// and without divisions, which compilers write out for each integer of a register.
  static constexpr bool real_sum = std::is_floating_point_v<Element> && std::is_same_v<Op, SumOf>;

  /// Four registers by name: arrays of registers may stay in memory at -O2.
  struct Four {
    Register a, b, c, d;
  };

public:
  static void run(const ReduceRun& task) noexcept {
    if constexpr (real_sum)
      if (task.tree)
        return task.in_count == 4 ? run_as<4>(task) : run_as<8>(task);
    run_as<0>(task);
  }

private:
  /// @tparam tree inputs of a binary tree, or 0
  template <int tree> static void run_as(const ReduceRun& task) noexcept {
    if constexpr (real_sum) {
      const std::size_t head = task.stream ? streaming_head(task) : task.count + 1;
      if (head <= task.count) {
        one_by_one<tree>(task, 0, head);
        return rest<tree>(task, blocks<true, tree>(task, head));
      }
    }
    rest<tree>(task, blocks<false, tree>(task, 0));
  }

  /// The inputs, as `read(s)` gives them. A tree reads all of them before the next block, which memory can
  /// deliver at the same time.
  template <int tree, class Read, class Add>
  static auto combined(const ReduceRun& task, const Read& read, const Add& add) noexcept {
    if constexpr (tree != 0) {
      return subtree<tree>(0, read, add);
    } else {
      auto r = read(0);
      for (int s = 1; s < task.in_count; ++s)
        r = add(r, read(s));
      return r;
    }
  }
  template <int leaves, class Read, class Add>
  static auto subtree(int first, const Read& read, const Add& add) noexcept {
    if constexpr (leaves == 1)
      return read(first);
    else
      return add(subtree<leaves / 2>(first, read, add), subtree<leaves / 2>(first + leaves / 2, read, add));
  }

  static const Element* in(const ReduceRun& task, int s) noexcept {
    return static_cast<const Element*>(task.ins[s]);
  }
  static Element* out(const ReduceRun& task, int j) noexcept { return static_cast<Element*>(task.outs[j]); }

  /// Elements until all outputs are aligned; more than there are if their alignments differ.
  static std::size_t streaming_head(const ReduceRun& task) noexcept {
    const auto offset = [&](int j) { return reinterpret_cast<std::uintptr_t>(task.outs[j]) % line_bytes; };
    for (int j = 1; j < task.out_count; ++j)
      if (offset(j) != offset(0))
        return task.count + 1;
    return ((line_bytes - offset(0)) % line_bytes) / sizeof(Element);
  }

  static Element scalar(Element a, Element b) noexcept { return static_cast<Element>(Op::apply(a, b)); }

  static Four load(const Element* from) noexcept {
    return {Lanes::load(from), Lanes::load(from + width), Lanes::load(from + 2 * width),
            Lanes::load(from + 3 * width)};
  }

  static Four combine(const Four& x, const Four& y) noexcept {
    return {Op::apply(x.a, y.a), Op::apply(x.b, y.b), Op::apply(x.c, y.c), Op::apply(x.d, y.d)};
  }

  template <bool Stream> static void store(Element* to, const Four& value) noexcept {
    if constexpr (Stream) {
      Lanes::stream(to, value.a);
      Lanes::stream(to + width, value.b);
      Lanes::stream(to + 2 * width, value.c);
      Lanes::stream(to + 3 * width, value.d);
    } else {
      Lanes::store(to, value.a);
      Lanes::store(to + width, value.b);
      Lanes::store(to + 2 * width, value.c);
      Lanes::store(to + 3 * width, value.d);
    }
  }

  template <bool Stream>
  static void store_all(const ReduceRun& task, std::size_t i, const Four& value) noexcept {
    for (int j = 0; j < task.out_count; ++j)
      store<Stream>(out(task, j) + i, value);
  }

  template <bool Stream, int tree> static std::size_t blocks(const ReduceRun& task, std::size_t i) noexcept {
    for (; i + block <= task.count; i += block) {
      Four r = combined<tree>(
          task, [&](int s) { return load(in(task, s) + i); }, combine);
      if constexpr (real_sum)
        if (task.divisor != 1) {
          const auto divisor = static_cast<Element>(task.divisor);
          r = {r.a / divisor, r.b / divisor, r.c / divisor, r.d / divisor};
        }
      store_all<Stream>(task, i, r);
    }
    return i;
  }

  /// Less than a block, which is all of a small call: elements one by one take several times as long.
  template <int tree> static void rest(const ReduceRun& task, std::size_t i) noexcept {
    i = registers<lane_bytes, tree>(task, i);
    if constexpr (lane_bytes > 32)
      i = registers<32, tree>(task, i);
    if constexpr (lane_bytes > 16)
      i = registers<16, tree>(task, i);
    one_by_one<tree>(task, i, task.count);
  }

  template <std::size_t bytes, int tree>
  static std::size_t registers(const ReduceRun& task, std::size_t i) noexcept {
    using Some = LanesOf<Element, bytes>;
    using SomeRegister = typename Some::Register;
    constexpr std::size_t step = bytes / sizeof(Element);
    const auto add = [](const SomeRegister& x, const SomeRegister& y) { return Op::apply(x, y); };
    for (; i + step <= task.count; i += step) {
      SomeRegister r = combined<tree>(
          task, [&](int s) { return Some::load(in(task, s) + i); }, add);
      if constexpr (real_sum)
        if (task.divisor != 1)
          r = r / static_cast<Element>(task.divisor);
      for (int j = 0; j < task.out_count; ++j)
        Some::store(out(task, j) + i, r);
    }
    return i;
  }

  template <int tree> static void one_by_one(const ReduceRun& task, std::size_t i, std::size_t end) noexcept {
    for (; i < end; ++i) {
      Element r = combined<tree>(
          task, [&](int s) { return in(task, s)[i]; }, scalar);
      if constexpr (real_sum)
        if (task.divisor != 1)
          r = r / static_cast<Element>(task.divisor);
      for (int j = 0; j < task.out_count; ++j)
        out(task, j)[i] = r;
    }
  }
};

/// The same for elements of two bytes: combined as floats, rounded once.
template <class Element, class Op> class NarrowReduceKernel {
  static constexpr std::size_t block = 64;

public:
  static void run(const ReduceRun& task) noexcept {
    std::size_t i = 0;
    for (; i + block <= task.count; i += block)
      some<block>(task, i, block);
    if (i < task.count)
      some<1>(task, i, task.count - i);
  }

private:
  /// A known length for whole blocks, whose loops are then unrolled in vectors.
  template <std::size_t step>
  static void some(const ReduceRun& task, std::size_t begin, std::size_t count) noexcept {
    float values[block];
    const auto length = step == block ? block : count;
    const auto* first = static_cast<const Element*>(task.ins[0]) + begin;
    for (std::size_t i = 0; i < length; ++i)
      values[i] = first[i];
    for (int s = 1; s < task.in_count; ++s) {
      const auto* in = static_cast<const Element*>(task.ins[s]) + begin;
      for (std::size_t i = 0; i < length; ++i)
        values[i] = Op::apply(values[i], static_cast<float>(in[i]));
    }
    if constexpr (std::is_same_v<Op, SumOf>)
      if (task.divisor != 1)
        for (std::size_t i = 0; i < length; ++i)
          values[i] /= static_cast<float>(task.divisor);
    for (int j = 0; j < task.out_count; ++j) {
      auto* const out = static_cast<Element*>(task.outs[j]) + begin;
      for (std::size_t i = 0; i < length; ++i)
        out[i] = Element(values[i]);
    }
  }
};

/// Sums and products of signed elements run on unsigned ones: the same bits, and overflow wraps.
template <class Element, class Op>
inline constexpr bool wraps = std::is_integral_v<Element> &&
                              (std::is_same_v<Op, SumOf> || std::is_same_v<Op, ProductOf>);
template <class Element, class Op>
using Reduced = typename std::conditional_t<wraps<Element, Op>, std::make_unsigned<Element>,
                                            std::type_identity<Element>>::type;

template <class Op> void reduce_by(ElementType type, ReduceRun task) noexcept {
  task.count *= parts_of(type);
  with_element(type, [&task]<class Element>(std::type_identity<Element>) {
    if constexpr (is_narrow<Element>)
      NarrowReduceKernel<Element, Op>::run(task);
    else
      ReduceKernel<Reduced<Element, Op>, Op>::run(task);
  });
}

/// Runs one reduction; averages are of real elements, and complex ones are only summed or averaged.
inline void reduce_run(ElementType type, ReduceOp op, const ReduceRun& task) noexcept {
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::average:
  case ReduceOp::ordered_sum:
    return reduce_by<SumOf>(type, task);
  case ReduceOp::product:
    return reduce_by<ProductOf>(type, task);
  case ReduceOp::maximum:
    return reduce_by<MaximumOf>(type, task);
  case ReduceOp::minimum:
    return reduce_by<MinimumOf>(type, task);
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
