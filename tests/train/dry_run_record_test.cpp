// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/train/dry_run/dry_run_record.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using sw::MemoryKind;
using sw::detail::DryRunRecord;
using sw::detail::MemoryFor;

/// A block as a pool allocates it.
class Block {
public:
  Block(DryRunRecord& record, std::size_t requested, std::size_t rounded)
      : record_(record), requested_(requested), rounded_(rounded), holder_(record.take(requested, rounded)) {}
  ~Block() { record_.give_back(holder_, requested_, rounded_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

private:
  DryRunRecord& record_;
  std::size_t requested_, rounded_;
  std::uint32_t holder_;
};

} // namespace

TEST_CASE("a record keeps the peak by kind, including the rounding of blocks") {
  DryRunRecord record;
  const auto take = [&record](MemoryKind kind, std::size_t requested, std::size_t rounded) {
    const MemoryFor purpose(kind);
    return Block(record, requested, rounded);
  };
  {
    const Block weights = take(MemoryKind::parameters, 1000, 1024);
    { const Block values = take(MemoryKind::activations, 1025, 1152); }
    const Block message = take(MemoryKind::messages, 300, 320);
  }
  CHECK(record.peak()[MemoryKind::parameters] == 1000);
  CHECK(record.peak()[MemoryKind::activations] == 1025);
  CHECK(record.peak()[MemoryKind::messages] == 0);
  CHECK(record.peak().requested() == 2025);
  CHECK(record.peak().rounding == 24 + 127);
  CHECK(record.peak().total() == 1024 + 1152);
  // Everything has been freed: the same amount as before is no new peak, and one byte more is.
  const Block same = take(MemoryKind::gradients, 2176, 2176);
  CHECK(record.peak()[MemoryKind::gradients] == 0);
  const Block more = take(MemoryKind::messages, 1, 1);
  CHECK(record.peak()[MemoryKind::gradients] == 2176);
  CHECK(record.peak()[MemoryKind::parameters] == 0);
}

TEST_CASE("holders of memory at the peak are listed by part and operation, the largest first") {
  DryRunRecord record;
  const auto take = [&](const char* part, const char* operation, std::size_t bytes) {
    const MemoryFor purpose(MemoryKind::activations, operation);
    sw::detail::memory_purpose().part = part;
    return record.take(bytes, bytes);
  };
  static_cast<void>(take("layers.0", "norm", 8));
  static_cast<void>(take("layers.1", "norm", 100));
  static_cast<void>(take("layers.0", "norm", 20));
  const std::uint32_t gone = take("layers.1", "attention", 50);
  record.give_back(gone, 50, 50);
  static_cast<void>(take("", "", 60));
  const std::vector<sw::MemoryHolder> holders = record.holders_at_peak();
  REQUIRE(holders.size() == 3);
  CHECK(holders[0].name == "layers.1 norm");
  CHECK(holders[0].bytes == 100);
  CHECK(holders[1].name.empty());
  CHECK(holders[1].bytes == 60);
  CHECK(holders[2].name == "layers.0 norm");
  CHECK(holders[2].bytes == 28);
  CHECK(sw::detail::memory_purpose().part.empty());
  CHECK(sw::detail::memory_purpose().kind == MemoryKind::other);
}
