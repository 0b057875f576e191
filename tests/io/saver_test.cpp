// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace shardwright;
using namespace shardwright_test;
using shardwright::axis::dp;
using shardwright::axis::tp;
namespace cp = shardwright::checkpoint;
namespace fs = std::filesystem;

namespace {

/// Tensors of one shape in every kind of layout, and further ones: uneven, empty on some ranks, replicated.
struct Model {
  static constexpr std::array<std::int64_t, 2> shape{7, 3};

  template <class Mesh>
  explicit Model(const Mesh& mesh)
      : whole(mesh, shape), rows(mesh, shape), columns(mesh, shape), both(mesh, shape), nested(mesh, shape),
        turned(mesh, shape), vector(mesh, {5}), narrow(mesh, {2, 3, 2}) {}

  template <class Visit> void each(const Visit& visit) {
    visit(0, whole), visit(1, rows), visit(2, columns), visit(3, both), visit(4, nested), visit(5, turned);
  }

  ShardedTensor<Layout<2>> whole;
  ShardedTensor<Layout<2, Shard<0, dp>>> rows;
  ShardedTensor<Layout<2, Shard<1, tp>>> columns;
  ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, tp>>> both;
  ShardedTensor<Layout<2, Shard<0, dp, tp>>> nested;
  ShardedTensor<Layout<2, Shard<1, tp, dp>>> turned;
  ShardedTensor<Layout<1, Shard<0, tp>>, double> vector;
  ShardedTensor<Layout<3, Shard<1, dp>>, bfloat16> narrow;
};

/// Calls `visit(element, value)` with each element of this rank's block and its expected value, which differs
/// for each position, seed and number.
template <class Tensor, class Visit> void each_element(Tensor& tensor, int seed, const Visit& visit) {
  const auto local = tensor.local_shape();
  const auto offset = tensor.local_offset();
  auto* const data = tensor.mutable_data();
  for (std::size_t i = 0; i < tensor.local_size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), place = 0, stride = 1;
    for (std::size_t d = local.size(); d-- > 0; stride *= tensor.shape()[d]) {
      place += (offset[d] + rest % local[d]) * stride;
      rest /= local[d];
    }
    visit(data[i], static_cast<float>(seed * 32 + place));
  }
}

template <class Tensor> void fill_places(Tensor& tensor, int seed) {
  using Element = typename Tensor::value_type;
  each_element(tensor, seed, [](Element& element, float value) { element = static_cast<Element>(value); });
}

template <class Tensor> bool has_places(Tensor& tensor, int seed) {
  using Element = typename Tensor::value_type;
  bool out = true;
  each_element(tensor, seed, [&](Element& element, float value) {
    out = out && static_cast<float>(element) == value;
    element = static_cast<Element>(-1);
  });
  return out;
}

std::vector<std::string> names() {
  std::vector<std::string> out{"vector", "narrow"};
  for (int i = 0; i < 6; ++i)
    out.push_back("matrix." + std::to_string(i));
  return out;
}

std::vector<cp::StagedBlock> staged(Model& model, int seed) {
  std::vector<cp::StagedBlock> out;
  model.each([&](int number, auto& tensor) {
    fill_places(tensor, seed + number);
    out.push_back(cp::stage("matrix." + std::to_string(number), tensor));
    fill_places(tensor, 0); // changed after the copy
  });
  fill_places(model.vector, seed);
  out.push_back(cp::stage("vector", model.vector));
  fill_places(model.narrow, seed % 4);
  out.push_back(cp::stage("narrow", model.narrow));
  return out;
}

cp::Description about(std::uint64_t step) { return {step, "dp, tp", "0123", {}}; }

constexpr std::array<std::array<int, 2>, 5> meshes{{{1, 1}, {3, 1}, {1, 2}, {2, 2}, {1, 4}}};

/// Every rank throws an error with this text.
template <class Function>
void expect_sentence(Findings& findings, const std::string& part, const Function& function) {
  std::string sentence = "nothing";
  try {
    function();
  } catch (const Error& error) {
    sentence = error.what();
  }
  findings.expect(sentence.find(part) != std::string::npos, "'", sentence, "' for '", part, "'");
}

} // namespace

