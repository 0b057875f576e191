// SPDX-License-Identifier: Apache-2.0
// Instructions in which the lanes of a warp meet: PTX ISA 9.0, sections 9.7.9.6 and 9.7.13. The executor has
// seen to it that all lanes of the mask, whose row is from[3], are there; `lanes` are those that have not
// exited.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "../run/block.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

enum class Shuffle : std::uint8_t { up, down, butterfly, index };

/// The lane that a lane reads, and whether it lies in its segment.
struct Source {
  unsigned lane;
  bool inside;
};

Source source_of(Shuffle mode, unsigned lane, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t segment = c >> 8 & 31, distance = b & 31;
  const auto most = static_cast<int>((lane & segment) | (c & 31 & ~segment));
  const auto at = static_cast<int>(lane), by = static_cast<int>(distance);
  int from = 0;
  bool inside = false;
  switch (mode) {
  case Shuffle::up:
    from = at - by;
    inside = from >= most;
    break;
  case Shuffle::down:
    from = at + by;
    inside = from <= most;
    break;
  case Shuffle::butterfly:
    from = at ^ by;
    inside = from <= most;
    break;
  case Shuffle::index:
    from = static_cast<int>((lane & segment) | (distance & ~segment));
    inside = from <= most;
    break;
  }
  return {inside ? static_cast<unsigned>(from) : lane, inside};
}

void shuffle(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t* const a = warp.row<std::uint32_t>(in.from[0]);
  const std::uint32_t* const b = warp.row<std::uint32_t>(in.from[1]);
  const std::uint32_t* const c = warp.row<std::uint32_t>(in.from[2]);
  std::uint32_t values[warp_lanes] = {};
  std::uint32_t inside = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const Source source = source_of(static_cast<Shuffle>(in.mode), lane, b[lane], c[lane]);
    if ((lanes & bit(source.lane)) == 0)
      warp.fail(FaultKind::mask,
                "lane " + std::to_string(lane) + " reads from lane " + std::to_string(source.lane) +
                    ", which does not take part: the mask names " +
                    lanes_of(warp.row<std::uint32_t>(in.from[3])[lane]) + ", of which " + lanes_of(lanes) +
                    " are there.",
                bit(lane));
    values[lane] = a[source.lane];
    inside |= source.inside ? bit(lane) : 0;
  });
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) { return values[lane]; });
  if (in.to_second != 0)
    warp.set_predicate(in.to_second, lanes, inside);
}

enum class Vote : std::uint8_t { all, any, uniform, ballot };

void vote(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint32_t yes = warp.predicate(in.from[0]) & lanes;
  switch (static_cast<Vote>(in.mode)) {
  case Vote::all:
    return warp.set_predicate(in.to, lanes, yes == lanes ? all_lanes : 0);
  case Vote::any:
    return warp.set_predicate(in.to, lanes, yes != 0 ? all_lanes : 0);
  case Vote::uniform:
    return warp.set_predicate(in.to, lanes, yes == lanes || yes == 0 ? all_lanes : 0);
  case Vote::ballot:
    return assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [yes](unsigned) { return yes; });
  }
}

template <class T> void match_any(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  std::uint32_t same[warp_lanes] = {};
  for_lanes(lanes, [&](unsigned lane) {
    same[lane] = lanes_where(lanes, [&](unsigned other) { return a[other] == a[lane]; });
  });
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned lane) { return same[lane]; });
}

template <class T> void match_all(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const T first = a[std::countr_zero(lanes)];
  const bool same = lanes_where(lanes, [&](unsigned lane) { return a[lane] == first; }) == lanes;
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [&](unsigned) { return same ? lanes : 0U; });
  if (in.to_second != 0)
    warp.set_predicate(in.to_second, lanes, same ? all_lanes : 0);
}

template <class T> struct Sum {
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};
template <class T> struct Minimum {
  T operator()(T a, T b) const { return std::min(a, b); }
};
template <class T> struct Maximum {
  T operator()(T a, T b) const { return std::max(a, b); }
};
struct And {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a & b; }
};
struct Or {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a | b; }
};
struct Xor {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a ^ b; }
};

template <class T, class F> void reduce(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const T* const a = warp.row<T>(in.from[0]);
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  T result = a[first];
  for_lanes(lanes & ~bit(first), [&](unsigned lane) { result = F{}(result, a[lane]); });
  assign_lanes(warp.row<T>(in.to), lanes, [result](unsigned) { return result; });
}

void active_mask(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [lanes](unsigned) { return lanes; });
}

