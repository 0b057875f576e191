// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/all_gather_v.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace {

struct Record {
  double value = 0;
  char letter = ' ';
  friend bool operator==(const Record&, const Record&) = default;
};

std::vector<Record> of_rank(int rank) {
  std::vector<Record> out;
  for (int i = 0; i < 5 * (rank % 3); ++i) // none on ranks 0 and 3
    out.push_back({rank + 0.125 * i, static_cast<char>('a' + i)});
  return out;
}

} // namespace

TEST_CASE("texts of different lengths, empty ones and none, are gathered in rank order") {
  const auto texts_of = [](int rank) {
    return std::vector<std::string>(static_cast<std::size_t>(rank % 3),
                                    std::string(static_cast<std::size_t>(rank / 3), 'x'));
  };
  CHECK(shardwright_test::on_ranks(5, [&](const shardwright::HostCommunicator& world,
                                          shardwright_test::Findings& findings) {
          const auto all = shardwright::gather_texts(world, texts_of(world.rank()));
          for (int rank = 0; rank < 5; ++rank)
            findings.expect(all[static_cast<std::size_t>(rank)] == texts_of(rank), "those of rank ", rank);
        }) == "");
}

TEST_CASE("vectors of different lengths, and none, are gathered in rank order on every rank") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    CHECK(shardwright_test::on_ranks(ranks, [&](shardwright::HostCommunicator world,
                                                shardwright_test::Findings& findings) {
            const auto all = shardwright::all_gather_v(world, of_rank(world.rank()));
            findings.expect(all.size() == static_cast<std::size_t>(ranks), "a vector of each rank");
            for (int rank = 0; rank < ranks; ++rank)
              findings.expect(all[static_cast<std::size_t>(rank)] == of_rank(rank), "that of rank ", rank);
          }) == "");
}
