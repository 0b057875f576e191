// SPDX-License-Identifier: Apache-2.0
// Comparison and selection: PTX ISA 9.0, sections 9.7.5 to 9.7.7.
#include <type_traits>

#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

enum class Relation : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

/// Comparisons for floating point are false where a value is not a number; those that end in u are true
/// there.
template <Relation relation, class T> bool compare(T a, T b) {
  const bool unordered = a != a || b != b;
  if constexpr (relation == Relation::eq)
    return a == b;
  else if constexpr (relation == Relation::ne)
    return !unordered && a != b;
  else if constexpr (relation == Relation::lt)
    return a < b;
  else if constexpr (relation == Relation::le)
    return a <= b;
  else if constexpr (relation == Relation::gt)
    return a > b;
  else if constexpr (relation == Relation::ge)
    return a >= b;
  else if constexpr (relation == Relation::equ)
    return unordered || a == b;
  else if constexpr (relation == Relation::neu)
    return a != b;
  else if constexpr (relation == Relation::ltu)
    return !(a >= b);
  else if constexpr (relation == Relation::leu)
    return !(a > b);
  else if constexpr (relation == Relation::gtu)
    return !(a <= b);
  else if constexpr (relation == Relation::geu)
    return !(a < b);
  else if constexpr (relation == Relation::num)
    return !unordered;
  else
    return unordered;
}

/// How the values of a row are seen: as they are, with subnormal numbers as zero, or as halves.
template <class T> struct Plain {
  using Row = T;
  static T value(T bits) { return bits; }
};
struct Flushed {
  using Row = float;
  static float value(float a) { return a < 0x1p-126F && a > -0x1p-126F ? 0.0F : a; }
};
struct HalfValue {
  using Row = std::uint16_t;
  static float value(std::uint16_t bits) { return f16_value(bits); }
};
struct BrainValue {
  using Row = std::uint16_t;
  static float value(std::uint16_t bits) { return bf16_value(bits); }
};

/// Combines a comparison with a predicate: Instruction::mode.
enum class Combine : std::uint8_t { none, both, either, differ };

std::uint32_t combined(Warp& warp, const Instruction& in, std::uint32_t compared) {
  switch (static_cast<Combine>(in.mode)) {
  case Combine::both:
    return compared & warp.predicate(in.from[2]);
  case Combine::either:
    return compared | warp.predicate(in.from[2]);
  case Combine::differ:
    return compared ^ warp.predicate(in.from[2]);
  case Combine::none:
    break;
  }
  return compared;
}

template <Relation relation, class Seen>
std::uint32_t compared(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto* const a = warp.row<typename Seen::Row>(in.from[0]);
  const auto* const b = warp.row<typename Seen::Row>(in.from[1]);
  return lanes_where(
      lanes, [a, b](unsigned lane) { return compare<relation>(Seen::value(a[lane]), Seen::value(b[lane])); });
}

/// to = comparison OP q, and to_second = !comparison OP q.
template <Relation relation, class Seen>
void set_predicate(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t result = compared<relation, Seen>(warp, in, lanes);
  const std::uint32_t first = combined(warp, in, result), second = combined(warp, in, ~result);
  warp.set_predicate(in.to, lanes, first);
  if (in.to_second != 0)
    warp.set_predicate(in.to_second, lanes, second);
}

/// to = all ones, or 1.0f where `flags` is 1, if the comparison holds.
template <Relation relation, class Seen>
void set_word(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t result = combined(warp, in, compared<relation, Seen>(warp, in, lanes));
  const std::uint32_t yes = in.flags != 0 ? 0x3f800000U : ~0U;
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes,
               [=](unsigned lane) { return (result >> lane & 1) != 0 ? yes : 0U; });
}

template <class Seen, Relation relation> void emit(Build& build) {
  build.emit(build.opcode == Opcode::setp ? set_predicate<relation, Seen> : set_word<relation, Seen>);
}

