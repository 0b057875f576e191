// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The device that a program sees when it is linked with the stand-in of CUDA's runtime library: its
/// kernels are interpreted, on streams in random order.
///
/// The environment chooses how: `PTX_ORDER` is forward, backward or random, of the warps; `PTX_ARRIVAL` is
/// issue or wait, of asynchronous copies; `PTX_SEED` is the seed of the streams' turns and of random warps;
/// `PTX_UNINITIALIZED=1` reports loads of bytes that nothing has written; `PTX_COVERAGE` names a file for the
/// instructions that were reached, and `PTX_TRAFFIC` one for the bytes of global memory that each kernel
/// moved, and that the program said it would move (`shardwright_kernel_moves`); `PTX_LOST_WAIT=7` leaves out
/// the seventh wait of a stream for an event. The first fault of a kernel ends the program with status 86,
/// and so do two accesses of two streams that nothing orders.

#include "ptx/executor.hpp"
#include "ptx/memory.hpp"
#include "ptx/module.hpp"
#include "ptx/runtime/stream_order.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ptx_runtime {

/// @brief A kernel as its host program knows it.
struct Function {
  ptx::Module* module = nullptr;
  std::string name;
  const ptx::Kernel* kernel = nullptr; ///< Null until it is needed.
  std::size_t most_dynamic_shared = 48 << 10;
  std::uint64_t launches = 0, warp_instructions = 0;
};

/// @brief Bytes of global memory that launches moved.
struct Traffic {
  std::uint64_t launches = 0;
  std::uint64_t lanes_read = 0, lanes_wrote = 0; ///< Each as often as a lane asked for it.

  /// @brief Each once for a launch, and without blocks that the program calls a workspace, and variables such
  /// as tables of sines: those that it read before it wrote them, and those that it wrote.
  std::uint64_t read = 0, wrote = 0;
};

/// @brief What a program calls the launches that follow on this thread; "" at first.
std::string& launch_label();

/// @brief What a program calls the memory that this thread allocates next.
std::string& memory_label();

class Runtime {
public:
  static constexpr int processors = 3;
  static constexpr unsigned most_threads = 1024;
  static constexpr std::size_t shared_bytes = 48 << 10, most_shared_bytes = 227 << 10; ///< Of a block.

  /// @brief The only one. It exists from the first registration to the end of the program.
  static Runtime& get();

  /// @brief A module, by the wrapper of its fat binary.
  ptx::Module* add_module(const void* wrapper);
  void add_function(ptx::Module* module, const void* host, const char* name);
  void add_variable(ptx::Module* module, const void* host, const char* name);

  /// @brief The function with its kernel decoded; null if the program never registered it.
  Function* find(const void* host);
  /// @brief A variable of the device, by its address on the host; null if there is none.
  const ptx::Variable* variable(const void* host);

  /// @brief Puts a kernel on a stream, as CUDA does: what does not fit the device is an error.
  cudaError_t launch(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                     cudaStream_t stream);

  /// @brief Admits memory that kernels may access, and ends it. What is given back is kept for a while, so
  /// that its addresses are not those of new memory.
  /// @param pinned whether it is on the host, which may write it at any time
  void allocated(void* data, std::size_t bytes, bool pinned);
  void freed(void* data);
  ptx::Memory& memory() noexcept { return memory_; }

  /// @brief Notes what the running work has touched; ends the program if work of another stream that nothing
  /// orders has touched it too.
  /// @param what   its name in a report
  /// @param kernel null if it is not a kernel
  void touched(const std::string& what, const ptx::Kernel* kernel, std::vector<ptx::Touched> ranges);

  /// @brief The program says that launches of this label move so many bytes more.
  void states(const char* label, double bytes);

  /// @brief Says what a fault was, and ends the program.
  [[noreturn]] void end(const std::string& sentence);

private:
  Runtime();
  void count(Function&, const std::string& label, const ptx::Statistics&, const std::vector<ptx::Touched>&);
  void report();

  std::mutex mutex_;
  ptx::Memory memory_;
  StreamOrder order_;
  ptx::Options options_;
  std::deque<std::pair<std::string_view, ptx::Module>> modules_;
  std::map<const void*, Function> functions_;
  std::map<std::pair<std::string, const Function*>, Traffic> traffic_; // by label and kernel
  std::map<std::string, double> stated_;
  std::map<const void*, std::pair<ptx::Module*, std::string>> variables_;
  std::map<void*, std::size_t> bytes_;
  std::deque<void*> kept_;
  std::size_t kept_bytes_ = 0;
};

} // namespace ptx_runtime
