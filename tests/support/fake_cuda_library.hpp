// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A fake of what CUDA's runtime library keeps: streams, events, memory and graphs. Work on streams
/// runs in random order, and everything that CUDA forbids or leaves undefined is noted as a complaint.
///
/// The rules: handles are alive; streams and events that meet have one device; an event that is waited for or
/// queried has been recorded; memory is not freed while work that has its address is in progress; a thread
/// that captures neither waits nor allocates nor frees; captured streams only wait for events of their
/// capture, and have joined its first stream at the end; host functions do not call CUDA; copies stay within
/// a block of memory. Streams, events, memory and graphs that are never destroyed are counted.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_cuda {

struct Stream;

/// The recording that an event stands for.
struct Signal {
  bool done = false;
  long time = 0;
};

/// The work of each stream that has been recorded.
using Clock = std::map<const Stream*, std::size_t>;

/// How much of the work of each line comes before something: a vector clock. Lines are streams, and streams
/// of graphs.
using Past = std::vector<std::size_t>;

inline void join(Past& past, const Past& other) {
  past.resize(std::max(past.size(), other.size()));
  for (std::size_t line = 0; line < other.size(); ++line)
    past[line] = std::max(past[line], other[line]);
}

/// The place of a piece of work among all that streams, events and waits of the host order.
struct Turn {
  std::size_t line = 0;
  Past past{}; ///< With the work itself.

  [[nodiscard]] std::size_t known_of(std::size_t other) const {
    return other < past.size() ? past[other] : 0;
  }
  /// Whether anything orders it behind `other`.
  [[nodiscard]] bool comes_after(const Turn& other) const {
    return known_of(other.line) >= other.known_of(other.line);
  }
};

/// A piece of work, or a wait for a signal.
struct Work {
  std::function<void()> run;
  std::shared_ptr<Signal> after{};   ///< The work may not begin before that.
  std::vector<const void*> memory{}; ///< Start addresses of the allocations that it may access.
  const Stream* captured_on = nullptr;
  Clock clock{}; ///< In the capture, the work itself included.
  Turn turn{};
};

struct Capture {
  Stream* first = nullptr;
  std::thread::id thread;
  bool broken = false;
  std::vector<Work> work;
  std::map<const Stream*, std::size_t> counts;
};

struct Stream {
  int device = 0;
  std::size_t line = 0;
  bool alive = true;
  std::deque<Work> work{};
  std::shared_ptr<Capture> capture{};
  Clock clock{}; ///< In the capture.
  Past past{};   ///< Of its last work.
};

struct Event {
  int device = 0;
  bool alive = true, timed = true;
  std::shared_ptr<Signal> signal{};   ///< Null: never recorded.
  std::shared_ptr<Capture> capture{}; ///< Where it was recorded last, if in one.
  Clock clock{};
  Past past{};
};

struct Graph {
  bool alive = true;
  std::vector<Work> work;
  /// The line that stands for each stream, and how much of it earlier launches have.
  std::map<const Stream*, std::pair<std::size_t, std::size_t>> lines{};
};

/// What a program may rely on beyond the rules above, because CUDA is known to do it.
struct Habits {
  bool free_waits = false;     ///< cudaFree waits for the device, so memory in use may be given back.
  bool default_stream = false; ///< Stream 0 exists; every stream waits for it, and it for them.
  long lost_wait = 0; ///< The wait of a stream for an event, from 1, that is left out: a planted fault.
};

/// Told of memory as it comes, is written and goes.
struct MemoryWatch {
  std::function<void(void*, std::size_t, bool pinned)> allocated = [](void*, std::size_t, bool) {};
  std::function<void(void*)> freed = [](void* data) { std::free(data); };
  /// By a fill, or a copy from the host.
  std::function<void(void*, std::size_t)> written = [](void*, std::size_t) {};
  /// By a copy from a block.
  std::function<void(void*, const void*, std::size_t)> copied = [](void*, const void*, std::size_t) {};
};

