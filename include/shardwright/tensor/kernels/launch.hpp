// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common parts of all kernels: views as plain spans, argument checks, and the launch on an
/// execution instance.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/memory_purpose.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/lanes.hpp>

#include <Kokkos_Core.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/mesh/cuda_devices.hpp>
#endif

#include <cstddef>
#include <string>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

/// @brief A row-major Kokkos view.
template <class View>
concept KernelView = std::is_same_v<typename View::array_layout, Kokkos::LayoutRight> &&
    requires(const View& view) {
  view.data();
  view.extent(0);
};

/// @brief A row-major view [rows, columns], possibly with a row stride larger than the row length.
template <class View>
concept KernelMatrix = KernelView<View> && std::size_t(View::rank)
== 2;

/// @brief A view [elements].
template <class View>
concept KernelVector = KernelView<View> && std::size_t(View::rank)
== 1;

/// @brief Whether kernels of this execution space run on the host.
template <class Execution>
inline constexpr bool runs_on_host = std::is_same_v<typename Execution::memory_space, Kokkos::HostSpace>;

/// @brief A matrix in memory, as a kernel takes it.
template <class Element> struct MatrixSpan {
  Element* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;

  SHARDWRIGHT_FUNCTION Element* row(std::size_t i) const { return data + i * stride; }
  /// @brief The `count` columns from `first` on.
  [[nodiscard]] MatrixSpan columns_from(std::size_t first, std::size_t count) const {
    return {data + first, rows, count, stride};
  }
  template <class Const>
  requires std::is_same_v<Const, const Element>
  operator MatrixSpan<Const>() const { return {data, rows, columns, stride}; }
};

/// @brief A vector in memory, as a kernel takes it.
template <class Element> struct VectorSpan {
  Element* data;
  std::size_t size;

  /// @brief The `count` elements from `first` on.
  [[nodiscard]] VectorSpan from(std::size_t first, std::size_t count) const { return {data + first, count}; }
  template <class Const>
  requires std::is_same_v<Const, const Element>
  operator VectorSpan<Const>() const { return {data, size}; }
};

namespace detail {

[[noreturn]] void fail(const char* operation, const char* sentence);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void fail(const char* operation, const char* sentence) {
  ErrorContext context;
  context.operation = operation;
  throw InvalidArgument(std::string(operation) + ": " + sentence, context);
}
#endif

} // namespace detail

/// @brief Checks an argument of a kernel.
/// @throws InvalidArgument "operation: sentence" if the condition does not hold.
inline void require(bool holds, const char* operation, const char* sentence) {
  if (!holds)
    detail::fail(operation, sentence);
}

/// @brief A view [rows, columns] as a span, row-major.
template <KernelMatrix View> MatrixSpan<typename View::value_type> span_of(const View& view) {
  const std::size_t columns = view.extent(1);
  const std::size_t stride = view.extent(0) > 1 ? static_cast<std::size_t>(view.stride(0)) : columns;
  return {view.data(), view.extent(0), columns, stride};
}

/// @brief A view [elements] as a span.
template <KernelVector View> VectorSpan<typename View::value_type> span_of(const View& view) {
  return {view.data(), view.extent(0)};
}

/// @brief All elements of a contiguous view of any rank.
/// @throws InvalidArgument for a view that is not contiguous; the sentence names `operation`.
template <KernelView View>
VectorSpan<typename View::value_type> flat_span_of(const View& view, const char* operation) {
  require(view.span_is_contiguous(), operation, "views must be contiguous (copy the block first).");
  return {view.data(), view.size()};
}

