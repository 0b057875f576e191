// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <string>
#include <type_traits>

#include "../fault.hpp"
#include "../run/warp.hpp"

namespace ptx {

namespace {

/// Converts unsigned or signed integers of one width to another.
template <class From, class To> void convert_row(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const from = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [from](unsigned lane) { return static_cast<To>(from[lane]); });
}

template <class From> Execute conversion_to(unsigned width) {
  Execute out = nullptr;
  with_width(width, [&]<class To>(std::type_identity<To>) {
    if constexpr (!std::is_same_v<To, Bits128>)
      out = convert_row<From, To>;
  });
  return out;
}

/// Of a value as its type says, to a register of another width.
Execute conversion(Type type, unsigned width) {
  Execute out = nullptr;
  with_type(is_half(type) ? Type::b16 : type, [&]<class From>(std::type_identity<From>) {
    if constexpr (std::is_integral_v<From>)
      out = conversion_to<From>(width);
  });
  return out;
}

void invert_predicate(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  warp.set_predicate(in.to, lanes, ~warp.predicate(in.from[0]));
}

} // namespace

Build::Build(Decoder& of, std::string_view first, std::string_view rest, std::string_view guard)
    : decoder(of), words(first) {
  const auto known = ptx::opcode(words.first());
  if (!known)
    decoder.fail(FaultKind::unsupported,
                 "the interpreter does not know the opcode " + std::string(words.first()) + ".");
  opcode = *known;
  for (std::string_view part : split(rest, ','))
    operands.push_back(read_operand(part));
  if (guard.empty())
    return;
  const Operand predicate = read_operand(guard.substr(1));
  out.guard = from(Operand{.name = predicate.name}, Type::pred);
  out.guard_flip = predicate.negated ? all_lanes : 0;
}

const Operand& Build::operand(std::size_t i) const {
  if (i >= operands.size())
    unsupported("operand " + std::to_string(i + 1) + " is missing");
  return operands[i];
}

void Build::unsupported(const std::string& why) const {
  decoder.fail(FaultKind::unsupported,
               "the interpreter does not know this form of " + std::string(name(opcode)) + ": " + why + ".");
}

Type Build::type() {
  const auto next = words.take_type();
  if (!next)
    unsupported("it names no type");
  return *next;
}

void Build::before(Execute execute, Slot to, Slot source) {
  Instruction step;
  step.execute = execute;
  step.to = to;
  step.from[0] = source;
  step.guard = out.guard;
  step.guard_flip = out.guard_flip;
  decoder.append(step, false);
}

Slot Build::from(const Operand& operand, Type type) {
  const unsigned width = bits(type);
  if (operand.kind == Operand::Kind::number)
    return decoder.constant(operand.number.as(type), width);
  if (operand.kind != Operand::Kind::name)
    unsupported("an operand is a list or an address where a value must stand");
  if (const auto found = decoder.find_register(operand.name)) {
    if (bits(found->type) != width)
      unsupported("the register " + std::string(operand.name) + " has " + std::to_string(bits(found->type)) +
                  " bits, but the operand has " + std::to_string(width));
    if (!operand.negated)
      return found->slot;
    const Slot inverse = decoder.new_row(1);
    before(invert_predicate, inverse, found->slot);
    return inverse;
  }
  if (const auto symbol = decoder.find_symbol(operand.name); symbol && width >= 32)
    return decoder.address_of(*symbol, operand.offset, width);
  unsupported("nothing is named " + std::string(operand.name));
}

Slot Build::from_wide(const Operand& operand, Type type) {
  const auto found =
      operand.kind == Operand::Kind::name ? decoder.find_register(operand.name) : std::optional<Register>{};
  if (!found || bits(found->type) <= bits(type) || bits(found->type) > 64)
    return from(operand, type);
  const Slot narrow = decoder.new_row(bits(type));
  before(conversion(bits_type(bits(found->type)), bits(type)), narrow, found->slot);
  return narrow;
}

Slot Build::to(const Operand& operand, Type type) {
  const unsigned width = bits(type);
  if (operand.name == "_")
    return decoder.new_row(width);
  const auto found =
      operand.kind == Operand::Kind::name ? decoder.find_register(operand.name) : std::optional<Register>{};
  if (!found)
    unsupported("a destination is not a register");
  if (bits(found->type) != width)
    unsupported("the register " + std::string(operand.name) + " has " + std::to_string(bits(found->type)) +
                " bits, but the result has " + std::to_string(width));
  return found->slot;
}

