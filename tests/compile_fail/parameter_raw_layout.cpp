// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parameter: every use must give its gradient in the parameter's raw layout, but this one gives another (use a separate parameter, or read both operands in the layouts of the first use)

#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Rows = Layout<2, Shard<0, dp>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Raw = Layout<2>; // the sum over dp has yet to be made
#else
using Raw = Layout<2, Partial<Sum, dp>>;
#endif

void project(const Var<Rows>& x, Parameter<Layout<2>, Raw>& weight) { static_cast<void>(matmul(x, weight)); }
