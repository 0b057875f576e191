// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Fourier transforms in host memory by FFTW, where it was found.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/tensor/fft/strided_transform.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#if defined(SHARDWRIGHT_WITH_FFTW)
#include <fftw3.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// FFTW's functions for a real type.
template <class Real> struct Fftw;
template <> struct Fftw<double> {
  using Plan = fftw_plan;
  using Complex = fftw_complex;
  static constexpr auto& plan_complex = fftw_plan_guru64_dft;
  static constexpr auto& plan_from_real = fftw_plan_guru64_dft_r2c;
  static constexpr auto& plan_to_real = fftw_plan_guru64_dft_c2r;
  static constexpr auto& run_complex = fftw_execute_dft;
  static constexpr auto& run_from_real = fftw_execute_dft_r2c;
  static constexpr auto& run_to_real = fftw_execute_dft_c2r;
  static constexpr auto& alignment_of = fftw_alignment_of;
};
template <> struct Fftw<float> {
  using Plan = fftwf_plan;
  using Complex = fftwf_complex;
  static constexpr auto& plan_complex = fftwf_plan_guru64_dft;
  static constexpr auto& plan_from_real = fftwf_plan_guru64_dft_r2c;
  static constexpr auto& plan_to_real = fftwf_plan_guru64_dft_c2r;
  static constexpr auto& run_complex = fftwf_execute_dft;
  static constexpr auto& run_from_real = fftwf_execute_dft_r2c;
  static constexpr auto& run_to_real = fftwf_execute_dft_c2r;
  static constexpr auto& alignment_of = fftwf_alignment_of;
};

/// The arguments of FFTW's calls: its elements of either side, which it does not write but for the output.
template <class Real> struct FftwArguments {
  Real* in;
  Real* out;
  [[nodiscard]] auto* complex_in() const { return reinterpret_cast<typename Fftw<Real>::Complex*>(in); }
  [[nodiscard]] auto* complex_out() const { return reinterpret_cast<typename Fftw<Real>::Complex*>(out); }
};

/// The plan of a problem: made once, for all ranks of the process, and kept until it ends. Only planning
/// needs the lock (FFTW 3.3.10 manual, section 5.4).
///
/// Plans are estimated, not timed: timed ones differ between runs, and with them the last bits of results.
template <class Real>
[[nodiscard]] typename Fftw<Real>::Plan fftw_plan_of(const TransformProblem& problem,
                                                     const FftwArguments<Real>& on) {
  using Library = Fftw<Real>;
  static std::mutex mutex;
  static std::map<TransformProblem, typename Library::Plan> plans;
  const std::lock_guard lock(mutex);
  const auto found = plans.find(problem);
  if (found != plans.end())
    return found->second;
  const auto list = [](const TransformExtents& extents) {
    std::array<fftw_iodim64, max_tensor_rank> out{};
    for (int i = 0; i < extents.count; ++i) // from the slowest to the fastest
      out[static_cast<std::size_t>(i)] = [&] {
        const TransformExtent& each = extents.each[static_cast<std::size_t>(extents.count - 1 - i)];
        return fftw_iodim64{each.count, each.in, each.out};
      }();
    return out;
  };
  const auto over = list(problem.transformed);
  const auto repeated = list(problem.repeated);
  const unsigned flags = FFTW_ESTIMATE | (problem.aligned ? 0u : FFTW_UNALIGNED);
  const int dimensions = problem.transformed.count, repeats = problem.repeated.count;
  typename Library::Plan plan = nullptr;
  if (problem.kind == TransformKind::from_real)
    plan = Library::plan_from_real(dimensions, over.data(), repeats, repeated.data(), on.in, on.complex_out(),
                                   flags);
  else if (problem.kind == TransformKind::to_real)
    plan = Library::plan_to_real(dimensions, over.data(), repeats, repeated.data(), on.complex_in(), on.out,
                                 flags | FFTW_PRESERVE_INPUT);
  else
    plan = Library::plan_complex(
        dimensions, over.data(), repeats, repeated.data(), on.complex_in(), on.complex_out(),
        problem.kind == TransformKind::forward ? FFTW_FORWARD : FFTW_BACKWARD, flags);
  if (plan == nullptr)
    throw Error("fft: FFTW must have a plan for these extents, but it gave none (check that memory is left)");
  plans.emplace(problem, plan);
  return plan;
}

/// The same for memory of an execution space; a dry run has none, and needs no plan.
template <class Execution, class Real>
[[nodiscard]] typename Fftw<Real>::Plan fftw_plan_on([[maybe_unused]] TransformProblem problem,
                                                     [[maybe_unused]] const FftwArguments<Real>& on) {
  if constexpr (counts_only<Execution>) {
    return nullptr;
  } else {
    problem.in_place = on.in == on.out;
    problem.aligned =
        problem.aligned && Fftw<Real>::alignment_of(on.in) == 0 && Fftw<Real>::alignment_of(on.out) == 0;
    return fftw_plan_of(problem, on);
  }
}

