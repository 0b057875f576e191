// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A device runtime on the host: streams are threads and events real dependencies, or everything runs
/// at once. There may be several devices, and objects of one must not be used with another.

#include <shardwright/core/error.hpp>
#include <shardwright/device/kernels.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shardwright_test {

/// @brief Work that runs in order on a separate thread, after random delays.
class FakeQueue {
public:
  explicit FakeQueue(unsigned seed) : delays_(seed), thread_([this] { serve(); }) {}
  ~FakeQueue() {
    add(nullptr);
    thread_.join();
  }
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

private:
  void serve() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !work_.empty(); });
        next = std::move(work_.front());
        work_.pop_front();
      }
      if (!next)
        return;
      if (const unsigned delay = static_cast<unsigned>(delays_() % 16); delay == 15)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      else if (delay > 8)
        std::this_thread::yield();
      next();
    }
  }

  std::mt19937 delays_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_; // last, because it uses the other members
};

/// @brief An event that happens once. With a clock, it also records the time.
class FakeSignal {
public:
  FakeSignal() = default;
  explicit FakeSignal(std::shared_ptr<std::atomic<long>> clock) : clock_(std::move(clock)) {}
  void set() {
    {
      const std::lock_guard lock(mutex_);
      set_ = true;
      if (clock_)
        time_ = *clock_;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }
  [[nodiscard]] bool is_set() {
    const std::lock_guard lock(mutex_);
    return set_;
  }

  [[nodiscard]] long time() {
    const std::lock_guard lock(mutex_);
    return time_;
  }
  [[nodiscard]] const std::shared_ptr<std::atomic<long>>& clock() const noexcept { return clock_; }

private:
  std::shared_ptr<std::atomic<long>> clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
  long time_ = 0;
};

/// @brief Counts of the calls of a runtime and all of its copies.
struct FakeCounts {
  std::atomic<long> streams{0}, events{0}, timed_events{0}, tables{0}, memories{0}, launches{0}, copies{0};
  std::atomic<long> unfinished{0}; ///< Launches that have not run yet.
  std::atomic<unsigned> broken{0}; ///< Devices, a bit for each.
};

/// @brief A PeerRuntime over host memory. Copies share their counts. A runtime that runs everything at once
/// takes memory from the heap only for the objects that it makes, as a device's runtime does: all other
/// allocations of a steady step are the library's.
class FakeRuntime {
public:
  static constexpr unsigned lanes = shardwright::detail::peer_lanes;

  /// @brief A queue; null runs everything at once, on the calling thread.
  class Stream {
  public:
    Stream() = default;
    explicit Stream(int device) : device_(device) {}
    Stream(int device, unsigned seed) : device_(device), queue_(std::make_shared<FakeQueue>(seed)) {}
    [[nodiscard]] int device() const noexcept { return device_; }
    template <class Work> void run(Work work) {
      if (queue_)
        queue_->add(std::move(work));
      else
        work();
    }
    /// @brief Whether it never holds work back.
    [[nodiscard]] bool at_once() const noexcept { return queue_ == nullptr; }
    /// @brief Waits on the host for the work of the stream.
    void finish() {
      auto all = std::make_shared<FakeSignal>();
      run([all] { all->set(); });
      all->wait();
    }

  private:
    int device_ = 0;
    std::shared_ptr<FakeQueue> queue_;
  };
  struct Event {
    int device = 0;
    std::shared_ptr<FakeSignal> signal; // null: never recorded
  };
  class Table {
  public:
    Table(int owner, std::size_t bytes)
        : owner_(owner), host_(bytes), device_(std::make_shared<std::vector<std::byte>>(bytes)) {}
    std::byte* host() { return host_.data(); }
    [[nodiscard]] const std::byte* device() const { return device_->data(); }
    [[nodiscard]] std::size_t bytes() const { return host_.size(); }
    [[nodiscard]] std::shared_ptr<std::vector<std::byte>> memory() const { return device_; }
    [[nodiscard]] int owner() const noexcept { return owner_; }

  private:
    int owner_;
    std::vector<std::byte> host_;
    std::shared_ptr<std::vector<std::byte>> device_;
  };

  /// @brief A runtime that runs everything at once.
  FakeRuntime() = default;
  /// @brief An asynchronous runtime, with delays that depend on the seed.
  explicit FakeRuntime(unsigned seed)
      : asynchronous_(true), seeds_(std::make_shared<std::atomic<unsigned>>(seed)) {}

