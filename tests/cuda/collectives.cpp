// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "cuda/buffer.hpp"
#include "cuda/compare.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

// The requirements on every communicator, in the memory of a GPU that thread ranks share.

namespace {

namespace sw = shardwright;
using cuda_test::CudaBuffer;

struct CudaPlace {
  explicit CudaPlace(const sw::HostCommunicator& group)
      : execution(sw::CudaTarget::make_execution_space()), comm(sw::CudaTarget::connect(group, execution)) {}

  template <class E> [[nodiscard]] CudaBuffer<E> put(const std::vector<E>& numbers) const {
    return {execution.cuda_stream(), numbers};
  }
  template <class E> [[nodiscard]] std::vector<E> get(const CudaBuffer<E>& numbers) const {
    return numbers.read();
  }

  Kokkos::Cuda execution;
  sw::DeviceCommunicator comm;
  std::size_t fewer = cuda_test::interpreted() ? 4 : 1; ///< Still more tiles than blocks of threads.
};

/// Occupies a stream for some 50 ms, and then doubles numbers.
struct LateKernel {
  float* numbers;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
#if defined(__CUDA_ARCH__)
    const long long begin = clock64();
    while (clock64() - begin < 100'000'000) {
    }
#endif
    numbers[i] *= 2;
  }
};

void late(const CudaPlace& on, CudaBuffer<float>& numbers) {
  sw::kernels::run("late", on.execution, numbers.size(), LateKernel{numbers.data()});
}

/// Kernels before and after calls, which the host does not wait for.
void order(const CudaPlace& on) {
  using communicator_suite::require;
  auto comm = on.comm;
  const std::size_t count = 1000;
  auto data = on.put(communicator_suite::elements_of<float>(comm.rank(), count, 3)),
       other = on.put(std::vector<float>(count));
  late(on, data);
  comm.all_reduce_in_place(data);
  late(on, data);
  sw::Pending pending = comm.async().all_reduce(data, other, sw::ReduceOp::maximum);
  require(comm.size() == 1 || cuda_test::interpreted() || !pending.ready(),
          "a call is behind the kernels before it, and the host does not wait for them");
  pending.wait();
  late(on, other);
  const std::vector<float> once = on.get(data), twice = on.get(other);
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = communicator_suite::exact<float>(comm.size(), i, 3, sw::ReduceOp::sum);
    require(once[i] == 4 * sum && twice[i] == 8 * sum, "kernels before, between and after calls");
  }
  if (comm.size() == 1)
    return;
  const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  comm.barrier(); // no rank checks before its neighbour is about to start
  comm.await_stream();
  sw::Pending received = comm.async().receive(other, before);
  late(on, data);
  comm.send(data, next);
  require(cuda_test::interpreted() || !received.ready(), "a message is behind the kernels of its sender");
  received.wait();
  require(on.get(other)[7] == 8 * communicator_suite::exact<float>(comm.size(), 7, 3, sw::ReduceOp::sum),
          "a message holds what its sender wrote before it");
}

/// With so many ranks, a level of a nested order has more inputs than are loaded at once, and the list of
/// blocks is too long for a kernel's arguments.
void many_ranks(const CudaPlace& on) {
  communicator_suite::nested_orders_of<float>(on, 32);
  communicator_suite::nested_orders_of<double>(on, 32);
  communicator_suite::nested_orders_of<sw::bfloat16>(on, 32);
  communicator_suite::nested_orders_of<sw::float16>(on, 32);
  communicator_suite::rows_scattered(on);
}

bool passes(const char* what, int ranks, void (*part)(const CudaPlace&)) {
  try {
    sw::launch({.ranks = ranks, .deadline = std::chrono::seconds(60)},
               [part](const sw::HostCommunicator& world) { part(CudaPlace(world)); });
    std::printf("%s on %d ranks: passed\n", what, ranks);
    return true;
  } catch (const std::exception& error) {
    std::printf("%s on %d ranks: %s\n", what, ranks, error.what());
    return false;
  }
}

} // namespace

int main(int argc, char** argv) {
  return cuda_test::device_program(argc, argv, [] {
    bool all = true;
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const auto& part : communicator_suite::parts<const CudaPlace&>())
        all = passes(part.name, ranks, part.run) && all;
      all = passes("order with kernels", ranks, order) && all;
    }
    return passes("many ranks", 14, many_ranks) && all;
  });
}
