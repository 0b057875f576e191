// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic: PTX ISA 9.0, sections 9.7.1 and 9.7.2 (extended precision).
#include <algorithm>
#include <limits>
#include <type_traits>

#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

/// Wide enough that no product or sum of two T overflows as int would.
template <class T> using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T> Wrapping<T> wrapping(T value) { return static_cast<Wrapping<T>>(value); }

template <class T>
using Double = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>>>;

struct Add {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) + wrapping(b)); }
};
struct Subtract {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) - wrapping(b)); }
};
struct MultiplyLow {
  template <class T> T operator()(T a, T b) const { return static_cast<T>(wrapping(a) * wrapping(b)); }
};
struct MultiplyHigh {
  template <class T> T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b) >> (8 * sizeof(T)));
  }
};
struct MultiplyWide {
  template <class T> Double<T> operator()(T a, T b) const {
    return static_cast<Double<T>>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b));
  }
};
template <class Product> struct MultiplyAdd {
  template <class T, class C> C operator()(T a, T b, C c) const {
    return Add{}(static_cast<C>(Product{}(a, b)), c);
  }
};
struct AddSaturated {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const { return clamp(std::int64_t{a} + b); }
  static std::int32_t clamp(std::int64_t value) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, std::numeric_limits<std::int32_t>::min(),
                                                              std::numeric_limits<std::int32_t>::max()));
  }
};
struct SubtractSaturated {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    return AddSaturated::clamp(std::int64_t{a} - b);
  }
};
struct MultiplyHighAddSaturated {
  std::int32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c) const {
    return AddSaturated::clamp(std::int64_t{MultiplyHigh{}(a, b)} + c);
  }
};

/// The result of a division by zero is not specified: here all bits are set, as on current devices.
struct Divide {
  template <class T> T operator()(T a, T b) const {
    if (b == 0)
      return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return Subtract{}(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T> T operator()(T a, T b) const {
    return Subtract{}(a, MultiplyLow{}(b == 0 ? T{0} : Divide{}(a, b), b));
  }
};
struct Absolute {
  template <class T> T operator()(T a) const { return a < 0 ? Subtract{}(T{0}, a) : a; }
};
struct Negate {
  template <class T> T operator()(T a) const { return Subtract{}(T{0}, a); }
};
struct Minimum {
  template <class T> T operator()(T a, T b) const { return std::min(a, b); }
};
struct Maximum {
  template <class T> T operator()(T a, T b) const { return std::max(a, b); }
};
struct AbsoluteDifference {
  template <class T> T operator()(T a, T b, T c) const {
    return Add{}(c, a < b ? Subtract{}(b, a) : Subtract{}(a, b));
  }
};

/// The low 24 bits of a value, with their sign.
template <class T> T low_24(T a) {
  if constexpr (std::is_signed_v<T>)
    return static_cast<T>(static_cast<std::int32_t>(static_cast<std::uint32_t>(a) << 8) >> 8);
  else
    return a & 0xffffff;
}
struct Multiply24Low {
  template <class T> T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Double<T>>(low_24(a)) * static_cast<Double<T>>(low_24(b)));
  }
};
struct Multiply24High {
  template <class T> T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Double<T>>(low_24(a)) * static_cast<Double<T>>(low_24(b)) >> 16);
  }
};

/// Four products of bytes, or two of 16 bits with bytes of one half of b.
template <class A, class B, unsigned products, unsigned first> struct DotProduct {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    std::uint32_t sum = c;
    for (unsigned i = 0; i < products; ++i)
      sum += static_cast<std::uint32_t>(static_cast<A>(a >> (32 / products * i))) *
             static_cast<std::uint32_t>(static_cast<B>(b >> (8 * (first + i))));
    return sum;
  }
};

// Extended precision. Instruction::mode: 1 reads the carry, 2 writes it, 4 subtracts.
constexpr unsigned reads_carry = 1, writes_carry = 2;

template <class T> void add_with_carry(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  T* const to = warp.row<T>(in.to);
  for_lanes(lanes, [&](unsigned lane) {
    const T carry = (in.mode & reads_carry) != 0 ? warp.carry >> lane & 1 : 0;
    const auto sum = static_cast<unsigned __int128>(a[lane]) + b[lane] + carry;
    to[lane] = static_cast<T>(sum);
    if ((in.mode & writes_carry) != 0)
      warp.carry = (warp.carry & ~bit(lane)) | static_cast<std::uint32_t>(sum >> (8 * sizeof(T)) & 1) << lane;
  });
}

