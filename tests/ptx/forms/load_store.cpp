// SPDX-License-Identifier: Apache-2.0
// Loads and stores: PTX ISA 9.0, sections 9.7.9.8 to 9.7.9.16.
#include <array>
#include <cstring>

#include "../run/access.hpp"
#include "build.hpp"
#include "loops.hpp"
#include "ordering.hpp"

namespace ptx {

namespace {

Access access_of(const Instruction& in, unsigned bytes) {
  Access access;
  access.space = static_cast<Space>(in.mode);
  access.bytes = bytes;
  access.strength = static_cast<Strength>(in.target & ordering::strength);
  return access;
}

template <class T, unsigned n> std::array<T*, n> rows(Warp& warp, const Instruction& in) {
  std::array<T*, n> out;
  for (unsigned i = 0; i < n; ++i)
    out[i] = warp.row<T>(warp.program.lists[in.list + i]);
  return out;
}

template <class T, unsigned n> void load(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  Access access = access_of(in, sizeof(T) * n);
  access.reads = true;
  Checked checked(warp, in, lanes, access);
  const std::array<T*, n> to = rows<T, n>(warp, in);
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    T values[n];
    std::memcpy(values, checked.memory(lane), sizeof values);
    for (unsigned i = 0; i < n; ++i)
      to[i][lane] = values[i];
  });
}

template <class T, unsigned n> void store(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  Access access = access_of(in, sizeof(T) * n);
  access.writes = true;
  Checked checked(warp, in, lanes, access);
  const std::array<T*, n> from = rows<T, n>(warp, in);
  for_lanes(lanes, [&](unsigned lane) {
    T values[n];
    for (unsigned i = 0; i < n; ++i)
      values[i] = from[i][lane];
    checked.note(lane, values);
    std::memcpy(checked.memory(lane), values, sizeof values);
  });
}

// Accesses that other threads of the host may meet, such as flags between launches.

template <class T, unsigned n> void load_strong(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  Access access = access_of(in, sizeof(T) * n);
  access.reads = true;
  Checked checked(warp, in, lanes, access);
  ++warp.launched.polls;
  const std::array<T*, n> to = rows<T, n>(warp, in);
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    for (unsigned i = 0; i < n; ++i)
      to[i][lane] = load_atomic<T>(checked.memory(lane) + i * sizeof(T));
  });
  order_after(warp, in);
}

template <class T, unsigned n> void store_strong(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  Access access = access_of(in, sizeof(T) * n);
  access.writes = true;
  order_before(warp, in);
  Checked checked(warp, in, lanes, access);
  const std::array<T*, n> from = rows<T, n>(warp, in);
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    for (unsigned i = 0; i < n; ++i)
      store_atomic<T>(checked.memory(lane) + i * sizeof(T), from[i][lane]);
  });
}

/// A parameter at a fixed place: the same for all lanes. `immediate` is its offset.
template <class T, unsigned n> void load_parameter(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::array<T*, n> to = rows<T, n>(warp, in);
  const auto* const at = static_cast<const std::byte*>(warp.launched.launch.parameters) + in.immediate;
  for (unsigned i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, at + i * sizeof(T), sizeof value);
    assign_lanes(to[i], lanes, [&](unsigned) { return value; });
  }
}

enum class Kind { load, store, load_strong, store_strong, parameter };

template <class T, unsigned n> Execute chosen(Kind kind) {
  switch (kind) {
  case Kind::load:
    return load<T, n>;
  case Kind::store:
    return store<T, n>;
  case Kind::load_strong:
    return load_strong<T, n>;
  case Kind::store_strong:
    return store_strong<T, n>;
  case Kind::parameter:
    return load_parameter<T, n>;
  }
  return nullptr;
}

void emit(Build& build, Type type, std::size_t count, Kind kind) {
  with_width(bits(type), [&]<class T>(std::type_identity<T>) {
    switch (count) {
    case 1:
      return build.emit(chosen<T, 1>(kind));
    case 2:
      return build.emit(chosen<T, 2>(kind));
    case 4:
      return build.emit(chosen<T, 4>(kind));
    case 8:
      return build.emit(chosen<T, 8>(kind));
    default:
      build.unsupported("a vector has 2, 4 or 8 elements");
    }
  });
}

/// Words that say how caches should behave mean nothing here.
void pass_cache_words(Build& build) {
  for (std::string_view word :
       {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
        "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B"})
    build.words.take(word);
}

Space take_space(Build& build) {
  const std::string_view word = build.words.take_one_of(
      {"global", "shared", "shared::cta", "local", "const", "param", "param::entry", "param::func"});
  return word == "global"             ? Space::global
         : word.starts_with("shared") ? Space::shared
         : word == "local"            ? Space::local
         : word == "const"            ? Space::constant
         : word.starts_with("param")  ? Space::parameter
                                      : Space::generic;
}

std::size_t take_count(Build& build) {
  const std::string_view word = build.words.take_one_of({"v2", "v4", "v8"});
  return word.empty() ? 1 : static_cast<std::size_t>(word[1] - '0');
}

void load_or_store(Build& build) {
  const bool stores = build.opcode == Opcode::st;
  pass_cache_words(build);
  const Space space = take_space(build);
  const bool strong = take_ordering(build);
  const std::size_t count = take_count(build);
  const Type type = build.type();
  const std::size_t address = stores ? 0 : 1, value = stores ? 1 : 0;
  const Space named = build.address(address, space);
  build.out.mode = static_cast<std::uint8_t>(named);
  const Operand& operand = build.operand(value);
  if ((count > 1) != (operand.kind == Operand::Kind::list) || (count > 1 && operand.items.size() != count))
    build.unsupported("its list does not fit the vector");
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = count > 1 ? operand.items[i] : operand;
    slots.push_back(stores ? build.from_wide(element, type) : build.to_wide(element, type));
  }
  build.list(slots);
  const Operand& where = build.operand(address);
  if (named == Space::parameter && !stores && !build.decoder.find_register(where.name)) {
    const auto symbol = build.decoder.find_symbol(where.name);
    const std::size_t bytes = bits(type) / 8 * count;
    const auto offset = static_cast<std::size_t>(where.offset);
    if (!symbol || offset + bytes > symbol->bytes || (symbol->address + offset) % bytes != 0)
      build.unsupported("it does not lie in its parameter");
    build.out.immediate = static_cast<std::int64_t>(symbol->address + offset);
    return emit(build, type, count, Kind::parameter);
  }
  if (strong)
    emit(build, type, count, stores ? Kind::store_strong : Kind::load_strong);
  else
    emit(build, type, count, stores ? Kind::store : Kind::load);
}

/// Advice to caches: nothing happens.
void nothing(Warp&, const Instruction&, std::uint32_t) {}

void advice(Build& build) {
  while (!build.words.left().empty())
    build.words.take(build.words.left());
  build.emit(nothing);
}

} // namespace

void build_load_store(Build& build) {
  if (build.opcode == Opcode::ld || build.opcode == Opcode::ldu || build.opcode == Opcode::st)
    load_or_store(build);
  else
    advice(build);
}

} // namespace ptx
