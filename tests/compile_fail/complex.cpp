// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>

#include <complex>

using namespace shardwright;
using namespace shardwright::axis;

using Spectrum = ShardedTensor<Layout<1, Shard<0, dp>>, std::complex<double>>;
using Field = ShardedTensor<Layout<1, Shard<0, dp>>, double>;

namespace complex_partial_max {
// expect: ShardedTensor: a Partial of complex elements must be a Sum or Avg, because complex numbers have no order, and products of them are not reduced (gather the factors, and multiply them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Op = Max;
#else
using Op = Sum;
#endif

using Made = ShardedTensor<Layout<1, Partial<Op, dp>>, std::complex<float>>;
static_assert(sizeof(Made) > 0);
} // namespace complex_partial_max

namespace complex_nonlinear_function {
// expect: Operation: the elements must be real, because this function is not defined for complex numbers (sums, differences, products, quotients, scale and conj are)
// expect: operation::Exp

#ifdef SHARDWRIGHT_EXPECT_FAIL
using X = Spectrum;
#else
using X = Field;
#endif

auto powers(const X& x) { return exp(x); }
} // namespace complex_nonlinear_function

namespace complex_reduction {
// expect: reduce: complex elements must be summed, because they have no order, and products of them are not reduced (use Sum)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Op = Max;
#else
using Op = Sum;
#endif

auto total(const Spectrum& x) { return reduce_all<Op>(x); }
} // namespace complex_reduction

namespace complex_read_as_real {
// expect: convert: a real tensor must not become a complex one, nor a complex one real, because one of them has a part that the other lacks (rfft and irfft transform between them)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = double;
#else
using Element = std::complex<float>;
#endif

auto converted(const Spectrum& x) { return convert<Element>(x); }
} // namespace complex_read_as_real

namespace complex_number_beside_real {
// expect: Operation: a real tensor must not be combined with a complex number, because the result would be complex (use a tensor of complex elements)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using X = Field;
#else
using X = Spectrum;
#endif

auto turned(const X& x) { return x * std::complex<double>(0, 1); }
} // namespace complex_number_beside_real

namespace complex_exact_sum {
// expect: dot: the elements of an exact sum must be floating-point and real (convert integers; add the dots of the parts of complex numbers)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using X = Spectrum;
#else
using X = Field;
#endif

auto product(const X& x) { return dot<OrderedSum>(x, x); }
} // namespace complex_exact_sum

namespace complex_stored_double {
// expect: safetensors: complex elements must be of float, because the format's only complex type is C64 (convert them to std::complex<float>, or save the parts as doubles)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::complex<double>;
#else
using Element = std::complex<float>;
#endif

static_assert(safetensors::bits_of(safetensors::dtype_of<Element>()) == 64);
} // namespace complex_stored_double
