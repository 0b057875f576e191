// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/kept_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace sw = shardwright;
using sw::detail::KeptMemory;
using sw::detail::KeptVector;

TEST_CASE("a new vector gets the memory of an earlier one of about its size", "[core]") {
  const KeptMemory memory = sw::detail::make_kept_memory();
  const void* first = nullptr;
  {
    const KeptVector<std::int64_t> vector(100, memory);
    first = vector.data();
  }
  const KeptVector<std::int64_t> larger(200, memory);
  CHECK(larger.data() != first);
  const KeptVector<char> same(1000, memory);
  CHECK(static_cast<const void*>(same.data()) == first);
  const KeptVector<char> another(1000, memory);
  CHECK(static_cast<const void*>(another.data()) != first);
}

TEST_CASE("kept memory keeps blocks of different sizes apart", "[core]") {
  KeptMemory memory = sw::detail::make_kept_memory();
  for (int round = 0; round < 2; ++round) {
    std::vector<KeptVector<std::size_t>> all;
    for (std::size_t count = 1; count < 300; ++count) {
      all.emplace_back(count, memory);
      std::iota(all.back().begin(), all.back().end(), count);
    }
    for (std::size_t count = 1; count < 300; ++count)
      for (std::size_t i = 0; i < count; ++i)
        REQUIRE(all[count - 1][i] == count + i);
  }
  KeptVector<int> last(3, 7, memory);
  memory.reset();
  last.push_back(8);
  CHECK(last[3] == 8);
}
