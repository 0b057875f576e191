// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/tensor/axpy.hpp>
#include <shardwright/tensor/elementwise/functions.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape.hpp>

#include <cstdint>
#include <string_view>

using namespace shardwright;
using namespace shardwright::axis;

namespace integer_average {
// expect: ShardedTensor: a Partial<Avg> must have floating-point elements, because an average of integers need not be an integer (use Partial<Sum>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

void averaged(const DeviceMesh<dp>& mesh) {
  ShardedTensor<Layout<1, Partial<Avg, dp>>, Element> parts(mesh, {4});
}
} // namespace integer_average

namespace integer_axpy {
// expect: axpy: the elements must be floating-point, because the factor would be rounded to an integer (write y = a * x + y with a whole number)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

using Rows = ShardedTensor<Layout<1, Shard<0, dp>>, Element>;

void update(const Rows& x, Rows& y) { axpy(0.5, x, y); }
} // namespace integer_axpy

namespace integer_divided_by_rounded {
// expect: Operation: a tensor of integers takes only whole numbers

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr double divisor = 2.0;
#else
constexpr int divisor = 2;
#endif

auto halved(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { return x / divisor; }
} // namespace integer_divided_by_rounded

namespace integer_divisor {
// expect: divide: a divisor must have floating-point elements, because a quotient of integers need not be an integer
// expect: (divide by a whole number, which rounds towards zero, or use floating-point elements)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int64_t;
#else
using Element = double;
#endif

auto inverse(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return 6 / x; }
} // namespace integer_divisor

namespace integer_filled_with_rounded {
// expect: Operation: a tensor of integers takes only whole numbers

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr float value = 2.7F;
#else
constexpr std::int64_t value = 2;
#endif

void set(ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { fill(x, value); }
} // namespace integer_filled_with_rounded

namespace integer_function {
// expect: Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)
// expect: operation::Sqrt

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

auto root(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return sqrt(x); }
} // namespace integer_function

namespace integer_function_of_own {
// expect: Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)
// expect: Twice

struct Twice {
  static constexpr std::string_view name = "twice";
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static constexpr bool takes_integers = false;
#else
  static constexpr bool takes_integers = true;
#endif
  template <class V> V operator()(V x) const { return x + x; }
  template <class V> V gradient(V dy) const { return dy + dy; }
};

auto twice(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { return Elementwise<Twice>()(x); }
} // namespace integer_function_of_own

namespace integer_mean {
// expect: mean: the elements must be floating-point, because a mean of integers need not be an integer
// expect: (take the sum, and divide it as a floating-point number)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = double;
#endif

auto mean_of_all(const ShardedTensor<Layout<1, Shard<0, dp>>, Element>& x) { return mean(x); }
} // namespace integer_mean

namespace integer_parameter {
// expect: Parameter: the elements must be floating-point, because a weight has a gradient (keep integers in a ShardedTensor)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

void make(const DeviceMesh<dp>& mesh) {
  const Parameter<Layout<1>, Layout<1, Partial<Sum, dp>>, Element> table(mesh, {4}, Initial::normal(0.02));
}
} // namespace integer_parameter

namespace integer_partial_divided {
// expect: divide: integers must not be divided while they are Partial, an incomplete sum, because every rank would round its part (redistribute them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using L = Layout<1, Partial<Sum, dp>>;
#else
using L = Layout<1, Shard<0, dp>>;
#endif

auto halved(const ShardedTensor<L, std::int32_t>& x) { return x / 2; }
} // namespace integer_partial_divided

namespace integer_quotient {
// expect: Operation: the elements must be floating-point, because the results of integers would be rounded (use a tensor of floats)
// expect: operation::Divide

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int64_t;
#else
using Element = double;
#endif

using Rows = ShardedTensor<Layout<1, Shard<0, dp>>, Element>;

auto quotient(const Rows& x, const Rows& y) { return x / y; }
} // namespace integer_quotient

namespace integer_rounded_number {
// expect: Operation: a tensor of integers takes only whole numbers, because others would be rounded before they are used (write 2 in place of 2.0, or use floating-point elements)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr double factor = 1.5;
#else
constexpr int factor = 2;
#endif

auto scaled(const ShardedTensor<Layout<1, Shard<0, dp>>, std::int32_t>& x) { return x * factor; }
} // namespace integer_rounded_number

namespace var_integer_element {
// expect: Var: a value that has a gradient must have floating-point elements (pass integers, such as token ids, to the operation as a tensor)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = double;
#endif

void put(Tape<>& tape, const ShardedTensor<Layout<1>, Element>& ids) { static_cast<void>(tape.input(ids)); }
} // namespace var_integer_element
