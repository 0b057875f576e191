// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <shardwright/io/byte_dataset.hpp>
#include <shardwright/io/text_files.hpp>

#include <optional>
#include <vector>

namespace sw = shardwright;

/// Bytes of a data file become windows inside it, held out or not, or an error sentence with an offset.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Place place;
  fuzz::Input input(data, size);
  sw::ByteDatasetOptions options{.paths = {place.path()}};
  options.sequence = input.number(64);
  options.vocabulary = 64 + 4 * input.number(49);
  options.least_samples = input.number(9);
  place.write(input.rest());
  std::optional<sw::ByteDataset> dataset;
  if (!fuzz::accepted([&] { dataset.emplace(options); }))
    return 0;
  const std::size_t window = dataset->sequence() + 1;
  for (std::uint64_t row = 0; row < 16; ++row) {
    const std::size_t at = dataset->training_position(3, row);
    fuzz::require(at + window <= dataset->bytes(), "a training window lies inside the data");
    fuzz::require(!dataset->held_out(at) && !dataset->held_out(at + window - 1),
                  "and touches no held-out byte");
  }
  fuzz::require(dataset->validation_samples() > 0, "something is held out");
  const std::size_t last = dataset->validation_position(dataset->validation_samples() - 1);
  fuzz::require(last + window <= dataset->bytes() && dataset->held_out(last) &&
                    dataset->held_out(last + window - 1),
                "the last held-out window is held out");
  std::vector<std::int32_t> ids(2 * dataset->sequence()), targets(ids.size());
  dataset->training(1, {4, 6}, ids, targets);
  for (const std::int32_t id : ids)
    fuzz::require(id >= 0 && id < static_cast<std::int32_t>(options.vocabulary),
                  "a token is of the vocabulary");
  return 0;
}
