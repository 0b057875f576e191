// SPDX-License-Identifier: Apache-2.0
// A job of three ranks that checks the newest checkpoint of a directory and then saves the next one, in which
// it is killed at one of the seven steps of a save, or finds the disk of one rank full; a script checks the
// remains.
#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <Kokkos_Core.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
namespace fs = std::filesystem;
using sw::axis::dp;

namespace {

/// The call at which the process dies or the disk is full.
struct Fault {
  const char* call = "";
  const char* name = ""; ///< In the file's name, which also identifies the rank.
  bool after = false;    ///< The number of the call; a write ends in the middle.
};
constexpr Fault faults[]{{},
                         {"mkdir", ".tmp-"},
                         {}, // staging, in the program itself
                         {"write", "part-1.safetensors"},
                         {"rename", "part-1.safetensors", true},
                         {"write", "manifest.json"},
                         {"rename", "step-"}, // of the whole checkpoint
                         {"rename", ".tmp-", true}};
std::atomic<int> killed_at{0};
std::atomic<bool> full{false};

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;)
    ::pause();
}

/// Whether the process is to die at this call.
bool comes(std::string_view call, const fs::path& path, bool after) {
  const Fault& fault = faults[killed_at.load()];
  return call == fault.call && after == fault.after &&
         path.filename().string().find(fault.name) != std::string::npos;
}

} // namespace

// These replace the C library's.
extern "C" {
ssize_t write(int file, const void* bytes, size_t count) {
  if (file > 2 && (killed_at.load() != 0 || full.load())) {
    const std::string path = fs::read_symlink("/proc/self/fd/" + std::to_string(file)).string();
    if (comes("write", path, false)) {
      (void)!::syscall(SYS_write, file, bytes, count / 2);
      die();
    }
    if (full.load() && path.find("part-1.safetensors") != path.npos) {
      errno = ENOSPC;
      return -1;
    }
  }
  return ::syscall(SYS_write, file, bytes, count);
}
int rename(const char* from, const char* to) noexcept {
  if (comes("rename", to, false))
    die();
  const int out = static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
  if (comes("rename", to, true))
    die();
  return out;
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (comes("mkdir", path, false))
    die();
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
}

namespace {

using Rows = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>>;
constexpr int tensors = 3;

std::string name_of(int tensor) { return "weight." + std::to_string(tensor); }

/// The value of an element at a step: different at every position of every tensor.
float value_at(std::uint64_t step, int tensor, std::int64_t place) {
  return static_cast<float>(step) + static_cast<float>(tensor) / 4 + static_cast<float>(place) / 1024;
}

/// Calls visit(element, value) for all elements of this rank.
template <class Visit> void each_element(Rows& tensor, std::uint64_t step, int number, const Visit& visit) {
  const std::int64_t first = tensor.local_offset()[0] * tensor.shape()[1];
  float* const data = tensor.mutable_data();
  for (std::size_t i = 0; i < tensor.local_size(); ++i)
    visit(data[i], value_at(step, number, first + static_cast<std::int64_t>(i)));
}

void save(cp::Saver& saver, std::vector<Rows>& weights, std::uint64_t step, int rank) {
  cp::Staging& memory = saver.staging();
  for (int i = 0; i < tensors; ++i) {
    Rows& weight = weights[static_cast<std::size_t>(i)];
    each_element(weight, step, i, [](float& element, float value) { element = value; });
    if (i == 1 && rank == 1 && killed_at.load() == 2)
      die();
    memory.add(name_of(i), weight);
  }
  saver.start({step, "dp=3", "", {}}, 1);
  saver.finish();
}

/// The step of the newest checkpoint, with all of its data compared; 0 if there is none.
std::uint64_t check(const sw::HostCommunicator& world, const fs::path& directory,
                    std::vector<Rows>& weights) {
  std::vector<std::string> refused;
  const auto reader = cp::open_newest(world, directory, refused);
  if (!refused.empty())
    throw sw::DataError("a checkpoint that has its name must be whole, but " + refused.front());
  if (!reader)
    return 0;
  const std::uint64_t step = reader->manifest().description.step;
  for (int i = 0; i < tensors; ++i) {
    Rows& weight = weights[static_cast<std::size_t>(i)];
    cp::read_tensor(*reader, name_of(i), weight);
    each_element(weight, step, i, [&](float element, float value) {
      if (element != value)
        throw sw::DataError(name_of(i) + " must be what was saved at step " + std::to_string(step));
    });
  }
  return step;
}

void run(sw::HostCommunicator world, const fs::path& directory, const std::string& word) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  std::vector<Rows> weights;
  for (int i = 0; i < tensors; ++i)
    weights.emplace_back(mesh, Rows::Shape{7, 1 + 5 * i});
  cp::Saver saver(world, directory);
  const std::uint64_t step = check(world, directory, weights);
  std::printf("rank %d: step %d is whole\n", world.rank(), static_cast<int>(step));
  std::fflush(stdout);
  if (word == "check")
    return;
  world.barrier(); // no rank dies before all have said so
  if (word == "full") {
    full.store(true);
    try {
      save(saver, weights, step + 1, world.rank());
    } catch (const sw::DataError& error) {
      std::printf("rank %d: %s\n", world.rank(), error.what());
    }
    world.barrier(); // thread ranks share the disk
    full.store(false);
    if (check(world, directory, weights) != step)
      throw sw::DataError("the older checkpoint must be the newest");
  } else {
    killed_at.store(std::stoi(word));
  }
  save(saver, weights, step + 1, world.rank());
  std::printf("rank %d: step %d is saved\n", world.rank(), static_cast<int>(step + 1));
}

} // namespace

int main(int, char** argv) {
  const Kokkos::ScopeGuard kokkos;
  return sw::launch({.ranks = 3},
                    [&](sw::HostCommunicator world) { run(std::move(world), argv[1], argv[2]); });
}