/// A transform as a kernel.
template <class Real> struct FftwCall {
  typename Fftw<Real>::Plan plan;
  TransformKind kind;
  FftwArguments<Real> on;

  void operator()(std::size_t) const {
    using Library = Fftw<Real>;
    if (kind == TransformKind::from_real)
      Library::run_from_real(plan, on.in, on.complex_out());
    else if (kind == TransformKind::to_real)
      Library::run_to_real(plan, on.complex_in(), on.out);
    else
      Library::run_complex(plan, on.complex_in(), on.complex_out());
  }
};

/// Complex lines with a stride: some neighbours at a time go into a buffer that stays in cache, and back in
/// rows. Their memory is read and written once, in whole cache lines; estimated plans read it once per pass
/// of the algorithm.
template <class Real> struct FftwColumns {
  using Complex = std::complex<Real>;
  static constexpr std::int64_t width = 16;
  typename Fftw<Real>::Plan whole;
  typename Fftw<Real>::Plan rest; ///< Of the last inner % width neighbours.
  TransformLines lines;
  FftwArguments<Real> on;
  std::shared_ptr<Complex[]> buffer; ///< Of width * lines.count; allocated here, a kernel could not throw.

  void operator()(std::size_t) const {
    for (std::int64_t group = 0; group < lines.outer; ++group)
      for (std::int64_t column = 0; column < lines.inner; column += width) {
        const std::int64_t first = group * lines.count * lines.inner + column;
        const std::int64_t columns = std::min(width, lines.inner - column);
        Fftw<Real>::run_complex(columns == width ? whole : rest, on.complex_in() + first,
                                reinterpret_cast<typename Fftw<Real>::Complex*>(buffer.get()));
        auto* const to = reinterpret_cast<Complex*>(on.out) + first;
        for (std::int64_t j = 0; j < lines.count; ++j)
          std::copy_n(buffer.get() + j * columns, columns, to + j * lines.inner);
      }
  }
};

template <class Execution>
requires(kernels::runs_on_host<Execution> || counts_only<Execution>) struct TransformLibrary<Execution> {
  static constexpr bool available = true;
  static constexpr bool writes_spectra = false;

  /// @throws Error if FFTW has no plan.
  template <class In, class Out>
  static void transform(const Execution& execution, TransformProblem problem, const In* in, Out* out) {
    using Real = RealPart<Out>;
    FftwArguments<Real> on{as_parts(const_cast<In*>(in)), as_parts(out)};
    if constexpr (std::is_same_v<In, Out>) {
      for (int i = 0; i < problem.transformed.count; ++i) { // the others in place
        lines(execution, problem.kind, problem.lines(i), on);
        on.in = on.out;
      }
    } else {
      kernels::run("sw::fft", execution, 1,
                   FftwCall<Real>{fftw_plan_on<Execution>(problem, on), problem.kind, on});
    }
  }

private:
  /// All complex lines along a dimension.
  template <class Real>
  static void lines(const Execution& execution, TransformKind kind, const TransformLines& along,
                    const FftwArguments<Real>& on) {
    using Columns = FftwColumns<Real>;
    TransformProblem problem;
    problem.kind = kind;
    const std::int64_t group = along.count * along.inner;
    if (along.inner < Columns::width / 2) {
      problem.transformed.add({along.count, along.inner, along.inner});
      problem.repeated.add({along.inner, 1, 1});
      problem.repeated.add({along.outer, group, group});
      return kernels::run("sw::fft", execution, 1,
                          FftwCall<Real>{fftw_plan_on<Execution>(problem, on), kind, on});
    }
    alignas(64) Real buffer[2]; // in place of the kernel's: estimates do not touch memory
    const FftwArguments<Real> into{on.in, buffer};
    problem.aligned = group * static_cast<std::int64_t>(2 * sizeof(Real)) % 16 == 0;
    const auto plan_for = [&](std::int64_t columns) {
      problem.transformed.count = problem.repeated.count = 0;
      problem.transformed.add({along.count, along.inner, columns});
      problem.repeated.add({columns, 1, 1});
      return columns == 0 ? typename Fftw<Real>::Plan{} : fftw_plan_on<Execution>(problem, into);
    };
    const auto whole = along.inner < Columns::width ? typename Fftw<Real>::Plan{} : plan_for(Columns::width);
    Columns columns{whole, plan_for(along.inner % Columns::width), along, on, {}};
    if constexpr (!counts_only<Execution>)
      columns.buffer.reset(new std::complex<Real>[static_cast<std::size_t>(Columns::width * along.count)]);
    kernels::run("sw::fft", execution, 1, columns);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
#endif
