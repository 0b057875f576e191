// SPDX-License-Identifier: Apache-2.0
// Atomic operations and fences: PTX ISA 9.0, section 9.7.13.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "../run/access.hpp"
#include "../run/rounding.hpp"
#include "build.hpp"
#include "loops.hpp"
#include "ordering.hpp"

namespace ptx {

namespace {

// What becomes of the old bits and those of b. `global` is false in shared memory.

template <class T> struct Add {
  template <class U> static U of(U old, U b, bool) { return static_cast<U>(old + b); }
};
/// In global memory f32 flushes subnormal numbers.
template <> struct Add<float> {
  static float flushed(float a) { return std::fabs(a) < 0x1p-126F ? std::copysign(0.0F, a) : a; }
  static std::uint32_t of(std::uint32_t old, std::uint32_t b, bool global) {
    const auto x = std::bit_cast<float>(old), y = std::bit_cast<float>(b);
    return std::bit_cast<std::uint32_t>(global ? flushed(flushed(x) + flushed(y)) : x + y);
  }
};
template <> struct Add<double> {
  static std::uint64_t of(std::uint64_t old, std::uint64_t b, bool) {
    return std::bit_cast<std::uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
  }
};
struct Half {
  static std::uint16_t sum(std::uint16_t a, std::uint16_t b) {
    return f16_nearest(f16_value(a) + f16_value(b));
  }
};
struct Brain {
  static std::uint16_t sum(std::uint16_t a, std::uint16_t b) {
    return bf16_nearest(bf16_value(a) + bf16_value(b));
  }
};
template <class N> struct AddSmall {
  static std::uint16_t of(std::uint16_t old, std::uint16_t b, bool) { return N::sum(old, b); }
  static std::uint32_t of(std::uint32_t old, std::uint32_t b, bool) {
    return N::sum(static_cast<std::uint16_t>(old), static_cast<std::uint16_t>(b)) |
           static_cast<std::uint32_t>(
               N::sum(static_cast<std::uint16_t>(old >> 16), static_cast<std::uint16_t>(b >> 16)))
               << 16;
  }
};
template <class T> struct Minimum {
  template <class U> static U of(U old, U b, bool) {
    return static_cast<T>(b) < static_cast<T>(old) ? b : old;
  }
};
template <class T> struct Maximum {
  template <class U> static U of(U old, U b, bool) {
    return static_cast<T>(b) > static_cast<T>(old) ? b : old;
  }
};
struct And {
  template <class U> static U of(U old, U b, bool) { return old & b; }
};
struct Or {
  template <class U> static U of(U old, U b, bool) { return old | b; }
};
struct Xor {
  template <class U> static U of(U old, U b, bool) { return old ^ b; }
};
struct Exchange {
  template <class U> static U of(U, U b, bool) { return b; }
};
struct Increment {
  template <class U> static U of(U old, U b, bool) { return old >= b ? U{0} : old + 1; }
};
struct Decrement {
  template <class U> static U of(U old, U b, bool) { return old == 0 || old > b ? b : old - 1; }
};

Access access_of(const Instruction& in, unsigned bytes) {
  Access access;
  access.space = static_cast<Space>(in.mode);
  access.bytes = bytes;
  access.reads = access.writes = true;
  access.strength = static_cast<Strength>(in.target & ordering::strength);
  return access;
}

/// to = the old value. Lanes take their turn from the lowest; other threads of the host may come between.
template <class T, class F> void update(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  order_before(warp, in);
  const Access access = access_of(in, sizeof(T));
  Checked checked(warp, in, lanes, access);
  warp.launched.polls += std::is_same_v<F, Exchange>; // a lock, perhaps
  const T* const b = warp.row<T>(in.from[1]);
  T olds[warp_lanes] = {};
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    T* const at = reinterpret_cast<T*>(checked.memory(lane));
    T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(at, &old, F::of(old, b[lane], !checked.in_shared(lane)), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      ;
    olds[lane] = old;
  });
  if (in.to == 0)
    return;
  assign_lanes(warp.row<T>(in.to), lanes, [&](unsigned lane) { return olds[lane]; });
  order_after(warp, in);
}

/// Compare and swap: from[1] is compared, from[2] swapped in.
template <class T> void compare_and_swap(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  order_before(warp, in);
  const Access access = access_of(in, sizeof(T));
  Checked checked(warp, in, lanes, access);
  ++warp.launched.polls;
  T olds[warp_lanes] = {};
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    T* const at = reinterpret_cast<T*>(checked.memory(lane));
    T swapped = warp.row<T>(in.from[2])[lane];
    T old = warp.row<T>(in.from[1])[lane];
    if constexpr (sizeof(T) <= 8) {
      __atomic_compare_exchange(at, &old, &swapped, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    } else { // atomic among the lanes of this launch
      const T expected = old;
      std::memcpy(&old, at, sizeof old);
      if (old == expected)
        std::memcpy(at, &swapped, sizeof swapped);
    }
    olds[lane] = old;
  });
  assign_lanes(warp.row<T>(in.to), lanes, [&](unsigned lane) { return olds[lane]; });
  order_after(warp, in);
}