template <class Seen> void emit(Build& build, Relation relation) {
  using enum Relation;
  switch (relation) {
  case eq:
    return emit<Seen, eq>(build);
  case ne:
    return emit<Seen, ne>(build);
  case lt:
    return emit<Seen, lt>(build);
  case le:
    return emit<Seen, le>(build);
  case gt:
    return emit<Seen, gt>(build);
  case ge:
    return emit<Seen, ge>(build);
  default:
    break;
  }
  if constexpr (std::is_floating_point_v<decltype(Seen::value({}))>) {
    switch (relation) {
    case equ:
      return emit<Seen, equ>(build);
    case neu:
      return emit<Seen, neu>(build);
    case ltu:
      return emit<Seen, ltu>(build);
    case leu:
      return emit<Seen, leu>(build);
    case gtu:
      return emit<Seen, gtu>(build);
    case geu:
      return emit<Seen, geu>(build);
    case num:
      return emit<Seen, num>(build);
    case nan:
      return emit<Seen, nan>(build);
    default:
      break;
    }
  }
  build.unsupported("this comparison is not one of its type");
}

Relation take_relation(Build& build) {
  using enum Relation;
  struct Row {
    std::string_view word;
    Relation relation;
  };
  // lo, ls, hi and hs are names of comparisons of unsigned integers.
  constexpr Row rows[] = {{"eq", eq},   {"ne", ne},   {"lt", lt},   {"le", le},   {"gt", gt},   {"ge", ge},
                          {"lo", lt},   {"ls", le},   {"hi", gt},   {"hs", ge},   {"equ", equ}, {"neu", neu},
                          {"ltu", ltu}, {"leu", leu}, {"gtu", gtu}, {"geu", geu}, {"num", num}, {"nan", nan}};
  for (const Row& row : rows)
    if (build.words.take(row.word))
      return row.relation;
  build.unsupported("it names no comparison");
}

void emit_for(Build& build, Relation relation, Type type, bool ftz) {
  if (type == Type::f16)
    return emit<HalfValue>(build, relation);
  if (type == Type::bf16)
    return emit<BrainValue>(build, relation);
  if (ftz)
    return emit<Flushed>(build, relation);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (sizeof(T) > 1)
      emit<Plain<T>>(build, relation);
  });
}

void comparison(Build& build) {
  const Relation relation = take_relation(build);
  const std::string_view combine = build.words.take_one_of({"and", "or", "xor"});
  const bool ftz = build.words.take("ftz");
  const bool makes_word = build.opcode == Opcode::set;
  const Type result = makes_word ? build.type() : Type::pred;
  const Type type = build.type();
  if (makes_word && bits(result) != 32)
    build.unsupported("its result must have 32 bits");
  if (type == Type::f16x2 || type == Type::bf16x2 || (ftz && type != Type::f32))
    build.unsupported("it does not compare ." + std::string(name(type)) + " so");
  build.out.flags = result == Type::f32;
  const Operand& to = build.operand(0);
  if (to.kind == Operand::Kind::pair) {
    build.out.to = build.to(to.items.at(0), Type::pred);
    build.out.to_second = build.to(to.items.at(1), Type::pred);
  } else {
    build.out.to = build.to(to, result);
  }
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  if (!combine.empty()) {
    build.out.mode = static_cast<std::uint8_t>(combine == "and"  ? Combine::both
                                               : combine == "or" ? Combine::either
                                                                 : Combine::differ);
    build.out.from[2] = build.from(3, Type::pred);
  }
  emit_for(build, relation, type, ftz);
}

template <class T> void select(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  const std::uint32_t first = warp.predicate(in.from[2]);
  assign_lanes(warp.row<T>(in.to), lanes,
               [=](unsigned lane) { return (first >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

/// a where c is not negative; c is s32 or, compared as a number, f32.
template <class T, class C> void select_by_sign(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T* const b = warp.row<T>(in.from[1]);
  const C* const c = warp.row<C>(in.from[2]);
  assign_lanes(warp.row<T>(in.to), lanes, [=](unsigned lane) { return c[lane] >= 0 ? a[lane] : b[lane]; });
}

void selection(Build& build) {
  build.words.take("ftz");
  const Type type = build.type();
  const Type chooser = build.opcode == Opcode::selp ? Type::pred : build.type();
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[1] = build.from(2, type);
  build.out.from[2] = build.from(3, chooser);
  with_width(bits(type), [&]<class T>(std::type_identity<T>) {
    if (chooser == Type::pred)
      build.emit(select<T>);
    else
      build.emit(chooser == Type::s32 ? select_by_sign<T, std::int32_t> : select_by_sign<T, float>);
  });
}

} // namespace

void build_compare(Build& build) {
  if (build.opcode == Opcode::setp || build.opcode == Opcode::set)
    comparison(build);
  else
    selection(build);
}

} // namespace ptx
