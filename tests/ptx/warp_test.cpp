// SPDX-License-Identifier: Apache-2.0
// Instructions in which lanes meet: shuffles, votes, matches, reductions and products of matrices.
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "ptx/one_instruction.hpp"

namespace {

using namespace ptx_test;

using PerLane = std::function<Word(unsigned lane)>;

std::vector<Word> lanes(const PerLane& value, unsigned count = 32) {
  std::vector<Word> out;
  for (unsigned lane = 0; lane < count; ++lane)
    out.push_back(value(lane));
  return out;
}

/// The result of each lane, where input a is value(lane).
void check_lanes(std::string_view text, const PerLane& value, std::string_view result,
                 const PerLane& expected, unsigned count = 32) {
  INFO(text);
  CHECK(run_threads(text, {lanes(value, count)}, result, count) == lanes(expected, count));
}

Word square(unsigned lane) { return Word{lane} * lane; }

} // namespace

TEST_CASE("shuffles read the lanes that they name", "[ptx]") {
  check_lanes("shfl.sync.bfly.b32 %r, %ra, 5, 31, -1", square, "%r",
              [](unsigned l) { return square(l ^ 5); });
  check_lanes("shfl.sync.up.b32 %r, %ra, 3, 0, -1", square, "%r",
              [](unsigned l) { return square(l < 3 ? l : l - 3); });
  check_lanes("shfl.sync.down.b32 %r, %ra, 3, 31, -1", square, "%r",
              [](unsigned l) { return square(l > 28 ? l : l + 3); });
  check_lanes("shfl.sync.idx.b32 %r, %ra, 7, 31, -1", square, "%r", [](unsigned) { return square(7); });
  check_lanes("shfl.sync.down.b32 %r|%p, %ra, 3, 31, -1", square, "%p",
              [](unsigned l) -> Word { return l <= 28; });
  check_lanes("shfl.sync.up.b32 %r|%p, %ra, 3, 0, -1", square, "%p",
              [](unsigned l) -> Word { return l >= 3; });
  // Segments of 8 lanes: c holds 31 - 7 in its upper half.
  check_lanes("shfl.sync.idx.b32 %r, %ra, 2, 0x181f, -1", square, "%r",
              [](unsigned l) { return square(l / 8 * 8 + 2); });
  check_lanes("shfl.sync.down.b32 %r, %ra, 2, 0x181f, -1", square, "%r",
              [](unsigned l) { return square(l % 8 < 6 ? l + 2 : l); });
  check_lanes("shfl.sync.up.b32 %r, %ra, 2, 0x1800, -1", square, "%r",
              [](unsigned l) { return square(l % 8 >= 2 ? l - 2 : l); });
  // Both halves of the warp, each with its own mask.
  check_lanes(
      "setp.lt.u32 %p, %thread, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p; shfl.sync.bfly.b32 %r, %ra, 1, 31, %r1",
      square, "%r", [](unsigned l) { return square(l ^ 1); });
  // A block of 20 threads: the others have never been there.
  check_lanes(
      "shfl.sync.idx.b32 %r, %ra, 19, 31, 0xfffff", square, "%r", [](unsigned) { return square(19); }, 20);
}