  [[nodiscard]] Stream make_stream() {
    ++counts_->streams;
    return asynchronous_ ? Stream(device_, seeds_->fetch_add(1)) : Stream(device_);
  }
  [[nodiscard]] Event make_event() {
    ++counts_->events;
    return {device_, nullptr};
  }
  [[nodiscard]] Event make_timed_event() {
    ++counts_->timed_events;
    return {device_, std::make_shared<FakeSignal>(clock_)};
  }
  [[nodiscard]] double seconds(Event& from, Event& to) {
    return static_cast<double>(to.signal->time() - from.signal->time());
  }
  /// @brief The time, which passes only in launches and copies, one second in each, and in pauses of a
  /// stream. All copies share it.
  void rest(Stream& stream, long seconds) {
    stream.run([clock = clock_, seconds] { *clock += seconds; });
  }
  [[nodiscard]] Table make_table(std::size_t bytes) {
    ++counts_->tables;
    return {device_, bytes};
  }
  /// @brief Memory of the device, out of the host's reach: made in the order of a stream and freed in that of
  /// the one that it follows. Before and after, its bytes are those of other work.
  class Memory {
  public:
    Memory(Stream stream, std::size_t bytes)
        : stream_(std::move(stream)), data_(std::make_shared<std::vector<std::byte>>(bytes)) {
      spoil();
    }
    Memory(Memory&&) noexcept = default;
    Memory& operator=(Memory&&) = delete;
    ~Memory() {
      if (data_)
        spoil();
    }
    [[nodiscard]] std::byte* data() const { return data_->data(); }
    [[nodiscard]] std::size_t bytes() const { return data_->size(); }
    void follow(const Stream& stream) { stream_ = stream; }

  private:
    void spoil() {
      stream_.run([data = data_] { std::fill(data->begin(), data->end(), std::byte{0xab}); });
    }
    Stream stream_;
    std::shared_ptr<std::vector<std::byte>> data_;
  };
  [[nodiscard]] Memory make_memory(Stream& stream, std::size_t bytes) {
    ++counts_->memories;
    return {stream, bytes};
  }
  void upload(Stream& stream, Table& table, std::size_t bytes) {
    require(stream, table.owner());
    stream.run([to = table.memory(), from = table.host(), bytes] { std::memcpy(to->data(), from, bytes); });
  }
  void record(Event& event, Stream& stream) {
    require(stream, event.device);
    const bool timed = event.signal && event.signal->clock();
    if (stream.at_once()) {
      if (timed)
        event.signal->set();
      else
        event.signal = nullptr;
      return;
    }
    event.signal =
        timed ? std::make_shared<FakeSignal>(event.signal->clock()) : std::make_shared<FakeSignal>();
    stream.run([signal = event.signal] { signal->set(); });
  }
  void wait(Stream& stream, Event& event) {
    if (event.signal)
      stream.run([signal = event.signal] { signal->wait(); });
  }
  [[nodiscard]] bool done(Event& event) { return !event.signal || event.signal->is_set(); }
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
    ++counts_->copies;
    stream.run([to, from, bytes, clock = clock_] {
      std::memcpy(to, from, bytes);
      ++*clock;
    });
  }
  template <class Kernel>
  void launch(Stream& stream, const Kernel& kernel, unsigned blocks, std::uint64_t tiles) {
    ++counts_->launches;
    if ((counts_->broken >> device_ & 1U) != 0)
      throw shardwright::TransportError(719, "the device fell off the bus");
    require(stream, device_);
    ++counts_->unfinished;
    stream.run([kernel, blocks, tiles, clock = clock_, counts = counts_] {
      for (unsigned block = 0; block < blocks; ++block)
        for (std::uint64_t tile = 0; tile < tiles; ++tile)
          for (unsigned lane = 0; lane < lanes; ++lane)
            kernel(block, tile, lane);
      ++*clock;
      --counts->unfinished;
    });
  }
  void call(Stream& stream, void (*function)(void*), void* of) {
    stream.run([function, of] { function(of); });
  }

  [[nodiscard]] int device() const noexcept { return device_; }
  /// @brief The same runtime for another device.
  [[nodiscard]] FakeRuntime on(int device) const {
    FakeRuntime out = *this;
    out.device_ = device;
    return out;
  }
  /// @brief Every launch from now on fails, on all ranks that share the runtime.
  void fail_launches() noexcept { counts_->broken = ~0U; }
  /// @brief The same of one device.
  void fail_launches(int device) noexcept { counts_->broken |= 1U << static_cast<unsigned>(device); }
  [[nodiscard]] const FakeCounts& counts() const noexcept { return *counts_; }

private:
  static void require(const Stream& stream, int device) {
    if (stream.device() != device)
      throw std::logic_error("what belongs to device " + std::to_string(device) +
                             " is used on a stream of device " + std::to_string(stream.device()));
  }

  bool asynchronous_ = false;
  int device_ = 0;
  std::shared_ptr<std::atomic<unsigned>> seeds_;
  std::shared_ptr<FakeCounts> counts_ = std::make_shared<FakeCounts>();
  std::shared_ptr<std::atomic<long>> clock_ = std::make_shared<std::atomic<long>>(0);
};

static_assert(shardwright::PeerRuntime<FakeRuntime>);

} // namespace shardwright_test
