// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <shardwright/io/checkpoint/manifest_text.hpp>

#include <string>

namespace cp = shardwright::checkpoint;

/// A manifest is rejected with a sentence, or names parts in its own directory and blocks that cover each
/// tensor, and is written as it was read. If the first byte is even, the input gets the correct hash.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool hashed = input.number(2) == 0;
  std::string text = input.rest();
  if (hashed) {
    text += ",\n\"xxh3_128\": \"";
    text += cp::hash_of(text).text() + "\"}\n";
  }
  cp::Manifest manifest;
  if (!fuzz::accepted([&] { manifest = cp::parse_manifest(text, "fuzz.json"); }))
    return 0;
  for (const auto& [name, part] : manifest.parts)
    fuzz::require(name.starts_with("part-") && name.find('/') == name.npos, "a part is a plain name");
  for (const auto& [name, tensor] : manifest.tensors)
    fuzz::require(cp::cover_fault(tensor).empty(), "blocks cover a tensor once");
  fuzz::require(cp::parse_manifest(cp::manifest_text(manifest), "again") == manifest,
                "a manifest is written as it was read");
  return 0;
}
