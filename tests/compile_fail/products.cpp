// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <complex>
#include <vector>

using namespace shardwright;
using namespace shardwright::axis;

namespace complex_matrix_product {
// expect: matmul: the elements must be real, because matrices of complex elements are not multiplied (multiply the real and the imaginary parts as tensors of their own)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::complex<double>;
#else
using Element = double;
#endif
using Matrix = ShardedTensor<Layout<2, Shard<0, dp>>, Element>;

auto multiply(const Matrix& x, const ShardedTensor<Layout<2>, Element>& w) { return matmul(x, w); }
} // namespace complex_matrix_product

namespace grid_destination_average {
// expect: Operation: the destination must have the layout of the result (redistribute the result, or declare the destination with the layout that the trace shows)

using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Layers = Layout<2, Shard<0, dp>, Shard<1, tp>, Partial<Avg, cp>>; // the ranks' parts are summands
#else
using Layers = Layout<2, Shard<0, dp>, Shard<1, tp>, Partial<Sum, cp>>;
#endif

void multiply(const ShardedTensor<Grid>& x, const ShardedTensor<Grid>& w) {
  static_cast<void>(matmul<Layers>(x, w));
}
} // namespace grid_destination_average

namespace grid_destination_on_a_tape {
// expect: Operation: the destination must have the layout of the result (redistribute the result, or declare the destination with the layout that the trace shows)

using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Result = Layout<2, Shard<0, dp>, Partial<Sum, tp>>; // that of a gathered operand
#else
using Result = Layout<2, Shard<0, dp>, Shard<1, tp>, Partial<Sum, cp>>;
#endif

void multiply(const Var<Grid>& x, const Var<Grid>& w) { static_cast<void>(matmul<Result>(x, w)); }
} // namespace grid_destination_on_a_tape

namespace grid_inner_axes {
// expect: matmul: the contracted dimensions must be sharded alike, or both operands over one grid, as Layout<2, Shard<0, i>, Shard<1, j>> (redistribute one operand)

using Left = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<0, cp>, Shard<1, tp>>;
#else
using Right = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif

static_assert(MatmulLayout<Left, Right>::tensor_rank >= 0);
} // namespace grid_inner_axes

namespace grid_narrow_result {
// expect: matmul: a product over a grid adds panels in its result, which must not be of 16 bits (use float or double, or matmul_into a float destination)

using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = bfloat16;
#else
using Element = float;
#endif

void multiply(ShardedTensor<Grid, Element>& y, const ShardedTensor<Grid, bfloat16>& x) {
  matmul_into(y, x, x);
}
} // namespace grid_narrow_result

namespace grid_of_columns_by_rows {
// expect: matmul: an axis must not shard two dimensions of the result (gather one operand over it)

using Left = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<0, tp>, Shard<1, dp>>;
#else
using Right = Layout<2, Shard<0, tp>, Shard<1, cp>>;
#endif

static_assert(MatmulLayout<Left, Right>::tensor_rank >= 0);
} // namespace grid_of_columns_by_rows

namespace grid_with_halos {
// expect: Halo: this operation has no meaning on copies of the neighbours' elements (redistribute its operands to WithoutHalos of their layouts)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Grid = Layout<2, Shard<0, dp, Halo<1>>, Shard<1, tp>>;
#else
using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
#endif

static_assert(MatmulLayout<Grid, Grid>::tensor_rank >= 0);
} // namespace grid_with_halos

namespace linear_bias_on_partial {
// expect: BiasedLinear: the bias must be added to a complete product, as each rank of a Partial one would add it (name the layout to which the product is redistributed first, such as the stream's)

using Stream = Layout<2, Shard<0, dp>>;
using Hidden = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Row = Layout<2, Shard<0, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Down = BiasedLinear<Hidden, Row>; // its product is Partial over tp
#else
using Down = BiasedLinear<Hidden, Row, ModelPlan<>, Stream>;
#endif

void project(const Var<Hidden>& x, Down& down) { static_cast<void>(down(x)); }
} // namespace linear_bias_on_partial

namespace linear_partial_max {
// expect: linear operation: a Partial input must be a Sum or Avg (redistribute it first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Layout<2, Partial<Max, tp>>;
#else
using Input = Layout<2, Partial<Sum, tp>>;
#endif

static_assert(ElementwiseLinearLayout<Input>::tensor_rank >= 0);
} // namespace linear_partial_max

namespace matmul_axis_conflict {
// expect: matmul: an axis must not shard two dimensions of the result (gather one operand over it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Shard<1, tp>>;
#else
using Right = Layout<2, Shard<1, dp>>;
#endif

static_assert(MatmulLayout<Layout<2, Shard<0, tp>>, Right>::tensor_rank >= 0);
} // namespace matmul_axis_conflict

namespace matmul_contraction_differs {
// expect: matmul: the contracted dimensions must be sharded alike, or both operands over one grid, as Layout<2, Shard<0, i>, Shard<1, j>> (redistribute one operand)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2>;
#else
using Right = Layout<2, Shard<0, tp>>;
#endif

static_assert(MatmulLayout<Layout<2, Shard<1, tp>>, Right>::tensor_rank >= 0);
} // namespace matmul_contraction_differs

namespace matmul_elements_differ {
// expect: Operation: both tensors must have the same element type (convert one first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = double;
#else
using Element = float;
#endif

void multiply_by(const ShardedTensor<Layout<2>>& x,
                 const ShardedTensor<Layout<2, Shard<1, tp>>, Element>& w) {
  const auto y = matmul(x, w);
  static_cast<void>(y);
}
} // namespace matmul_elements_differ

