// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the PTX that nvcc has put into an object.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ptx_runtime {

/// @brief The PTX text in a fat binary, from the wrapper that a program registers.
///
/// The layout is that of CUDA 11 to 13, as objects show it: a header of 16 bytes, then images, each with its
/// kind, the length of its own header and that of its contents.
/// @throws std::runtime_error if there is none, or if it is compressed.
[[nodiscard]] inline std::string_view ptx_of(const void* wrapper) {
  struct Wrapper {
    std::uint32_t magic, version;
    const std::byte* data;
  };
  struct Header {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t bytes;
  };
  struct Image {
    std::uint16_t kind, version;
    std::uint32_t header_bytes;
    std::uint64_t bytes;
  };
  constexpr std::uint32_t wrapper_magic = 0x466243b1, magic = 0xba55ed50;
  constexpr std::uint16_t ptx_kind = 1;
  Wrapper outer;
  std::memcpy(&outer, wrapper, sizeof outer);
  Header header{};
  if (outer.magic == wrapper_magic)
    std::memcpy(&header, outer.data, sizeof header);
  if (header.magic != magic)
    throw std::runtime_error("Fat binary: the wrapper must be that of CUDA 11 to 13.");
  for (std::uint64_t at = 0; at < header.bytes;) {
    Image image;
    const std::byte* const begin = outer.data + header.header_bytes + at;
    std::memcpy(&image, begin, sizeof image);
    if (image.kind == ptx_kind) {
      const std::string_view text(reinterpret_cast<const char*>(begin + image.header_bytes), image.bytes);
      if (text.find(".version") == std::string_view::npos)
        throw std::runtime_error(
            "Fat binary: its PTX must not be compressed (compile with nvcc --no-compress).");
      return text.substr(0, text.find('\0'));
    }
    at += image.header_bytes + image.bytes;
  }
  throw std::runtime_error(
      "Fat binary: it must hold PTX (compile with nvcc -gencode arch=compute_90,code=compute_90).");
}

} // namespace ptx_runtime
