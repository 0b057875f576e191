// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/byte_dataset.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

/// Text in which the bytes from `position` on identify the position: no two windows are equal.
TextFiles numbered_text(std::size_t bytes) {
  TextFiles text;
  for (std::size_t n = 0; text.bytes.size() < bytes; ++n)
    text.bytes += std::to_string(n * 7919 % 1000003) + " ";
  text.bytes.resize(bytes);
  text.files.push_back({"numbers.txt", 0});
  return text;
}

std::string sentence_of(TextFiles text, const ByteDatasetOptions& options) {
  try {
    ByteDataset data(std::move(text), options);
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

} // namespace

TEST_CASE("byte_dataset: no window of the training part touches a held-out byte") {
  const std::size_t bytes =
      GENERATE(std::size_t{34}, std::size_t{100}, std::size_t{171}, std::size_t{2000}, std::size_t{250000});
  const ByteDataset data(numbered_text(bytes), {{}, 16, 3, 256, 1});
  std::size_t held_out = 0;
  for (std::size_t position = 0; position < bytes; ++position)
    held_out += data.held_out(position) ? 1 : 0;
  CHECK(held_out == data.validation_bytes());
  CHECK(held_out >= 17);
  if (bytes >= 2000) {
    CHECK(static_cast<double>(held_out) > 0.08 * static_cast<double>(bytes));
    CHECK(static_cast<double>(held_out) < 0.12 * static_cast<double>(bytes));
  }
  std::set<std::size_t> starts;
  for (std::uint64_t step = 0; step < 200; ++step)
    for (std::uint64_t row = 0; row < 8; ++row) {
      const std::size_t start = data.training_position(step, row);
      starts.insert(start);
      REQUIRE(start + 17 <= bytes);
      for (std::size_t i = 0; i < 17; ++i)
        REQUIRE_FALSE(data.held_out(start + i));
    }
  if (bytes == 34)
    CHECK(starts == std::set<std::size_t>{0});
  if (bytes == 250000)
    CHECK(starts.size() > 1500);
}

TEST_CASE("byte_dataset: every window start of the training part is drawn") {
  const ByteDataset data(numbered_text(171), {{}, 16, 5, 256, 1});
  std::set<std::size_t> drawn;
  for (std::uint64_t row = 0; row < 20000; ++row)
    drawn.insert(data.training_position(1, row));
  std::set<std::size_t> possible;
  for (std::size_t start = 0; start + 17 <= 171; ++start) {
    bool clean = true;
    for (std::size_t i = 0; i < 17; ++i)
      clean = clean && !data.held_out(start + i);
    if (clean)
      possible.insert(start);
  }
  CHECK(drawn == possible);
}

TEST_CASE("byte_dataset: held-out windows lie in the held-out part and do not overlap") {
  const ByteDataset data(numbered_text(300000), {{}, 32, 5, 256, 1});
  REQUIRE(data.validation_samples() > 100);
  std::size_t end = 0;
  for (std::size_t sample = 0; sample < data.validation_samples(); ++sample) {
    const std::size_t start = data.validation_position(sample);
    REQUIRE(start >= end);
    end = start + 33;
    for (std::size_t i = start; i < end; ++i)
      REQUIRE(data.held_out(i));
  }
  CHECK(data.validation_batches(8, 1000) == data.validation_samples() / 8);
  CHECK(data.validation_batches(8, 3) == 3);
  CHECK(data.validation_batches(1 << 20, 3) == 1);
}

TEST_CASE("byte_dataset: targets are the inputs shifted by one byte") {
  const TextFiles text = numbered_text(5000);
  const ByteDataset data(text, {{}, 24, 9, 256, 1});
  std::vector<std::int32_t> inputs(3 * 24), targets(3 * 24);
  data.training(7, {2, 5}, inputs, targets);
  for (std::size_t row = 0; row < 3; ++row) {
    const std::size_t start = data.training_position(7, row + 2);
    for (std::size_t i = 0; i < 24; ++i) {
      REQUIRE(inputs[row * 24 + i] == static_cast<unsigned char>(text.bytes[start + i]));
      REQUIRE(targets[row * 24 + i] == static_cast<unsigned char>(text.bytes[start + i + 1]));
    }
  }
}

TEST_CASE("byte_dataset: separate files do not predict one another, and a window knows where each begins") {
  TextFiles text = numbered_text(5000);
  text.files = {{"a", 0}, {"b", 700}, {"c", 701}, {"d", 2500}, {"e", 2510}};
  ByteDatasetOptions options{{}, 24, 9, 256, 1};
  options.separate_files = true;
  std::vector<std::int32_t> tokens;
  for (const char byte : text.bytes)
    tokens.push_back(static_cast<unsigned char>(byte));
  const ByteDataset data(text, options), of_tokens(tokens, options, text.files),
      plain(text, {{}, 24, 9, 256, 1});
  const auto file_of = [&](std::size_t position) {
    return std::find_if(text.files.rbegin(), text.files.rend(),
                        [&](const TextFiles::File& file) { return file.begin <= position; })
        ->begin;
  };
  int ends = 0;
  for (std::uint64_t step = 0; step < 3000; ++step) {
    std::vector<std::int32_t> inputs(24), targets(24), starts(24), again(24), of_plain(24);
    data.training(step, {0, 1}, inputs, targets, starts);
    of_tokens.training(step, {0, 1}, again, of_plain);
    REQUIRE(of_plain == targets);
    plain.training(step, {0, 1}, again, of_plain);
    const std::size_t begin = data.training_position(step, 0);
    for (std::size_t i = 0; i < 24; ++i) {
      const bool last = file_of(begin + i) != file_of(begin + i + 1);
      ends += last ? 1 : 0;
      REQUIRE(targets[i] == (last ? -1 : of_plain[i]));
      REQUIRE(static_cast<std::size_t>(starts[i]) == std::max(file_of(begin + i), begin) - begin);
    }
  }
  CHECK(ends > 10);
}

TEST_CASE("byte_dataset: the batch of a step does not depend on the mesh") {
  const ByteDataset data(numbered_text(20000), {{}, 8, 11, 256, 1});
  const std::size_t batch = 12;
  const auto assembled = [&](std::size_t ranks, std::size_t microbatch, std::size_t accumulation) {
    std::vector<std::int32_t> whole(batch * 8, -1);
    for (std::size_t pass = 0; pass < accumulation; ++pass)
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t begin = (pass * ranks + rank) * microbatch;
        const RowRange rows{begin, begin + microbatch};
        std::vector<std::int32_t> inputs(rows.size() * 8), targets(rows.size() * 8);
        data.training(42, rows, inputs, targets);
        std::copy(inputs.begin(), inputs.end(), whole.begin() + static_cast<std::ptrdiff_t>(rows.begin * 8));
      }
    return whole;
  };
  const auto one = assembled(1, 12, 1);
  CHECK(assembled(2, 3, 2) == one);
  CHECK(assembled(3, 4, 1) == one);
  CHECK(assembled(4, 1, 3) == one);

  const auto validated = [&](std::size_t ranks) {
    std::vector<std::int32_t> whole;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const RowRange rows{rank * batch / ranks, (rank + 1) * batch / ranks};
      std::vector<std::int32_t> inputs(rows.size() * 8), targets(rows.size() * 8);
      data.validation(1, 4, batch, rows, inputs, targets);
      whole.insert(whole.end(), inputs.begin(), inputs.end());
    }
    return whole;
  };
  CHECK(validated(1) == validated(3));
}