TEST_CASE("votes, matches, reductions and elections", "[ptx]") {
  const PerLane third = [](unsigned l) -> Word { return l % 3; };
  const std::string ask = "setp.eq.u32 %q, %ra, 0; ";
  const Word yes = 0x49249249; // every third lane
  check_lanes(ask + "vote.sync.ballot.b32 %r, %q, -1", third, "%r", [=](unsigned) { return yes; });
  check_lanes(ask + "vote.ballot.sync.b32 %r, !%q, -1", third, "%r",
              [=](unsigned) { return ~yes & 0xffffffff; });
  check_lanes(ask + "vote.sync.any.pred %p, %q, -1", third, "%p", [](unsigned) -> Word { return 1; });
  check_lanes(ask + "vote.sync.all.pred %p, %q, -1", third, "%p", [](unsigned) -> Word { return 0; });
  check_lanes(ask + "vote.sync.uni.pred %p, %q, -1", third, "%p", [](unsigned) -> Word { return 0; });
  check_lanes(
      ask + "vote.sync.uni.pred %p, %q, -1", [](unsigned) -> Word { return 5; }, "%p",
      [](unsigned) -> Word { return 1; });
  check_lanes(
      ask + "vote.sync.all.pred %p, %q, 0x1ff", [](unsigned) -> Word { return 0; }, "%p",
      [](unsigned) -> Word { return 1; }, 9);
  check_lanes("match.any.sync.b32 %r, %ra, -1", third, "%r",
              [=](unsigned l) { return yes << l % 3 & 0xffffffff; });
  check_lanes("match.any.sync.b64 %r, %da, -1", third, "%r",
              [=](unsigned l) { return yes << l % 3 & 0xffffffff; });
  check_lanes("match.all.sync.b32 %r|%p, %ra, -1", third, "%p", [](unsigned) -> Word { return 0; });
  check_lanes(
      "match.all.sync.b64 %r|%p, %da, -1", [](unsigned) -> Word { return 3; }, "%r",
      [](unsigned) -> Word { return 0xffffffff; });
  check_lanes("redux.sync.add.s32 %r, %ra, -1", square, "%r",
              [](unsigned) -> Word { return 31 * 32 * 63 / 6; });
  check_lanes(
      "redux.sync.min.u32 %r, %ra, -1", [](unsigned l) -> Word { return 40 - l; }, "%r",
      [](unsigned) -> Word { return 9; });
  check_lanes(
      "redux.sync.max.s32 %r, %ra, -1", [](unsigned l) -> Word { return l - 40; }, "%r",
      [](unsigned) -> Word { return 0xfffffff7; });
  check_lanes("redux.sync.max.u32 %r, %ra, -1", square, "%r", [](unsigned) -> Word { return 961; });
  check_lanes("redux.sync.min.s32 %r, %ra, -1", square, "%r", [](unsigned) -> Word { return 0; });
  check_lanes(
      "redux.sync.and.b32 %r, %ra, -1", [](unsigned l) -> Word { return 0xf0 | l; }, "%r",
      [](unsigned) -> Word { return 0xf0 & ~Word{0x0f}; });
  check_lanes("redux.sync.or.b32 %r, %ra, -1", square, "%r", [](unsigned) -> Word { return 0x3fd; });
  check_lanes(
      "redux.sync.xor.b32 %r, %ra, -1", [](unsigned l) -> Word { return l == 3 ? 7 : 2; }, "%r",
      [](unsigned) -> Word { return 5; });
  check_lanes("elect.sync %r|%p, -1", third, "%p", [](unsigned l) -> Word { return l == 0; });
  // Only the odd lanes are active in the branch.
  check_lanes(
      "and.b32 %r1, %thread, 1; setp.eq.u32 %p, %r1, 0; mov.u32 %r, 0; @%p bra L; activemask.b32 %r; L: add.s32 %r, %r, 0",
      third, "%r", [](unsigned l) -> Word { return l % 2 != 0 ? 0xaaaaaaaa : 0; });
}

