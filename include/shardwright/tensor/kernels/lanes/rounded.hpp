// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Results of host kernels that compilers must not fuse with the next operation, or lose when they are
/// subnormal.

#include <shardwright/core/config.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// A number as rounded: compilers must not fuse the product with the addition that follows.
template <class V> SHARDWRIGHT_FUNCTION inline V as_rounded(V number) {
#if defined(__CUDA_ARCH__) // where no kernel calls it
#elif defined(__AVX512F__)
  asm("" : "+v"(number));
#elif defined(__SSE2__)
  asm("" : "+x"(number));
#elif defined(__aarch64__)
  asm("" : "+w"(number));
#else
  asm("" : "+m"(number));
#endif
  return number;
}

/// Makes compilers compute what follows from `second` after `first`, and not much earlier, where many results
/// that wait would run out of registers.
template <class V, class W>
SHARDWRIGHT_FUNCTION inline void in_order([[maybe_unused]] V& first, [[maybe_unused]] W& second) {
#if defined(__CUDA_ARCH__) // where no kernel calls it
#elif defined(__AVX512F__)
  asm("" : "+v"(first), "+v"(second));
#elif defined(__SSE2__)
  asm("" : "+x"(first), "+x"(second));
#elif defined(__aarch64__)
  asm("" : "+w"(first), "+w"(second));
#else
  asm("" : "+m"(first), "+m"(second));
#endif
}

/// Makes this thread keep subnormal numbers while it lives: programs linked with -ffast-math take them for 0.
class SubnormalNumbers {
public:
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
  SubnormalNumbers() : before_(__builtin_ia32_stmxcsr()) {
    if ((before_ & dropped) != 0)
      __builtin_ia32_ldmxcsr(before_ & ~dropped);
  }
  ~SubnormalNumbers() {
    if ((before_ & dropped) != 0)
      __builtin_ia32_ldmxcsr(before_);
  }

private:
  static constexpr unsigned dropped = 0x8040; // results, operands
  unsigned before_;
#else
  SubnormalNumbers() {}
#endif
  SubnormalNumbers(const SubnormalNumbers&) = delete;
  SubnormalNumbers& operator=(const SubnormalNumbers&) = delete;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
