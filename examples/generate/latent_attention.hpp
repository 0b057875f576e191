// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Multi-head latent attention of new tokens over all tokens so far, whose keys and values it keeps
/// compressed.

#include "attention.hpp"

#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace generate {

/// @brief Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434, section 2.1). The cache holds
/// key_value_rank + rotary_width numbers per token instead of the keys and values of its heads: the matrix
/// that would expand a key is applied to the query instead, and the one for values to the sum of compressed
/// values, as the end of that section describes.
///
/// Memory of a layer: sequences * positions * (key_value_rank + rotary_width) numbers, on every rank of tp.
class LatentAttention {
  /// Columns of a row-major matrix.
  template <class Number>
  [[nodiscard]] static auto columns(Number* data, std::size_t rows, std::size_t width, std::size_t first,
                                    std::size_t count) {
    return Kokkos::subview(sw::MatrixView<Number>(data, rows, width), Kokkos::ALL,
                           Kokkos::make_pair(first, first + count));
  }

public:
  LatentAttention(Weights& weights, std::int64_t layer, const CacheSize& cache)
      : sizes_(*weights.settings().latent), epsilon_(weights.settings().norm_epsilon),
        query_down_(weights.load_if<Whole>(sizes_.query_rank > 0, {Part::query_down, layer})),
        query_norm_(weights.load_if<Vector>(sizes_.query_rank > 0, {Part::query_down_norm, layer})),
        query_up_(weights.load<Qkv>({Part::query_up, layer})),
        down_(weights.load<Whole>({Part::key_value_down, layer})),
        norm_(weights.load<Vector>({Part::key_value_down_norm, layer})),
        up_(weights.load<HeadRows>({Part::key_value_up, layer})),
        out_(weights.load<Rows>({Part::out, layer})),
        frequencies_(sizes_.scaling
                         ? sizes_.scaling->frequencies(sizes_.rotary_width, weights.settings().rope_base)
                         : sw::rotary_frequencies(sizes_.rotary_width, weights.settings().rope_base)),
        capacity_(static_cast<std::size_t>(cache.positions)),
        kept_(static_cast<std::size_t>(cache.sequences) * capacity_ * row()) {}

