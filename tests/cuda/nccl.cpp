// SPDX-License-Identifier: Apache-2.0
// The requirements on every communicator, over NCCL: thread ranks with a GPU each. With one GPU a world of
// one rank runs every operation, and two ranks find that they share it.
#include "cuda/compare.hpp"

#if defined(SHARDWRIGHT_WITH_NCCL)
#include "comm/communicator_suite.hpp"
#include "cuda/buffer.hpp"

#include <shardwright/device/nccl/communicator.hpp>
#include <shardwright/launch.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using communicator_suite::require;

/// A rank on the GPU of its number.
struct NcclPlace {
  struct chooses_order {};
  struct ignores_tags {};

  explicit NcclPlace(const sw::HostCommunicator& group, int device, bool check)
      : runtime(device), stream(runtime.make_stream()),
        comm(sw::nccl_communicator(group, runtime, stream, {.check = check})) {}

  template <class E> [[nodiscard]] cuda_test::CudaBuffer<E> put(const std::vector<E>& numbers) const {
    return {stream.get(), numbers};
  }
  template <class E> [[nodiscard]] std::vector<E> get(const cuda_test::CudaBuffer<E>& numbers) const {
    sw::DeviceCommunicator(comm).await_stream();
    return numbers.read();
  }

  sw::CudaRuntime runtime;
  sw::CudaRuntime::Stream stream;
  sw::DeviceCommunicator comm;
};

bool report(const char* what, int ranks, const std::string& complaint) {
  std::printf("%s on %d ranks: %s\n", what, ranks, complaint.empty() ? "passed" : complaint.c_str());
  return complaint.empty();
}

/// The message of the exception that `program` throws on ranks; empty for none.
template <class Program> std::string complaint_of(int ranks, std::chrono::seconds deadline, Program program) {
  try {
    sw::launch({.ranks = ranks, .deadline = deadline}, program);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool suite(int ranks) {
  bool all = true;
  for (const bool check : {false, true})
    for (const auto& part : communicator_suite::parts<const NcclPlace&>()) {
      const std::string_view name = part.name;
      if (name == "nested reduction orders" || (name == "NaN" && ranks > 1))
        continue; // NCCL chooses the order, and its maximum may ignore a NaN
      all = report(part.name, ranks,
                   complaint_of(ranks, std::chrono::seconds(60),
                                [&](const sw::HostCommunicator& world) {
                                  part.run(NcclPlace(world, world.rank(), check));
                                })) &&
            all;
    }
  return all;
}

/// Two ranks on one GPU are rejected with a sentence.
bool refuses_a_shared_gpu() {
  const std::string said = complaint_of(2, std::chrono::seconds(60), [](const sw::HostCommunicator& world) {
    const NcclPlace place(world, 0, false);
  });
  return report("a shared GPU", 2,
                said.find("every rank must have a separate GPU") == std::string::npos ? "not refused: " + said
                                                                                      : std::string());
}

/// A rank that never comes: the others' kernels are aborted at the deadline.
bool ends_at_the_deadline(int ranks) {
  const std::string said =
      complaint_of(ranks, std::chrono::seconds(3), [](const sw::HostCommunicator& world) {
        NcclPlace place(world, world.rank(), false);
        auto data = place.put(std::vector<float>(1000, 1.0F));
        place.comm.all_reduce_in_place(data);
        place.comm.await_stream();
        if (world.rank() == 1)
          return std::this_thread::sleep_for(std::chrono::seconds(5));
        place.comm.all_reduce_in_place(data);
        place.comm.await_stream();
      });
  return report("a rank that never comes", ranks,
                said.find("must be done on the GPU within 3 s") == std::string::npos ? "it said: " + said
                                                                                     : std::string());
}

} // namespace

int main(int argc, char** argv) {
  return cuda_test::device_program(argc, argv, [] {
    int devices = 0;
    sw::detail::check_cuda(cudaGetDeviceCount(&devices), "counting GPUs");
    bool all = refuses_a_shared_gpu();
    for (int ranks = 1; ranks <= devices; ranks = ranks < 4 ? ranks + 1 : 2 * ranks)
      all = suite(ranks) && all;
    if (devices > 1)
      all = ends_at_the_deadline(devices) && all;
    else
      std::puts(
          "skipped, for they need a second GPU: collectives and messages between ranks, a rank that never comes");
    return all;
  });
}
#else
int main() {
  std::puts("skipped: it is built without NCCL");
  return 77;
}
#endif
