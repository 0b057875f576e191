// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and bit fields: PTX ISA 9.0, sections 9.7.1 and 9.7.8.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

template <class T> std::make_unsigned_t<T> unsigned_of(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}

struct And {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct Xor {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
struct Not {
  template <class T> T operator()(T a) const { return static_cast<T>(~a); }
};
struct IsZero {
  template <class T> T operator()(T a) const { return a == 0; }
};
struct CountOnes {
  template <class T> std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(unsigned_of(a)));
  }
};
struct CountLeadingZeros {
  template <class T> std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(unsigned_of(a)));
  }
};
struct Reverse {
  template <class T> T operator()(T a) const {
    std::uint64_t out = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i)
      out |= (std::uint64_t{unsigned_of(a)} >> i & 1) << (8 * sizeof(T) - 1 - i);
    return static_cast<T>(out);
  }
};

/// Position of the highest bit that differs from the sign; all ones if there is none.
template <bool shift_amount> struct FindHighest {
  template <class T> std::uint32_t operator()(T a) const {
    const auto bits = static_cast<std::make_unsigned_t<T>>(std::is_signed_v<T> && a < 0 ? ~a : a);
    if (bits == 0)
      return ~0U;
    const auto zeros = static_cast<std::uint32_t>(std::countl_zero(bits));
    return shift_amount ? zeros : static_cast<std::uint32_t>(8 * sizeof(T) - 1) - zeros;
  }
};

/// PTX clamps the amount of a shift to the width.
struct ShiftLeft {
  template <class T> T operator()(T a, std::uint32_t n) const {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << n);
  }
};
struct ShiftRight {
  template <class T> T operator()(T a, std::uint32_t n) const {
    const auto most = static_cast<std::uint32_t>(8 * sizeof(T) - 1);
    if (n > most && !std::is_signed_v<T>)
      return T{0};
    return static_cast<T>(a >> std::min(n, most));
  }
};
template <bool left, bool wraps> struct FunnelShift {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint32_t n = wraps ? c & 31 : std::min<std::uint32_t>(c, 32);
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    return static_cast<std::uint32_t>(left ? both << n >> 32 : both >> n);
  }
};

/// Fields: only the low 8 bits of position and length count.
struct ExtractField {
  template <class T> T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    constexpr unsigned width = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    position &= 255;
    length &= 255;
    const unsigned sign_at = std::min(position + length - (length != 0), width - 1);
    const bool negative = std::is_signed_v<T> && length != 0 && (static_cast<U>(a) >> sign_at & 1) != 0;
    const U low = length >= width ? ~U{0} : static_cast<U>((U{1} << length) - 1);
    const U field = position >= width ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
    // Beyond the end of the value, a field is filled with its sign.
    const unsigned there = position >= width ? 0 : std::min(length, width - position);
    const U present = there >= width ? ~U{0} : static_cast<U>((U{1} << there) - 1);
    return static_cast<T>((field & present & low) | (negative ? ~present : U{0}));
  }
};
struct InsertField {
  template <class T> T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
    constexpr unsigned width = 8 * sizeof(T);
    position &= 255;
    length &= 255;
    if (position >= width)
      return b;
    const T mask = static_cast<T>((length >= width ? ~T{0} : (T{1} << length) - 1) << position);
    return static_cast<T>((b & ~mask) | (a << position & mask));
  }
};
template <bool wraps> struct MakeMask {
  std::uint32_t operator()(std::uint32_t position, std::uint32_t length) const {
    position = wraps ? position & 31 : std::min<std::uint32_t>(position, 32);
    length = wraps ? length & 31 : std::min<std::uint32_t>(length, 32);
    return static_cast<std::uint32_t>(((std::uint64_t{1} << length) - 1) << position);
  }
};
template <bool wraps> struct ExtendSign {
  template <class T> T operator()(T a, std::uint32_t length) const {
    length = wraps ? length & 31 : std::min<std::uint32_t>(length, 32);
    if (length == 0)
      return 0;
    const unsigned rest = 32 - length;
    return static_cast<T>(static_cast<T>(static_cast<std::uint32_t>(a) << rest) >> rest);
  }
};

/// The n-th set bit at or above a base, or below it for a negative n: section 9.7.1.21.
struct FindNthSet {
  std::uint32_t operator()(std::uint32_t mask, std::uint32_t base, std::uint32_t signed_n) const {
    const auto n = static_cast<std::int32_t>(signed_n);
    if (n == 0)
      return (mask >> (base & 31) & 1) != 0 ? base : ~0U;
    std::int32_t left = n < 0 ? -n : n;
    const int step = n < 0 ? -1 : 1;
    for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
      if ((mask >> at & 1) != 0 && --left == 0)
        return static_cast<std::uint32_t>(at);
    return ~0U;
  }
};

