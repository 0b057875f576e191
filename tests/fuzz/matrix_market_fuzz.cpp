// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <shardwright/io/matrix_market_file.hpp>

#include <cmath>

namespace sw = shardwright;

/// The bytes of a file become finite entries inside the matrix, no more than lines can give, or an error
/// sentence with a line.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Place place;
  const std::string bytes = fuzz::Input(data, size).rest();
  place.write(bytes);
  fuzz::accepted([&] {
    sw::detail::MatrixMarketFile file(place.path());
    const auto [rows, columns] = file.shape();
    std::size_t entries = 0;
    for (sw::MatrixEntry<double> entry; file.next(entry); ++entries)
      fuzz::require(entry.row >= 0 && entry.row < rows && entry.column >= 0 && entry.column < columns &&
                        std::isfinite(entry.value),
                    "an entry is a number inside the matrix");
    fuzz::require(2 * entries <= bytes.size(), "each entry takes some bytes");
    const auto most = static_cast<std::int64_t>(bytes.size()) + sw::MatrixMarketLimits().empty;
    fuzz::require(rows <= most && columns <= most, "and so do rows and columns beyond the limit");
  });
  return 0;
}