void exchange_128(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const Access access = access_of(in, sizeof(Bits128));
  Checked checked(warp, in, lanes, access);
  const Bits128* const b = warp.row<Bits128>(in.from[1]);
  for_lanes(lanes, [&](unsigned lane) {
    checked.note(lane);
    Bits128 old;
    std::memcpy(&old, checked.memory(lane), sizeof old);
    std::memcpy(checked.memory(lane), &b[lane], sizeof old);
    warp.row<Bits128>(in.to)[lane] = old;
  });
}

template <class F> Execute of_width(unsigned width) {
  switch (width) {
  case 32:
    return update<std::uint32_t, F>;
  case 64:
    return update<std::uint64_t, F>;
  default:
    return nullptr;
  }
}

template <template <class> class F> Execute of_integer(Type type) {
  switch (type) {
  case Type::u32:
    return update<std::uint32_t, F<std::uint32_t>>;
  case Type::s32:
    return update<std::uint32_t, F<std::int32_t>>;
  case Type::u64:
    return update<std::uint64_t, F<std::uint64_t>>;
  case Type::s64:
    return update<std::uint64_t, F<std::int64_t>>;
  default:
    return nullptr;
  }
}

Execute addition(Type type) {
  switch (type) {
  case Type::f32:
    return update<std::uint32_t, Add<float>>;
  case Type::f64:
    return update<std::uint64_t, Add<double>>;
  case Type::f16:
    return update<std::uint16_t, AddSmall<Half>>;
  case Type::f16x2:
    return update<std::uint32_t, AddSmall<Half>>;
  case Type::bf16:
    return update<std::uint16_t, AddSmall<Brain>>;
  case Type::bf16x2:
    return update<std::uint32_t, AddSmall<Brain>>;
  default:
    return of_integer<Add>(type);
  }
}

Execute operation(std::string_view word, Type type) {
  const unsigned width = bits(type);
  if (word == "add")
    return addition(type);
  if (word == "min")
    return of_integer<Minimum>(type);
  if (word == "max")
    return of_integer<Maximum>(type);
  if (word == "and")
    return of_width<And>(width);
  if (word == "or")
    return of_width<Or>(width);
  if (word == "xor")
    return of_width<Xor>(width);
  if (word == "exch")
    return width == 128 ? exchange_128 : of_width<Exchange>(width);
  if (word == "inc")
    return type == Type::u32 ? update<std::uint32_t, Increment> : nullptr;
  if (word == "dec")
    return type == Type::u32 ? update<std::uint32_t, Decrement> : nullptr;
  if (word != "cas")
    return nullptr;
  switch (width) {
  case 16:
    return compare_and_swap<std::uint16_t>;
  case 32:
    return compare_and_swap<std::uint32_t>;
  case 64:
    return compare_and_swap<std::uint64_t>;
  default:
    return compare_and_swap<Bits128>;
  }
}

void atomic(Build& build) {
  // Without an order an atomic operation is relaxed, for the device.
  if (!take_ordering(build))
    build.out.target = static_cast<std::uint32_t>(Strength::device);
  const std::string_view space = build.words.take_one_of({"global", "shared", "shared::cta"});
  const std::string_view word =
      build.words.take_one_of({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  build.words.take("noftz");
  const Type type = build.type();
  const bool returns = build.opcode == Opcode::atom;
  const std::size_t address = returns ? 1 : 0;
  const Space named = build.address(address, space.empty()       ? Space::generic
                                             : space == "global" ? Space::global
                                                                 : Space::shared);
  build.out.mode = static_cast<std::uint8_t>(named);
  if (returns)
    build.out.to = build.to(0, type);
  build.out.from[1] = build.from(address + 1, type);
  if (word == "cas")
    build.out.from[2] = build.from(address + 2, type);
  const Execute execute = operation(word, type);
  if (execute == nullptr)
    build.unsupported("it knows no such operation for ." + std::string(name(type)));
  build.emit(execute);
}

/// Orders what the warp did before with what it does after.
void fence_all(Warp& warp, const Instruction&, std::uint32_t) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (warp.launched.races)
    warp.launched.races->fence(warp.block.number, warp.index, true, true);
}

void fence(Build& build) {
  build.words.take_one_of({"sc", "acq_rel", "acquire", "release"});
  build.words.take_one_of({"cta", "cluster", "gpu", "sys", "gl"});
  if (build.words.take("proxy"))
    build.words.take_one_of({"alias", "async", "async::global", "async::shared::cta"});
  build.emit(fence_all);
}

} // namespace

void build_atomic(Build& build) {
  if (build.opcode == Opcode::atom || build.opcode == Opcode::red)
    atomic(build);
  else
    fence(build);
}

} // namespace ptx
