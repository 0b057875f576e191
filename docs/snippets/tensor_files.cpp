// SPDX-License-Identifier: Apache-2.0
//
// Files of tensors, without the rest of the library: tests/consumer/find_package builds and runs this program
// with only the target shardwright::safetensors.
#include <shardwright/safetensors.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#if __has_include(<Kokkos_Core.hpp>)
#error "shardwright::safetensors must not bring Kokkos along"
#endif

namespace sw = shardwright;

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  const std::filesystem::path directory = argv[1];

  //! [write]
  const std::vector<float> weight{1, 2, 3, 4, 5, 6};
  const std::vector<float> bias{7, 8, 9};
  sw::safetensors::write(directory / "layer.safetensors",
                         {sw::safetensors::source<float>("weight", {2, 3}, weight),
                          sw::safetensors::source<float>("bias", {3}, bias)},
                         {{"format", "pt"}});
  //! [write]

  //! [read]
  const sw::safetensors::File file(directory / "layer.safetensors");
  for (const sw::safetensors::Entry& tensor : file.header().tensors)
    std::printf("%s: %zu dimensions\n", tensor.name.c_str(), tensor.shape.size());
  const std::vector<float> read = file.read_as<float>("weight"); // rejected if the elements have another type
  //! [read]

  //! [block]
  std::vector<float> columns(2 * 2); // both rows, from column 1 on
  file.read("weight", sw::safetensors::BlockOf{.offset = {0, 1}, .extent = {2, 2}},
            std::as_writable_bytes(std::span(columns)));
  //! [block]

  //! [model]
  sw::safetensors::write_sharded(directory,
                                 {sw::safetensors::source<float>("weight", {2, 3}, weight),
                                  sw::safetensors::source<float>("bias", {3}, bias)},
                                 24);
  const sw::safetensors::Files model(directory);
  const std::vector<float> again = model.file_of("bias").read_as<float>("bias");
  //! [model]

  std::ifstream stream(directory / "layer.safetensors", std::ios::binary);
  const std::string received{std::istreambuf_iterator<char>(stream), {}};
  //! [memory]
  const sw::safetensors::Header header = sw::safetensors::read_header(received, "from the network");
  const sw::safetensors::Entry& first = header.tensors.front();
  const std::string_view bytes =
      std::string_view(received).substr(header.data_begin + first.begin, first.end - first.begin);
  //! [memory]
  return read == weight && columns == std::vector<float>{2, 3, 5, 6} && again == bias &&
                 bytes == std::string_view(reinterpret_cast<const char*>(bias.data()),
                                           bias.size() * sizeof(float)) &&
                 model.files().size() == 2
             ? 0
             : 1;
}
