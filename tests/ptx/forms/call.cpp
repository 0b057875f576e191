// SPDX-License-Identifier: Apache-2.0
// Calls: PTX ISA 9.0, section 9.7.12.5. A function's parameters and results have a place in local memory, so
// that a call copies bytes there and back. Functions that CUDA's run-time system provides print, or end in a
// fault.
#include <cstdio>
#include <cstring>
#include <string>

#include "../run/block.hpp"
#include "build.hpp"
#include "loops.hpp"

namespace ptx {

namespace {

std::byte* local_of(Warp& warp, unsigned lane) { return warp.local + lane * warp.program.local_bytes; }

template <class T> T argument(Warp& warp, unsigned lane, Slot address) {
  T value;
  std::memcpy(&value, local_of(warp, lane) + address, sizeof value);
  return value;
}

/// Copies `list` bytes of local memory from `immediate` to `target`.
void copy_argument(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    std::memcpy(local_of(warp, lane) + in.target, local_of(warp, lane) + in.immediate, in.list);
  });
}

/// A string of device memory.
std::string text_at(Warp& warp, std::uint64_t address, unsigned lane) {
  const Memory::Block* const block = warp.launched.memory.find(address, 1);
  if (block == nullptr)
    warp.fail(FaultKind::bounds,
              "a string lies in no block: " + warp.launched.memory.describe(address, 1) + ".", bit(lane));
  const char* const begin = reinterpret_cast<const char*>(address);
  return {begin, strnlen(begin, block->end - address)};
}

/// The part of a format from its `%` to its letter.
std::string conversion_at(const std::string& format, std::size_t at) {
  const std::size_t end = format.find_first_of("diouxXcsfFeEgGaAp%", at + 1);
  return format.substr(at, end == std::string::npos ? end : end - at + 1);
}

/// Prints as printf does. Arguments lie one after the other, each at a multiple of its size.
std::string printed(Warp& warp, unsigned lane, const std::string& format, std::uint64_t arguments) {
  const auto* const base = reinterpret_cast<const std::byte*>(arguments);
  std::size_t offset = 0;
  const auto next = [&]<class T>(T value) {
    offset = (offset + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    std::memcpy(&value, base + offset, sizeof value);
    offset += sizeof value;
    return value;
  };
  std::string out;
  char buffer[512];
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    const std::string conversion = conversion_at(format, at);
    at += conversion.size();
    const char letter = conversion.back();
    const bool wide = conversion.find('l') != std::string::npos ||
                      conversion.find('z') != std::string::npos || conversion.find('j') != std::string::npos;
    if (letter == '%')
      std::snprintf(buffer, sizeof buffer, "%%");
    else if (letter == 's')
      std::snprintf(buffer, sizeof buffer, conversion.c_str(),
                    text_at(warp, next(std::uint64_t{}), lane).c_str());
    else if (letter == 'p')
      std::snprintf(buffer, sizeof buffer, conversion.c_str(),
                    reinterpret_cast<void*>(next(std::uintptr_t{})));
    else if (std::string_view("fFeEgGaA").find(letter) != std::string_view::npos)
      std::snprintf(buffer, sizeof buffer, conversion.c_str(), next(double{}));
    else if (wide)
      std::snprintf(buffer, sizeof buffer, conversion.c_str(), next(std::uint64_t{}));
    else
      std::snprintf(buffer, sizeof buffer, conversion.c_str(), next(std::uint32_t{}));
    out += buffer;
  }
  return out;
}

// Functions of the run-time system: from[i] is the place of argument i, `to` that of the result.

void print(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const std::string format = text_at(warp, argument<std::uint64_t>(warp, lane, in.from[0]), lane);
    const std::string text = printed(warp, lane, format, argument<std::uint64_t>(warp, lane, in.from[1]));
    if (warp.launched.options.print)
      warp.launched.options.print(text);
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
  });
}

void fail_assertion(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
  const auto text = [&](unsigned i) {
    return text_at(warp, argument<std::uint64_t>(warp, lane, in.from[i]), lane);
  };
  warp.fail(FaultKind::assertion,
            "the assertion `" + text(0) + "` of " + text(1) + ":" +
                std::to_string(argument<std::uint32_t>(warp, lane, in.from[2])) + ", in " + text(3) +
                ", does not hold.",
            lanes);
}

void refuse_allocation(Warp& warp, const Instruction&, std::uint32_t lanes) {
  warp.fail(FaultKind::unsupported, "device code allocates memory, which the interpreter does not do.",
            lanes);
}

void copy_bytes(Build& build, const Symbol& from, const Symbol& to) {
  Instruction step;
  step.execute = copy_argument;
  step.immediate = static_cast<std::int64_t>(from.address);
  step.target = static_cast<std::uint32_t>(to.address);
  step.list = static_cast<std::uint32_t>(std::min(from.bytes, to.bytes));
  step.guard = build.out.guard;
  step.guard_flip = build.out.guard_flip;
  build.decoder.append(step, false);
}

std::vector<Symbol> symbols(Build& build, const Operand& list) {
  std::vector<Symbol> out;
  for (const Operand& item : list.items) {
    const auto symbol =
        item.kind == Operand::Kind::name ? build.decoder.find_symbol(item.name) : std::nullopt;
    if (!symbol || symbol->space != Space::local)
      build.unsupported("an argument or result is no .param");
    out.push_back(*symbol);
  }
  return out;
}

bool build_provided(Build& build, std::string_view function, const std::vector<Symbol>& arguments) {
  const Execute execute = function == "vprintf"                        ? print
                          : function == "__assertfail"                 ? fail_assertion
                          : function == "malloc" || function == "free" ? refuse_allocation
                                                                       : nullptr;
  if (execute == nullptr)
    return false;
  for (std::size_t i = 0; i < std::min<std::size_t>(arguments.size(), 4); ++i)
    build.out.from[i] = static_cast<Slot>(arguments[i].address);
  build.emit(execute);
  return true;
}

} // namespace

void build_call(Build& build) {
  build.words.take("uni");
  const Operand none{.kind = Operand::Kind::list};
  const bool returns = build.operand(0).kind == Operand::Kind::list;
  const std::size_t at = returns ? 1 : 0;
  const std::string_view function = build.operand(at).name;
  const std::vector<Symbol> results = symbols(build, returns ? build.operand(0) : none);
  const std::vector<Symbol> arguments = symbols(build, at + 1 < build.count() ? build.operand(at + 1) : none);
  if (build_provided(build, function, arguments))
    return;
  const Callee* const callee = build.decoder.callee(function);
  if (callee == nullptr)
    build.unsupported("the function " + std::string(function) +
                      " has no body here (or it is called by address)");
  if (callee->parameters.size() != arguments.size() || callee->results.size() != results.size())
    build.unsupported("its arguments are not those of the function");
  for (std::size_t i = 0; i < arguments.size(); ++i)
    copy_bytes(build, arguments[i], callee->parameters[i]);
  build.out.to = callee->return_to;
  build.out.target = callee->entry;
  build.emit(nullptr, Flow::call);
  for (std::size_t i = 0; i < results.size(); ++i)
    copy_bytes(build, callee->results[i], results[i]);
}

} // namespace ptx
