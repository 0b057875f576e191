// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/tensor/fft/transform.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <complex>

using namespace shardwright;
using namespace shardwright::axis;

using Slab = Layout<3, Shard<0, dp>>;
using Spectrum = ShardedTensor<Slab, std::complex<double>>;
using Field = ShardedTensor<Slab, double>;

namespace fourier_split_dimension {
// expect: Fourier transform: a dimension that is transformed must be whole on each rank, but an axis splits it (redistribute the tensor to the last layout that the trace names)
// expect: dimension_is_whole<0,
// expect: Shard<1,

#ifdef SHARDWRIGHT_EXPECT_FAIL
auto spectrum(const Spectrum& x) { return fft<0>(x); }
#else
auto spectrum(const Spectrum& x) { return fft<0>(redistribute<Layout<3, Shard<1, dp>>>(x)); }
#endif
} // namespace fourier_split_dimension

namespace fourier_all_dimensions {
// expect: Fourier transform: a dimension that is transformed must be whole on each rank, but an axis splits it

#ifdef SHARDWRIGHT_EXPECT_FAIL
auto spectrum(const Spectrum& x) { return fftn(x); }
#else
auto spectrum(const Spectrum& x) { return fftn<1, 2>(x); }
#endif
} // namespace fourier_all_dimensions

namespace fourier_dimension_outside {
// expect: Fourier transform: its dimensions must be at least 0 and less than the tensor rank (count from 0)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr int last = 3;
#else
constexpr int last = 2;
#endif

auto spectrum(const Spectrum& x) { return ifft<last>(x); }
} // namespace fourier_dimension_outside

namespace fourier_reproducible {
// expect: Fourier transform: the target must not be Reproducible, because libraries of transforms choose an algorithm by the number of lines on a rank (use the target without Reproducible)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Target = Reproducible<DefaultTarget>;
#else
using Target = DefaultTarget;
#endif

auto spectrum(const ShardedTensor<Slab, std::complex<double>, Target>& x) { return fft<1>(x); }
} // namespace fourier_reproducible

namespace fourier_dimension_twice {
// expect: Fourier transform: a dimension must be named once (remove the second one)

#ifdef SHARDWRIGHT_EXPECT_FAIL
auto spectrum(const Spectrum& x) { return fftn<1, 1>(x); }
#else
auto spectrum(const Spectrum& x) { return fftn<2, 1>(x); }
#endif
} // namespace fourier_dimension_twice

namespace fourier_halo {
// expect: Fourier transform: the input must not carry halos (redistribute it to WithoutHalos of its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<3, Shard<0, dp, Halo<1>>>;
#else
using L = Slab;
#endif

auto spectrum(const ShardedTensor<L, std::complex<double>>& x) { return fft<1>(x); }
} // namespace fourier_halo

namespace fourier_partial_max {
// expect: linear operation: a Partial input must be a Sum or Avg (redistribute it first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Max, dp>>;
#else
using L = Layout<1, Partial<Sum, dp>>;
#endif

auto spectrum(const ShardedTensor<L, double>& x) { return rfft<0>(x); }
} // namespace fourier_partial_max

namespace fourier_of_real_elements {
// expect: Fourier transform: its input must be complex (rfft transforms real elements)

#ifdef SHARDWRIGHT_EXPECT_FAIL
auto spectrum(const Field& x) { return fft<2>(x); }
#else
auto spectrum(const Field& x) { return rfft<2>(x); }
#endif
} // namespace fourier_of_real_elements

namespace fourier_real_read_as_complex {
// expect: Fourier transform: its input must be complex (rfft transforms real elements)

auto filtered(const Field& x, const Spectrum& filter) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return irfft<2>(irfft<2>(rfft<2>(x) * filter, 8), 8);
#else
  return irfft<2>(rfft<2>(x) * filter, 8);
#endif
}
} // namespace fourier_real_read_as_complex

namespace fourier_real_of_complex {
// expect: rfft: its input must be float or double (fft transforms complex elements; convert others)

#ifdef SHARDWRIGHT_EXPECT_FAIL
auto spectrum(const Spectrum& x) { return rfft<2>(x); }
#else
auto spectrum(const Spectrum& x) { return fft<2>(x); }
#endif
} // namespace fourier_real_of_complex
