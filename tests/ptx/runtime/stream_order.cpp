// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/stream_order.hpp"

#include "ptx/fault.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ptx_runtime {

namespace {

/// Neighbours of one kind become one.
std::vector<ptx::Touched> joined(std::vector<ptx::Touched> all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<ptx::Touched> out;
  for (const ptx::Touched& each : all)
    if (!out.empty() && out.back().end == each.begin && out.back().written == each.written &&
        out.back().strong == each.strong)
      out.back().end = each.end;
    else
      out.push_back(each);
  return out;
}

} // namespace

StreamOrder::Map::iterator StreamOrder::cut(std::uintptr_t at) {
  const auto after = bytes_.lower_bound(at);
  if (after == bytes_.begin() || (after != bytes_.end() && after->first == at))
    return after;
  const auto before = std::prev(after);
  if (before->second.end <= at)
    return after;
  const Bytes rest = before->second;
  before->second.end = at;
  return bytes_.emplace_hint(after, at, rest);
}

void StreamOrder::forget(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  cut(begin);
  bytes_.erase(bytes_.lower_bound(begin), cut(begin + bytes));
}

std::string StreamOrder::note(const fake_cuda::Turn& turn, const std::string& what, const ptx::Kernel* kernel,
                              std::vector<ptx::Touched> touched) {
  const auto piece = std::make_shared<const Piece>(Piece{turn, what, kernel});
  for (const ptx::Touched& range : joined(std::move(touched)))
    if (std::string sentence = note({piece, range.instruction, range.strong}, range); !sentence.empty())
      return sentence;
  return {};
}

bool StreamOrder::conflict(const Access& before, const Access& now) {
  return before.by != nullptr && !(before.strong && now.strong) && !now.by->turn.comes_after(before.by->turn);
}

std::string StreamOrder::note(const Access& access, const ptx::Touched& range) {
  cut(range.begin);
  const auto last = cut(range.end);
  std::uintptr_t at = range.begin;
  for (auto each = bytes_.lower_bound(range.begin); each != last; at = each->second.end, ++each) {
    Bytes& bytes = each->second;
    if (conflict(bytes.write, access))
      return report(bytes.write, true, access, range, each->first);
    if (range.written) {
      for (const Access& read : bytes.reads)
        if (conflict(read, access))
          return report(read, false, access, range, each->first);
      continue;
    }
    // Who comes after this read comes after those before it.
    std::erase_if(bytes.reads,
                  [&](const Access& read) { return access.by->turn.comes_after(read.by->turn); });
    bytes.reads.push_back(access);
    if (at < each->first)
      bytes_.emplace_hint(each, at, Bytes{each->first, {}, {access}});
  }
  if (range.written) {
    bytes_.erase(bytes_.lower_bound(range.begin), last);
    bytes_.emplace_hint(last, range.begin, Bytes{range.end, access, {}});
  } else if (at < range.end) {
    bytes_.emplace_hint(last, at, Bytes{range.end, {}, {access}});
  }
  return {};
}

std::string StreamOrder::report(const Access& before, bool written, const Access& now,
                                const ptx::Touched& range, std::uintptr_t at) {
  const auto place = [](const Access& access) {
    if (access.by->kernel == nullptr)
      return std::string();
    const ptx::Site site = access.by->kernel->site(access.instruction);
    return "\n  instruction: " + site.text + (site.source.empty() ? "" : "\n  source: " + site.source) +
           "\n  kernel: " + access.by->kernel->name;
  };
  const auto who = [](const Access& access) {
    return access.by->what + " on stream " + std::to_string(access.by->turn.line);
  };
  return "ptx: stream order: " + who(now) + (range.written ? " writes" : " reads") + " memory at " +
         ptx::hexadecimal(at) + ", which " + who(before) + (written ? " writes" : " reads") +
         ", and nothing orders the two: an event or a wait of the host is missing." + place(now) +
         "\n  the other:" + place(before);
}

} // namespace ptx_runtime
