// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Blocks of 64 elements in 8 or 4 bits, and back. On hosts.

#include <shardwright/core/element.hpp>
#include <shardwright/layout/quantized.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/launch.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

using shardwright::detail::quantized_block;
using shardwright::detail::QuantizedWord;
using shardwright::detail::words_of_block;
/// The elements of a block, or their codes.
template <class Number> using BlockOf = std::array<Number, std::size_t(quantized_block)>;

template <class Form> struct Codes;

template <> struct Codes<Int8> {
  using Memory = BlockOf<std::int8_t>;

  /// @param most the largest magnitude @return the scale
  static float encode(const BlockOf<float>& values, float most, Memory& to) {
    const float scale = most / 127;
    const float divisor =
        scale > 0 ? scale : 1; // the codes of zeros, and of what is not a number, do not count
    for (std::size_t i = 0; i < to.size(); ++i) {
      const float code = std::rint(values[i] / divisor);
      to[i] = static_cast<std::int8_t>(code > 127 ? 127.0F : code > -127 ? code : -127.0F);
    }
    return scale;
  }
  static void decode(const Memory& codes, float scale, float* to) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      to[i] = static_cast<float>(codes[i]) * scale;
  }
};

/// An element's code is the value that is nearest, the smaller one of two.
template <> struct Codes<NormalFloat4> {
  using Memory =
      std::array<std::uint8_t, std::size_t(quantized_block / 2)>; // the even element in the low bits

  // Dettmers et al., arXiv 2305.14314, appendix E.
  static constexpr std::array<float, 16> values{
      -1.0F,
      -0.6961928009986877F,
      -0.5250730514526367F,
      -0.39491748809814453F,
      -0.28444138169288635F,
      -0.18477343022823334F,
      -0.09105003625154495F,
      0.0F,
      0.07958029955625534F,
      0.16093020141124725F,
      0.24611230194568634F,
      0.33791524171829224F,
      0.44070982933044434F,
      0.5626170039176941F,
      0.7229568362236023F,
      1.0F,
  };
  /// The two values of each byte: a load of both is as fast as one of either.
  static constexpr std::array<std::array<float, 2>, 256> pairs = [] {
    std::array<std::array<float, 2>, 256> out{};
    for (std::size_t byte = 0; byte < out.size(); ++byte)
      out[byte] = {values[byte % 16], values[byte / 16]};
    return out;
  }();

  static float encode(const BlockOf<float>& from, float most, Memory& to) {
    BlockOf<float> shares;
    for (std::size_t i = 0; i < from.size(); ++i)
      shares[i] = from[i] / (most > 0 ? most : 1);
    BlockOf<int> codes{};
    for (std::size_t next = 1; next < values.size(); ++next) {
      const float middle = (values[next - 1] + values[next]) / 2;
      for (std::size_t i = 0; i < codes.size(); ++i)
        codes[i] += shares[i] > middle ? 1 : 0;
    }
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    return most;
  }
  static void decode(const Memory& codes, float scale, float* to) {
    BlockOf<float> plain;
    for (std::size_t i = 0; i < codes.size(); ++i)
      std::memcpy(&plain[2 * i], &pairs[codes[i]], sizeof(pairs[0]));
    for (std::size_t i = 0; i < plain.size(); ++i)
      to[i] = plain[i] * scale;
  }
};

/// One block of elements to words.
template <class Form, class From> struct QuantizeBlocks {
  const From* from;
  QuantizedWord* to;

  void operator()(std::size_t block) const {
    const From* const own = from + block * std::size_t(quantized_block);
    BlockOf<float> values;
    float most = 0;
    bool finite = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(own[i]);
      const float size = std::abs(values[i]);
      most = size > most ? size : most;
      finite = finite && size <= std::numeric_limits<float>::max();
    }
    typename Codes<Form>::Memory codes;
    const float scale =
        Codes<Form>::encode(values, finite ? most : std::numeric_limits<float>::quiet_NaN(), codes);
    QuantizedWord* const words = to + block * std::size_t(words_of_block<Form>);
    std::memcpy(words, &scale, sizeof(scale));
    std::memcpy(words + 1, codes.data(), codes.size());
  }
};

/// One block of words to elements: the products of values and scale in float, rounded or widened.
template <class Form, class To> struct WidenBlocks {
  const QuantizedWord* from;
  To* to;

  void operator()(std::size_t block) const {
    const QuantizedWord* const words = from + block * std::size_t(words_of_block<Form>);
    To* const own = to + block * std::size_t(quantized_block);
    float scale = 0;
    typename Codes<Form>::Memory codes;
    std::memcpy(&scale, words, sizeof(scale));
    std::memcpy(codes.data(), words + 1, codes.size());
    if constexpr (std::is_same_v<To, float>) {
      Codes<Form>::decode(codes, scale, own);
    } else {
      BlockOf<float> values;
      Codes<Form>::decode(codes, scale, values.data());
      ConvertElements<To, float>{own, values.data()}(0, 0, values.size());
    }
  }
};

/// Of blocks in both forms.
template <class Form, class Element> [[nodiscard]] constexpr std::size_t bytes_of_blocks(std::size_t blocks) {
  return blocks * (std::size_t(words_of_block<Form>) * sizeof(QuantizedWord) +
                   std::size_t(quantized_block) * sizeof(Element));
}

} // namespace detail

/// @brief Blocks of elements as words of a form. A block with an infinity or a NaN becomes NaNs.
template <class Form, class Execution, class From>
void quantize(const Execution& execution, const From* from, shardwright::detail::QuantizedWord* to,
              std::size_t blocks) {
  moves("sw::quantize", execution, detail::bytes_of_blocks<Form, From>(blocks));
  run("sw::quantize", execution, blocks, detail::QuantizeBlocks<Form, From>{from, to});
}
/// @brief The elements again.
template <class Form, class Execution, class To>
void widen(const Execution& execution, const shardwright::detail::QuantizedWord* from, To* to,
           std::size_t blocks) {
  moves("sw::widen", execution, detail::bytes_of_blocks<Form, To>(blocks));
  run("sw::widen", execution, blocks, detail::WidenBlocks<Form, To>{from, to});
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