TEST_CASE("byte_dataset: seed, step and row each select different windows") {
  const TextFiles text = numbered_text(500000);
  const ByteDataset data(text, {{}, 8, 1, 256, 1});
  const ByteDataset other_seed(text, {{}, 8, 2, 256, 1});
  const ByteDataset same(text, {{}, 8, 1, 256, 1});
  std::size_t equal_seed = 0, equal_step = 0, equal_row = 0;
  for (std::uint64_t step = 0; step < 50; ++step) {
    CHECK(data.training_position(step, 3) == same.training_position(step, 3));
    equal_seed += data.training_position(step, 3) == other_seed.training_position(step, 3) ? 1 : 0;
    equal_step += data.training_position(step, 3) == data.training_position(step + 1, 3) ? 1 : 0;
    equal_row += data.training_position(step, 3) == data.training_position(step, 4) ? 1 : 0;
  }
  CHECK(equal_seed <= 1);
  CHECK(equal_step <= 1);
  CHECK(equal_row <= 1);
  CHECK(data.hash() == same.hash());
}

TEST_CASE("byte_dataset: short data and bytes outside the vocabulary are named with file and offset") {
  CHECK_THAT(sentence_of(numbered_text(33), {{}, 16, 0, 256, 1}),
             ContainsSubstring("two windows of 17 bytes") && ContainsSubstring("numbers.txt at offset 33"));
  CHECK(sentence_of(numbered_text(34), {{}, 16, 0, 256, 1}).empty());
  CHECK_THAT(sentence_of(numbered_text(100), {{}, 16, 0, 256, 9}),
             ContainsSubstring("at least 9 separate windows of 17 bytes") && ContainsSubstring("holds 4") &&
                 ContainsSubstring("numbers.txt at offset 100"));
  TextFiles text = numbered_text(100);
  text.bytes[61] = static_cast<char>(0xC3);
  text.files.push_back({"second.txt", 60});
  CHECK_THAT(sentence_of(text, {{}, 16, 0, 128, 1}), ContainsSubstring("vocabulary of 128") &&
                                                         ContainsSubstring("byte 195") &&
                                                         ContainsSubstring("second.txt at offset 1"));
}

TEST_CASE("byte_dataset: spans of another size are rejected") {
  const ByteDataset data(numbered_text(1000), {{}, 8, 0, 256, 1});
  std::vector<std::int32_t> right(16), wrong(15);
  CHECK_THROWS_AS(data.training(0, {0, 2}, wrong, right), InvalidArgument);
  CHECK_THROWS_AS(data.training(0, {0, 2}, right, wrong), InvalidArgument);
  CHECK_THROWS_AS(data.validation(0, 1, 1, {0, 2}, right, right), InvalidArgument);
  CHECK_THROWS_AS(data.validation(1, 1, 2, {0, 2}, right, right), InvalidArgument);
  CHECK_THROWS_AS(ByteDataset(numbered_text(1000), {{}, 0, 0, 256, 1}), InvalidArgument);
}
