// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/runtime.hpp"

#include "ptx/runtime/coverage.hpp"
#include "ptx/runtime/fat_binary.hpp"
#include "support/fake_cuda_library.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ptx_runtime {

namespace {

constexpr std::size_t most_kept_bytes = std::size_t{512} << 20;

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

ptx::Options options_of_environment() {
  ptx::Options options;
  const std::string order = setting("PTX_ORDER", "forward"), arrival = setting("PTX_ARRIVAL", "wait");
  if ((order != "forward" && order != "backward" && order != "random") ||
      (arrival != "issue" && arrival != "wait"))
    throw std::runtime_error(
        "PTX_ORDER must be forward, backward or random, and PTX_ARRIVAL must be issue or wait.");
  options.order = order == "forward"    ? ptx::Order::forward
                  : order == "backward" ? ptx::Order::backward
                                        : ptx::Order::random;
  options.arrival = arrival == "issue" ? ptx::Arrival::at_issue : ptx::Arrival::at_wait;
  options.seed = std::stoull(setting("PTX_SEED", "1"));
  options.uninitialized = setting("PTX_UNINITIALIZED", "0") == "1";
  return options;
}

/// Bytes of memory that is not the host's alone.
std::vector<ptx::Touched> range_of(const ptx::Memory& memory, const void* data, std::size_t bytes,
                                   bool written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  if (bytes == 0 || memory.find(begin, bytes) == nullptr)
    return {};
  return {{.begin = begin, .end = begin + bytes, .written = written}};
}

std::vector<std::byte> packed(const ptx::Kernel& kernel, void** arguments) {
  std::vector<std::byte> out(kernel.parameter_bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(out.data() + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].bytes);
  return out;
}

} // namespace

std::string& launch_label() {
  thread_local std::string label;
  return label;
}

std::string& memory_label() {
  thread_local std::string label;
  return label;
}

Runtime& Runtime::get() {
  static Runtime& one = *new Runtime; // outlives all objects of the program
  return one;
}

Runtime::Runtime() : options_(options_of_environment()) {
  const auto written = [this](void* data, std::size_t bytes) {
    memory_.mark_written(data, bytes);
    touched("a copy or a fill", nullptr, range_of(memory_, data, bytes, true));
  };
  const auto copied = [this](void* to, const void* from, std::size_t bytes) {
    memory_.mark_copied(to, from, bytes);
    touched("a copy", nullptr, range_of(memory_, from, bytes, false));
    touched("a copy", nullptr, range_of(memory_, to, bytes, true));
  };
  fake_cuda::library().reset(
      static_cast<unsigned>(options_.seed), 1,
      {.free_waits = true, .default_stream = true, .lost_wait = std::stol(setting("PTX_LOST_WAIT", "0"))},
      {.allocated = [this](void* data, std::size_t bytes, bool pinned) { allocated(data, bytes, pinned); },
       .freed = [this](void* data) { freed(data); },
       .written = written,
       .copied = copied});
  std::atexit([] { get().report(); });
}

ptx::Module* Runtime::add_module(const void* wrapper) {
  const std::lock_guard lock(mutex_);
  try {
    const std::string_view text = ptx_of(wrapper);
    ptx::Module& module = modules_.emplace_back(text, ptx::parse(text)).second;
    memory_.add_variables(module);
    return &module;
  } catch (const std::exception& error) {
    end(error.what());
  }
}

void Runtime::add_function(ptx::Module* module, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  functions_[host] = {.module = module, .name = name};
}

void Runtime::add_variable(ptx::Module* module, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  variables_[host] = {module, name};
}

Function* Runtime::find(const void* host) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(host);
  if (found == functions_.end())
    return nullptr;
  Function& function = found->second;
  try {
    if (function.kernel == nullptr)
      function.kernel = function.module->find(function.name);
  } catch (const ptx::Fault& fault) {
    end(fault.what());
  }
  if (function.kernel == nullptr)
    end("the PTX has no kernel " + function.name);
  return &function;
}

const ptx::Variable* Runtime::variable(const void* host) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(host);
  return found == variables_.end() ? nullptr : found->second.first->variable(found->second.second);
}

