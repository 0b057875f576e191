// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/nn/attention.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/attention/kv_cache.hpp>
#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/tensor/redistribute.hpp>

using namespace shardwright;
using namespace shardwright::axis;

/// Memory that counts as a device's.
struct Elsewhere {
  using execution_space = DefaultTarget::execution_space;
  using memory_space = DefaultTarget::memory_space;
  static constexpr bool host_accessible = false;
  static execution_space make_execution_space() { return DefaultTarget::make_execution_space(); }
  static bool idle(const execution_space&) { return true; }
  static DeviceCommunicator connect(const HostCommunicator&, const execution_space&) { return {}; }
};

namespace attention_lengths_element {
// expect: padded: the key lengths must be int32 (convert them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Length = std::int64_t;
#else
using Length = std::int32_t;
#endif

auto mask(const ShardedTensor<Layout<1>, Length>& lengths) { return padded(causal, lengths); }
} // namespace attention_lengths_element

namespace attention_lengths_layout {
// expect: attention: the key lengths must be sharded like dimension 0 of the input (make them in its KeyLengthsLayout)

using Qkv = Layout<4, Shard<0, dp>, Shard<2, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Lengths = Layout<1>;
#else
using Lengths = Layout<1, Shard<0, dp>>; // KeyLengthsLayout<Qkv>
#endif

void attend(const ShardedTensor<Qkv>& qkv, const ShardedTensor<Lengths, std::int32_t>& lengths) {
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, padded(full, lengths)));
}
} // namespace attention_lengths_layout

namespace attention_documents_layout {
// expect: attention: the starts of documents must be sharded like dimension 0 of the input, with whole sequences (make them in its DocumentStartsLayout)

using Qkv = Layout<4, Shard<0, dp>, Shard<1, cp>, Shard<2, tp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Starts = Layout<2, Shard<0, dp>, Shard<1, cp>>; // offsets of a rank's own tokens
#else
using Starts = Layout<2, Shard<0, dp>>;  // DocumentStartsLayout<Qkv>
#endif

void attend(const ShardedTensor<Qkv>& qkv, const TokenPositions<ZigZagOrder>& positions,
            const ShardedTensor<Starts, std::int32_t>& starts) {
  static_cast<void>(attention(qkv, positions, {.queries = 2, .width = 8}, documents(causal, starts)));
}
} // namespace attention_documents_layout

namespace attention_documents_order {
// expect: attention: the starts of documents must be sharded like dimension 0 of the input, with whole sequences (make them in its DocumentStartsLayout)

using Ids = TokenTensor<ZigZagOrder, Layout<2, Shard<1, cp>>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Starts = Ids::layout;
#else
using Starts = DocumentStartsLayout<Ids::layout>;
#endif

auto order(const Ids& ids, const ShardedTensor<Starts, std::int32_t>& starts) {
  return order_of_documents(ids, starts);
}
} // namespace attention_documents_order

namespace attention_documents_element {
// expect: documents: the starts must be int32 (convert them first)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Start = std::int64_t;
#else
using Start = std::int32_t;
#endif

auto mask(const ShardedTensor<Layout<2>, Start>& starts) { return documents(causal, starts); }
} // namespace attention_documents_element

namespace attention_documents_of_lengths {
// expect: documents: the mask must have no lengths or documents (make the padding a document)

auto mask(const ShardedTensor<Layout<2>, std::int32_t>& starts,
          const ShardedTensor<Layout<1>, std::int32_t>& lengths) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return documents(padded(causal, lengths), starts);
#else
  static_cast<void>(padded(causal, lengths));
  return documents(causal, starts);
#endif
}
} // namespace attention_documents_of_lengths

namespace attention_lengths_of_documents {
// expect: padded: the mask must have no lengths or documents (make the padding a document)

auto mask(const ShardedTensor<Layout<2>, std::int32_t>& starts,
          const ShardedTensor<Layout<1>, std::int32_t>& lengths) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return padded(documents(causal, starts), lengths);
#else
  static_cast<void>(documents(causal, starts));
  return padded(causal, lengths);
#endif
}
} // namespace attention_lengths_of_documents