/// The objects that exist.
struct Counts {
  std::size_t streams = 0, events = 0, memory = 0, graphs = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

class Library {
public:
  /// Starts anew; objects that still exist are forgotten.
  void reset(unsigned seed, int devices = 1, Habits habits = {}, MemoryWatch watch = {}) {
    const std::lock_guard lock(mutex_);
    for (auto& [data, block] : blocks_)
      watch_.freed(const_cast<void*>(data));
    habits_ = habits;
    watch_ = std::move(watch);
    default_stream_ = nullptr;
    streams_.clear();
    events_.clear();
    graphs_.clear();
    blocks_.clear();
    complaints_.clear();
    turns_.seed(seed);
    devices_ = devices;
    past_of_host_.clear();
    time_ = waits_ = 0;
    lines_ = 0;
    launches_ = 0;
  }
  [[nodiscard]] std::vector<std::string> complaints() {
    const std::lock_guard lock(mutex_);
    return complaints_;
  }
  /// Called after all work.
  [[nodiscard]] Counts counts() {
    const std::lock_guard lock(mutex_);
    run_all();
    const auto living = [](const auto& all) {
      return static_cast<std::size_t>(
          std::count_if(all.begin(), all.end(), [](const auto& each) { return each->alive; }));
    };
    return {living(streams_), living(events_), blocks_.size(), living(graphs_)};
  }
  [[nodiscard]] long launches() {
    const std::lock_guard lock(mutex_);
    return launches_;
  }

  /// The work that is running, for what it calls.
  [[nodiscard]] const Turn& running() const noexcept { return running_; }

  // One for each function of the library; each is one call under the lock.

  template <class Call> cudaError_t call(Call body) {
    const std::lock_guard lock(mutex_);
    if (working_)
      return complain("a host function calls CUDA", cudaErrorNotPermitted);
    const cudaError_t result = body();
    if (turns_() % 2 == 0)
      advance();
    return result;
  }

  cudaError_t complain(const std::string& sentence, cudaError_t result) {
    complaints_.push_back(sentence);
    return result;
  }

  cudaError_t set_device(int device) {
    if (device < 0 || device >= devices_)
      return complain("a device that is not there", cudaErrorInvalidDevice);
    current() = device;
    return cudaSuccess;
  }