namespace detail {

/// The bytes available for a functor on every device: 4096 bytes of kernel arguments, less the launch policy.
inline constexpr std::size_t functor_bytes = 3840;

/// The range of a launch. The functor is passed to a device as kernel arguments: without the hint, Kokkos
/// passes functors of more than 512 bytes through constant memory, for which the host waits and which graphs
/// cannot capture.
template <class Execution> [[nodiscard]] auto launch_range(const Execution& execution, std::size_t count) {
  const Kokkos::RangePolicy<Execution, Kokkos::IndexType<std::size_t>> range(execution, 0, count);
  if constexpr (runs_on_host<Execution>)
    return range;
  else
    return Kokkos::Experimental::require(range, Kokkos::Experimental::WorkItemProperty::HintLightWeight);
}

/// All calls of a functor. Not inline, so that units need not compile those of compiled.hpp.
template <class Functor> void serial_calls(const void* functor, std::size_t count) {
  const Functor here = *static_cast<const Functor*>(functor); // a copy that no element aliases
  for (std::size_t i = 0; i < count; ++i)
    here(i);
}
#if defined(KOKKOS_ENABLE_SERIAL)
/// A type-erased functor call, so that Kokkos is compiled for one functor type instead of each.
struct SerialCalls {
  void (*all)(const void* functor, std::size_t count);
  const void* functor;
  std::size_t count;

  void operator()(std::size_t) const { all(functor, count); }
};
void launch_serial(const char* label, const Kokkos::Serial& execution, const SerialCalls& calls);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void launch_serial(const char* label, const Kokkos::Serial& execution,
                                      const SerialCalls& calls) {
  Kokkos::parallel_for(label, launch_range(execution, 1), calls);
}
#endif
#endif

/// Launches functor(i) for i in [0, count) on the instance.
template <class Execution, class Functor>
void launch(const char* label, const Execution& execution, std::size_t count, const Functor& functor) {
  const auto range = launch_range(execution, count);
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Execution, Kokkos::Cuda>) {
    static shardwright::detail::KernelNotes notes;
    notes.run(execution.cuda_device(), shardwright::detail::cuda_device_count() > 1,
              [&] { Kokkos::parallel_for(label, range, functor); });
    return;
  }
#endif
  Kokkos::parallel_for(label, range, functor);
}
#if defined(KOKKOS_ENABLE_SERIAL)
template <class Functor>
void launch(const char* label, const Kokkos::Serial& execution, std::size_t count, const Functor& functor) {
  launch_serial(label, execution, {&serial_calls<Functor>, &functor, count});
}
#endif

/// A functor each of whose calls is executed by a whole warp.
template <class Functor> struct WarpCalls {
  Functor functor;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t thread) const { functor(thread / warp_threads); }
};

} // namespace detail

namespace detail {

template <KernelView View> [[nodiscard]] std::size_t bytes_of(const View& view) {
  return view.size() * sizeof(typename View::value_type);
}
template <class Element> [[nodiscard]] std::size_t bytes_of(const MatrixSpan<Element>& span) {
  return span.rows * span.columns * sizeof(Element);
}
template <class Element> [[nodiscard]] std::size_t bytes_of(const VectorSpan<Element>& span) {
  return span.size * sizeof(Element);
}
[[nodiscard]] inline std::size_t bytes_of(std::size_t bytes) { return bytes; }

#if defined(SHARDWRIGHT_STATE_BYTES)
// Tests that see what kernels of a device move are told the same as dry runs, before each launch.
extern "C" void shardwright_kernel_moves(const char* label, double bytes);
template <class Execution>
inline constexpr bool states_bytes = counts_only<Execution> || !runs_on_host<Execution>;
#else
/// Whether kernels state what they move.
template <class Execution> inline constexpr bool states_bytes = counts_only<Execution>;
#endif

template <class Execution> void state_bytes(const char* label, double bytes) {
#if defined(SHARDWRIGHT_STATE_BYTES)
  if constexpr (!counts_only<Execution>)
    return shardwright_kernel_moves(label, bytes);
#endif
  shardwright::detail::count_bytes(label, bytes);
}

} // namespace detail