namespace attention_lengths_on_device {
// expect: attention: on a device the mask must have no key lengths (make the padding of a sequence a document, or attend in host memory)

void attend(const ShardedTensor<Layout<4, Shard<2, tp>>, float, Elsewhere>& qkv,
            const ShardedTensor<Layout<1>, std::int32_t, Elsewhere>& lengths,
            const ShardedTensor<Layout<2>, std::int32_t, Elsewhere>& starts) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, padded(causal, lengths)));
#else
  static_cast<void>(attention(qkv, {.queries = 2, .width = 8}, documents(causal, starts)));
#endif
}
} // namespace attention_lengths_on_device

namespace attention_cache_of_sharded_batch {
// expect: KeyValueCache: tokens of several sequences in one row need all sequences on each rank (do not shard dimension 0, or give each sequence a row of its own)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Qkv = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#else
using Qkv = Layout<4, Shard<2, tp>>;
#endif

void attend(KeyValueCache<Qkv>& cache, const ShardedTensor<Qkv>& row,
            std::span<const kernels::CachedToken> places) {
  static_cast<void>(cache.attend(row, places));
}
} // namespace attention_cache_of_sharded_batch

namespace attention_natural_ring {
// expect: attention: a sharded sequence, as in the ring, must be in ZigZagOrder (make the batch with RingContext, or redistribute the input to shard its heads with AllToAllContext)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = NaturalOrder;
#else
using Order = ZigZagOrder;
#endif

void attend(const ShardedTensor<Layout<4, Shard<1, cp>, Shard<2, tp>>>& qkv,
            const TokenTensor<Order, Layout<2, Shard<1, cp>>>& ids) {
  static_cast<void>(attention(qkv, ids.positions(), {.queries = 2, .width = 8}));
}
} // namespace attention_natural_ring

namespace attention_sequence_sharded {
// expect: attention: a sharded sequence must come with its positions (redistribute the input, and shard its heads, or pass the positions() of the token ids)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Qkv = Layout<4, Shard<0, dp>, Shard<1, tp>>;
#else
using Qkv = Layout<4, Shard<0, dp>, Shard<2, tp>>;
#endif

void attend(const ShardedTensor<Qkv>& qkv) { static_cast<void>(attention(qkv, {.queries = 2, .width = 8})); }
} // namespace attention_sequence_sharded

namespace attention_window_empty {
// expect: sliding_window: a query must see at least one key, its own (write sliding_window<1>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr auto own_key = sliding_window<0>;
#else
constexpr auto own_key = sliding_window<1>;
#endif
} // namespace attention_window_empty

namespace attention_zig_zag_all_to_all {
// expect: attention: whole sequences, as in all-to-all, must be in NaturalOrder (make the batch with AllToAllContext, or keep the sequence sharded with RingContext)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = ZigZagOrder;
#else
using Order = NaturalOrder;
#endif

using Qkv = Layout<4, Shard<1, cp>, Shard<2, tp>>;

void attend(const ShardedTensor<Qkv>& qkv, const TokenTensor<Order, Layout<2, Shard<1, cp>>>& ids) {
  const auto heads = redistribute<AllToAllContext::AttentionInput<Qkv>>(qkv);
  static_cast<void>(attention(heads, ids.positions(), {.queries = 2, .width = 8}));
}
} // namespace attention_zig_zag_all_to_all

namespace token_orders_differ {
// expect: TokenTensor: ids, targets and attention must have the tokens in the same order, NaturalOrder for AllToAllContext and ZigZagOrder for RingContext (make the batch as the model's Ids, and fill it by their positions())

using Tokens = Layout<2, Shard<0, dp>, Shard<1, cp>>;

struct Batch {
  TokenTensor<ZigZagOrder, Tokens>::Handle ids, targets;
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Order = NaturalOrder;
#else
using Order = ZigZagOrder;
#endif

Batch batch(const TokenTensor<ZigZagOrder, Tokens>& ids, const TokenTensor<Order, Tokens>& targets) {
  return {ids.share(), targets.share()};
}
} // namespace token_orders_differ