  /// Aligned as CUDA's, with bytes that are no number in any element type.
  cudaError_t allocate(void** data, std::size_t bytes, bool pinned = false) {
    if (waits_in_capture("an allocation"))
      return cudaErrorStreamCaptureUnsupported;
    constexpr std::size_t alignment = 256;
    *data = std::aligned_alloc(alignment,
                               (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
    if (*data == nullptr)
      return cudaErrorMemoryAllocation;
    std::memset(*data, 0xff, bytes);
    blocks_[*data] = bytes;
    watch_.allocated(*data, bytes, pinned);
    return cudaSuccess;
  }
  cudaError_t free(void* data) {
    if (data == nullptr)
      return cudaSuccess;
    if (waits_in_capture("memory is given back"))
      return cudaErrorStreamCaptureUnsupported;
    if (blocks_.erase(data) == 0)
      return complain("memory is given back that was not allocated", cudaErrorInvalidValue);
    if (in_use(data)) {
      if (!habits_.free_waits)
        complaints_.emplace_back("memory is given back while work that knows it is under way");
      wait_for_all(); // as in CUDA, which waits for the device
    }
    watch_.freed(data);
    return cudaSuccess;
  }

  cudaError_t free_later(void* data, cudaStream_t on) {
    return enqueue(
        on,
        [this, data] {
          if (in_use(data)) // so it stays until the library starts anew
            complaints_.emplace_back("memory is given back while work of another stream knows it");
          else if (blocks_.erase(data) == 0)
            complaints_.emplace_back("memory is given back that was not allocated");
          else
            watch_.freed(data);
        },
        nullptr, 0, false);
  }
  /// Memory that is not pinned is copied at once, by the host, as the library does: it is read before the
  /// call returns, and has been written when the call returns.
  cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    const void* const addresses[] = {to, from};
    if (!inside(to, bytes) || !inside(from, bytes))
      return complain("a copy leaves its block of memory", cudaErrorInvalidValue);
    if (block_of(from) != nullptr) {
      const Stream* const on = stream_of(stream);
      const cudaError_t result = enqueue(
          stream,
          [=, this] {
            if (bytes == 0) // of null, perhaps
              return;
            std::memmove(to, from, bytes);
            watch_.copied(to, from, bytes);
          },
          addresses, sizeof addresses, false);
      const bool waits = result == cudaSuccess && block_of(to) == nullptr && bytes != 0 && !on->capture;
      return waits ? synchronize(stream) : result;
    }
    const auto* const begin = static_cast<const std::byte*>(from);
    return enqueue(
        stream,
        [this, to, staged = std::vector<std::byte>(begin, begin + bytes)] {
          if (staged.empty())
            return;
          std::memcpy(to, staged.data(), staged.size());
          watch_.written(to, staged.size());
        },
        &to, sizeof to, false); // `from` is read already: its address may soon be that of a new block
  }

  cudaError_t fill(void* data, int value, std::size_t bytes, cudaStream_t stream) {
    if (block_of(data) == nullptr || !inside(data, bytes))
      return complain("memory is filled outside of its block", cudaErrorInvalidValue);
    return enqueue(
        stream,
        [=, this] {
          std::memset(data, value, bytes);
          watch_.written(data, bytes);
        },
        &data, sizeof data, false);
  }

  cudaError_t make_stream(cudaStream_t* stream) {
    streams_.push_back(std::make_unique<Stream>(Stream{.device = current(), .line = lines_++}));
    *stream = reinterpret_cast<cudaStream_t>(streams_.back().get());
    return cudaSuccess;
  }
  cudaError_t destroy(cudaStream_t handle) {
    Stream* const stream = stream_of(handle);
    if (stream == nullptr)
      return complain("a stream is destroyed that is not alive", cudaErrorInvalidResourceHandle);
    if (stream->capture)
      complaints_.emplace_back("a stream is destroyed while it is captured");
    stream->alive = false; // its work still runs
    return cudaSuccess;
  }

  cudaError_t make_event(cudaEvent_t* event, unsigned flags) {
    events_.push_back(
        std::make_unique<Event>(Event{.device = current(), .timed = (flags & cudaEventDisableTiming) == 0}));
    *event = reinterpret_cast<cudaEvent_t>(events_.back().get());
    return cudaSuccess;
  }
  cudaError_t destroy(cudaEvent_t handle) {
    Event* const event = alive(events_, handle);
    if (event == nullptr)
      return complain("an event is destroyed that is not alive", cudaErrorInvalidResourceHandle);
    event->alive = false;
    event->capture.reset();
    return cudaSuccess;
  }
  cudaError_t record(cudaEvent_t at, cudaStream_t on) {
    Event* const event = alive(events_, at);
    Stream* const stream = stream_of(on);
    if (event == nullptr || stream == nullptr)
      return complain("an event or stream is recorded that is not alive", cudaErrorInvalidResourceHandle);
    if (event->device != stream->device)
      return complain("an event is recorded on a stream of another device", cudaErrorInvalidResourceHandle);
    event->signal = std::make_shared<Signal>();
    event->capture = stream->capture;
    event->clock = stream->clock;
    join(stream->past, past_of_host_);
    event->past = stream->past;
    if (!stream->capture)
      stream->work.push_back({[this, signal = event->signal] {
        signal->done = true;
        signal->time = time_;
      }});
    return cudaSuccess;
  }
  cudaError_t wait(cudaStream_t on, cudaEvent_t at) {
    Event* const event = alive(events_, at);
    Stream* const stream = stream_of(on);
    if (event == nullptr || stream == nullptr)
      return complain("a stream waits for an event, and one of them is not alive",
                      cudaErrorInvalidResourceHandle);
    if (!event->signal)
      return complain("a stream waits for an event that was never recorded", cudaSuccess);
    if (!stream->capture && !event->capture) {
      if (++waits_ == habits_.lost_wait)
        return cudaSuccess;
      stream->work.push_back({[] {}, event->signal});
      join(stream->past, event->past);
      return cudaSuccess;
    }
    if (!event->capture || (stream->capture && stream->capture != event->capture)) {
      stream->capture->broken = true;
      return complain("a captured stream waits for an event from outside its capture",
                      cudaErrorStreamCaptureIsolation);
    }
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->clock.clear();
    }
    for (const auto& [other, count] : event->clock)
      stream->clock[other] = std::max(stream->clock[other], count);
    return cudaSuccess;
  }
  cudaError_t query(cudaEvent_t at) {
    Event* const event = alive(events_, at);
    if (event == nullptr)
      return complain("an event is asked that is not alive", cudaErrorInvalidResourceHandle);
    if (!event->signal)
      return complain("an event is asked that was never recorded", cudaSuccess);
    if (event->capture && event->capture->first != nullptr) {
      event->capture->broken = true;
      return complain("an event of a capture is asked", cudaErrorStreamCaptureUnsupported);
    }
    advance();
    if (!event->signal->done)
      return cudaErrorNotReady;
    join(past_of_host_, event->past);
    return cudaSuccess;
  }
  /// The host waits for an event.
  cudaError_t synchronize(cudaEvent_t at) {
    Event* const event = alive(events_, at);
    if (event == nullptr)
      return complain("an event is waited for that is not alive", cudaErrorInvalidResourceHandle);
    if (waits_in_capture("a wait for an event"))
      return cudaErrorStreamCaptureUnsupported;
    while (event->signal && !event->signal->done)
      advance();
    join(past_of_host_, event->past);
    return cudaSuccess;
  }
  cudaError_t elapsed(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    Event *const begin = alive(events_, from), *const end = alive(events_, to);
    if (begin == nullptr || end == nullptr || !begin->timed || !end->timed || !begin->signal || !end->signal)
      return complain("a time is asked of events that do not measure it", cudaErrorInvalidResourceHandle);
    if (!begin->signal->done || !end->signal->done)
      return cudaErrorNotReady;
    *milliseconds = static_cast<float>(end->signal->time - begin->signal->time);
    return cudaSuccess;
  }
  cudaError_t synchronize(cudaStream_t on) {
    Stream* const stream = stream_of(on);
    if (stream == nullptr)
      return complain("a stream is waited for that is not alive", cudaErrorInvalidResourceHandle);
    if (stream->capture)
      stream->capture->broken = true;
    if (waits_in_capture("a wait for a stream") || stream->capture)
      return cudaErrorStreamCaptureUnsupported;
    while (!stream->work.empty())
      advance();
    join(past_of_host_, stream->past);
    return cudaSuccess;
  }