  //! [latent]
  [[nodiscard]] Tensor<Sum> operator()(const Tensor<Tokens>& x, const Places& places) {
    auto queries = query_down_ != nullptr ? sw::matmul(compressed(x), query_up_) : sw::matmul(x, query_up_);
    keep(sw::matmul(x, down_), places);
    const auto tokens = static_cast<std::size_t>(x.shape()[1]), heads = local_heads();
    std::vector<Element> absorbed = absorb(queries, places);
    const std::vector<Element> latents = attend(absorbed, places);
    Tensor<sw::AttentionLayout<Heads>> values(x.resources(),
                                              {1, x.shape()[1], queries.shape()[2] * sizes_.value_width});
    for (std::size_t head = 0; head < heads; ++head) // [tokens, rank] by [value width, rank]
      multiply(columns(latents.data(), tokens, heads * rank(), head * rank(), rank()),
               sw::kernels::Transpose::no,
               columns(up_.data() + (head * expanded() + plain()) * rank(), value(), rank(), 0, rank()),
               sw::kernels::Transpose::yes,
               columns(values.mutable_data(), tokens, heads * value(), head * value(), value()));
    return sw::matmul(values, out_);
  }
  //! [latent]

private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(sizes_.key_value_rank); }
  [[nodiscard]] std::size_t plain() const { return static_cast<std::size_t>(sizes_.plain_width); }
  [[nodiscard]] std::size_t turning() const { return static_cast<std::size_t>(sizes_.rotary_width); }
  [[nodiscard]] std::size_t value() const { return static_cast<std::size_t>(sizes_.value_width); }
  [[nodiscard]] std::size_t expanded() const { return plain() + value(); }
  [[nodiscard]] std::size_t row() const { return rank() + turning(); } // of the cache
  [[nodiscard]] std::size_t local_heads() const { return static_cast<std::size_t>(up_.local_shape()[0]); }

  template <class A, class B, class C>
  void multiply(const A& a, sw::kernels::Transpose transpose_a, const B& b,
                sw::kernels::Transpose transpose_b, const C& c, double factor = 1) const {
    sw::kernels::matmul(up_.execution(), a, transpose_a, b, transpose_b, c, factor);
  }

  [[nodiscard]] Tensor<Tokens> compressed(const Tensor<Tokens>& x) const {
    return sw::rms_norm(sw::matmul(x, *query_down_), *query_norm_, epsilon_);
  }

  /// Rotates pairs of numbers by a position: pairs of neighbours, or of numbers half a width apart.
  void turn(Element* numbers, std::size_t position) const {
    const std::size_t pairs = frequencies_.size();
    const double factor = sizes_.scaling ? sizes_.scaling->turned_factor() : 1;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      const auto cosine = static_cast<Element>(factor * std::cos(angle));
      const auto sine = static_cast<Element>(factor * std::sin(angle));
      Element& a = numbers[sizes_.interleaved ? 2 * i : i];
      Element& b = numbers[sizes_.interleaved ? 2 * i + 1 : i + pairs];
      const Element was = a;
      a = was * cosine - b * sine;
      b = b * cosine + was * sine;
    }
  }

  /// Compressed keys and values of new tokens, after an RMSNorm, and the rotary part of their keys.
  void keep(const Tensor<Tokens>& made, const Places& places) {
    const Element* from = made.data();
    for (const auto& [sequence, position] : places) {
      Element* const to = kept_.data() + (sequence * capacity_ + position) * row();
      std::copy_n(from, row(), to);
      from += row();
      norm_row(to, rank(), norm_.data(), epsilon_);
      turn(to + rank(), position);
    }
  }

  /// Queries for the cached rows, [tokens, heads, row], scaled by the factor of the scores.
  [[nodiscard]] std::vector<Element> absorb(Tensor<Heads>& queries, const Places& places) const {
    const std::size_t heads = local_heads(), width = plain() + turning();
    const std::size_t tokens = queries.local_size() / (heads * width);
    const double factor =
        (sizes_.scaling ? sizes_.scaling->score_factor() : 1) / std::sqrt(static_cast<double>(width));
    std::vector<Element> out(tokens * heads * row());
    for (std::size_t head = 0; head < heads; ++head) // [tokens, plain width] by [plain width, rank]
      multiply(columns(std::as_const(queries).data(), tokens, heads * width, head * width, plain()),
               sw::kernels::Transpose::no,
               columns(up_.data() + head * expanded() * rank(), plain(), rank(), 0, rank()),
               sw::kernels::Transpose::no, columns(out.data(), tokens, heads * row(), head * row(), rank()),
               factor);
    for (std::size_t each = 0; each < tokens * heads; ++each) {
      Element* const turned = queries.mutable_data() + each * width + plain();
      turn(turned, places[each / heads].position);
      std::transform(turned, turned + turning(), out.data() + each * row() + rank(),
                     [&](Element number) { return static_cast<Element>(factor) * number; });
    }
    return out;
  }

  /// The sums of compressed values by the softmax of the scores, [tokens, heads, rank].
  [[nodiscard]] std::vector<Element> attend(const std::vector<Element>& queries, const Places& places) const {
    const std::size_t heads = local_heads(), tokens = places.size();
    std::vector<Element> out(tokens * heads * rank());
    std::vector<Element> scores(heads * capacity_);
    for (std::size_t token = 0; token < tokens; ++token) {
      const std::size_t seen = places[token].position + 1;
      const Element* const kept = kept_.data() + places[token].sequence * capacity_ * row();
      multiply(columns(queries.data() + token * heads * row(), heads, row(), 0, row()),
               sw::kernels::Transpose::no, columns(kept, seen, row(), 0, row()), sw::kernels::Transpose::yes,
               columns(scores.data(), heads, seen, 0, seen));
      for (std::size_t head = 0; head < heads; ++head) {
        Element* const of = scores.data() + head * seen;
        const Element best = *std::max_element(of, of + seen);
        double total = 0;
        for (std::size_t s = 0; s < seen; ++s)
          total += double(of[s] = std::exp(of[s] - best));
        for (std::size_t s = 0; s < seen; ++s)
          of[s] = static_cast<Element>(double(of[s]) / total);
      }
      multiply(columns(std::as_const(scores).data(), heads, seen, 0, seen), sw::kernels::Transpose::no,
               columns(kept, seen, row(), 0, rank()), sw::kernels::Transpose::no,
               columns(out.data() + token * heads * rank(), heads, rank(), 0, rank()));
    }
    return out;
  }

  pretrained::LatentSizes sizes_;
  double epsilon_;
  const Tensor<Whole>* query_down_;
  const Tensor<Vector>* query_norm_;
  const Tensor<Qkv>& query_up_;
  const Tensor<Whole>& down_;
  const Tensor<Vector>& norm_;
  const Tensor<HeadRows>& up_;
  const Tensor<Rows>& out_;
  std::vector<double> frequencies_;
  std::size_t capacity_;
  std::vector<Element> kept_; // [sequences, capacity, rank + rotary width]
};

} // namespace generate