TEST_CASE("saver: tensors saved on any mesh in any layout can be loaded on any other mesh and layout") {
  const Scratch scratch;
  for (std::size_t from = 0; from < meshes.size(); ++from)
    CHECK(on_ranks(meshes[from][0] * meshes[from][1], [&](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(meshes[from][0]), extent<tp>(meshes[from][1])};
            Model model(mesh);
            cp::Saver saver(world, scratch.root() / std::to_string(from));
            saver.save(about(1), staged(model, 1), 1);
            saver.save(about(2), staged(model, 2), 1);
            findings.expect((saver.writer() != nullptr) == (world.rank() == 0), "rank 0 holds the lock");
          }) == "");
  for (std::size_t to = 0; to < meshes.size(); ++to)
    CHECK(on_ranks(meshes[to][0] * meshes[to][1], [&](HostCommunicator world, Findings& findings) {
            const DeviceMesh mesh{world, extent<dp>(meshes[to][0]), extent<tp>(meshes[to][1])};
            Model model(mesh);
            for (std::size_t from = 0; from < meshes.size(); ++from) {
              std::vector<std::string> refused;
              const auto reader = cp::open_newest(world, scratch.root() / std::to_string(from), refused);
              findings.expect(reader && reader->path().filename() == "step-2" && refused.empty(), "step 2");
              cp::require_same_names(world, *reader, names());
              model.each([&](int number, auto& tensor) {
                for (int other = 0; other < 6; ++other) {
                  cp::read_tensor(*reader, "matrix." + std::to_string(other), tensor);
                  findings.expect(has_places(tensor, 2 + other), "from mesh ", from, ", matrix ", other,
                                  " into layout ", number, " of mesh ", to, ", rank ", world.rank());
                }
              });
              cp::read_tensor(*reader, "vector", model.vector);
              findings.expect(has_places(model.vector, 2), "the vector of mesh ", from);
              cp::read_tensor(*reader, "narrow", model.narrow);
              findings.expect(has_places(model.narrow, 2), "the narrow tensor of mesh ", from);
              expect_sentence(findings, "tensor 'vector' must be F32 [7, 3], but F64 [5] was saved",
                              [&] { cp::read_tensor(*reader, "vector", model.whole); });
            }
          }) == "");
}

TEST_CASE("saver: replicas are written once, by ranks that share the work") {
  const Scratch scratch;
  std::vector<std::vector<std::string>> written(4);
  CHECK(on_ranks(4, [&](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(2), extent<tp>(2)};
          ShardedTensor<Layout<1>> weight(mesh, {3});
          fill_places(weight, 1);
          std::vector<cp::StagedBlock> blocks;
          for (int i = 0; i < 40; ++i) {
            blocks.push_back(cp::stage("weight." + std::to_string(i), weight));
            if (!blocks.back().memory.empty())
              written[static_cast<std::size_t>(world.rank())].push_back(blocks.back().block.tensor);
          }
          cp::Saver(world, scratch.root()).save(about(1), blocks, 1);
          findings.expect(blocks.size() == 40, "all are staged");
        }) == "");
  std::vector<std::string> all;
  for (const auto& names_of_rank : written) {
    CHECK(names_of_rank.size() >= 3); // of 10 on average
    all.insert(all.end(), names_of_rank.begin(), names_of_rank.end());
  }
  std::sort(all.begin(), all.end());
  CHECK((all.size() == 40 && std::adjacent_find(all.begin(), all.end()) == all.end()));
  CHECK(cp::Reader(scratch.root() / "step-1").tensor("weight.7").layout == "Layout<1>");
}

