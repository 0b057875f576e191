// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <shardwright/safetensors.hpp>

#include <span>
#include <vector>

namespace sw = shardwright;
namespace st = shardwright::safetensors;

namespace {

/// Checks an accepted header against the rules of the format.
void check_header(const st::Header& header, std::size_t file_bytes) {
  std::uint64_t end = 0;
  for (const st::Entry& entry : header.tensors) {
    fuzz::require(entry.begin == end && entry.end >= entry.begin, "tensors follow one another");
    fuzz::require(st::bytes_of(entry.dtype, entry.shape) == entry.bytes(), "a tensor has its bytes");
    fuzz::require(header.find(entry.name) == &entry, "a name finds its tensor, and no other");
    end = entry.end;
  }
  fuzz::require(header.data_begin + end == file_bytes, "the tensors fill the file");
  std::vector<st::Entry> entries = header.tensors;
  const std::string again = st::header_text(entries, header.metadata);
  const st::Header read = st::parse_header(std::string_view(again).substr(8), end, "again");
  fuzz::require(read.metadata == header.metadata && read.tensors.size() == entries.size(),
                "a header is read as it was written");
  for (std::size_t i = 0; i < entries.size(); ++i)
    fuzz::require(read.find(entries[i].name) != nullptr && entries[i].begin == header.tensors[i].begin &&
                      read.find(entries[i].name)->dtype == entries[i].dtype &&
                      read.find(entries[i].name)->shape == entries[i].shape,
                  "with every tensor");
}

/// All but the first and the last element of each dimension, compared with the bytes of the file.
void check_block(const st::File& file, const st::Entry& entry, std::string_view bytes) {
  if (st::bits_of(entry.dtype) % 8 != 0 || entry.shape.size() > 8 || entry.bytes() == 0)
    return;
  const std::uint64_t size = st::bits_of(entry.dtype) / 8;
  st::BlockOf block;
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : entry.shape) {
    block.offset.push_back(extent > 2 ? 1 : 0);
    block.extent.push_back(extent > 2 ? extent - 2 : extent);
    elements *= block.extent.back();
  }
  std::string got(static_cast<std::size_t>(elements * size), '\0');
  file.read(entry.name, block, std::as_writable_bytes(std::span(got)));
  for (std::uint64_t i = 0; i < elements; ++i) {
    std::uint64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = entry.shape.size(); d-- > 0; stride *= entry.shape[d]) {
      at += (block.offset[d] + rest % block.extent[d]) * stride;
      rest /= block.extent[d];
    }
    fuzz::require(bytes.substr(file.header().data_begin + entry.begin + at * size, size) ==
                      std::string_view(got).substr(i * size, size),
                  "a block holds the elements of its place");
  }
}

} // namespace

/// The bytes of a file become tensors inside it (those of an index, names of files), or an error sentence.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Place place;
  fuzz::Input input(data, size);
  const bool of_index = input.number(2) == 1;
  const std::string bytes = input.rest();
  if (of_index) {
    fuzz::accepted([&] {
      for (const auto& [tensor, file] : st::parse_index(bytes, "fuzz.json"))
        fuzz::require(!file.empty() && file != ".." && file.find('/') == file.npos, "a file is a plain name");
    });
    return 0;
  }
  st::Header header;
  if (!fuzz::accepted([&] { header = st::read_header(bytes, "fuzz"); }))
    return 0;
  check_header(header, bytes.size());
  place.write(bytes);
  const st::File file(place.path());
  fuzz::require(file.bytes() == bytes.size() && file.header().tensors.size() == header.tensors.size(),
                "a file reads as its bytes do");
  for (const st::Entry& entry : header.tensors)
    check_block(file, entry, bytes);
  return 0;
}
