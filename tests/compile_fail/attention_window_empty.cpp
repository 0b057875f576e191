// SPDX-License-Identifier: Apache-2.0
// expect: sliding_window: a query must see at least one key, its own (write sliding_window<1>)

#include <shardwright/layout/attention_mask.hpp>

using namespace shardwright;

#ifdef SHARDWRIGHT_EXPECT_FAIL
constexpr auto own_key = sliding_window<0>;
#else
constexpr auto own_key = sliding_window<1>;
#endif
