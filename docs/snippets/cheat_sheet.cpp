// SPDX-License-Identifier: Apache-2.0
//
// The rules of the cheat sheet, which this program's compiler checks.
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/layout/transition.hpp>
#include <shardwright/layout/zero.hpp>

#include <type_traits>

namespace sw = shardwright;
using namespace sw::axis;

template <class A, class B> constexpr bool same = std::is_same_v<A, B>;

//! [layouts]
using Whole = sw::Layout<2>;                              // every rank has all of it
using Rows = sw::Layout<2, sw::Shard<0, tp>>;             // dimension 0 in blocks over tp
using Columns = sw::Layout<2, sw::Shard<1, tp>>;          // dimension 1 in blocks over tp
using Summands = sw::Layout<2, sw::Partial<sw::Sum, tp>>; // every rank has one summand: not the value yet
using Both = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
using Nested = sw::Layout<2, sw::Shard<0, dp, cp>>; // dp cuts first, cp cuts its pieces
//! [layouts]

//! [transitions]
template <class From, class To, class Collective>
constexpr bool takes_one =
    sw::Transition<From, To>::collectives == 1 && sw::Transition<From, To>::template count<Collective> == 1;

static_assert(takes_one<Rows, Whole, sw::AllGather>);
static_assert(takes_one<Rows, Columns, sw::AllToAll>);
static_assert(takes_one<Summands, Whole, sw::AllReduce>);
static_assert(takes_one<Summands, Rows, sw::ReduceScatter>);
static_assert(sw::Transition<Whole, Rows>::collectives == 0); // a slice of what the rank has
//! [transitions]

//! [operations]
// matmul [M, k] x [k, N]
static_assert(
    same<sw::MatmulLayout<Whole, Columns>, Columns>); // columns of the weight: columns of the result
static_assert(same<sw::MatmulLayout<Columns, Rows>, Summands>); // the contracted dimension is split: summands
static_assert(same<sw::MatmulLayout<Rows, Whole>, Rows>);       // rows stay rows
// elementwise: the same layout; a sum may add summands, a nonlinear function of them does not compile
static_assert(same<sw::AddLayout<Summands, Summands>, Summands>);
static_assert(same<sw::MultiplyLayout<Rows, sw::Layout<1>>, Rows>); // every row times a vector
// reductions: a dimension that is split leaves summands
static_assert(same<sw::ReductionLayout<sw::Sum, 0, Rows>, sw::Layout<1, sw::Partial<sw::Sum, tp>>>);
static_assert(same<sw::ReductionLayout<sw::Sum, 1, Rows>, sw::Layout<1, sw::Shard<0, tp>>>);
//! [operations]

//! [ordered]
// The sum of all elements, with the same bits on every mesh:
using Parts = sw::Layout<0, sw::Partial<sw::OrderedSum, tp>>;
static_assert(same<sw::ReduceAllLayout<sw::OrderedSum, Rows>, Parts>);
static_assert(takes_one<Parts, sw::Layout<0>, sw::AllReduce>);
//! [ordered]

//! [gradients]
using Weight = sw::Layout<2>;                        // data parallel: every rank has the weight,
using Raw = sw::Layout<2, sw::Partial<sw::Sum, dp>>; // and its gradient arrives as summands over dp
static_assert(takes_one<Raw, sw::Gradient<Weight>, sw::AllReduce>);
using Shared = sw::Zero3::Stored<Weight>;                 // ZeRO-3: the weight is stored in blocks over dp,
static_assert(takes_one<Shared, Weight, sw::AllGather>);  // gathered for its use,
static_assert(takes_one<Raw, Shared, sw::ReduceScatter>); // and its gradient reduced into the blocks
//! [gradients]

int main() {}