  cudaError_t synchronize_all() {
    if (waits_in_capture("a wait for the device"))
      return cudaErrorStreamCaptureUnsupported;
    wait_for_all();
    return cudaSuccess;
  }
  cudaError_t query(cudaStream_t on) {
    Stream* const stream = stream_of(on);
    if (stream == nullptr)
      return complain("a stream is asked that is not alive", cudaErrorInvalidResourceHandle);
    if (stream->capture) {
      stream->capture->broken = true;
      return complain("a stream of a capture is asked", cudaErrorStreamCaptureUnsupported);
    }
    advance();
    if (!stream->work.empty())
      return cudaErrorNotReady;
    join(past_of_host_, stream->past);
    return cudaSuccess;
  }

  /// `bytes` of arguments that may hold addresses.
  cudaError_t enqueue(cudaStream_t on, std::function<void()> run, const void* arguments, std::size_t bytes,
                      bool is_launch) {
    Stream* const stream = stream_of(on);
    if (stream == nullptr)
      return complain("work is put on a stream that is not alive", cudaErrorInvalidResourceHandle);
    if (is_launch && stream->device != current())
      return complain("a kernel is launched on a stream of another device", cudaErrorInvalidResourceHandle);
    launches_ += is_launch ? 1 : 0;
    Work work{.run = std::move(run)};
    for (std::size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
      const void* address = nullptr;
      std::memcpy(&address, static_cast<const std::byte*>(arguments) + i, sizeof address);
      if (const void* block = block_of(address))
        work.memory.push_back(block);
    }
    if (!stream->capture) {
      join(stream->past, past_of_host_);
      add_work(stream->past, stream->line, 1);
      work.turn = {stream->line, stream->past};
      stream->work.push_back(std::move(work));
      if (stream == default_stream_)
        wait_for_all();
      return cudaSuccess;
    }
    stream->clock[stream] = ++stream->capture->counts[stream];
    work.captured_on = stream;
    work.clock = stream->clock;
    stream->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }

  cudaError_t begin_capture(cudaStream_t on) {
    Stream* const stream = stream_of(on);
    if (stream == nullptr || stream->capture)
      return complain("a stream is captured that is not alive, or is captured already",
                      cudaErrorIllegalState);
    stream->capture = std::make_shared<Capture>();
    stream->capture->first = stream;
    stream->capture->thread = std::this_thread::get_id();
    stream->clock.clear();
    capture_of_thread() = stream->capture;
    return cudaSuccess;
  }
  cudaError_t end_capture(cudaStream_t on, cudaGraph_t* graph) {
    Stream* const first = stream_of(on);
    if (first == nullptr || !first->capture || first->capture->first != first)
      return complain("a capture ends that has not begun on its stream", cudaErrorIllegalState);
    const std::shared_ptr<Capture> capture = first->capture;
    capture_of_thread().reset();
    bool joined = true;
    for (const auto& [stream, count] : capture->counts)
      joined = joined && first->clock[stream] == count;
    for (const auto& stream : streams_)
      if (stream->capture == capture)
        stream->capture.reset();
    capture->first = nullptr;
    if (!joined)
      return complain("a captured stream has not joined the first one", cudaErrorStreamCaptureUnjoined);
    if (capture->broken)
      return cudaErrorStreamCaptureInvalidated;
    *graph = make_graph<cudaGraph_t>(std::move(capture->work));
    return cudaSuccess;
  }
  cudaError_t instantiate(cudaGraphExec_t* made, cudaGraph_t from) {
    Graph* const graph = alive(graphs_, from);
    if (graph == nullptr)
      return complain("a graph is used that is not alive", cudaErrorInvalidValue);
    *made = make_graph<cudaGraphExec_t>(graph->work);
    return cudaSuccess;
  }
  cudaError_t launch(cudaGraphExec_t of, cudaStream_t on) {
    Graph* const graph = alive(graphs_, of);
    Stream* const stream = stream_of(on);
    if (graph == nullptr || stream == nullptr)
      return complain("a graph is launched, and it or the stream is not alive", cudaErrorInvalidValue);
    join(stream->past, past_of_host_);
    for (const Work& work : graph->work)
      if (!graph->lines.contains(work.captured_on))
        graph->lines[work.captured_on] = {lines_++, 0};
    const Past before = stream->past;
    std::map<const Stream*, std::size_t> counts;
    for (Work& work : some_order(graph->work)) {
      work.turn = {graph->lines[work.captured_on].first, before};
      for (const auto& [other, count] : work.clock) {
        const auto [line, earlier] = graph->lines[other];
        const std::size_t known = work.turn.known_of(line);
        add_work(work.turn.past, line, std::max(known, earlier + count) - known);
        counts[other] = std::max(counts[other], count);
      }
      join(stream->past, work.turn.past);
      stream->work.push_back(std::move(work));
    }
    for (const auto& [other, count] : counts)
      graph->lines[other].second += count;
    return cudaSuccess;
  }
  template <class Handle> cudaError_t destroy_graph(Handle handle) {
    Graph* const graph = alive(graphs_, handle);
    if (graph == nullptr)
      return complain("a graph is destroyed that is not alive", cudaErrorInvalidValue);
    graph->alive = false;
    return cudaSuccess;
  }

private:
  /// The work of a graph, in a random order of those that its dependencies allow.
  std::vector<Work> some_order(std::vector<Work> rest) {
    std::vector<Work> order;
    Clock done;
    while (!rest.empty()) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < rest.size(); ++i)
        if (std::all_of(rest[i].clock.begin(), rest[i].clock.end(), [&](const auto& need) {
              return done[need.first] + (need.first == rest[i].captured_on ? 1 : 0) >= need.second;
            }))
          ready.push_back(i);
      const auto next = rest.begin() + static_cast<std::ptrdiff_t>(ready[turns_() % ready.size()]);
      ++done[next->captured_on];
      order.push_back(std::move(*next));
      rest.erase(next);
    }
    return order;
  }
  /// A stream that is alive. Stream 0, where it exists, waits for all the others, and they for it.
  Stream* stream_of(cudaStream_t handle) {
    if ((handle != nullptr && handle != cudaStreamLegacy) || !habits_.default_stream)
      return alive(streams_, handle);
    for (const auto& stream : streams_)
      if (stream->capture) {
        stream->capture->broken = true;
        complaints_.emplace_back("the default stream is used during a capture");
      }
    wait_for_all();
    if (default_stream_ == nullptr) {
      cudaStream_t made = nullptr;
      make_stream(&made);
      default_stream_ = alive(streams_, made);
    }
    return default_stream_;
  }
  /// Runs one piece of work of a random stream whose next piece may begin.
  void advance() {
    std::vector<Stream*> ready;
    for (const auto& stream : streams_)
      if (!stream->work.empty() && (!stream->work.front().after || stream->work.front().after->done))
        ready.push_back(stream.get());
    if (ready.empty())
      return;
    Stream* const stream = ready[turns_() % ready.size()];
    const Work work = std::move(stream->work.front());
    stream->work.pop_front();
    ++time_;
    working_ = true;
    running_ = work.turn;
    work.run();
    working_ = false;
  }
  /// As a call that the host, or stream 0, begins with: what comes later comes after all work so far.
  void wait_for_all() {
    run_all();
    for (const auto& stream : streams_)
      join(past_of_host_, stream->past);
  }
  static void add_work(Past& past, std::size_t line, std::size_t count) {
    past.resize(std::max(past.size(), line + 1));
    past[line] += count;
  }
  void run_all() {
    const auto any = [this] {
      return std::any_of(streams_.begin(), streams_.end(),
                         [](const auto& stream) { return !stream->work.empty(); });
    };
    while (any())
      advance();
  }
  [[nodiscard]] bool in_use(const void* data) const {
    for (const auto& stream : streams_)
      for (const Work& work : stream->work)
        if (std::find(work.memory.begin(), work.memory.end(), data) != work.memory.end())
          return true;
    return false;
  }
  bool waits_in_capture(const char* what) {
    const std::shared_ptr<Capture> capture = capture_of_thread();
    if (!capture)
      return false;
    capture->broken = true;
    complaints_.push_back(std::string(what) + " in a capture");
    return true;
  }
  /// Whether the bytes are in one block, or in memory of the host.
  [[nodiscard]] bool inside(const void* address, std::size_t bytes) const {
    const void* const block = block_of(address);
    if (block == nullptr)
      return true;
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(block);
    return offset + bytes <= blocks_.at(block);
  }
  [[nodiscard]] const void* block_of(const void* address) const {
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin())
      return nullptr;
    --found;
    const auto distance =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(found->first);
    return distance < found->second ? found->first : nullptr;
  }
  template <class All, class Handle>
  static auto alive(const All& all, Handle handle) -> typename All::value_type::pointer {
    for (const auto& each : all)
      if (reinterpret_cast<Handle>(each.get()) == handle && each->alive)
        return each.get();
    return nullptr;
  }
  template <class Handle> Handle make_graph(std::vector<Work> work) {
    graphs_.push_back(std::make_unique<Graph>(Graph{true, std::move(work)}));
    return reinterpret_cast<Handle>(graphs_.back().get());
  }
  static int& current() {
    thread_local int device = 0;
    return device;
  }
  static std::shared_ptr<Capture>& capture_of_thread() {
    thread_local std::shared_ptr<Capture> capture;
    return capture;
  }

  std::recursive_mutex mutex_; // a host function that calls CUDA comes back here
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  Stream* default_stream_ = nullptr;
  std::map<const void*, std::size_t> blocks_;
  Habits habits_;
  MemoryWatch watch_;
  std::vector<std::string> complaints_;
  std::mt19937 turns_;
  Past past_of_host_; // of all its threads, since they tell each other in ways that are not seen here
  Turn running_;
  int devices_ = 1;
  long time_ = 0, launches_ = 0, waits_ = 0;
  std::size_t lines_ = 0;
  bool working_ = false;
};

inline Library& library() {
  static Library one;
  return one;
}

} // namespace fake_cuda