std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t selector = selectors >> (4 * i) & 15;
    auto byte = static_cast<std::uint8_t>(bytes >> (8 * (selector & 7)));
    if ((selector & 8) != 0)
      byte = (byte & 128) != 0 ? 255 : 0;
    out |= std::uint32_t{byte} << (8 * i);
  }
  return out;
}
struct Permute {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    return permute(a, b, c);
  }
};

/// The modes of prmt: byte i of the result is that of a selector which mode and the low bits of c give.
template <int mode> struct PermuteMode {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    constexpr std::uint32_t rows[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, // f4e
        {0x5670, 0x6701, 0x7012, 0x0123}, // b4e
        {0x0000, 0x1111, 0x2222, 0x3333}, // rc8
        {0x3210, 0x3211, 0x3222, 0x3333}, // ecl
        {0x0000, 0x1110, 0x2210, 0x3210}, // ecr
        {0x1010, 0x3232, 0x1010, 0x3232}, // rc16
    };
    return permute(a, b, rows[mode][c & 3]);
  }
};

template <class T> void insert_field(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  const std::uint32_t* const position = warp.row<std::uint32_t>(in.from[2]);
  const std::uint32_t* const length = warp.row<std::uint32_t>(in.from[3]);
  assign_lanes(warp.row<T>(in.to), lanes,
               [=](unsigned lane) { return InsertField{}(a[lane], b[lane], position[lane], length[lane]); });
}

/// Any function of three bits: bit 4a+2b+c of `immediate`.
void logic_of_three(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t* const a = warp.row<std::uint32_t>(in.from[0]);
  const std::uint32_t* const b = warp.row<std::uint32_t>(in.from[1]);
  const std::uint32_t* const c = warp.row<std::uint32_t>(in.from[2]);
  const auto table = static_cast<std::uint32_t>(in.immediate);
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [=](unsigned lane) {
    std::uint32_t out = 0;
    for (unsigned row = 0; row < 8; ++row)
      out |= (table >> row & 1) != 0
                 ? ((row & 4) != 0 ? a[lane] : ~a[lane]) & ((row & 2) != 0 ? b[lane] : ~b[lane]) &
                       ((row & 1) != 0 ? c[lane] : ~c[lane])
                 : 0;
    return out;
  });
}

/// Also sets a predicate to (result != 0) OP q, where `mode` is 1 for .and and 0 for .or.
void logic_of_three_and_predicate(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t q = warp.predicate(in.from[3]);
  logic_of_three(warp, in, lanes);
  const std::uint32_t* const to = warp.row<std::uint32_t>(in.to);
  const std::uint32_t set = lanes_where(lanes, [to](unsigned lane) { return to[lane] != 0; });
  warp.set_predicate(in.to_second, lanes, in.mode != 0 ? set & q : set | q);
}

template <class F> void of_predicates(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.set_predicate(in.to, lanes, F{}(warp.predicate(in.from[0]), warp.predicate(in.from[1])));
}
void not_predicate(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.set_predicate(in.to, lanes, ~warp.predicate(in.from[0]));
}

template <class F> void logic(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  if (type == Type::pred)
    return build.emit(of_predicates<F>);
  with_width(bits(type), [&]<class T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, Bits128>)
      build.emit(binary<T, T, F>);
  });
}

template <class To, class F> void of_one(Build& build, Type type, Type result) {
  build.out.to = build.to(0, result);
  build.out.from[0] = build.from(1, type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      build.emit(unary<std::conditional_t<std::is_void_v<To>, T, To>, T, F>);
  });
}

/// Operands of the type, then a count of 32 bits.
template <class F> void shift(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, Type::u32);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      build.emit([](Warp& warp, const Instruction& in, std::uint32_t lanes) {
        const T* const a = warp.row<T>(in.from[0]);
        const std::uint32_t* const n = warp.row<std::uint32_t>(in.from[1]);
        assign_lanes(warp.row<T>(in.to), lanes, [a, n](unsigned lane) { return F{}(a[lane], n[lane]); });
      });
  });
}

template <class F> void of_three_words(Build& build) {
  build.out.to = build.to(0, Type::b32);
  for (std::size_t i = 0; i < 3; ++i)
    build.out.from[i] = build.from(i + 1, Type::b32);
  build.emit(ternary<std::uint32_t, std::uint32_t, std::uint32_t, F>);
}

void funnel_shift(Build& build) {
  const bool left = build.words.take_one_of({"l", "r"}) == "l";
  const bool wraps = build.words.take_one_of({"wrap", "clamp"}) == "wrap";
  if (left)
    wraps ? of_three_words<FunnelShift<true, true>>(build) : of_three_words<FunnelShift<true, false>>(build);
  else
    wraps ? of_three_words<FunnelShift<false, true>>(build)
          : of_three_words<FunnelShift<false, false>>(build);
}