cudaError_t Runtime::launch(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                            cudaStream_t stream) {
  Function* const function = find(host);
  if (function == nullptr)
    return cudaErrorInvalidDeviceFunction;
  const ptx::Kernel& kernel = *function->kernel;
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  const bool in_grid =
      grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff && grid.y <= 0xffff && grid.z <= 0xffff;
  if (!in_grid || threads == 0 || threads > kernel.maximum_threads || block.z > 64)
    return cudaErrorInvalidConfiguration;
  if (shared > function->most_dynamic_shared || shared + kernel.shared_bytes > most_shared_bytes)
    return cudaErrorInvalidValue;
  const std::vector<std::byte> parameters = packed(kernel, arguments);
  const auto run = [this, function, grid, block, shared, parameters, label = launch_label()] {
    std::vector<ptx::Touched> ranges;
    ptx::Options options = options_;
    options.touched = [&ranges](const ptx::Touched& range) { ranges.push_back(range); };
    try {
      const ptx::Statistics done = ptx::run(*function->kernel,
                                            {.grid = {grid.x, grid.y, grid.z},
                                             .block = {block.x, block.y, block.z},
                                             .dynamic_shared = shared,
                                             .parameters = parameters.data()},
                                            memory_, options);
      count(*function, label, done, ranges);
    } catch (const std::exception& fault) {
      end(fault.what());
    }
    touched("a kernel", function->kernel, std::move(ranges));
  };
  fake_cuda::Library& library = fake_cuda::library();
  return library.call(
      [&] { return library.enqueue(stream, run, parameters.data(), parameters.size(), true); });
}

void Runtime::count(Function& function, const std::string& label, const ptx::Statistics& done,
                    const std::vector<ptx::Touched>& ranges) {
  const std::lock_guard lock(mutex_);
  ++function.launches;
  function.warp_instructions += done.warp_instructions;
  Traffic& traffic = traffic_[{label, &function}];
  ++traffic.launches;
  traffic.lanes_read += done.bytes_read;
  traffic.lanes_wrote += done.bytes_written;
  for (const ptx::Touched& range : ranges) {
    const std::uint64_t bytes = range.end - range.begin;
    const ptx::Memory::Block* const block = memory_.find(range.begin, bytes);
    if (block != nullptr && (block->label.ends_with("workspace") || block->label.starts_with("variable ")))
      continue;
    traffic.read += range.loaded ? bytes : 0;
    traffic.wrote += range.written ? bytes : 0;
  }
}

void Runtime::states(const char* label, double bytes) {
  launch_label() = label;
  const std::lock_guard lock(mutex_);
  stated_[label] += bytes;
}

void Runtime::touched(const std::string& what, const ptx::Kernel* kernel, std::vector<ptx::Touched> ranges) {
  const std::string report = order_.note(fake_cuda::library().running(), what, kernel, std::move(ranges));
  if (!report.empty())
    end(report);
}

void Runtime::allocated(void* data, std::size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex_);
  order_.forget(data, bytes);
  bytes_[data] = bytes;
  const std::string name = std::exchange(memory_label(), "");
  memory_.add(data, bytes,
              "memory of " + std::to_string(bytes) + " bytes" + (name.empty() ? "" : ", " + name),
              options_.uninitialized && !pinned ? ptx::Contents::unwritten : ptx::Contents::written);
}

void Runtime::freed(void* data) {
  const std::lock_guard lock(mutex_);
  memory_.remove(data);
  const auto found = bytes_.find(data);
  kept_bytes_ += found->second;
  kept_.push_back(data);
  while (kept_bytes_ > most_kept_bytes) {
    const auto oldest = bytes_.find(kept_.front());
    kept_bytes_ -= oldest->second;
    std::free(kept_.front());
    bytes_.erase(oldest);
    kept_.pop_front();
  }
}

void Runtime::end(const std::string& sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "interpreter: %s\n", sentence.c_str());
  std::_Exit(86);
}

void Runtime::report() {
  std::uint64_t kernels = 0, launches = 0, instructions = 0;
  for (const auto& [host, function] : functions_) {
    kernels += function.launches > 0 ? 1 : 0;
    launches += function.launches;
    instructions += function.warp_instructions;
  }
  std::printf("interpreter: %zu of %zu kernels, %zu launches, %zu warp instructions\n",
              static_cast<std::size_t>(kernels), functions_.size(), static_cast<std::size_t>(launches),
              static_cast<std::size_t>(instructions));
  if (const std::string file = setting("PTX_COVERAGE", ""); !file.empty())
    write_coverage(file, functions_);
  if (const std::string file = setting("PTX_TRAFFIC", ""); !file.empty())
    write_traffic(file, traffic_, stated_);
  const std::vector<std::string> complaints = fake_cuda::library().complaints();
  for (const std::string& complaint : complaints)
    std::fprintf(stderr, "interpreter: %s\n", complaint.c_str());
  if (!complaints.empty())
    end("the program broke the rules of CUDA's runtime library.");
}

} // namespace ptx_runtime

// What programs may say of themselves: a name for the memory that a thread allocates next, and what the
// launches that follow are called and move.
extern "C" void ptx_name_memory(const char* label) { ptx_runtime::memory_label() = label; }
extern "C" void shardwright_kernel_moves(const char* label, double bytes) {
  ptx_runtime::Runtime::get().states(label, bytes);
}
