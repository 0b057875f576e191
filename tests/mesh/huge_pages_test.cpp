// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/mesh/huge_pages.hpp>
#include <shardwright/mesh/target.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace shardwright;

TEST_CASE("host memory begins at a huge page if it fills one", "[mesh]") {
  constexpr std::size_t page = detail::huge_page_bytes;
  const auto execution = DefaultTarget::make_execution_space();
  struct Block {
    std::size_t bytes;
    unsigned char* data;
  };
  std::vector<Block> blocks;
  unsigned char value = 0;
  for (const std::size_t bytes : {std::size_t{256}, page - 256, page, page + 256, 3 * page, 5 * page + 512}) {
    auto* const data =
        static_cast<unsigned char*>(detail::allocate_for<DefaultTarget>(execution, "test", bytes));
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    CHECK(address % 64 == 0);
    if (bytes >= page)
      CHECK(address % page == 0);
    data[0] = ++value;
    data[bytes - 1] = value;
    blocks.push_back({bytes, data});
  }
  value = 0;
  for (const Block& block : blocks) { // no block is in another
    ++value;
    CHECK(block.data[0] == value);
    CHECK(block.data[block.bytes - 1] == value);
    detail::deallocate_for<DefaultTarget>(execution, "test", block.data, block.bytes);
  }
}