void extract_field(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, Type::u32);
  build.out.from[2] = build.from(3, Type::u32);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) >= 4)
      build.emit([](Warp& warp, const Instruction& in, std::uint32_t lanes) {
        const T* const a = warp.row<T>(in.from[0]);
        const std::uint32_t* const position = warp.row<std::uint32_t>(in.from[1]);
        const std::uint32_t* const length = warp.row<std::uint32_t>(in.from[2]);
        assign_lanes(warp.row<T>(in.to), lanes,
                     [=](unsigned lane) { return ExtractField{}(a[lane], position[lane], length[lane]); });
      });
  });
}

void insert_field(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  build.out.from[2] = build.from(3, Type::u32);
  build.out.from[3] = build.from(4, Type::u32);
  build.emit(bits(type) == 32 ? insert_field<std::uint32_t> : insert_field<std::uint64_t>);
}

void logic_table(Build& build) {
  const std::string_view predicate = build.words.take_one_of({"and", "or"});
  const bool pair = build.operand(0).kind == Operand::Kind::pair;
  build.out.to = pair ? build.to(build.operand(0).items[0], Type::b32) : build.to(0, Type::b32);
  for (std::size_t i = 0; i < 3; ++i)
    build.out.from[i] = build.from(i + 1, Type::b32);
  build.out.immediate = static_cast<std::int64_t>(build.operand(4).number.integer);
  if (predicate.empty())
    return build.emit(logic_of_three);
  if (!pair)
    build.unsupported("a combined predicate needs a second destination");
  build.out.to_second = build.to(build.operand(0).items[1], Type::pred);
  build.out.from[3] = build.from(5, Type::pred);
  build.out.mode = predicate == "and";
  build.emit(logic_of_three_and_predicate);
}

void permute(Build& build) {
  const std::string_view mode = build.words.take_one_of({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (mode.empty())
    return of_three_words<Permute>(build);
  if (mode == "f4e")
    return of_three_words<PermuteMode<0>>(build);
  if (mode == "b4e")
    return of_three_words<PermuteMode<1>>(build);
  if (mode == "rc8")
    return of_three_words<PermuteMode<2>>(build);
  if (mode == "ecl")
    return of_three_words<PermuteMode<3>>(build);
  if (mode == "ecr")
    return of_three_words<PermuteMode<4>>(build);
  of_three_words<PermuteMode<5>>(build);
}

void make_mask(Build& build) {
  build.out.to = build.to(0, Type::b32);
  build.out.from[0] = build.from(1, Type::b32);
  build.out.from[1] = build.from(2, Type::b32);
  build.emit(build.words.take_one_of({"wrap", "clamp"}) == "wrap"
                 ? binary<std::uint32_t, std::uint32_t, MakeMask<true>>
                 : binary<std::uint32_t, std::uint32_t, MakeMask<false>>);
}

} // namespace

void build_bits(Build& build) {
  const Type type = build.type();
  switch (build.opcode) {
  case Opcode::and_:
    return logic<And>(build, type);
  case Opcode::or_:
    return logic<Or>(build, type);
  case Opcode::xor_:
    return logic<Xor>(build, type);
  case Opcode::not_:
    if (type != Type::pred)
      return of_one<void, Not>(build, type, type);
    build.out.to = build.to(0, type);
    build.out.from[0] = build.from(1, type);
    return build.emit(not_predicate);
  case Opcode::cnot:
    return of_one<void, IsZero>(build, type, type);
  case Opcode::lop3:
    return logic_table(build);
  case Opcode::shl:
    return shift<ShiftLeft>(build, type);
  case Opcode::shr:
    return shift<ShiftRight>(build, type);
  case Opcode::shf:
    return funnel_shift(build);
  case Opcode::popc:
    return of_one<std::uint32_t, CountOnes>(build, bits_type(bits(type)), Type::u32);
  case Opcode::clz:
    return of_one<std::uint32_t, CountLeadingZeros>(build, bits_type(bits(type)), Type::u32);
  case Opcode::brev:
    return of_one<void, Reverse>(build, type, type);
  case Opcode::bfind:
    return build.words.take("shiftamt") ? of_one<std::uint32_t, FindHighest<true>>(build, type, Type::u32)
                                        : of_one<std::uint32_t, FindHighest<false>>(build, type, Type::u32);
  case Opcode::bfe:
    return extract_field(build, type);
  case Opcode::bfi:
    return insert_field(build, type);
  case Opcode::bmsk:
    return make_mask(build);
  case Opcode::szext:
    return build.words.take_one_of({"wrap", "clamp"}) == "wrap" ? shift<ExtendSign<true>>(build, type)
                                                                : shift<ExtendSign<false>>(build, type);
  case Opcode::fns:
    return of_three_words<FindNthSet>(build);
  case Opcode::prmt:
    return permute(build);
  default:
    build.unsupported("it has no form of bits");
  }
}

} // namespace ptx
