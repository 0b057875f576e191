// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The formulas of the samples.

#include "data.hpp"

#include <shardwright/core/philox.hpp>

#include <cmath>
#include <cstddef>
#include <numbers>

namespace models {
namespace {

/// Random numbers for data, separate from those of every parameter.
constexpr std::uint64_t data_stream = ~std::uint64_t{0};

/// The random words of one sample, one after the other.
class Words {
public:
  Words(std::uint64_t seed, std::uint64_t number) : seed_(seed), next_(number << 16) {}
  [[nodiscard]] std::uint32_t operator()() {
    return shardwright::random_words({seed_, data_stream}, next_++).word[0];
  }
  /// From `least` to below `end`.
  [[nodiscard]] std::int32_t token(std::int64_t least, std::int64_t end) {
    return static_cast<std::int32_t>(least + (*this)() % (end - least));
  }
  [[nodiscard]] double uniform() { return shardwright::unit_interval((*this)()); }

private:
  std::uint64_t seed_, next_;
};

} // namespace

Sample spiral_point(std::uint64_t seed, std::uint64_t number, std::int64_t arms) {
  Words words(seed, number);
  const std::int32_t arm = words.token(0, arms);
  const double radius = words.uniform();
  const double turn = static_cast<double>(arm) / static_cast<double>(arms) + radius;
  const double angle = 2 * std::numbers::pi * turn + (words.uniform() - 0.5) / 2;
  Sample out;
  out.features = {radius * std::cos(angle), radius * std::sin(angle)};
  out.targets = {arm};
  return out;
}

Sample noisy_text(std::uint64_t seed, std::uint64_t number, std::int64_t vocabulary, std::int64_t sequence) {
  Words words(seed, number);
  Sample out;
  std::int32_t token = words.token(0, vocabulary);
  for (std::int64_t t = 0; t < sequence; ++t) {
    out.ids.push_back(token);
    const std::int32_t random = words.token(0, vocabulary);
    token = words() % 8 == 0 ? random : static_cast<std::int32_t>((5 * token + 3) % vocabulary);
    out.targets.push_back(token);
  }
  return out;
}

Sample votes(std::uint64_t seed, std::uint64_t number, std::int64_t vocabulary, std::int64_t sequence) {
  Words words(seed, number);
  Sample out;
  out.length = words.token(sequence / 2, sequence + 1);
  out.ids.assign(static_cast<std::size_t>(sequence), 0);
  out.targets.assign(static_cast<std::size_t>(sequence), -1);
  int lead = 0;
  for (std::size_t t = 1; t < static_cast<std::size_t>(out.length); ++t) {
    out.ids[t] = words.token(1, vocabulary);
    lead += out.ids[t] == 1 ? 1 : out.ids[t] == 2 ? -1 : 0;
  }
  out.targets.front() = lead > 0 ? 1 : 0;
  return out;
}

} // namespace models
