// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <utility>

using namespace shardwright;
using namespace shardwright::axis;

namespace handle_written {
// expect: ShardedTensor: a read-only handle must not be written (write into the tensor that owns the memory, or into a clone)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float;
#else
using Element = float;
#endif

void write(ShardedTensor<Layout<2, Shard<0, dp>>, Element>& tensor) { tensor.mutable_local()(0, 0) = 1; }
} // namespace handle_written

namespace in_place_on_handle {
// expect: Operation: the destination must own memory of the operands' element type (give a tensor, not a read-only handle)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float;
#else
using Element = float;
#endif

void halve(ShardedTensor<Layout<2, Shard<0, dp>>, Element>& tensor) { scale_in_place(tensor, 0.5); }
} // namespace in_place_on_handle

namespace layouts_convert {
// expect: NoImplicitConversionCallRedistributeShareOrClone

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2, Shard<1, tp>>;
#else
using Given = Layout<2, Shard<0, tp>>;
#endif

void take(ShardedTensor<Layout<2, Shard<0, tp>>, const float> tensor);

void give(const ShardedTensor<Given, const float>& tensor) { take(tensor); }
} // namespace layouts_convert

namespace pending_transition_dropped {
// expect: redistribute_async: the transition that it starts must be waited for (keep the PendingTensor, and call wait() once)

#pragma GCC diagnostic error "-Wunused-result" // as with -Werror

ShardedTensor<Layout<2>, const float> reduce(const ShardedTensor<Layout<2, Partial<Sum, dp>>>& gradient) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  redistribute_async<Layout<2>>(gradient);
  return redistribute<Layout<2>>(gradient);
#else
  auto pending = redistribute_async<Layout<2>>(gradient);
  return pending.wait();
#endif
}
} // namespace pending_transition_dropped

namespace redistribute_handle_to_owner {
// expect: NoImplicitConversionCallRedistributeShareOrClone

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = ShardedTensor<Layout<2, Partial<Sum, dp>>,
                            const float>; // a handle's memory is shared: no owner comes out
#else
using Given = ShardedTensor<Layout<2, Partial<Sum, dp>>>;
#endif

ShardedTensor<Layout<2>> finish(Given given) { return redistribute<Layout<2>>(std::move(given)); }
} // namespace redistribute_handle_to_owner

namespace redistribute_into_handle {
// expect: redistribute_into: the destination must own its memory, not be a read-only handle (write into the tensor that owns the memory, or into a new one)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Element = const float;
#else
using Element = float;
#endif

void gather(const ShardedTensor<Layout<2, Shard<0, dp>>>& from, ShardedTensor<Layout<2>, Element>& to) {
  redistribute_into(from, to);
}
} // namespace redistribute_into_handle

namespace redistribute_plain_view {
// expect: redistribute: the input must be a ShardedTensor, whose layout says what moves (make one on the mesh, and fill or scatter the plain data into it)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Input = Kokkos::View<float**>;
#else
using Input = ShardedTensor<Layout<2, Shard<0, dp>>>;
#endif

void gather(const Input& input) { static_cast<void>(redistribute<Layout<2>>(input)); }
} // namespace redistribute_plain_view