template <class T> void subtract_with_borrow(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  T* const to = warp.row<T>(in.to);
  for_lanes(lanes, [&](unsigned lane) {
    const T borrow = (in.mode & reads_carry) != 0 ? warp.carry >> lane & 1 : 0;
    const auto subtrahend = static_cast<unsigned __int128>(b[lane]) + borrow;
    const bool borrows = a[lane] < subtrahend;
    to[lane] = static_cast<T>(a[lane] - static_cast<T>(subtrahend));
    if ((in.mode & writes_carry) != 0)
      warp.carry = (warp.carry & ~bit(lane)) | static_cast<std::uint32_t>(borrows) << lane;
  });
}

template <class T, class Product>
void multiply_add_with_carry(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  alignas(64) T products[warp_lanes] = {};
  for_lanes(lanes, [&](unsigned lane) { products[lane] = Product{}(a[lane], b[lane]); });
  const T* const c = warp.row<T>(in.from[2]);
  T* const to = warp.row<T>(in.to);
  for_lanes(lanes, [&](unsigned lane) {
    const T carry = (in.mode & reads_carry) != 0 ? warp.carry >> lane & 1 : 0;
    const auto sum = static_cast<unsigned __int128>(products[lane]) + c[lane] + carry;
    to[lane] = static_cast<T>(sum);
    if ((in.mode & writes_carry) != 0)
      warp.carry = (warp.carry & ~bit(lane)) | static_cast<std::uint32_t>(sum >> (8 * sizeof(T)) & 1) << lane;
  });
}

/// The instruction of two operands for the type of the operands.
template <class F> void two(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      build.emit(binary<T, T, F>);
  });
}

template <class F> void one(Build& build, Type type) {
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      build.emit(unary<T, T, F>);
  });
}

template <class F> void three(Build& build, Type type) {
  build.out.to = build.to(0, type);
  for (std::size_t i = 0; i < 3; ++i)
    build.out.from[i] = build.from(i + 1, type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      build.emit(ternary<T, T, T, F>);
  });
}

Type doubled(Type type) {
  switch (type) {
  case Type::u16:
    return Type::u32;
  case Type::s16:
    return Type::s32;
  case Type::u32:
    return Type::u64;
  default:
    return Type::s64;
  }
}

void wide(Build& build, Type type, bool adds) {
  if (bits(type) != 16 && bits(type) != 32)
    build.unsupported(".wide takes 16 or 32 bits");
  const Type product = doubled(type);
  build.out.to = build.to(0, product);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  if (adds)
    build.out.from[2] = build.from(3, product);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T> && (sizeof(T) == 2 || sizeof(T) == 4)) {
      if (adds)
        build.emit(ternary<Double<T>, T, Double<T>, MultiplyAdd<MultiplyWide>>);
      else
        build.emit(binary<Double<T>, T, MultiplyWide>);
    }
  });
}

void extended(Build& build, Type type, bool reads, bool subtracts) {
  const bool writes = build.words.take("cc");
  build.out.mode = static_cast<std::uint8_t>((reads ? reads_carry : 0) | (writes ? writes_carry : 0));
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  if (bits(type) == 32)
    build.emit(subtracts ? subtract_with_borrow<std::uint32_t> : add_with_carry<std::uint32_t>);
  else
    build.emit(subtracts ? subtract_with_borrow<std::uint64_t> : add_with_carry<std::uint64_t>);
}

void extended_product(Build& build, Type type, bool reads) {
  const bool high = build.words.take_one_of({"lo", "hi"}) == "hi";
  const bool writes = build.words.take("cc");
  build.out.mode = static_cast<std::uint8_t>((reads ? reads_carry : 0) | (writes ? writes_carry : 0));
  build.out.to = build.to(0, type);
  for (std::size_t i = 0; i < 3; ++i)
    build.out.from[i] = build.from(i + 1, type);
  if (high && is_signed(type))
    build.unsupported("it takes the high half of unsigned products only");
  if (bits(type) == 32)
    build.emit(high ? multiply_add_with_carry<std::uint32_t, MultiplyHigh>
                    : multiply_add_with_carry<std::uint32_t, MultiplyLow>);
  else
    build.emit(high ? multiply_add_with_carry<std::uint64_t, MultiplyHigh>
                    : multiply_add_with_carry<std::uint64_t, MultiplyLow>);
}

void product(Build& build, Type type) {
  const std::string_view part = build.words.take_one_of({"lo", "hi", "wide"});
  if (part == "wide")
    wide(build, type, false);
  else
    part == "hi" ? two<MultiplyHigh>(build, type) : two<MultiplyLow>(build, type);
}

