// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The host kernels that shardwright::compiled holds for the usual element types: they take as long to
/// compile as the rest of a small model.

#include <shardwright/core/low_precision.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {
struct Int8;
struct NormalFloat4;
namespace operation {
struct Add;
struct GeluErf;
struct GeluTanh;
} // namespace operation
namespace detail {
template <class Function> struct RightGradientOf;
} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {

template <class Element> struct AdamWUpdate;
template <class Element, class Function, class Dy, class Left, class Right> struct Terms;
template <class Element> struct Elements;
struct NoElements;
template <class Function> struct MapOf;
template <class Function> struct SlopeOf;
template <class Function> struct CombineOf;

namespace detail {

template <class Functor> void serial_calls(const void* functor, std::size_t count);
template <class Functor> struct RowPieces;

// Names only: a unit that calls none of them includes none of their headers.
template <class Element, class Out> struct AttentionForward;
template <class Element, class Out, bool in_leaves> struct AttentionBackward;
template <class Element, bool centred, bool biased> struct NormForward;
template <class Element, bool centred, bool biased, bool sums> struct NormBackward;
template <class Element> struct RowStatistics;
template <class Number> struct RebaseSums;
template <class Element> struct LogitGradient;
template <class Element> struct EmbeddingForward;
template <class Element, class Main> struct EmbeddingBackward;
template <class Element> struct AddPositions;
template <class Element, class Main> struct SumOfPositions;
template <class Element> struct RotaryRows;
template <class Element, class Draw> struct RandomElements;
template <class Element> struct DrawNormal;
template <class Number, class Operation> struct Elementwise;
template <class Terms, class Element> struct StoreTerms;
template <class Terms> struct PartialColumnSums;
template <class Element> struct SwigluForward;
template <class Element> struct SwigluBackward;
template <class Form, class From> struct QuantizeBlocks;
template <class Form, class To> struct WidenBlocks;

// Functions of one operand, their gradients, and sums with those of a bias.
template <class Element, class Function>
using StoreMap =
    StoreTerms<Terms<Element, MapOf<Function>, NoElements, Elements<Element>, NoElements>, Element>;
template <class Element, class Function>
using StoreSlope =
    StoreTerms<Terms<Element, SlopeOf<Function>, Elements<Element>, Elements<Element>, NoElements>, Element>;
template <class Element>
using StoreSum =
    StoreTerms<Terms<Element, CombineOf<operation::Add>, NoElements, Elements<Element>, Elements<Element>>,
               Element>;
template <class Element>
using BiasSums = PartialColumnSums<Terms<Element, shardwright::detail::RightGradientOf<operation::Add>,
                                         Elements<Element>, NoElements, NoElements>>;

// `extern` where the kernels are used; a definition in the source that holds them.
#if defined(SHARDWRIGHT_COMPILING)
#define SHARDWRIGHT_KERNEL(...) template void serial_calls<__VA_ARGS__>(const void*, std::size_t)
#else
#define SHARDWRIGHT_KERNEL(...) extern template void serial_calls<__VA_ARGS__>(const void*, std::size_t)
#endif
// Kernels of an element type and of the type in which its sums are computed.
#define SHARDWRIGHT_KERNELS(Element, Number)                                                                 \
  SHARDWRIGHT_KERNEL(AttentionForward<Element, Element>);                                                    \
  SHARDWRIGHT_KERNEL(AttentionBackward<Element, Element, false>);                                            \
  SHARDWRIGHT_KERNEL(NormForward<Element, true, true>);                                                      \
  SHARDWRIGHT_KERNEL(NormForward<Element, true, false>);                                                     \
  SHARDWRIGHT_KERNEL(NormForward<Element, false, false>);                                                    \
  SHARDWRIGHT_KERNEL(NormBackward<Element, true, true, true>);                                               \
  SHARDWRIGHT_KERNEL(NormBackward<Element, true, false, true>);                                              \
  SHARDWRIGHT_KERNEL(NormBackward<Element, false, false, true>);                                             \
  SHARDWRIGHT_KERNEL(NormBackward<Element, false, false, false>);                                            \
  SHARDWRIGHT_KERNEL(RowStatistics<Element>);                                                                \
  SHARDWRIGHT_KERNEL(LogitGradient<Element>);                                                                \
  SHARDWRIGHT_KERNEL(EmbeddingForward<Element>);                                                             \
  SHARDWRIGHT_KERNEL(RowPieces<EmbeddingBackward<Element, Number>>);                                         \
  SHARDWRIGHT_KERNEL(AddPositions<Element>);                                                                 \
  SHARDWRIGHT_KERNEL(SumOfPositions<Element, Number>);                                                       \
  SHARDWRIGHT_KERNEL(RotaryRows<Element>);                                                                   \
  SHARDWRIGHT_KERNEL(StoreMap<Element, operation::GeluErf>);                                                 \
  SHARDWRIGHT_KERNEL(StoreSlope<Element, operation::GeluErf>);                                               \
  SHARDWRIGHT_KERNEL(StoreMap<Element, operation::GeluTanh>);                                                \
  SHARDWRIGHT_KERNEL(StoreSlope<Element, operation::GeluTanh>);                                              \
  SHARDWRIGHT_KERNEL(StoreSum<Element>);                                                                     \
  SHARDWRIGHT_KERNEL(RowPieces<BiasSums<Element>>);                                                          \
  SHARDWRIGHT_KERNEL(RowPieces<SwigluForward<Element>>);                                                     \
  SHARDWRIGHT_KERNEL(RowPieces<SwigluBackward<Element>>);                                                    \
  SHARDWRIGHT_KERNEL(WidenBlocks<Int8, Element>);                                                            \
  SHARDWRIGHT_KERNEL(WidenBlocks<NormalFloat4, Element>)
// Kernels that exist only for the type of sums.
#define SHARDWRIGHT_NUMBER_KERNELS(Number)                                                                   \
  SHARDWRIGHT_KERNEL(RowPieces<RandomElements<Number, DrawNormal<Number>>>);                                 \
  SHARDWRIGHT_KERNEL(QuantizeBlocks<Int8, Number>);                                                          \
  SHARDWRIGHT_KERNEL(QuantizeBlocks<NormalFloat4, Number>);                                                  \
  SHARDWRIGHT_KERNEL(RowPieces<Elementwise<Number, RebaseSums<Number>>>);                                    \
  SHARDWRIGHT_KERNEL(RowPieces<Elementwise<Number, AdamWUpdate<Number>>>)

SHARDWRIGHT_KERNELS(float, float);
SHARDWRIGHT_KERNELS(double, double);
SHARDWRIGHT_KERNELS(bfloat16, float);
SHARDWRIGHT_NUMBER_KERNELS(float);
SHARDWRIGHT_NUMBER_KERNELS(double);

#undef SHARDWRIGHT_NUMBER_KERNELS
#undef SHARDWRIGHT_KERNELS
#undef SHARDWRIGHT_KERNEL

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
