// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "fault.hpp"
#include "module.hpp"

namespace ptx {

void Memory::add(const void* address, std::size_t bytes, std::string label, Contents contents,
                 bool read_only) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + bytes;
  auto block = std::make_unique<Block>();
  block->begin = begin;
  block->end = end;
  block->label = std::move(label);
  block->read_only = read_only;
  if (contents == Contents::unwritten)
    block->written = std::make_unique<std::uint8_t[]>(bytes);
  const std::unique_lock lock(mutex_);
  const auto next = blocks_.lower_bound(begin);
  const bool meets_next = next != blocks_.end() && next->first < std::max(end, begin + 1);
  const bool meets_last = next != blocks_.begin() && std::prev(next)->second->end > begin;
  if (meets_next || meets_last)
    throw std::invalid_argument("ptx: a block must not overlap another one, but " + block->label + " at " +
                                hexadecimal(begin) + " overlaps " +
                                (meets_next ? next : std::prev(next))->second->label + ".");
  // What was freed there is in use again.
  auto freed = freed_.lower_bound(begin);
  if (freed != freed_.begin() && std::prev(freed)->second.end > begin)
    --freed;
  while (freed != freed_.end() && freed->first < end)
    freed = freed_.erase(freed);
  blocks_.emplace(begin, std::move(block));
}

void Memory::remove(const void* address) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == blocks_.end())
    throw std::invalid_argument("ptx: no block begins at " +
                                hexadecimal(reinterpret_cast<std::uintptr_t>(address)) + ".");
  freed_[found->first] = {found->second->end, found->second->label};
  blocks_.erase(found);
}

void Memory::add_variables(const Module& module) {
  for (const Variable& variable : module.variables())
    add(variable.address, variable.bytes, "variable " + variable.name, Contents::written, variable.constant);
}

void Memory::remove_variables(const Module& module) {
  for (const Variable& variable : module.variables())
    remove(variable.address);
}

const Memory::Block* Memory::at(std::uintptr_t address) const {
  auto next = blocks_.upper_bound(address);
  return next == blocks_.begin() ? nullptr : std::prev(next)->second.get();
}

const Memory::Block* Memory::find(std::uintptr_t address, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  const Block* const block = at(address);
  return block != nullptr && block->holds(address, bytes) ? block : nullptr;
}

void Memory::mark_written(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (const Block* const block = find(begin, bytes); block != nullptr && block->written != nullptr)
    std::memset(block->written.get() + (begin - block->begin), 1, bytes);
}

void Memory::mark_copied(const void* to, const void* from, std::size_t bytes) {
  const auto source = reinterpret_cast<std::uintptr_t>(from), begin = reinterpret_cast<std::uintptr_t>(to);
  const Block* const known = find(source, bytes);
  if (known == nullptr || known->written == nullptr)
    return mark_written(to, bytes);
  if (const Block* const block = find(begin, bytes); block != nullptr && block->written != nullptr)
    std::memmove(block->written.get() + (begin - block->begin),
                 known->written.get() + (source - known->begin), bytes);
}

bool Memory::is_written(const void* address, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const Block* const block = find(begin, bytes);
  if (block == nullptr || block->written == nullptr)
    return block != nullptr;
  const std::uint8_t* const flags = block->written.get() + (begin - block->begin);
  return std::all_of(flags, flags + bytes, [](std::uint8_t flag) { return flag != 0; });
}

bool Memory::was_freed(std::uintptr_t address) const {
  const std::shared_lock lock(mutex_);
  const auto next = freed_.upper_bound(address);
  return next != freed_.begin() && std::prev(next)->second.end > address;
}

std::string Memory::describe(std::uintptr_t address, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin() && std::prev(freed)->second.end > address)
    return "byte " + std::to_string(address - std::prev(freed)->first) + " of " +
           std::prev(freed)->second.label + ", which was freed";
  const auto next = blocks_.upper_bound(address);
  if (next != blocks_.begin()) {
    const Block& before = *std::prev(next)->second;
    const std::string size = ", which has " + std::to_string(before.end - before.begin) + " bytes";
    if (address < before.end)
      return "it begins at byte " + std::to_string(address - before.begin) + " of " + before.label + size +
             ", and ends " + std::to_string(address + bytes - before.end) + " behind it";
    if (next == blocks_.end() || address - before.end <= next->first - address)
      return "it is " + std::to_string(address - before.end) + " bytes behind " + before.label + size;
  }
  if (next != blocks_.end())
    return "it is " + std::to_string(next->first - address) + " bytes before " + next->second->label;
  return "there is no block at all";
}

} // namespace ptx