namespace matmul_partial_by_partial {
// expect: matmul: Partial times Partial is not defined (redistribute one operand first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<2, Partial<Sum, tp>>;
#else
using Right = Layout<2>;
#endif

static_assert(MatmulLayout<Layout<2, Partial<Sum, tp>>, Right>::tensor_rank >= 0);
} // namespace matmul_partial_by_partial

namespace matmul_plain_vector {
// expect: Operation: sharded and plain tensors must not be mixed (make a ShardedTensor on the mesh, and fill or scatter the plain data into it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = std::vector<float>;
#else
using Right = ShardedTensor<Layout<2, Shard<1, tp>>>;
#endif

void multiply_by(const ShardedTensor<Layout<2>>& x, const Right& w) { static_cast<void>(matmul(x, w)); }
} // namespace matmul_plain_vector

namespace matmul_plain_view {
// expect: Operation: sharded and plain tensors must not be mixed (make a ShardedTensor on the mesh, and fill or scatter the plain data into it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Kokkos::View<float**>;
#else
using Right = ShardedTensor<Layout<2, Shard<1, tp>>>;
#endif

void multiply_by(const ShardedTensor<Layout<2>>& x, const Right& w) { static_cast<void>(matmul(x, w)); }
} // namespace matmul_plain_view

namespace matmul_tensor_rank {
// expect: matmul: the operands' numbers of dimensions must fit [M..., k] x [k, N...] or one of its two
// expect: gradients, and the result must have at most 6 (merge dimensions)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Right = Layout<1>;
#else
using Right = Layout<3>;
#endif

static_assert(MatmulLayout<Layout<3>, Right, MatmulForm::left_transposed>::tensor_rank >= 0);
} // namespace matmul_tensor_rank

namespace ordered_products_of_panels {
// expect: matmul: with OrderedProducts the contracted dimension must not be sharded, nor an operand Partial, because the ranks' parts are rounded before they are added (redistribute the operands first)

using Grid = ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, tp>>>;

void multiply(const Grid& x) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(matmul<OrderedProducts>(x, x));
#else
  static_cast<void>(matmul(x, x));
#endif
}
} // namespace ordered_products_of_panels

namespace ordered_products_of_parts {
// expect: matmul: with OrderedProducts the contracted dimension must not be sharded, nor an operand Partial, because the ranks' parts are rounded before they are added (redistribute the operands first)

using Left = ShardedTensor<Layout<2, Shard<1, tp>>>;
using Right = ShardedTensor<Layout<2, Shard<0, tp>>>;

void multiply(const Left& x, const Right& w) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(matmul<OrderedProducts>(x, w));
#else
  static_cast<void>(matmul<OrderedProducts>(redistribute<Layout<2>>(x), redistribute<Layout<2>>(w)));
#endif
}
} // namespace ordered_products_of_parts

namespace ordered_products_narrow {
// expect: OrderedProducts: the factors must be of float or double, and the result too (convert them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = bfloat16;
#else
using Element = float;
#endif

void multiply(const ShardedTensor<Layout<2>, Element>& x, const ShardedTensor<Layout<2>, Element>& w) {
  static_cast<void>(matmul<OrderedProducts>(x, w));
}
} // namespace ordered_products_narrow

namespace reproducible_grid {
// expect: matmul: on a Reproducible target the contracted dimensions must be sharded alike, because panels of a grid are added in an order that depends on the mesh (redistribute one operand)

using Target = Reproducible<DefaultTarget>;
using Grid = Layout<2, Shard<0, dp>, Shard<1, tp>>;
using Matrix = ShardedTensor<Grid, float, Target>;

void multiply(const Matrix& x, const Matrix& w) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(matmul(x, w));
#else
  static_cast<void>(matmul(x, redistribute<Layout<2, Shard<0, tp>>>(w)));
#endif
}
} // namespace reproducible_grid

namespace reproducible_partial_operand {
// expect: matmul: on a Reproducible target no operand may be Partial, because the products with the parts of a sum would be rounded before they are added (redistribute the operand first)

using Target = Reproducible<DefaultTarget>;
using Sums = ShardedTensor<Layout<2, Partial<Sum, tp>>, float, Target>;

void multiply(const Sums& x, const ShardedTensor<Layout<2>, float, Target>& w) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(matmul(x, w));
#else
  static_cast<void>(matmul(redistribute<Layout<2>>(x), w));
#endif
}
} // namespace reproducible_partial_operand

namespace reproducible_two_contracted {
// expect: matmul: on a Reproducible target at most one contracted dimension may be sharded, because its parts are added in a tree (gather the others, or make the result the gradient of a Parameter)

using Target = Reproducible<DefaultTarget>;
using Tokens = ShardedTensor<Layout<3, Shard<0, dp>, Shard<1, tp>>, float, Target>;

void multiply(const Tokens& x, const Tokens& y) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(matmul_weight_gradient(x, y));
#else
  using Whole = Layout<3, Shard<0, dp>>;
  static_cast<void>(matmul_weight_gradient(redistribute<Whole>(x), redistribute<Whole>(y)));
#endif
}
} // namespace reproducible_two_contracted

namespace module_input_layout {
// expect: Module: the input must be in the layout that the module is made for (read it with .as<In>(), or change the module's In)

using Stream = Layout<2, Shard<0, dp, tp>>;
using Tokens = Layout<2, Shard<0, dp>>;

void project(const Var<Stream>& x, Linear<Tokens, Layout<2, Shard<1, tp>>>& up) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(up(x));
#else
  static_cast<void>(up(x.as<Tokens>()));
#endif
}
} // namespace module_input_layout
