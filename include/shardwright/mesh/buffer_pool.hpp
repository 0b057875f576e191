// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The pool of device or host memory that a mesh's tensors share, so that nothing is allocated in
/// steady state.

#include <shardwright/comm/call_subject.hpp>
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/pool_block.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/target.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Counters of a rank's pool so far.
struct PoolStatistics {
  std::size_t allocations = 0;       ///< Blocks taken from the system; constant in a steady state.
  std::size_t reserved_bytes = 0;    ///< Memory held, free blocks included.
  std::size_t used_bytes = 0;        ///< Memory in use.
  std::size_t peak_bytes = 0;        ///< Largest `used_bytes` so far.
  std::size_t requested_bytes = 0;   ///< The part of `used_bytes` that was requested, before rounding up.
  std::size_t requested_at_peak = 0; ///< The same for `peak_bytes`.
};

namespace detail {

class MeshCore;
void retain(MeshCore&) noexcept;
void release(MeshCore&) noexcept;
[[nodiscard]] int world_rank_of(const MeshCore&);

class BufferPool;

/// One block of a pool. Counts are plain integers: a tensor belongs to its rank's thread.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;
  std::size_t size_class = 0;
  std::int32_t references = 0;
  std::uint32_t holder = 0;    ///< For the record of a dry run.
  std::uint8_t list = 0;       ///< The free lists that it comes from.
  bool borrowed = false;       ///< Whether the memory has another owner, and the pool owns only this record.
  SubjectShape reduced_from{}; ///< Shape of the tensor whose reduction it holds.
  BufferPool* pool = nullptr;
  Buffer* next = nullptr;
};

/// Free lists by size.
class BufferPool {
public:
  explicit BufferPool(MeshCore& core) : core_(&core), record_(MemoryListener::of_current()) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  virtual ~BufferPool() = default;

  [[nodiscard]] MeshCore& core() const noexcept { return *core_; }
  [[nodiscard]] const PoolStatistics& statistics() const noexcept { return statistics_; }
  /// Restarts peak_bytes at the bytes that are in use now.
  void reset_peak() noexcept {
    statistics_.peak_bytes = statistics_.used_bytes;
    statistics_.requested_at_peak = statistics_.requested_bytes;
  }
  /// Text appended to an out-of-memory error, such as a table of the predicted memory.
  void set_note(std::string note) { note_ = std::move(note); }

  /// A block of at least `bytes` bytes with one reference; its contents are undefined.
  /// @param where the program's call, which an error names.
  [[nodiscard]] Buffer* take(std::size_t bytes, const SourceLocation& where = {});

  /// A record, with one reference, of memory with another owner: the pool does not count, reuse or free it.
  [[nodiscard]] Buffer* borrow(void* data);

  /// From now on, takes blocks from private lists and returns them there; nothing else uses these lists.
  /// Returns the previous setting. For as long as a graph lives, its replays write to the blocks of its
  /// capture.
  [[nodiscard]] bool use_private(bool on) noexcept {
    return std::exchange(list_, static_cast<std::uint8_t>(on)) != 0;
  }

  /// Returns a block without references to its free list.
  void give_back(Buffer* buffer) noexcept;

protected:
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;

  /// Returns all free blocks to the system; the deriving class calls it in its destructor.
  void clear() noexcept;

private:
  [[noreturn]] void reject(std::size_t rounded, std::size_t bytes, const SourceLocation& where,
                           const std::exception& cause) const;

  MeshCore* core_;
  std::shared_ptr<MemoryListener>
      record_; // of the dry run that the pool was made in, which a tensor may outlive
  std::array<std::array<Buffer*, pool_size_classes>, 2> free_{}; // the second for private blocks
  std::uint8_t list_ = 0;                                        // that blocks are taken from
  PoolStatistics statistics_;
  std::string note_;
};

/// While it lives, a pool takes blocks from its private lists.
class PrivateBlocks {
public:
  explicit PrivateBlocks(BufferPool& pool, bool on = true) : pool_(pool), before_(pool.use_private(on)) {}
  ~PrivateBlocks() { static_cast<void>(pool_.use_private(before_)); }
  PrivateBlocks(const PrivateBlocks&) = delete;
  PrivateBlocks& operator=(const PrivateBlocks&) = delete;

private:
  BufferPool& pool_;
  bool before_;
};

