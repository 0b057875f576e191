// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Var: a value that has a gradient must have floating-point elements (pass integers, such as token ids, to the operation as a tensor)

#include <shardwright/train/tape.hpp>

#include <cstdint>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = std::int32_t;
#else
using Element = double;
#endif

void put(Tape<>& tape, const ShardedTensor<Layout<1>, Element>& ids) { static_cast<void>(tape.input(ids)); }