TEST_CASE("saver: if one rank fails, all throw the same error, and the older checkpoint stays") {
  const Scratch scratch;
  const fs::path directory = scratch.root() / "checkpoints";
  CHECK(
      on_ranks(3, [&](HostCommunicator world, Findings& findings) {
        const DeviceMesh mesh{world, extent<dp>(3), extent<tp>(1)};
        Model model(mesh);
        cp::Saver saver(world, directory);
        saver.save(about(1), staged(model, 1), 2);
        expect_sentence(findings, "another one holds it: process",
                        [&] { const cp::Saver second(world, directory); });
        expect_sentence(findings, "rank 0: checkpoint: a step must come after all that are saved",
                        [&] { saver.save(about(1), staged(model, 1), 2); });
        expect_sentence(findings, "rank 1 differs from the others",
                        [&] { saver.save(about(world.rank() == 1 ? 3 : 2), staged(model, 2), 2); });
        std::vector<cp::StagedBlock> blocks = staged(model, 2);
        if (world.rank() == 2)
          blocks[1].memory.pop_back();
        expect_sentence(findings, "rank 2: checkpoint: a block of tensor 'matrix.1' must come with the bytes",
                        [&] { saver.save(about(2), blocks, 2); });
        expect_sentence(findings, " [rank 2, group world, checkpoint,", // the same rank, on every rank
                        [&] { saver.save(about(2), blocks, 2); });
        blocks = staged(model, 2);
        if (world.rank() == 1)
          blocks.erase(blocks.begin() + 1);
        expect_sentence(findings,
                        "rank 0: checkpoint: tensor 'matrix.1': its blocks must cover all of [7, 3], but 9",
                        [&] { saver.save(about(2), blocks, 2); });
        std::vector<std::string> refused;
        findings.expect(cp::open_newest(world, directory, refused)->path().filename() == "step-1", "step 1");
        saver.save(about(2), staged(model, 2), 2);
      }) == "");
  CHECK(std::distance(fs::directory_iterator(directory), fs::directory_iterator()) == 3); // two, and the lock

  std::fstream(directory / "step-2" / "part-1.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('\x11');
  CHECK(on_ranks(2, [&](HostCommunicator world, Findings& findings) {
          std::vector<std::string> refused;
          const auto reader = cp::open_newest(world, directory, refused);
          findings.expect(reader->path().filename() == "step-1" && refused.size() == 1 &&
                              refused[0].find("must have the hash that was saved") != std::string::npos,
                          "step 1 on every rank");
          expect_sentence(findings, "but 'narrow' have none", [&] {
            std::vector<std::string> most = names();
            most.erase(most.begin() + 1);
            cp::require_same_names(world, *reader, most);
          });
          expect_sentence(findings, "must hold the tensor 'more'", [&] {
            cp::require_same_names(world, *reader,
                                   world.rank() == 1 ? std::vector<std::string>{"more"} : names());
          });
          findings.expect(cp::open_newest(world, scratch.root(), refused) == nullptr, "none");
          expect_sentence(findings, "must be a directory that can be read",
                          [&] { (void)cp::open_newest(world, scratch.root() / "none", refused); });
        }) == "");
}

TEST_CASE("saver: a save reports how many bytes all ranks have written, and at which rate") {
  const Scratch scratch;
  CHECK(on_ranks(3, [&](HostCommunicator world, Findings& findings) {
          const DeviceMesh mesh{world, extent<dp>(3), extent<tp>(1)};
          ShardedTensor<Layout<2, Shard<0, dp>>> weight(mesh, {301, 4096});
          fill_places(weight, 1);
          cp::Saver saver(world, scratch.root());
          std::vector<cp::SaveProgress> told;
          const auto begin = [&](std::uint64_t step) {
            cp::Staging& memory = saver.staging();
            for (int i = 0; i < 4; ++i)
              memory.add("weight." + std::to_string(i), weight);
            told.clear();
            saver.start(about(step), 1);
          };
          const auto expect_progress = [&](std::uint64_t step) {
            constexpr std::uint64_t total = 4 * 301 * 4096 * sizeof(float);
            findings.expect(!told.empty() && told.back().bytes == total, "all is written in the end");
            for (std::size_t i = 0; i < told.size(); ++i)
              findings.expect(told[i].step == step && told[i].total == total && told[i].seconds > 0 &&
                                  told[i].bytes_per_second() * told[i].seconds ==
                                      Approx(static_cast<double>(told[i].bytes)).epsilon(1e-9) &&
                                  (i == 0 || told[i].bytes >= told[i - 1].bytes),
                              told[i].bytes, " of ", told[i].total, " bytes in ", told[i].seconds, " s");
            findings.expect(saver.last()->bytes_per_second() * saver.last()->seconds ==
                                Approx(static_cast<double>(saver.last()->bytes)).epsilon(1e-9),
                            "the rate of the whole");
          };
          saver.on_progress([&](const cp::SaveProgress& save) { told.push_back(save); }, 0);
          begin(1);
          while (!saver.poll()) {
          }
          expect_progress(1);
          begin(2);
          saver.finish();
          expect_progress(2);
          saver.on_progress([&](const cp::SaveProgress& save) { told.push_back(save); }, 1000);
          begin(3);
          saver.finish();
          saver.on_progress({}, 0);
          begin(4);
          saver.finish();
          findings.expect(told.empty() && saver.last()->step == 4, "not so soon, or not at all");
        }) == "");
}
