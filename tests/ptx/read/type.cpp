// SPDX-License-Identifier: Apache-2.0
#include "type.hpp"

#include <array>
#include <cstddef>

namespace ptx {

namespace {

struct Row {
  std::string_view word;
  unsigned bits;
};

constexpr std::array rows{
    Row{"pred", 1},  Row{"b8", 8},   Row{"b16", 16}, Row{"b32", 32},    Row{"b64", 64},   Row{"b128", 128},
    Row{"u8", 8},    Row{"u16", 16}, Row{"u32", 32}, Row{"u64", 64},    Row{"s8", 8},     Row{"s16", 16},
    Row{"s32", 32},  Row{"s64", 64}, Row{"f16", 16}, Row{"bf16", 16},   Row{"f16x2", 32}, Row{"bf16x2", 32},
    Row{"tf32", 32}, Row{"f32", 32}, Row{"f64", 64}, Row{"e4m3x2", 16}, Row{"e5m2x2", 16}};
static_assert(rows.size() == static_cast<std::size_t>(Type::e5m2x2) + 1);

} // namespace

std::optional<Type> type_of(std::string_view word) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].word == word)
      return static_cast<Type>(i);
  return std::nullopt;
}

std::string_view name(Type type) { return rows[static_cast<std::size_t>(type)].word; }

unsigned bits(Type type) { return rows[static_cast<std::size_t>(type)].bits; }

} // namespace ptx