/// @brief States for dry runs what a kernel moves: its arguments, or bytes, once each; one that is read and
/// written is named twice. Workspaces, and what only caches reread, do not count.
template <class Execution, class... Arguments>
void moves([[maybe_unused]] const char* label, const Execution&,
           [[maybe_unused]] const Arguments&... arguments) {
  if constexpr (detail::states_bytes<Execution>)
    if (const std::size_t bytes = (detail::bytes_of(arguments) + ...); bytes > 0) // otherwise it does not run
      detail::state_bytes<Execution>(label, static_cast<double>(bytes));
}

/// @brief Stores one value at every place.
template <class Value> struct StoreValue {
  Value* to;
  Value value;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const { to[i] = value; }
};

/// @brief Runs functor(i) for i in [0, count) on the instance; a counting target only notes the label. Labels
/// below 16 characters do not allocate.
template <class Execution, class Functor>
void run([[maybe_unused]] const char* label, [[maybe_unused]] const Execution& execution,
         [[maybe_unused]] std::size_t count, [[maybe_unused]] const Functor& functor) {
  static_assert(
      sizeof(Functor) <= detail::functor_bytes,
      "Kernel: its functor must have at most 3840 bytes, which a device takes as arguments without a wait (leave arrays in memory and pass pointers to them)");
  using detail::launch; // an execution space may have its own
  if (count == 0)
    return;
  if constexpr (detail::states_bytes<Execution>)
    detail::state_bytes<Execution>(label, 0);
  if constexpr (!counts_only<Execution>)
    launch(label, execution, count, functor);
}

/// @brief As run, for a functor with lanes: on a device, a warp makes each call.
template <class Execution, class Functor>
void run_lanes(const char* label, const Execution& execution, std::size_t count, const Functor& functor) {
  if constexpr (runs_on_host<Execution>)
    run(label, execution, count, functor);
  else // the backend gives neighbouring indices to neighbouring threads, in blocks of whole warps
    run(label, execution, count * detail::warp_threads, detail::WarpCalls<Functor>{functor});
}

/// @brief Elements of a row that one functor call with lanes handles. On a device only a few: there are many
/// processors, and loads of different warps are in flight together.
template <class Execution> constexpr std::size_t lane_grain_of(std::size_t on_host) {
  return runs_on_host<Execution> ? on_host : 512;
}

/// @brief Blocks of `grain` elements that hold `count`.
SHARDWRIGHT_FUNCTION constexpr std::size_t blocks_of(std::size_t count, std::size_t grain) {
  return (count + grain - 1) / grain;
}

/// @brief One past the last element of a block.
SHARDWRIGHT_FUNCTION constexpr std::size_t block_end(std::size_t block, std::size_t grain,
                                                     std::size_t count) {
  return (block + 1) * grain < count ? (block + 1) * grain : count;
}

namespace detail {

/// Calls functor(row, begin, end) for a piece of the columns of a row.
template <class Functor> struct RowPieces {
  Functor functor;
  std::size_t columns;
  std::size_t grain;
  std::size_t pieces; // of a row

  SHARDWRIGHT_FUNCTION void operator()(std::size_t work) const {
    const std::size_t row = pieces == 1 ? work : work / pieces; // a division costs as much as a short row
    const std::size_t piece = work - row * pieces;
    functor(row, piece * grain, block_end(piece, grain, columns));
  }
};

} // namespace detail

/// @brief As run_lanes, for functor(row, begin, end) over the columns of rows, in pieces of `on_host`
/// columns, or as many as suit a device.
template <class Execution, class Functor>
void run_pieces(const char* label, const Execution& execution, std::size_t rows, std::size_t columns,
                std::size_t on_host, const Functor& functor) {
  const std::size_t grain = lane_grain_of<Execution>(on_host);
  const std::size_t pieces = blocks_of(columns, grain);
  run_lanes(label, execution, rows * pieces, detail::RowPieces<Functor>{functor, columns, grain, pieces});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels

#if defined(SHARDWRIGHT_COMPILED)
#include <shardwright/tensor/kernels/compiled.hpp>
#endif
