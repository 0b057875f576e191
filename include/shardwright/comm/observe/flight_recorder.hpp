// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The last operations of one rank, written without locks and read by any thread that reports a
/// failure.

#include <shardwright/comm/call.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief One recorded operation.
struct FlightEntry {
  Operation operation = Operation::barrier;
  const char* group = ""; ///< Name of the communicator; lives as long as the world.
  const void* group_id = nullptr;
  std::uint64_t sequence = 0; ///< On its communicator.
  int peer = -1;              ///< World rank of the peer of a message; -1 in a collective.
  int tag = 0;
  SourceLocation where{};
  bool inside = false; ///< Begun but not yet ended.
  bool waited = true;  ///< Its rank waits for its end; otherwise it was started, and the rank continues.

  /// @brief "all_reduce #7 on group dp at train.cpp:12".
  [[nodiscard]] std::string text() const {
    std::string out(name_of(operation));
    if (operation == Operation::send)
      out += " to rank " + std::to_string(peer) + " under tag " + std::to_string(tag);
    if (operation == Operation::receive)
      out += " from rank " + std::to_string(peer) + " under tag " + std::to_string(tag);
    return out + " #" + std::to_string(sequence) + " on group " + group + where.text_after(" at ");
  }
};

/// @brief A ring of the last operations of a rank; several threads of the rank may write, any thread may
/// read.
///
/// An entry that is being written while it is read is skipped, so a reader never sees a mixture of two
/// operations.
class FlightRecorder {
public:
  static constexpr std::size_t kept = 32;
  using Ticket = std::uint64_t;

  /// @brief Records that an operation begins. Cost: a few stores.
  Ticket begin(const FlightEntry& entry) noexcept {
    const Ticket ticket = next_.fetch_add(1, std::memory_order_relaxed);
    Cell& cell = cells_[ticket % kept];
    cell.state.store(ticket << 2U | writing, std::memory_order_release);
    cell.group.store(entry.group, std::memory_order_release);
    cell.group_id.store(entry.group_id, std::memory_order_release);
    cell.file.store(entry.where.file, std::memory_order_release);
    cell.function.store(entry.where.function, std::memory_order_release);
    cell.line.store(entry.where.line, std::memory_order_release);
    cell.sequence.store(entry.sequence, std::memory_order_release);
    cell.peer.store(entry.peer, std::memory_order_release);
    cell.tag.store(entry.tag, std::memory_order_release);
    cell.operation.store(entry.operation, std::memory_order_release);
    cell.state.store(ticket << 2U | (entry.waited ? waiting : started), std::memory_order_release);
    return ticket;
  }

  /// @brief Records that the rank waits for an operation that it has started.
  void wait(Ticket ticket) noexcept { static_cast<void>(replace(ticket, started, waiting)); }

  /// @brief Records that an operation has ended.
  void end(Ticket ticket) noexcept {
    if (!replace(ticket, waiting, ended))
      static_cast<void>(replace(ticket, started, ended));
  }

  /// @brief Records that the rank waits for the collectives that it has started on a group; null: no longer.
  void wait_for_group(const void* group_id) noexcept { awaited_.store(group_id, std::memory_order_release); }

  /// @brief Entry for a ticket, if it is still kept.
  [[nodiscard]] std::optional<FlightEntry> entry(Ticket ticket) const noexcept {
    const Cell& cell = cells_[ticket % kept];
    const std::uint64_t before = cell.state.load(std::memory_order_acquire);
    if (before >> 2U != ticket || (before & 3U) == writing || before == 0)
      return std::nullopt;
    FlightEntry out;
    out.group = cell.group.load(std::memory_order_acquire);
    out.group_id = cell.group_id.load(std::memory_order_acquire);
    out.where = {cell.file.load(std::memory_order_acquire), cell.line.load(std::memory_order_acquire),
                 cell.function.load(std::memory_order_acquire)};
    out.sequence = cell.sequence.load(std::memory_order_acquire);
    out.peer = cell.peer.load(std::memory_order_acquire);
    out.tag = cell.tag.load(std::memory_order_acquire);
    out.operation = cell.operation.load(std::memory_order_acquire);
    out.inside = (before & 3U) != ended;
    out.waited = (before & 3U) == waiting || (out.inside && out.peer < 0 && out.group_id != nullptr &&
                                              out.group_id == awaited_.load(std::memory_order_acquire));
    if (cell.state.load(std::memory_order_seq_cst) != before)
      return std::nullopt;
    return out;
  }

  /// @brief One past the newest ticket.
  [[nodiscard]] Ticket newest() const noexcept { return next_.load(std::memory_order_acquire); }

  /// @brief Returns what a rank is doing, for reports by its peers: the newest operation in which it waits,
  /// else the newest that it has started, else the last that has ended.
  [[nodiscard]] std::string describe() const {
    const Ticket top = newest();
    const Ticket bottom = top > kept + first ? top - kept : first;
    std::optional<FlightEntry> last, under_way;
    for (Ticket ticket = top; ticket-- > bottom;) {
      const std::optional<FlightEntry> found = entry(ticket);
      if (found && found->inside && found->waited)
        return "waiting in " + found->text();
      if (found && found->inside && !under_way)
        under_way = found;
      if (found && !last)
        last = found;
    }
    if (under_way)
      return "computing, with " + under_way->text() + " started";
    return last ? "its last operation was " + last->text() : "it has called no operation yet";
  }

private:
  static constexpr Ticket first = 1;
  static constexpr std::uint64_t started = 0; // with a ticket, which is never zero
  static constexpr std::uint64_t writing = 1;
  static constexpr std::uint64_t waiting = 2;
  static constexpr std::uint64_t ended = 3;

  bool replace(Ticket ticket, std::uint64_t from, std::uint64_t to) noexcept {
    std::uint64_t expected = ticket << 2U | from;
    return cells_[ticket % kept].state.compare_exchange_strong(
        expected, ticket << 2U | to, std::memory_order_release, std::memory_order_relaxed);
  }

  struct alignas(128) Cell {
    std::atomic<std::uint64_t> state{0};
    std::atomic<const char*> group{""};
    std::atomic<const void*> group_id{nullptr};
    std::atomic<const char*> file{""};
    std::atomic<const char*> function{""};
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<int> line{0};
    std::atomic<int> peer{-1};
    std::atomic<int> tag{0};
    std::atomic<Operation> operation{Operation::barrier};
  };

  std::atomic<Ticket> next_{first};
  std::atomic<const void*> awaited_{nullptr};
  std::array<Cell, kept> cells_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
