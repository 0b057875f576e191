// SPDX-License-Identifier: Apache-2.0
// Products of small matrices that a warp holds together: PTX ISA 9.0, section 9.7.14.5, where figures show
// which lane holds which element. Below, `group` is a lane's number divided by 4, and `member` the rest.
//
// A device adds the products of one instruction in an order and with a rounding that are not specified. Here
// they are added one after the other, each sum rounded to the type of the result.
#include <bit>
#include <cstring>
#include <type_traits>

#include "../run/access.hpp"
#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

/// Elements of 16 bits lie in pairs in a register; wider ones have a register each.
struct Half {
  using Row = std::uint32_t;
  using Value = float;
  static constexpr unsigned per_row = 2;
  static float value(std::uint32_t row, unsigned i) {
    return f16_value(static_cast<std::uint16_t>(row >> (16 * i)));
  }
};
struct Brain {
  using Row = std::uint32_t;
  using Value = float;
  static constexpr unsigned per_row = 2;
  static float value(std::uint32_t row, unsigned i) {
    return bf16_value(static_cast<std::uint16_t>(row >> (16 * i)));
  }
};
struct Tensor32 { // tf32: the low 13 bits of a float do not count
  using Row = std::uint32_t;
  using Value = float;
  static constexpr unsigned per_row = 1;
  static float value(std::uint32_t row, unsigned) { return std::bit_cast<float>(row & 0xffffe000); }
};
struct Full {
  using Row = double;
  using Value = double;
  static constexpr unsigned per_row = 1;
  static double value(double row, unsigned) { return row; }
};

/// d = a * b + c, with a of m * k, b of k * 8. The list holds the registers of d, a, b and c.
///
/// Register r of the four lanes of a group holds one stretch of a row of a: row `group`, and for odd r eight
/// rows below; every two registers the stretch moves right. Of b it holds a stretch of column `group`.
/// Registers 0 and 1 of c hold the columns 2 * member and 2 * member + 1 of row `group`, and 2 and 3 those
/// eight rows below.
template <class N, unsigned m, unsigned k> void multiply(Warp& warp, const Instruction& in, std::uint32_t) {
  using Value = typename N::Value;
  using Row = typename N::Row;
  constexpr unsigned p = N::per_row, stretch = 4 * p;
  constexpr unsigned a_rows = m * k / warp_lanes / p, b_rows = k * 8 / warp_lanes / p,
                     c_rows = m * 8 / warp_lanes;
  constexpr unsigned halves = m / 8;
  const Slot* const d = warp.program.lists.data() + in.list;
  const Slot* const a = d + c_rows;
  const Slot* const b = a + a_rows;
  const Slot* const c = b + b_rows;
  alignas(64) Value left[m][k], right[k][8], sum[m][8];
  for (unsigned r = 0; r < a_rows; ++r) {
    const Row* const row = warp.row<Row>(a[r]);
    for (unsigned group = 0; group < 8; ++group) {
      Value* const to = left[group + 8 * (r % halves)] + stretch * (r / halves);
      for (unsigned i = 0; i < stretch; ++i)
        to[i] = N::value(row[4 * group + i / p], i % p);
    }
  }
  for (unsigned r = 0; r < b_rows; ++r) {
    const Row* const row = warp.row<Row>(b[r]);
    for (unsigned i = 0; i < stretch; ++i)
      for (unsigned group = 0; group < 8; ++group)
        right[stretch * r + i][group] = N::value(row[4 * group + i / p], i % p);
  }
  for (unsigned r = 0; r < c_rows; ++r) {
    const Value* const row = warp.row<Value>(c[r]);
    for (unsigned group = 0; group < 8; ++group)
      for (unsigned member = 0; member < 4; ++member)
        sum[group + 8 * (r / 2)][2 * member + r % 2] = row[4 * group + member];
  }
  for (unsigned inner = 0; inner < k; ++inner) // outside, so that no sum waits for the one before
    for (unsigned row = 0; row < m; ++row)
      for (unsigned column = 0; column < 8; ++column)
        sum[row][column] += left[row][inner] * right[inner][column];
  for (unsigned r = 0; r < c_rows; ++r) {
    Value* const row = warp.row<Value>(d[r]);
    for (unsigned group = 0; group < 8; ++group)
      for (unsigned member = 0; member < 4; ++member)
        row[4 * group + member] = sum[group + 8 * (r / 2)][2 * member + r % 2];
  }
}

struct Form {
  std::string_view shape;
  Type type;
  Execute execute;
  unsigned d, a, b; ///< Registers.
};

constexpr Form forms[] = {
    {"m16n8k16", Type::bf16, multiply<Brain, 16, 16>, 4, 4, 2},
    {"m16n8k8", Type::bf16, multiply<Brain, 16, 8>, 4, 2, 1},
    {"m16n8k16", Type::f16, multiply<Half, 16, 16>, 4, 4, 2},
    {"m16n8k8", Type::f16, multiply<Half, 16, 8>, 4, 2, 1},
    {"m16n8k8", Type::tf32, multiply<Tensor32, 16, 8>, 4, 4, 2},
    {"m16n8k4", Type::tf32, multiply<Tensor32, 16, 4>, 4, 2, 1},
    {"m8n8k4", Type::f64, multiply<Full, 8, 4>, 2, 1, 1},
    {"m16n8k4", Type::f64, multiply<Full, 16, 4>, 4, 2, 1},
    {"m16n8k8", Type::f64, multiply<Full, 16, 8>, 4, 4, 2},
    {"m16n8k16", Type::f64, multiply<Full, 16, 16>, 4, 8, 4},
};

