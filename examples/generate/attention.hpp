// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention of new tokens over all tokens so far, with the cache of their keys and values.

#include "parts.hpp"

#include <shardwright/nn/attention/kv_cache.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace generate {

/// @brief The tokens that a layer's cache has room for.
struct CacheSize {
  std::int64_t sequences = 1, positions = 0;
};
/// @brief Where the new tokens of a pass belong: those of several sequences lie side by side in one row.
using Places = std::span<const sw::kernels::CachedToken>;

/// @brief Divides `width` numbers by their root mean square, and multiplies them by gains.
inline void norm_row(Element* row, std::size_t width, const Element* gain, double epsilon) {
  const Element squares = std::inner_product(row, row + width, row, Element(0));
  const auto factor = static_cast<Element>(
      1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(width) + epsilon));
  for (std::size_t i = 0; i < width; ++i)
    row[i] *= factor * gain[i];
}

/// @brief Attention in which heads have their own keys and values, or share them in groups.
class GroupedAttention {
  using Cache = sw::KeyValueCache<Heads, Element>;
  using Angles = sw::RotaryTable<Element, sw::DefaultTarget>;

public:
  [[nodiscard]] static Angles angles(const Mesh& mesh, const Settings& settings, std::int64_t positions) {
    return {mesh, positions,
            sw::rotary_frequencies(settings.head_width, settings.rope_base, settings.rope_scaling)};
  }
  GroupedAttention(Weights& weights, std::int64_t layer, const CacheSize& cache, const Angles& angles)
      : settings_(weights.settings()), angles_(angles), qkv_(weights.load<Qkv>({Part::qkv, layer})),
        qkv_bias_(weights.load_if<QkvBias>(settings_.qkv_bias, {Part::qkv_bias, layer})),
        query_norm_(weights.load_if<Vector>(settings_.head_norms, {Part::query_norm, layer})),
        key_norm_(weights.load_if<Vector>(settings_.head_norms, {Part::key_norm, layer})),
        out_(weights.load<Rows>({Part::out, layer})),
        cache_(weights.mesh(), cache.sequences, cache.positions, settings_.kv_heads, heads(), window()) {}

  [[nodiscard]] Tensor<Sum> operator()(const Tensor<Tokens>& x, const Places& places) {
    auto qkv = sw::matmul(x, qkv_);
    if (qkv_bias_ != nullptr)
      sw::add.into(qkv, qkv, *qkv_bias_);
    if (query_norm_ != nullptr)
      norm_heads(qkv);
    std::vector<std::int32_t> positions;
    for (const sw::kernels::CachedToken& place : places)
      positions.push_back(static_cast<std::int32_t>(place.position));
    sw::rotate(qkv, angles_, positions, heads());
    return sw::matmul(cache_.attend(qkv, places), out_);
  }

private:
  [[nodiscard]] sw::HeadShape heads() const {
    return {settings_.heads / settings_.kv_heads, settings_.head_width};
  }
  [[nodiscard]] sw::KeyWindow window() const {
    return settings_.window ? sw::KeyWindow{.before = static_cast<std::size_t>(*settings_.window - 1)}
                            : sw::KeyWindow{};
  }
  /// Normalises every head of queries and keys separately (Henry et al., arXiv 2010.04245, with RMSNorm).
  void norm_heads(Tensor<Heads>& qkv) const {
    const auto d = static_cast<std::size_t>(heads().width),
               of_group = static_cast<std::size_t>(heads().queries);
    const std::size_t count = qkv.local_size() / d;
    for (std::size_t h = 0; h < count; ++h)
      if (const std::size_t place = h % (of_group + 2); place <= of_group) // no value
        norm_row(qkv.mutable_data() + h * d, d, (place < of_group ? query_norm_ : key_norm_)->data(),
                 settings_.norm_epsilon);
  }

  const Settings& settings_;
  const Angles& angles_;
  const Tensor<Qkv>& qkv_;
  const Tensor<QkvBias>* qkv_bias_;
  const Tensor<Vector>*query_norm_, *key_norm_;
  const Tensor<Rows>& out_;
  Cache cache_;
};

} // namespace generate