namespace {

struct Shape {
  std::string name, type, sum;
  unsigned m, k;
  unsigned width; ///< Bits of an element of a and b; those of c and d have 32, or 64.
};

/// How the ISA numbers the elements of a lane, written down once more from its figures.
struct Place {
  unsigned row, column;
};
Place place_of_a(const Shape& s, unsigned lane, unsigned i) {
  const unsigned group = lane / 4, member = lane % 4;
  if (s.width == 16) // pairs: rows 0 and 8, then columns 0 and 8
    return {group + (i % 4 >= 2 ? 8 : 0), member * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
  return {group + (i % 2 == 1 ? 8 : 0), member + i / 2 * 4};
}
Place place_of_b(const Shape& s, unsigned lane, unsigned i) {
  const unsigned group = lane / 4, member = lane % 4;
  if (s.width == 16)
    return {member * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
  return {member + 4 * i, group};
}
Place place_of_c(unsigned lane, unsigned i) { return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + (i & 1)}; }

Word encoded(const Shape& s, double value) {
  const auto single = static_cast<float>(value);
  if (s.type == "f64")
    return d(value);
  if (s.type == "tf32")
    return f(single);
  if (s.type == "bf16")
    return f(single) >> 16;
  // f16 of a small multiple of 1/4
  const int exponent = value == 0 ? 0 : std::ilogb(value);
  const auto fraction =
      static_cast<Word>(std::lround(std::fabs(value) * std::ldexp(1.0, 10 - exponent))) & 0x3ff;
  return value == 0 ? 0 : (value < 0 ? 0x8000 : 0) | static_cast<Word>(exponent + 15) << 10 | fraction;
}

/// The matrices of a product, by rows, and the registers of a lane that hold them.
struct Product {
  explicit Product(const Shape& of)
      : shape(of), a(of.m * of.k), b(of.k * 8), c(of.m * 8), in_word(of.width == 16 ? 2 : 1),
        a_count(of.m * of.k / 32), b_count(of.k / 4), c_count(of.m / 4) {
    std::mt19937 random(7);
    for (auto* values : {&a, &b, &c})
      for (double& value : *values)
        value = (static_cast<int>(random() % 17) - 8) / 4.0;
  }
  [[nodiscard]] unsigned a_registers() const { return a_count / in_word; }
  [[nodiscard]] unsigned b_registers() const { return b_count / in_word; }
  [[nodiscard]] unsigned registers() const { return a_registers() + b_registers() + c_count; }

  Shape shape;
  std::vector<double> a, b, c;
  unsigned in_word;                   ///< Elements of a and b in a register.
  unsigned a_count, b_count, c_count; ///< Elements of a lane.
};

/// The registers of each lane, in words of 8 bytes, one after the other.
std::vector<Word> fragments(const Product& of) {
  const Shape& s = of.shape;
  std::vector<Word> out;
  const auto append = [&](const std::vector<double>& from, unsigned columns, unsigned count, auto place) {
    for (unsigned i = 0; i < count; i += of.in_word) {
      Word packed = 0;
      for (unsigned j = 0; j < of.in_word; ++j) {
        const Place at = place(i + j);
        packed |= encoded(s, from[at.row * columns + at.column]) << (16 * j);
      }
      out.push_back(packed);
    }
  };
  for (unsigned lane = 0; lane < 32; ++lane) {
    append(of.a, s.k, of.a_count, [&](unsigned i) { return place_of_a(s, lane, i); });
    append(of.b, 8, of.b_count, [&](unsigned i) { return place_of_b(s, lane, i); });
    for (unsigned i = 0; i < of.c_count; ++i) {
      const Place at = place_of_c(lane, i);
      const double value = of.c[at.row * 8 + at.column];
      out.push_back(s.type == "f64" ? d(value) : f(static_cast<float>(value)));
    }
  }
  return out;
}

/// A kernel that loads the registers from p, multiplies, and stores those of the result to q.
std::string product_kernel(const Product& of) {
  const Shape& s = of.shape;
  const bool twofold = s.type == "f64";
  const std::string r = twofold ? "%x" : "%y", bits = twofold ? "b64" : "b32";
  std::string body =
      ".reg .b64 %x<40>, %in, %out, %at; .reg .b32 %y<40>, %t; ld.param.u64 %in, [p]; ld.param.u64 %out, [q]; "
      "mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, " +
      std::to_string(8 * of.registers()) +
      "; add.s64 %in, %in, %at; "
      "mul.wide.u32 %at, %t, " +
      std::to_string(8 * of.c_count) + "; add.s64 %out, %out, %at;\n";
  for (unsigned i = 0; i < of.registers(); ++i)
    body += "ld.global." + bits + " " + r + std::to_string(i) + ", [%in+" + std::to_string(8 * i) + "];\n";
  const auto list = [&](unsigned begin, unsigned count) {
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i)
      text += (i != 0 ? ", " : "") + r + std::to_string(begin + i);
    return text + "}";
  };
  const unsigned a = of.a_registers(), b = of.b_registers();
  body += "mma.sync.aligned." + s.name + ".row.col." + s.sum + "." + s.type + "." + s.type + "." + s.sum +
          " " + list(30, of.c_count) + ", " + list(0, a) + ", " + list(a, b) + ", " +
          list(a + b, of.c_count) + ";\n";
  for (unsigned i = 0; i < of.c_count; ++i)
    body +=
        "st.global." + bits + " [%out+" + std::to_string(8 * i) + "], " + r + std::to_string(30 + i) + ";\n";
  return module_text(".param .u64 p, .param .u64 q", body);
}

/// Runs a product of matrices whose elements are small multiples of 1/4, so that every sum is exact.
void check_product(const Shape& s) {
  INFO(s.name << " " << s.type);
  const Product of(s);
  std::vector<Word> input = fragments(of), output(32 * of.c_count);
  const ptx::Module module = ptx::parse(product_kernel(of));
  ptx::Memory memory;
  memory.add(input.data(), input.size() * 8, "input");
  memory.add(output.data(), output.size() * 8, "output");
  const void* parameters[] = {input.data(), output.data()};
  ptx::run(*module.find("k"), {{1}, {32}, 0, parameters}, memory);
  unsigned wrong = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < of.c_count; ++i) {
      const Place at = place_of_c(lane, i);
      double expected = of.c[at.row * 8 + at.column];
      for (unsigned inner = 0; inner < s.k; ++inner)
        expected += of.a[at.row * s.k + inner] * of.b[inner * 8 + at.column];
      const Word got = output[lane * of.c_count + i];
      const double value = s.type == "f64" ? std::bit_cast<double>(got)
                                           : double{std::bit_cast<float>(static_cast<std::uint32_t>(got))};
      wrong += value != expected;
    }
  }
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("products of matrices of each shape", "[ptx]") {
  check_product({"m16n8k16", "bf16", "f32", 16, 16, 16});
  check_product({"m16n8k8", "bf16", "f32", 16, 8, 16});
  check_product({"m16n8k16", "f16", "f32", 16, 16, 16});
  check_product({"m16n8k8", "f16", "f32", 16, 8, 16});
  check_product({"m16n8k8", "tf32", "f32", 16, 8, 32});
  check_product({"m16n8k4", "tf32", "f32", 16, 4, 32});
  check_product({"m8n8k4", "f64", "f64", 8, 4, 64});
  check_product({"m16n8k4", "f64", "f64", 16, 4, 64});
  check_product({"m16n8k8", "f64", "f64", 16, 8, 64});
  check_product({"m16n8k16", "f64", "f64", 16, 16, 64});
}

