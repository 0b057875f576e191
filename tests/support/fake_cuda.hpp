// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A fake of CUDA's runtime library, linked in its place, for one unit of a program. Work on streams,
/// kernels included, runs in random order, and everything that CUDA forbids or leaves undefined is noted as a
/// complaint.
///
/// It is included before the headers under test: they find its way to launch a kernel, which knows the type
/// of the arguments. The rules: handles are alive; streams and events that meet have one device; an event
/// that is waited for or queried has been recorded; memory is not freed while work that has its address is in
/// progress; a thread that captures neither waits nor allocates nor frees; captured streams only wait for
/// events of their capture, and have joined its first stream at the end; host functions do not call CUDA.
/// Streams, events, memory and graphs that are never destroyed are counted.

#include <cuda_runtime_api.h>
#include <device_launch_parameters.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(__launch_bounds__)
#define __launch_bounds__(...)
#endif

// Written by the device, so not const here; the names are those of the declarations.
uint3 fake_cuda_thread __asm__("threadIdx");
uint3 fake_cuda_block __asm__("blockIdx");

namespace fake_cuda {

struct Stream;

/// The recording that an event stands for.
struct Signal {
  bool done = false;
  long time = 0;
};

/// A piece of work, or a wait for a signal.
struct Work {
  std::function<void()> run;
  std::shared_ptr<Signal> after;   ///< The work may not begin before that.
  std::vector<const void*> memory; ///< Start addresses of the allocations that it may access.
};

/// The work of each stream that has been recorded.
using Clock = std::map<const Stream*, std::size_t>;

struct Capture {
  Stream* first = nullptr;
  std::thread::id thread;
  bool broken = false;
  std::vector<Work> work;
  std::map<const Stream*, std::size_t> counts;
};

struct Stream {
  int device = 0;
  bool alive = true;
  std::deque<Work> work{};
  std::shared_ptr<Capture> capture{};
  Clock clock{}; ///< In the capture.
};

struct Event {
  int device = 0;
  bool alive = true, timed = true;
  std::shared_ptr<Signal> signal{};   ///< Null: never recorded.
  std::shared_ptr<Capture> capture{}; ///< Where it was recorded last, if in one.
  Clock clock{};
};

struct Graph {
  bool alive = true;
  std::vector<Work> work;
};

/// The objects that exist.
struct Counts {
  std::size_t streams = 0, events = 0, memory = 0, graphs = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

class Library {
public:
  /// Starts anew; objects that still exist are forgotten.
  void reset(unsigned seed, int devices = 1) {
    const std::lock_guard lock(mutex_);
    for (auto& [data, block] : blocks_)
      std::free(const_cast<void*>(data));
    streams_.clear();
    events_.clear();
    graphs_.clear();
    blocks_.clear();
    complaints_.clear();
    turns_.seed(seed);
    devices_ = devices;
    time_ = 0;
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

  cudaError_t allocate(void** data, std::size_t bytes) {
    if (waits_in_capture("an allocation"))
      return cudaErrorStreamCaptureUnsupported;
    *data = std::malloc(std::max<std::size_t>(bytes, 1));
    blocks_[*data] = bytes;
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
      complaints_.emplace_back("memory is given back while work that knows it is under way");
      run_all(); // as in CUDA, which waits for the device
    }
    std::free(data);
    return cudaSuccess;
  }

  cudaError_t free_later(void* data, cudaStream_t on) {
    return enqueue(
        on,
        [this, data] {
          if (in_use(data))
            complaints_.emplace_back("memory is given back while work of another stream knows it");
          if (blocks_.erase(data) == 0)
            complaints_.emplace_back("memory is given back that was not allocated");
          else
            std::free(data);
        },
        nullptr, 0, false);
  }
  /// Memory that is not pinned is copied at once, by the host, as the library does.
  cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    const void* const addresses[] = {to, from};
    if (block_of(from) != nullptr)
      return enqueue(
          stream, [=] { std::memcpy(to, from, bytes); }, addresses, sizeof addresses, false);
    const auto* const begin = static_cast<const std::byte*>(from);
    return enqueue(
        stream,
        [to, staged = std::vector<std::byte>(begin, begin + bytes)] {
          if (!staged.empty())
            std::memcpy(to, staged.data(), staged.size());
        },
        addresses, sizeof addresses, false);
  }