/// A shared handle to a block; copies are counted, and the last one returns the block.
class BufferHandle {
public:
  BufferHandle() = default;
  explicit BufferHandle(Buffer* buffer) noexcept : buffer_(buffer) {}
  BufferHandle(const BufferHandle& other) noexcept : buffer_(other.buffer_) {
    if (buffer_ != nullptr)
      ++buffer_->references;
  }
  BufferHandle(BufferHandle&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferHandle& operator=(BufferHandle other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferHandle() {
    if (buffer_ != nullptr && --buffer_->references == 0)
      buffer_->pool->give_back(buffer_);
  }

  [[nodiscard]] void* data() const noexcept { return buffer_->data; }
  [[nodiscard]] bool shared() const noexcept { return buffer_->references > 1; }
  /// Whether another tensor may be stored in the block: there is no other reference, and the pool owns it.
  [[nodiscard]] bool reusable() const noexcept { return buffer_->references == 1 && !buffer_->borrowed; }
  /// Whether the program owns the memory.
  [[nodiscard]] bool borrowed() const noexcept { return buffer_->borrowed; }
  [[nodiscard]] SubjectShape& reduced_from() const noexcept { return buffer_->reduced_from; }
  [[nodiscard]] BufferPool& pool() const noexcept { return *buffer_->pool; }
  explicit operator bool() const noexcept { return buffer_ != nullptr; }

private:
  Buffer* buffer_ = nullptr;
};

/// The pool, the execution instance and the device communicators of one target on one rank.
template <class Target> class TargetResources final : public BufferPool {
public:
  /// @throws LifecycleError if Kokkos does not run.
  explicit TargetResources(MeshCore& core) : BufferPool(core), execution_(make_execution_space()) {}
  ~TargetResources() override {
    groups_.clear();
    settle_device();
    await_stream();
    if constexpr (requires { Target::end_stream(execution_); })
      Target::end_stream(execution_);
    clear();
  }

  [[nodiscard]] const typename Target::execution_space& execution() const noexcept { return execution_; }
  /// Communicators of device targets, made at their first use.
  [[nodiscard]] std::vector<DeviceCommunicator>& groups() noexcept { return groups_; }
  /// Where kernels note token ids beyond the vocabulary, made at its first use; see id_fault().
  [[nodiscard]] std::shared_ptr<void>& id_faults() noexcept { return id_faults_; }

private:
  [[nodiscard]] static typename Target::execution_space make_execution_space() {
    if (!Kokkos::is_initialized())
      throw LifecycleError(
          "DeviceMesh: Kokkos must be initialised before the mesh allocates memory, and until its last tensor is gone (begin main with `const Kokkos::ScopeGuard kokkos(argc, argv);`)");
    return Target::make_execution_space();
  }

  /// On a device, the rank's stream waits for the other devices that read this rank's memory.
  void await_stream() const noexcept {
    if constexpr (!Target::host_accessible) { // nvcc 13 needs the braces around a try block
      try {
        static_cast<void>(await_device([this] { return Target::idle(execution_); }));
      } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): nothing runs on a device that failed
      }
    }
  }

  void* allocate(std::size_t bytes) override { return allocate_for<Target>(execution_, label, bytes); }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    deallocate_for<Target>(execution_, label, data, bytes);
  }

  static constexpr const char* label = "shardwright::BufferPool";

  typename Target::execution_space execution_;
  std::vector<DeviceCommunicator> groups_;
  std::shared_ptr<void> id_faults_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE Buffer* BufferPool::take(std::size_t bytes, const SourceLocation& where) {
  const auto [size_class, rounded] = pool_block(bytes);
  Buffer*& head = free_[list_][size_class];
  Buffer* buffer = head;
  if (buffer != nullptr) {
    head = buffer->next;
  } else {
    buffer = new Buffer{.bytes = rounded, .size_class = size_class, .list = list_, .pool = this};
    try {
      buffer->data = allocate(rounded);
    } catch (const Error&) { // of a call that the stream waits for
      delete buffer;
      throw;
    } catch (const std::exception& cause) {
      delete buffer;
      reject(rounded, bytes, where, cause);
    }
    ++statistics_.allocations;
    statistics_.reserved_bytes += rounded;
  }
  buffer->references = 1;
  buffer->requested = bytes;
  statistics_.used_bytes += rounded;
  statistics_.requested_bytes += bytes;
  if (statistics_.used_bytes > statistics_.peak_bytes)
    reset_peak();
  buffer->reduced_from.dimensions = -1;
  if (record_ != nullptr)
    buffer->holder = record_->take(bytes, rounded);
  retain(*core_);
  return buffer;
}

SHARDWRIGHT_INLINE Buffer* BufferPool::borrow(void* data) {
  auto* const buffer = new Buffer{.data = data, .references = 1, .borrowed = true, .pool = this};
  buffer->reduced_from.dimensions = -1;
  retain(*core_);
  return buffer;
}

// Inlined, it would be in every destructor.
[[gnu::noinline]] SHARDWRIGHT_INLINE void BufferPool::give_back(Buffer* buffer) noexcept {
  if (buffer->borrowed) {
    delete buffer;
  } else {
    Buffer*& head = free_[buffer->list][buffer->size_class];
    buffer->next = head;
    head = buffer;
    statistics_.used_bytes -= buffer->bytes;
    statistics_.requested_bytes -= buffer->requested;
    if (record_ != nullptr)
      record_->give_back(buffer->holder, buffer->requested, buffer->bytes);
  }
  release(*core_);
}

SHARDWRIGHT_INLINE void BufferPool::clear() noexcept {
  for (auto& lists : free_)
    for (Buffer*& head : lists)
      while (head != nullptr) {
        Buffer* next = head->next;
        deallocate(head->data, head->bytes);
        delete head;
        head = next;
      }
}

SHARDWRIGHT_INLINE void BufferPool::reject(std::size_t rounded, std::size_t bytes,
                                           const SourceLocation& where, const std::exception& cause) const {
  const int rank = world_rank_of(*core_);
  throw Error("Pool: out of memory for a block of " + std::to_string(rounded) + " bytes, for " +
                  std::to_string(bytes) + " that rank " + std::to_string(rank) + " asked for" +
                  text_of(memory_purpose()) + ", with " + std::to_string(statistics_.used_bytes) +
                  " bytes in use (shard more, or use a smaller batch): " + cause.what() +
                  (note_.empty() ? "" : "\n" + note_),
              {.rank = rank, .where = where});
}
#else
extern template class TargetResources<DefaultTarget>;
#endif

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
