// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds accesses that nothing orders.
///
/// The program of a warp is cut into segments, at its barriers, warp barriers and fences. A cell for each few
/// bytes of memory remembers the segment, lane and instruction of the last write and of a read: of a lane's
/// accesses in a segment, and of reads that nothing orders, the weakest. Behind a warp barrier a lane's
/// strong write hides its weak one from other warps. Two accesses by different lanes race if one of them is a
/// write, not both are atomic or otherwise strong, and nothing orders their segments:
/// - lanes of a warp: bar.warp.sync, or a barrier;
/// - warps of a block: a barrier, or fences as between blocks;
/// - blocks: a fence or release in the one after its access, then a fence or acquire in the other before its.
///
/// Each warp has a vector clock, as in FastTrack (Flanagan and Freund, PLDI 2009). Which flag two blocks met
/// on is not followed, so a fence that happens to be there can hide a race.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../executor.hpp"

namespace ptx {

/// @brief How strong an access is: whether it may meet another one, of the block or of any, without an order.
enum class Strength : std::uint8_t { weak = 0, block = 1, device = 2 };

class Races {
public:
  struct Clock; // what the detector knows of a block that runs

  /// @brief What a warp instruction does; the same for all its lanes.
  struct Access {
    std::uint64_t block = 0;
    std::uint32_t warp = 0;
    std::uint32_t instruction = 0;
    unsigned bytes = 0;
    bool read = false, write = false;
    bool pending = false; ///< A copy that has not been waited for.
    Strength strength = Strength::weak;
    Clock* clock = nullptr;    ///< Set by begin().
    std::uint32_t segment = 0; ///< Likewise.
  };

  /// @brief The other access of a race.
  struct Conflict {
    bool found = false;
    bool was_write = false;
    bool was_pending = false;
    bool several = false;          ///< Of several readers, the one named is the first of the weakest.
    bool same_instruction = false; ///< Another lane of it, since the last order.
    std::uint64_t block = 0;
    std::uint32_t warp = 0, lane = 0, instruction = 0;
  };

  Races();
  ~Races();
  Races(const Races&) = delete;
  Races& operator=(const Races&) = delete;

  void begin_block(std::uint64_t block, unsigned warps, std::size_t shared_bytes);
  void end_block(std::uint64_t block);

  /// @brief Prepares for the lanes of an instruction.
  void begin(Access& access);

  /// @brief Notes an access to shared memory by a lane, and says whether it races. Aligned to its bytes.
  Conflict shared(const Access&, unsigned lane, std::size_t offset);
  Conflict global(const Access&, unsigned lane, std::uintptr_t address);

  /// @brief A pending copy has been waited for: from now on it is a write of its lane like others.
  void settle(const Access&, unsigned lane, std::size_t offset);

  void warp_barrier(std::uint64_t block, std::uint32_t warp);

  /// @brief A barrier opens for these warps; the second says whether the warp waited, rather than only
  /// arrived.
  void barrier(std::uint64_t block, const std::vector<std::pair<std::uint32_t, bool>>& warps);

  /// @brief A warp has looked at memory by a strong load or an atomic operation: a fence behind it acquires
  /// what was released before.
  void strong_read(std::uint64_t block, std::uint32_t warp);

  void fence(std::uint64_t block, std::uint32_t warp, bool release, bool acquire);

  /// @brief All that has been accessed in global memory.
  void for_touched(const std::function<void(const Touched&)>& tell) const;

private:
  /// @brief A stretch of a warp's program.
  struct Segment {
    std::uint64_t block = 0;
    std::uint32_t warp = 0;
    std::uint32_t epoch = 0;    // the warp's own component of its clock
    std::uint32_t interval = 0; // counts warp barriers too
    std::uint32_t time = 0;     // of the warp's last fence
  };

  struct Cell {
    std::uint32_t write_segment = 0, write_what = 0;
    std::uint32_t read_segment = 0, read_what = 0;
  };

  /// @brief Cells of 2^shift bytes each; finer ones take their place when a narrower access comes.
  struct Page {
    unsigned shift = 0;
    std::vector<Cell> cells;
  };

  struct Fences {
    std::vector<std::uint32_t> releases; // times
    std::uint32_t looked = 0;            // time of the last strong read
    std::uint32_t acquired = 0;          // what was released before this time has been acquired
  };

  static constexpr unsigned page_shift = 12;

  Clock& clock(std::uint64_t block);
  std::uint32_t segment(Clock&, const Access&);
  std::pair<Cell*, unsigned> cells(Page&, std::size_t offset, unsigned bytes);
  /// A reader that nothing orders with those of the cell.
  static void join(Cell&, std::uint32_t mine, std::uint32_t what);
  Conflict note(const Access&, unsigned lane, Page&, std::size_t offset);
  bool races(const Access&, unsigned lane, std::uint32_t other, std::uint32_t what);
  bool ordered(const Access&, unsigned lane, std::uint32_t other, std::uint32_t what);
  bool ordered_between_warps(const Access&, std::uint32_t other) const;
  Conflict conflict(const Access&, std::uint32_t other, std::uint32_t what, bool write) const;

  std::vector<Segment> segments_{Segment{}}; // the first stands for none
  std::unordered_map<std::uint64_t, Clock> clocks_;
  std::unordered_map<std::uint64_t, Fences> fences_; // of each block, running or not
  std::unordered_map<std::uintptr_t, Page> pages_;
  std::uint32_t time_ = 1;

  std::uint64_t last_block_ = ~std::uint64_t{0}; // looked up last
  Clock* last_clock_ = nullptr;
  std::uintptr_t last_page_ = ~std::uintptr_t{0};
  Page* last_cells_ = nullptr;
  std::uint32_t last_mine_ = 0, last_other_ = 0; // compared last, and
  bool last_ordered_ = false;                    // with what result
};

} // namespace ptx
