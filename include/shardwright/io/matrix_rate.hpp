// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Measures how fast the ranks multiply matrices while all of them do: the rate to which a progress
/// line compares a run.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Memory of a target for the time of one measurement.
template <Target Where> class ScratchMemory {
public:
  ScratchMemory(const typename Where::execution_space& execution, std::size_t bytes)
      : execution_(execution), bytes_(bytes), data_(allocate_for<Where>(execution_, "sw::rate", bytes)) {}
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  ~ScratchMemory() { deallocate_for<Where>(execution_, "sw::rate", data_, bytes_); }
  [[nodiscard]] void* data() const noexcept { return data_; }

private:
  typename Where::execution_space execution_;
  std::size_t bytes_;
  void* data_;
};

/// A product that keeps its target busy, and how many of them are measured at a time: one core, which is
/// waited for, or a whole device, for milliseconds.
template <Target Where> struct RateProduct {
  static constexpr bool small = Where::host_accessible;
  static constexpr std::size_t rows = small ? 1024 : 8192, inner = small ? 512 : 8192, columns = rows;
  static constexpr int products = small ? 1 : 4;
};

/// Values between -1/4 and 3/4, so that sums stay finite and no product is trivial.
template <class Element> struct FillWithWaves {
  Element* data;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    using Number = AccumulationElement<Element>;
    data[i] = static_cast<Element>(static_cast<Number>(i * 37 % 101) / Number(101) - Number(0.25));
  }
};

} // namespace detail

/// @brief Collective: floating-point operations per second of all ranks of `world` together, in products of
/// `Element` matrices, each rank on its own core or device while the others are at work, too.
///
/// Each rank multiplies [1024, 512] by [512, 1024], on a device [8192, 8192] by [8192, 8192], for `seconds`
/// after a common start and takes its median; the rates are added. Cost: `seconds`, and memory for each rank:
/// 8 MiB in single precision, or 768 MiB on a device. The same number on every rank.
///
/// @param execution Where this rank's kernels run: the mesh's, if there is one, since a device's library
/// keeps a workspace for each instance on which it has multiplied.
/// @throws InvalidArgument unless `seconds` is positive and finite.
/// @throws the communicator's errors.
template <class Element, Target Where = DefaultTarget>
[[nodiscard]] double
measure_matrix_rate(HostCommunicator world,
                    const typename Where::execution_space& execution = Where::make_execution_space(),
                    double seconds = 0.25, SourceLocation where = SourceLocation::current()) {
  if (!(seconds > 0) || !std::isfinite(seconds))
    throw InvalidArgument("measure_matrix_rate: the time to measure must be positive (0.25 s is enough)",
                          {world.world_rank(), world.name(), "measure_matrix_rate", 0, {}, where});
  using Size = detail::RateProduct<Where>;
  constexpr std::size_t rows = Size::rows, inner = Size::inner, columns = Size::columns;
  const detail::ScratchMemory<Where> memory(execution, (rows * inner + inner * columns + rows * columns) *
                                                           sizeof(Element));
  auto* const a = static_cast<Element*>(memory.data());
  auto* const b = a + rows * inner;
  auto* const c = b + inner * columns;
  kernels::run("sw::rate", execution, rows * inner + inner * columns, detail::FillWithWaves<Element>{a});

  using Matrix = MatrixView<Element, Where>;
  using Clock = std::chrono::steady_clock;
  const auto product = [&] {
    for (int i = 0; i < Size::products; ++i)
      kernels::matmul(execution, Matrix(a, rows, inner), kernels::Transpose::no, Matrix(b, inner, columns),
                      kernels::Transpose::no, Matrix(c, rows, columns));
    detail::wait_for_kernels(execution); // the measured part
  };
  product(); // pays for page faults and the threads and buffers of the BLAS
  world.barrier(where);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  while (times.size() < 3 || std::chrono::duration<double>(now - begin).count() < seconds) {
    product();
    const Clock::time_point next = Clock::now();
    times.push_back(std::chrono::duration<double>(next - now).count());
    now = next;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  std::array<double, 1> rate{2.0 * Size::products * rows * inner * columns / *middle};
  world.all_reduce_in_place(rate, ReduceOp::sum, {}, where);
  return rate[0];
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
