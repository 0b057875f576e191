// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: In-place collective: the elements must be writable, not a read-only view or handle

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

using namespace shardwright;
using namespace shardwright::axis;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float; // the view of a handle
#else
using Element = float;
#endif

void sum_over_ranks(HostCommunicator& world, LocalView<Element, 1> view) { world.all_reduce_in_place(view); }