/// The registers of an operand, a list or a single one.
void append(Build& build, std::vector<Slot>& slots, std::size_t operand, unsigned count, Type type,
            bool written) {
  const Operand& given = build.operand(operand);
  const std::vector<Operand> items =
      given.kind == Operand::Kind::list ? given.items : std::vector<Operand>{given};
  if (items.size() != count)
    build.unsupported("operand " + std::to_string(operand + 1) + " must have " + std::to_string(count) +
                      " registers");
  for (const Operand& item : items)
    slots.push_back(written ? build.to(item, type) : build.from(item, type));
}

void product(Build& build) {
  build.words.take("row");
  build.words.take("col");
  build.words.take("rn");
  const Type result = build.type(), a = build.type(), b = build.type(), c = build.type();
  for (const Form& form : forms) {
    const Type sum = form.type == Type::f64 ? Type::f64 : Type::f32;
    Words shape = build.words;
    if (form.type != a || a != b || result != sum || c != sum || !shape.take(form.shape))
      continue;
    build.words.take(form.shape);
    std::vector<Slot> slots;
    const Type row = form.type == Type::f64 ? Type::f64 : Type::b32;
    append(build, slots, 0, form.d, sum, true);
    append(build, slots, 1, form.a, row, false);
    append(build, slots, 2, form.b, row, false);
    append(build, slots, 3, form.d, sum, false);
    build.list(slots);
    return build.emit(form.execute, Flow::whole_warp);
  }
  build.unsupported("no such shape and types");
}

// 8 by 8 matrices of 16 bits in shared memory. Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix
// i.

Access rows_access(bool writes) {
  Access access;
  access.space = Space::shared;
  access.bytes = 16;
  access.reads = !writes;
  access.writes = writes;
  return access;
}

std::uint32_t address_lanes(unsigned matrices) { return matrices == 4 ? all_lanes : bit(8 * matrices) - 1; }

/// Where a lane's element i of a matrix lies; `mode` is 1 for .trans.
struct Place {
  unsigned row, column;
};
Place place(unsigned lane, unsigned i, bool transposed) {
  return transposed ? Place{lane % 4 * 2 + i, lane / 4} : Place{lane / 4, lane % 4 * 2 + i};
}

void load_matrices(Warp& warp, const Instruction& in, std::uint32_t) {
  const Access access = rows_access(false);
  const std::uint32_t lanes = address_lanes(in.list_size);
  Checked checked(warp, in, lanes, access);
  std::uint16_t elements[warp_lanes][8];
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    std::memcpy(elements[lane], checked.memory(lane), 16);
  });
  for (unsigned matrix = 0; matrix < in.list_size; ++matrix) {
    std::uint32_t* const to = warp.row<std::uint32_t>(warp.program.lists[in.list + matrix]);
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
      const Place first = place(lane, 0, in.mode != 0), second = place(lane, 1, in.mode != 0);
      to[lane] = std::uint32_t{elements[8 * matrix + second.row][second.column]} << 16 |
                 elements[8 * matrix + first.row][first.column];
    }
  }
}

void store_matrices(Warp& warp, const Instruction& in, std::uint32_t) {
  const Access access = rows_access(true);
  const std::uint32_t lanes = address_lanes(in.list_size);
  Checked checked(warp, in, lanes, access);
  std::uint16_t elements[warp_lanes][8];
  for (unsigned matrix = 0; matrix < in.list_size; ++matrix) {
    const std::uint32_t* const from = warp.row<std::uint32_t>(warp.program.lists[in.list + matrix]);
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      for (unsigned i = 0; i < 2; ++i) {
        const Place at = place(lane, i, in.mode != 0);
        elements[8 * matrix + at.row][at.column] = static_cast<std::uint16_t>(from[lane] >> (16 * i));
      }
  }
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane, elements[lane]);
    std::memcpy(checked.memory(lane), elements[lane], 16);
  });
}

/// A matrix that the warp holds, transposed.
void transpose(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t* const from = warp.row<std::uint32_t>(in.from[0]);
  std::uint16_t elements[8][8];
  for (unsigned lane = 0; lane < warp_lanes; ++lane)
    for (unsigned i = 0; i < 2; ++i)
      elements[lane / 4][lane % 4 * 2 + i] = static_cast<std::uint16_t>(from[lane] >> (16 * i));
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) {
    return std::uint32_t{elements[lane % 4 * 2 + 1][lane / 4]} << 16 | elements[lane % 4 * 2][lane / 4];
  });
}

void matrices_in_memory(Build& build) {
  const bool stores = build.opcode == Opcode::stmatrix;
  const std::string_view count = build.words.take_one_of({"x1", "x2", "x4"});
  build.out.mode = build.words.take("trans");
  build.words.take_one_of({"shared", "shared::cta"});
  if (!build.words.take("m8n8") || count.empty() || build.type() != Type::b16)
    build.unsupported("it needs .m8n8, .x1, .x2 or .x4, and .b16");
  build.address(stores ? 0 : 1, Space::shared);
  std::vector<Slot> slots;
  append(build, slots, stores ? 1 : 0, static_cast<unsigned>(count[1] - '0'), Type::b32, !stores);
  build.list(slots);
  build.emit(stores ? store_matrices : load_matrices, Flow::whole_warp);
}

} // namespace

void build_matrix(Build& build) {
  if (!build.words.take("sync") || !build.words.take("aligned"))
    build.unsupported("it must be .sync.aligned");
  if (build.opcode == Opcode::mma)
    return product(build);
  if (build.opcode != Opcode::movmatrix)
    return matrices_in_memory(build);
  build.words.take("m8n8");
  build.words.take("trans");
  build.type();
  build.out.to = build.to(0, Type::b32);
  build.out.from[0] = build.from(1, Type::b32);
  build.emit(transpose, Flow::whole_warp);
}

} // namespace ptx