void product_sum(Build& build, Type type) {
  Words rest = build.words;
  if (rest.take("cc"))
    return extended_product(build, type, false);
  const std::string_view part = build.words.take_one_of({"lo", "hi", "wide"});
  if (part == "wide")
    wide(build, type, true);
  else if (part == "lo")
    three<MultiplyAdd<MultiplyLow>>(build, type);
  else if (!build.words.take("sat"))
    three<MultiplyAdd<MultiplyHigh>>(build, type);
  else if (type == Type::s32) {
    build.out.to = build.to(0, type);
    for (std::size_t i = 0; i < 3; ++i)
      build.out.from[i] = build.from(i + 1, type);
    build.emit(ternary<std::int32_t, std::int32_t, std::int32_t, MultiplyHighAddSaturated>);
  }
}

void sum(Build& build, Type type) {
  const bool subtracts = build.opcode == Opcode::sub;
  Words rest = build.words;
  if (rest.take("cc"))
    return extended(build, type, false, subtracts);
  if (!build.words.take("sat"))
    return subtracts ? two<Subtract>(build, type) : two<Add>(build, type);
  if (type != Type::s32)
    build.unsupported(".sat needs s32");
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  build.emit(subtracts ? binary<std::int32_t, std::int32_t, SubtractSaturated>
                       : binary<std::int32_t, std::int32_t, AddSaturated>);
}

template <class A, class B> void dot_product(Build& build) {
  build.out.to = build.to(0, Type::b32);
  for (std::size_t i = 0; i < 3; ++i)
    build.out.from[i] = build.from(i + 1, Type::b32);
  using Row = std::uint32_t;
  if (build.opcode == Opcode::dp4a)
    build.emit(ternary<Row, Row, Row, DotProduct<A, B, 4, 0>>);
  else if (build.words.take_one_of({"lo", "hi"}) == "hi")
    build.emit(
        ternary<Row, Row, Row,
                DotProduct<std::conditional_t<std::is_signed_v<A>, std::int16_t, std::uint16_t>, B, 2, 2>>);
  else
    build.emit(
        ternary<Row, Row, Row,
                DotProduct<std::conditional_t<std::is_signed_v<A>, std::int16_t, std::uint16_t>, B, 2, 0>>);
}

void dot_products(Build& build) {
  const bool a_signed = build.type() == Type::s32, b_signed = build.type() == Type::s32;
  if (a_signed)
    b_signed ? dot_product<std::int8_t, std::int8_t>(build) : dot_product<std::int8_t, std::uint8_t>(build);
  else
    b_signed ? dot_product<std::uint8_t, std::int8_t>(build) : dot_product<std::uint8_t, std::uint8_t>(build);
}

} // namespace

void build_integer(Build& build) {
  if (build.opcode == Opcode::dp4a || build.opcode == Opcode::dp2a)
    return dot_products(build);
  const Type type = build.type();
  if (!is_integer(type) || bits(type) == 8)
    build.unsupported("it computes with no ." + std::string(name(type)));
  switch (build.opcode) {
  case Opcode::add:
  case Opcode::sub:
    return sum(build, type);
  case Opcode::addc:
    return extended(build, type, true, false);
  case Opcode::subc:
    return extended(build, type, true, true);
  case Opcode::mul:
    return product(build, type);
  case Opcode::mad:
    return product_sum(build, type);
  case Opcode::madc:
    return extended_product(build, type, true);
  case Opcode::mul24:
    return build.words.take_one_of({"lo", "hi"}) == "hi" ? two<Multiply24High>(build, type)
                                                         : two<Multiply24Low>(build, type);
  case Opcode::mad24:
    return build.words.take_one_of({"lo", "hi"}) == "hi" ? three<MultiplyAdd<Multiply24High>>(build, type)
                                                         : three<MultiplyAdd<Multiply24Low>>(build, type);
  case Opcode::sad:
    return three<AbsoluteDifference>(build, type);
  case Opcode::div:
    return two<Divide>(build, type);
  case Opcode::rem:
    return two<Remainder>(build, type);
  case Opcode::abs:
    return one<Absolute>(build, type);
  case Opcode::neg:
    return one<Negate>(build, type);
  case Opcode::min:
    return two<Minimum>(build, type);
  case Opcode::max:
    return two<Maximum>(build, type);
  default:
    build.unsupported("it has no integer form");
  }
}

} // namespace ptx
