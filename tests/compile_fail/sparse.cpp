// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/sparse/csr_matrix.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Split = Layout<1, Shard<0, dp>>;

namespace sparse_axes {
// expect: CsrMatrix: rows and columns must be split over the same axes (name them in both layouts)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Columns = Layout<1, Shard<0, tp>>;
#else
using Columns = Split;
#endif

void use(const CsrMatrix<Split, Columns>& matrix) { static_cast<void>(matrix.local_entries()); }
} // namespace sparse_axes

namespace sparse_diagonal {
// expect: diagonal: rows and columns of the matrix must have the same layout (make a matrix with one layout for both)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Columns = Layout<1, Shard<0, dp, tp>>;
#else
using Columns = Layout<1, Shard<0, tp, dp>>;
#endif

auto read(const CsrMatrix<Layout<1, Shard<0, tp, dp>>, Columns>& matrix) { return diagonal(matrix); }
} // namespace sparse_diagonal

namespace sparse_element {
// expect: CsrMatrix: the elements must be float or double (convert the entries first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = float;
#endif

void use(const CsrMatrix<Split, Split, Element>& matrix) { static_cast<void>(matrix.local_entries()); }
} // namespace sparse_element

namespace sparse_elements_of_another_plan {
// expect: IndexHalo: the elements must be those of this plan, as another plan reads other elements of other vectors
// expect: (make them by elements() of this one)

struct mesh_nodes;
struct mesh_edges;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Read = IndexHalo<Split, mesh_edges>;
#else
using Read = IndexHalo<Split, mesh_nodes>;
#endif

void read(const IndexHalo<Split, mesh_nodes>& halo, Read::Elements<double>& elements,
          const ShardedTensor<Split, double>& vector) {
  halo.gather_into(elements, vector);
}
} // namespace sparse_elements_of_another_plan

namespace sparse_halo_of_a_sum {
// expect: IndexHalo: the layout must be that of a whole vector, without halos
// expect: (name Layout<1, Shard<0, rows>>, or complete the sum first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Vector = Layout<1, Partial<Sum, dp>>;
#else
using Vector = Split;
#endif

void use(const IndexHalo<Vector>& halo) { static_cast<void>(halo.neighbours()); }
} // namespace sparse_halo_of_a_sum

namespace sparse_halo_vector {
// expect: IndexHalo: the vector must have the layout that the plan is for (redistribute it, or make a plan for its layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Vector = Layout<1>;
#else
using Vector = Split;
#endif

void read(const IndexHalo<Split>& halo, IndexHalo<Split>::Elements<double>& elements,
          const ShardedTensor<Vector, double>& vector) {
  halo.gather_into(elements, vector);
}
} // namespace sparse_halo_vector

namespace sparse_result {
// expect: spmv: the result must have the layout of the matrix's rows, or of its columns in a transposed product
// expect: (declare it with that layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Result = Layout<1>;
#else
using Result = Split;
#endif

void multiply(ShardedTensor<Result, double>& y, const CsrMatrix<Split>& matrix,
              const ShardedTensor<Split, double>& x) {
  spmv_into(y, matrix, x);
}
} // namespace sparse_result

namespace sparse_sum_of_elements {
// expect: Operation: sharded and plain tensors must not be mixed

void add_to(const ShardedTensor<Split, double>& vector, const IndexHalo<Split>::Elements<double>& elements) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(add(vector, elements));
#else
  static_cast<void>(elements.size());
  static_cast<void>(add(vector, vector));
#endif
}
} // namespace sparse_sum_of_elements

namespace sparse_vector {
// expect: spmv: the vector must have the layout of the matrix's columns, or of its rows in a transposed product
// expect: (redistribute it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Vector = Layout<1, Partial<Sum, dp>>;
#else
using Vector = Split;
#endif

void multiply(ShardedTensor<Split, double>& y, const CsrMatrix<Split>& matrix,
              const ShardedTensor<Vector, double>& x) {
  spmv_into(y, matrix, x);
}
} // namespace sparse_vector