Slot Build::to_wide(const Operand& operand, Type type) {
  const auto found =
      operand.kind == Operand::Kind::name ? decoder.find_register(operand.name) : std::optional<Register>{};
  if (!found || bits(found->type) <= bits(type))
    return to(operand, type);
  Instruction step;
  step.execute = conversion(type, bits(found->type));
  if (step.execute == nullptr)
    unsupported("its result does not extend to the register");
  step.to = found->slot;
  step.from[0] = decoder.new_row(bits(type));
  after_.push_back(step);
  return step.from[0];
}

Space Build::address(std::size_t i, Space space) {
  const Operand& where = operand(i);
  if (where.kind != Operand::Kind::address)
    unsupported("operand " + std::to_string(i + 1) + " must be an address");
  out.immediate = where.offset;
  if (where.name.empty()) {
    out.from[0] = decoder.constant(0, 64);
    return space;
  }
  if (const auto found = decoder.find_register(where.name)) {
    out.from[0] = found->slot;
    if (bits(found->type) != 64 && bits(found->type) != 32)
      unsupported("an address has 32 or 64 bits");
    out.flags |= bits(found->type) == 32 ? flag::narrow_address : std::uint8_t{0};
    return space;
  }
  const auto symbol = decoder.find_symbol(where.name);
  if (!symbol)
    unsupported("nothing is named " + std::string(where.name));
  out.from[0] = decoder.address_of(*symbol, 0, 64);
  return symbol->space;
}

void Build::list(const std::vector<Slot>& slots) {
  out.list = static_cast<std::uint32_t>(decoder.program.lists.size());
  out.list_size = static_cast<std::uint8_t>(slots.size());
  decoder.program.lists.insert(decoder.program.lists.end(), slots.begin(), slots.end());
}

void Build::emit(Execute execute, Flow flow) {
  out.execute = execute;
  out.flow = flow;
  decoder.append(out, !emitted_);
  emitted_ = true;
  for (Instruction& step : after_) {
    step.guard = out.guard;
    step.guard_flip = out.guard_flip;
    decoder.append(step, false);
  }
  after_.clear();
}

void Build::finish() const {
  if (!words.left().empty())
    unsupported("it does not know ." + std::string(words.left()) + " here");
  if (!emitted_)
    unsupported("no case covers it");
}

// One function: the table of opcodes and the families that know their forms.
void Build::decode() {
  using enum Opcode;
  const auto next = words.next_type();
  const bool half = next && is_half(*next);
  const bool real = next && (*next == Type::f32 || *next == Type::f64);
  switch (opcode) {
  case add:
  case sub:
  case mul:
  case div:
  case abs:
  case neg:
  case min:
  case max:
    half ? build_half(*this) : real ? build_float(*this) : build_integer(*this);
    break;
  case fma:
  case mad:
  case ex2:
  case tanh:
    half ? build_half(*this) : real ? build_float(*this) : build_integer(*this);
    break;
  case rcp:
  case sqrt:
  case rsqrt:
  case sin:
  case cos:
  case lg2:
  case copysign:
  case testp:
    build_float(*this);
    break;
  case addc:
  case subc:
  case mul24:
  case mad24:
  case madc:
  case sad:
  case rem:
  case dp4a:
  case dp2a:
    build_integer(*this);
    break;
  case and_:
  case or_:
  case xor_:
  case not_:
  case cnot:
  case lop3:
  case shl:
  case shr:
  case shf:
  case popc:
  case clz:
  case brev:
  case bfind:
  case bfe:
  case bfi:
  case bmsk:
  case szext:
  case fns:
  case prmt:
    build_bits(*this);
    break;
  case setp:
  case set:
  case selp:
  case slct:
    build_compare(*this);
    break;
  case mov:
  case cvta:
  case isspacep:
    build_move(*this);
    break;
  case cvt:
    build_convert(*this);
    break;
  case ld:
  case ldu:
  case st:
  case prefetch:
  case prefetchu:
  case applypriority:
  case discard:
    build_load_store(*this);
    break;
  case atom:
  case red:
  case fence:
  case membar:
    build_atomic(*this);
    break;
  case cp:
    build_copy(*this);
    break;
  case shfl:
  case vote:
  case match:
  case redux:
  case activemask:
  case elect:
    build_warp(*this);
    break;
  case mma:
  case ldmatrix:
  case stmatrix:
  case movmatrix:
    build_matrix(*this);
    break;
  case bar:
  case barrier:
  case bra:
  case brx:
  case ret:
  case exit:
  case trap:
  case brkpt:
  case nanosleep:
  case griddepcontrol:
  case pmevent:
    build_control(*this);
    break;
  case call:
    build_call(*this);
    break;
  }
  finish();
}

} // namespace ptx
