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
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
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

/// Blocks that begin at multiples of some bytes and end one behind such a place.
void odd_blocks(const CudaPlace& on, std::size_t aligned) {
  auto comm = on.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<sw::StridedBlock> blocks;
  for (std::size_t r = 0; r < ranks; ++r)
    blocks.push_back(sw::contiguous_block(3 * aligned * r, aligned + 1));
  const auto bytes_of = [&](std::size_t rank) {
    return communicator_suite::elements_of<unsigned char>(static_cast<int>(rank), aligned + 1, 20);
  };
  const auto own = on.put(bytes_of(static_cast<std::size_t>(comm.rank())));
  auto gathered = on.put(std::vector<unsigned char>(3 * aligned * ranks));
  comm.all_gather(own, gathered, blocks);
  const std::vector<unsigned char> found = on.get(gathered);
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::vector<unsigned char> wanted = bytes_of(r);
    communicator_suite::require(std::equal(wanted.begin(), wanted.end(),
                                           found.begin() + static_cast<std::ptrdiff_t>(blocks[r].offset)),
                                "all_gather of odd blocks");
  }
}

template <class Of> void of_each_element(const Of& of) {
  of(float{});
  of(double{});
  of(std::int32_t{});
  of(std::int64_t{});
  of(std::uint32_t{});
  of(std::uint64_t{});
  of(static_cast<unsigned char>(0));
  of(sw::bfloat16{});
  of(sw::float16{});
}

/// With so many ranks, a level of a nested order has more inputs than are loaded at once, and the list of
/// blocks is too long for a kernel's arguments.
void many_ranks(const CudaPlace& on) {
  communicator_suite::nested_orders_of<float>(on, 32);
  communicator_suite::nested_orders_of<double>(on, 32);
  communicator_suite::nested_orders_of<sw::bfloat16>(on, 32);
  communicator_suite::nested_orders_of<sw::float16>(on, 32);
  communicator_suite::rows_scattered(on);
  std::vector<std::size_t> counts(static_cast<std::size_t>(on.comm.size()), 16);
  counts.back() += 3;
  const std::size_t total = 16 * counts.size() + 3;
  of_each_element([&]<class E>(E) {
    communicator_suite::scatter_agrees<E>(on, sw::packed_blocks(counts), total, sw::ReduceOp::sum);
  });
  for (const std::size_t aligned : {2, 4, 8, 16})
    odd_blocks(on, aligned);
}

/// The list of one block: so many ranks fill a kernel's arguments, or need more. Three ranks are reduced
/// first.
template <class E> void reduced_everywhere(const CudaPlace& on) {
  using namespace communicator_suite;
  auto comm = on.comm;
  constexpr std::size_t count = 19;
  const sw::ReductionOrder by_three{{{{3, 1}, {comm.size() / 3, 3}}}, 2};
  const auto reduce = [&](std::size_t first, sw::ReduceOp op, const sw::ReductionOrder& order) {
    auto in = on.put(elements_of<E>(comm.rank(), first + count, 21)),
         out = on.put(std::vector<E>(first + count));
    comm.all_reduce(std::span(in.data() + first, count), std::span(out.data() + first, count), op, order);
    std::vector<E> found = on.get(out);
    found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(first));
    return found;
  };
  for (const std::size_t first : {0, 1}) // aligned to whole vectors, and not
    for (const sw::ReduceOp op : {sw::ReduceOp::sum, sw::ReduceOp::maximum}) {
      const std::vector<E> found = reduce(first, op, {});
      for (std::size_t i = 0; i < count; ++i)
        require(same_bits(found[i], exact<E>(comm.size(), first + i, 21, op)),
                label<E>("all_reduce", count, op));
    }
  const std::vector<E> nested = reduce(0, sw::ReduceOp::sum, by_three);
  for (std::size_t i = 0; i < count; ++i) {
    sw::AccumulationElement<E> sum{};
    for (int r = 0; r < comm.size(); r += 3) {
      const auto three = [&](int k) { return sw::AccumulationElement<E>(element_at<E>(r + k, i, 21)); };
      sum = combined(sum,
                     sw::AccumulationElement<E>(E(combined(combined(three(0), three(1), sw::ReduceOp::sum),
                                                           three(2), sw::ReduceOp::sum))),
                     sw::ReduceOp::sum);
    }
    require(same_bits(nested[i], E(sum)), label<E>("nested all_reduce", count, sw::ReduceOp::sum));
  }
}
void every_buffer(const CudaPlace& on) {
  of_each_element([&]<class E>(E) { reduced_everywhere<E>(on); });
}

/// Levels of two ranks each.
void deep_orders(const CudaPlace& on) {
  using namespace communicator_suite;
  auto comm = on.comm;
  sw::ReductionOrder pairs;
  for (int ranks = 1; ranks < comm.size(); ranks *= 2)
    pairs.levels[static_cast<std::size_t>(pairs.count++)] = {2, ranks};
  of_each_element([&]<class E>(E) {
    using Main = sw::AccumulationElement<E>;
    constexpr std::size_t count = 19;
    const auto in_pairs = [&](std::size_t i, sw::ReduceOp op) {
      std::vector<E> of;
      for (int r = 0; r < comm.size(); ++r)
        of.push_back(element_at<E>(r, i, 22));
      for (std::size_t left = of.size() / 2; left > 0; left /= 2)
        for (std::size_t k = 0; k < left; ++k) {
          const Main both = combined<Main>(of[2 * k], of[2 * k + 1], op);
          of[k] = static_cast<E>(op == sw::ReduceOp::average ? static_cast<Main>(both / 2) : both);
        }
      return of[0];
    };
    for (const sw::ReduceOp op : all_ops<E>()) {
      auto out = on.put(elements_of<E>(comm.rank(), count, 22));
      comm.all_reduce_in_place(out, op, pairs);
      const std::vector<E> found = on.get(out);
      for (std::size_t i = 0; i < count; ++i)
        require(same_bits(found[i], in_pairs(i, op)), label<E>("all_reduce in pairs", count, op));
    }
  });
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
    for (const int ranks : {8, 16})
      all = passes("orders of many levels", ranks, deep_orders) && all;
    for (const int ranks : {15, 87})
      all = passes("every buffer", ranks, every_buffer) && all;
    return passes("many ranks", 12, many_ranks) && all;
  });
}