  cudaError_t make_stream(cudaStream_t* stream) {
    streams_.push_back(std::make_unique<Stream>(Stream{.device = current()}));
    *stream = reinterpret_cast<cudaStream_t>(streams_.back().get());
    return cudaSuccess;
  }
  cudaError_t destroy(cudaStream_t handle) {
    Stream* const stream = alive(streams_, handle);
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
    Stream* const stream = alive(streams_, on);
    if (event == nullptr || stream == nullptr)
      return complain("an event or stream is recorded that is not alive", cudaErrorInvalidResourceHandle);
    if (event->device != stream->device)
      return complain("an event is recorded on a stream of another device", cudaErrorInvalidResourceHandle);
    event->signal = std::make_shared<Signal>();
    event->capture = stream->capture;
    event->clock = stream->clock;
    if (!stream->capture)
      stream->work.push_back({[this, signal = event->signal] {
                                signal->done = true;
                                signal->time = time_;
                              },
                              nullptr,
                              {}});
    return cudaSuccess;
  }
  cudaError_t wait(cudaStream_t on, cudaEvent_t at) {
    Event* const event = alive(events_, at);
    Stream* const stream = alive(streams_, on);
    if (event == nullptr || stream == nullptr)
      return complain("a stream waits for an event, and one of them is not alive",
                      cudaErrorInvalidResourceHandle);
    if (!event->signal)
      return complain("a stream waits for an event that was never recorded", cudaSuccess);
    if (!stream->capture && !event->capture) {
      stream->work.push_back({[] {}, event->signal, {}});
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
    return event->signal->done ? cudaSuccess : cudaErrorNotReady;
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
    Stream* const stream = alive(streams_, on);
    if (stream == nullptr)
      return complain("a stream is waited for that is not alive", cudaErrorInvalidResourceHandle);
    if (stream->capture)
      stream->capture->broken = true;
    if (waits_in_capture("a wait for a stream") || stream->capture)
      return cudaErrorStreamCaptureUnsupported;
    while (!stream->work.empty())
      advance();
    return cudaSuccess;
  }

  /// `bytes` of arguments that may hold addresses.
  cudaError_t enqueue(cudaStream_t on, std::function<void()> run, const void* arguments, std::size_t bytes,
                      bool is_launch) {
    Stream* const stream = alive(streams_, on);
    if (stream == nullptr)
      return complain("work is put on a stream that is not alive", cudaErrorInvalidResourceHandle);
    if (is_launch && stream->device != current())
      return complain("a kernel is launched on a stream of another device", cudaErrorInvalidResourceHandle);
    launches_ += is_launch ? 1 : 0;
    Work work{std::move(run), nullptr, {}};
    for (std::size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
      const void* address = nullptr;
      std::memcpy(&address, static_cast<const std::byte*>(arguments) + i, sizeof address);
      if (const void* block = block_of(address))
        work.memory.push_back(block);
    }
    if (!stream->capture) {
      stream->work.push_back(std::move(work));
      return cudaSuccess;
    }
    stream->clock[stream] = ++stream->capture->counts[stream];
    stream->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }

  cudaError_t begin_capture(cudaStream_t on) {
    Stream* const stream = alive(streams_, on);
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
    Stream* const first = alive(streams_, on);
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
    Stream* const stream = alive(streams_, on);
    if (graph == nullptr || stream == nullptr)
      return complain("a graph is launched, and it or the stream is not alive", cudaErrorInvalidValue);
    stream->work.insert(stream->work.end(), graph->work.begin(), graph->work.end());
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
    work.run();
    working_ = false;
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
  std::map<const void*, std::size_t> blocks_;
  std::vector<std::string> complaints_;
  std::mt19937 turns_;
  int devices_ = 1;
  long time_ = 0, launches_ = 0;
  bool working_ = false;
};

inline Library& library() {
  static Library one;
  return one;
}

} // namespace fake_cuda

/// @brief Calls the kernel for every thread of every block, one after another.
template <class Kernel>
cudaError_t cudaLaunchKernel(void (*kernel)(Kernel, std::uint64_t, unsigned), dim3 grid, dim3 block,
                             void** arguments, std::size_t, cudaStream_t stream) {
  const Kernel of = *static_cast<const Kernel*>(arguments[0]);
  const auto tiles = *static_cast<const std::uint64_t*>(arguments[1]);
  const auto groups = *static_cast<const unsigned*>(arguments[2]);
  // Entries past the end of a work list hold addresses of earlier calls, which the kernel never reads.
  Kernel known = of;
  if constexpr (requires { known.work.entries; }) {
    const auto& work = of.work;
    const std::size_t used =
        work.table != nullptr ? 0 : std::size_t{work.blocks} * (1u + work.ins + work.outs);
    std::fill(std::begin(known.work.entries) + static_cast<std::ptrdiff_t>(used),
              std::end(known.work.entries), std::decay_t<decltype(known.work.entries[0])>{});
  }
  return fake_cuda::library().call([&] {
    return fake_cuda::library().enqueue(
        stream,
        [=] {
          for (fake_cuda_block.x = 0; fake_cuda_block.x < grid.x; ++fake_cuda_block.x)
            for (fake_cuda_thread.x = 0; fake_cuda_thread.x < block.x; ++fake_cuda_thread.x)
              kernel(of, tiles, groups);
        },
        &known, sizeof known, true);
  });
}

extern "C" {

inline cudaError_t fake_cuda_allocate(void** data, std::size_t bytes) {
  return fake_cuda::library().call([&] { return fake_cuda::library().allocate(data, bytes); });
}
inline cudaError_t fake_cuda_free(void* data) {
  return fake_cuda::library().call([&] { return fake_cuda::library().free(data); });
}

const char* cudaGetErrorName(cudaError_t) { return "an error of the fake"; }
const char* cudaGetErrorString(cudaError_t) { return "see its complaints"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  return fake_cuda::library().call([&] { return fake_cuda::library().set_device(device); });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2; // multiprocessors
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) { return fake_cuda_allocate(data, bytes); }
cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return fake_cuda_allocate(data, bytes); }
cudaError_t cudaFree(void* data) { return fake_cuda_free(data); }
cudaError_t cudaFreeHost(void* data) { return fake_cuda_free(data); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return fake_cuda::library().call([&] { return fake_cuda::library().make_stream(stream); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().synchronize(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return fake_cuda::library().call([&] { return fake_cuda::library().wait(stream, event); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return fake_cuda::library().call([&] { return fake_cuda::library().make_event(event, flags); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().record(event, stream); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return fake_cuda::library().call([&] { return fake_cuda::library().query(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return fake_cuda::library().call([&] { return fake_cuda::library().elapsed(milliseconds, from, to); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().copy(to, from, bytes, stream); });
}
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  return fake_cuda_allocate(data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().free_later(data, stream); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* of) {
  return fake_cuda::library().call([&] {
    return fake_cuda::library().enqueue(
        stream, [=] { function(of); }, nullptr, 0, false);
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return fake_cuda::library().call([&] { return fake_cuda::library().begin_capture(stream); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().end_capture(stream, graph); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return fake_cuda::library().call([&] { return fake_cuda::library().instantiate(made, graph); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return fake_cuda::library().call([&] { return fake_cuda::library().launch(graph, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy_graph(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return fake_cuda::library().call([&] { return fake_cuda::library().destroy_graph(graph); });
}

} // extern "C"
