// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/copy_kernels.hpp>

#include <cstddef>
#include <vector>

namespace sw = shardwright;

namespace {

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::byte>((i * 131 + 7) % 251);
  return out;
}

} // namespace

TEST_CASE("runs are copied whole at every length and alignment", "[comm]") {
  const std::vector<std::byte> from = pattern(3000);
  for (const std::size_t length : {0, 1, 63, 64, 65, 200, 513, 2500})
    for (const std::size_t shift : {0, 1, 17, 64})
      for (const bool stream : {false, true}) {
        std::vector<std::byte> to(length + shift + 1, std::byte{255});
        sw::detail::copy_run(to.data() + shift, from.data() + 3, length, stream);
        sw::detail::finish_streaming();
        CHECK(std::equal(to.begin() + static_cast<std::ptrdiff_t>(shift), to.end() - 1, from.begin() + 3));
        CHECK(to.back() == std::byte{255});
      }
}

TEST_CASE("one run is copied to several places", "[comm]") {
  const std::vector<std::byte> from = pattern(9000);
  for (const std::size_t length : {0, 1, 100, 128, 129, 5000, 8999})
    for (const std::size_t apart : {0, 1, 64}) {
      std::vector<std::byte> memory(3 * 9500, std::byte{255});
      std::vector<void*> outs;
      for (std::size_t j = 0; j < 3; ++j)
        outs.push_back(memory.data() + j * 9472 + 5 + j * apart);
      sw::detail::copy_to_all(outs.data(), 3, from.data(), length);
      sw::detail::finish_streaming();
      for (const void* out : outs) {
        const auto* bytes = static_cast<const std::byte*>(out);
        CHECK(std::equal(bytes, bytes + length, from.begin()));
        CHECK(bytes[length] == std::byte{255});
        CHECK(bytes[-1] == std::byte{255});
      }
    }
}

TEST_CASE("blocks of different rows hold the same elements in row-major order", "[comm]") {
  const std::vector<std::byte> from = pattern(4 * 500);
  const sw::StridedBlock shapes[] = {{3, 6, 4, 7}, {0, 4, 6, 9}, {5, 3, 8, 8}, {1, 1, 24, 24}, {2, 24, 1, 3}};
  for (const sw::StridedBlock& source : shapes)
    for (const sw::StridedBlock& target : shapes) {
      std::vector<std::byte> to(4 * 500);
      sw::detail::copy_block(to.data(), target, from.data(), source, 4, false);
      const auto place = [](const sw::StridedBlock& block, std::size_t i) {
        return 4 * (block.offset + i / block.row_length * block.row_stride + i % block.row_length);
      };
      for (std::size_t i = 0; i < 24; ++i)
        for (std::size_t b = 0; b < 4; ++b)
          REQUIRE(to[place(target, i) + b] == from[place(source, i) + b]);
    }
}