TEST_CASE("matrices move between shared memory and registers", "[ptx]") {
  // Element (row, column) of matrix m is 256 m + 16 row + column; lane l gives the address of row l % 8 of
  // matrix l / 8.
  const auto element = [](unsigned matrix, unsigned row, unsigned column) {
    return Word{256 * matrix + 16 * row + column};
  };
  const std::string fill =
      ".shared .align 16 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %thread, 4; add.s32 %r1, %r1, %r2; ";
  // Each lane writes its own row, two elements to a word.
  const std::string rows =
      fill + "shr.u32 %r3, %thread, 3; shl.b32 %r3, %r3, 8; and.b32 %r4, %thread, 7; shl.b32 %r4, %r4, 4; "
             "or.b32 %r3, %r3, %r4; add.s32 %r4, %r3, 1; shl.b32 %r4, %r4, 16; or.b32 %r3, %r3, %r4; "
             "st.shared.u32 [%r1], %r3; add.s32 %r3, %r3, 0x00020002; st.shared.u32 [%r1+4], %r3; "
             "add.s32 %r3, %r3, 0x00020002; st.shared.u32 [%r1+8], %r3; add.s32 %r3, %r3, 0x00020002; "
             "st.shared.u32 [%r1+12], %r3; bar.warp.sync -1; ";
  const PerLane none = [](unsigned) -> Word { return 0; };
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const std::string name = "%r" + std::to_string(matrix + 1);
    check_lanes(rows + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r1]", none, name,
                [&](unsigned l) {
                  return element(matrix, l / 4, l % 4 * 2) | element(matrix, l / 4, l % 4 * 2 + 1) << 16;
                });
    check_lanes(rows + "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r1]", none,
                name, [&](unsigned l) {
                  return element(matrix, l % 4 * 2, l / 4) | element(matrix, l % 4 * 2 + 1, l / 4) << 16;
                });
  }
  check_lanes(
      rows + "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r1]", none, "%r2",
      [&](unsigned l) { return element(1, l / 4, l % 4 * 2) | element(1, l / 4, l % 4 * 2 + 1) << 16; });
  check_lanes(rows + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r1]", none, "%r1", [&](unsigned l) {
    return element(0, l / 4, l % 4 * 2) | element(0, l / 4, l % 4 * 2 + 1) << 16;
  });
  // Storing what was loaded, transposed, and loading a row as words.
  check_lanes(
      rows +
          "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1]; bar.warp.sync -1; "
          "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r1], {%r2}; bar.warp.sync -1; ld.shared.u32 %r, [%r1+4]",
      none, "%r", [&](unsigned l) {
        return l < 8 ? element(0, 2, l) | element(0, 3, l) << 16
                     : element(l / 8, l % 8, 2) | element(l / 8, l % 8, 3) << 16;
      });
  check_lanes(
      "movmatrix.sync.aligned.m8n8.trans.b16 %r, %ra",
      [&](unsigned l) { return element(0, l / 4, l % 4 * 2) | element(0, l / 4, l % 4 * 2 + 1) << 16; }, "%r",
      [&](unsigned l) { return element(0, l % 4 * 2, l / 4) | element(0, l % 4 * 2 + 1, l / 4) << 16; });
}
