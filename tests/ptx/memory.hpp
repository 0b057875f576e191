// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The blocks of memory that device code may touch. A device address is the address on the host.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

namespace ptx {

class Module;

/// @brief What is known about the bytes of a new block.
enum class Contents {
  written,   ///< All bytes count as written.
  unwritten, ///< None does: loads are checked where Options::uninitialized asks for it. A byte of memory per
             ///< byte.
};

/// @brief The blocks that kernels may access. Safe to use from several threads.
///
/// The bytes themselves belong to the caller, who allocates before add() and frees after remove().
class Memory {
public:
  struct Block {
    std::uintptr_t begin = 0, end = 0;
    std::string label;
    bool read_only = false;
    std::unique_ptr<std::uint8_t[]> written; ///< A flag per byte, or null: all are.

    bool holds(std::uintptr_t address, std::size_t bytes) const {
      return address >= begin && address <= end && end - address >= bytes;
    }
  };

  /// @brief Admits a block.
  /// @param label is what faults call it, such as `malloc of 4096 bytes`.
  /// @throws std::invalid_argument if it overlaps a block that is there.
  void add(const void* address, std::size_t bytes, std::string label, Contents = Contents::written,
           bool read_only = false);

  /// @brief Admits the variables of a module. They must be removed before the module ends.
  void add_variables(const Module&);
  void remove_variables(const Module&);

  /// @brief Ends a block; accesses to it are then reported as accesses to freed memory.
  /// @throws std::invalid_argument if no block begins there.
  void remove(const void* address);

  /// @brief The host has written these bytes (a copy to the device, a memset).
  void mark_written(const void* address, std::size_t bytes);

  /// @brief The host has copied bytes of one block to another: those count as written that were so.
  void mark_copied(const void* to, const void* from, std::size_t bytes);

  /// @brief Whether every byte has been written, for checks of the host's own reads.
  bool is_written(const void* address, std::size_t bytes) const;

  /// @brief The block that holds all the bytes, or null. It stays valid until it is removed.
  const Block* find(std::uintptr_t address, std::size_t bytes) const;

  /// @brief A sentence about an address that no block holds: the nearest block, or the freed one there.
  std::string describe(std::uintptr_t address, std::size_t bytes) const;

  /// @brief Whether the address lies in a block that was removed.
  bool was_freed(std::uintptr_t address) const;

private:
  struct Range {
    std::uintptr_t end;
    std::string label;
  };

  const Block* at(std::uintptr_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::unique_ptr<Block>> blocks_; // by begin
  std::map<std::uintptr_t, Range> freed_;
};

} // namespace ptx