/// The lowest lane leads.
void elect(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto leader = static_cast<std::uint32_t>(std::countr_zero(lanes));
  if (in.to != 0)
    assign_lanes(warp.row<std::uint32_t>(in.to), lanes, [leader](unsigned) { return leader; });
  warp.set_predicate(in.to_second, lanes, bit(leader));
}

void synchronize(Warp& warp, const Instruction&, std::uint32_t) {
  if (warp.launched.races)
    warp.launched.races->warp_barrier(warp.block.number, warp.index);
}

/// `d|p` or `d`.
void pair_or_one(Build& build, Type type) {
  const Operand& to = build.operand(0);
  if (to.kind != Operand::Kind::pair) {
    build.out.to = build.to(to, type);
    return;
  }
  build.out.to = build.to(to.items.at(0), type);
  build.out.to_second = build.to(to.items.at(1), Type::pred);
}

void build_shuffle(Build& build) {
  const std::string_view mode = build.words.take_one_of({"up", "down", "bfly", "idx"});
  if (mode.empty() || bits(build.type()) != 32)
    build.unsupported("it needs a mode and 32 bits");
  build.out.mode = static_cast<std::uint8_t>(mode == "up"     ? Shuffle::up
                                             : mode == "down" ? Shuffle::down
                                             : mode == "bfly" ? Shuffle::butterfly
                                                              : Shuffle::index);
  pair_or_one(build, Type::b32);
  for (std::size_t i = 0; i < 4; ++i)
    build.out.from[i] = build.from(i + 1, Type::b32);
  build.emit(shuffle, Flow::collective);
}

void build_vote(Build& build) {
  const std::string_view mode = build.words.take_one_of({"all", "any", "uni", "ballot"});
  build.out.mode = static_cast<std::uint8_t>(mode == "all"   ? Vote::all
                                             : mode == "any" ? Vote::any
                                             : mode == "uni" ? Vote::uniform
                                                             : Vote::ballot);
  build.out.to = build.to(0, build.type());
  build.out.from[0] = build.from(1, Type::pred);
  build.out.from[3] = build.from(2, Type::b32);
  build.emit(vote, Flow::collective);
}

void build_match(Build& build) {
  const bool all = build.words.take_one_of({"all", "any"}) == "all";
  const Type type = build.type();
  pair_or_one(build, Type::b32);
  build.out.from[0] = build.from(1, type);
  build.out.from[3] = build.from(2, Type::b32);
  if (bits(type) == 32)
    build.emit(all ? match_all<std::uint32_t> : match_any<std::uint32_t>, Flow::collective);
  else
    build.emit(all ? match_all<std::uint64_t> : match_any<std::uint64_t>, Flow::collective);
}

void build_reduction(Build& build) {
  const std::string_view word = build.words.take_one_of({"add", "min", "max", "and", "or", "xor"});
  const Type type = build.type();
  build.out.to = build.to(0, type);
  build.out.from[0] = build.from(1, type);
  build.out.from[3] = build.from(2, Type::b32);
  const bool negative = type == Type::s32;
  using U = std::uint32_t;
  using S = std::int32_t;
  const Execute execute = word == "add"   ? (negative ? reduce<S, Sum<S>> : reduce<U, Sum<U>>)
                          : word == "min" ? (negative ? reduce<S, Minimum<S>> : reduce<U, Minimum<U>>)
                          : word == "max" ? (negative ? reduce<S, Maximum<S>> : reduce<U, Maximum<U>>)
                          : word == "and" ? reduce<U, And>
                          : word == "or"  ? reduce<U, Or>
                                          : reduce<U, Xor>;
  if (word.empty() || type == Type::f32)
    build.unsupported("it reduces integers of 32 bits");
  build.emit(execute, Flow::collective);
}

} // namespace

void build_warp_barrier(Build& build) {
  build.out.from[3] = build.from(0, Type::b32);
  build.out.flags = flag::meets_others;
  build.emit(synchronize, Flow::collective);
}

void build_warp(Build& build) {
  if (build.opcode == Opcode::activemask) {
    build.out.to = build.to(0, build.type());
    return build.emit(active_mask);
  }
  if (!build.words.take("sync"))
    build.unsupported("it must be .sync");
  switch (build.opcode) {
  case Opcode::shfl:
    return build_shuffle(build);
  case Opcode::vote:
    return build_vote(build);
  case Opcode::match:
    return build_match(build);
  case Opcode::redux:
    return build_reduction(build);
  default:
    break;
  }
  pair_or_one(build, Type::b32);
  build.out.from[3] = build.from(1, Type::b32);
  build.emit(elect, Flow::collective);
}

} // namespace ptx
