// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/block_hash.hpp>
#include <shardwright/io/checkpoint/cover.hpp>
#include <shardwright/io/checkpoint/differences.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/checkpoint/manifest_text.hpp>
#include <shardwright/io/checkpoint/one_file.hpp>
#include <shardwright/io/checkpoint/part.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/large_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace shardwright;
using namespace shardwright_test;
namespace cp = shardwright::checkpoint;
namespace st = shardwright::safetensors;
namespace fs = std::filesystem;

namespace {

/// The fate of the calls of this process that change the disk, from number `from` on, counted from 1.
struct Disk {
  enum class Fault { none, kill, fail_one, fail_all } fault = Fault::none;
  int from = 0;
  int code = 0; ///< The error number of a call that fails.
  int calls = 0;
  bool recorded = false;
  std::vector<std::string> record; ///< "fsync PATH", "rename PATH" (the new one), "remove PATH".

  /// Whether the call is to fail.
  bool comes(const char* name, const std::string& path) {
    if (recorded)
      record.push_back(std::string(name) + " " + path);
    ++calls;
    if (fault == Fault::kill && calls == from)
      ::kill(::getpid(), SIGKILL);
    const bool fails =
        (fault == Fault::fail_one && calls == from) || (fault == Fault::fail_all && calls >= from);
    if (fails)
      errno = code;
    return fails;
  }
};
Disk disk;

std::string path_of(int file) { return fs::read_symlink("/proc/self/fd/" + std::to_string(file)).string(); }

} // namespace

// These replace the C library's, for the library under test and for std::filesystem.
extern "C" {
int fsync(int file) {
  return disk.recorded && disk.comes("fsync", path_of(file)) ? -1
         : !disk.recorded && disk.comes("fsync", "")         ? -1
                                                             : static_cast<int>(::syscall(SYS_fsync, file));
}
ssize_t write(int file, const void* bytes, size_t count) {
  if (disk.fault == Disk::Fault::kill && disk.calls + 1 == disk.from) // in the middle of it
    (void)!::syscall(SYS_write, file, bytes, count / 2);
  if (file > 2 && disk.fault != Disk::Fault::none && disk.comes("write", ""))
    return -1;
  return ::syscall(SYS_write, file, bytes, count);
}
int rename(const char* from, const char* to) noexcept {
  return disk.comes("rename", to) ? -1
                                  : static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return disk.comes("mkdir", path) ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  return disk.comes("remove", path) ? -1 : static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags));
}
}

namespace {

template <class Function> std::string sentence_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

constexpr std::uint64_t rows = 6, columns = 5;

/// A model whose values differ between steps: two tensors, and a single number.
struct Model {
  std::vector<float> weight = std::vector<float>(rows * columns);
  std::vector<std::uint16_t> bias = std::vector<std::uint16_t>(7);
  std::vector<std::uint64_t> count = std::vector<std::uint64_t>(1);

  explicit Model(std::uint64_t step) {
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<float>(step) + static_cast<float>(i) / 64;
    for (std::size_t i = 0; i < bias.size(); ++i)
      bias[i] = static_cast<std::uint16_t>(step * 100 + i);
    count[0] = step;
  }
  /// The part of one of two writers: rows [0, 4) and [4, 6); the second has no part of the bias.
  [[nodiscard]] std::vector<cp::Block> blocks(std::uint64_t writer) const {
    const std::span<const float> w(weight);
    if (writer == 0)
      return {{"weight",
               st::Dtype::f32,
               {rows, columns},
               {0, 0},
               {4, columns},
               std::as_bytes(w.first(4 * columns)),
               "Shard<0, dp>"},
              {"bias", st::Dtype::u16, {7}, {0}, {7}, std::as_bytes(std::span(bias)), "Replicate"}};
    return {{"count", st::Dtype::u64, {}, {}, {}, std::as_bytes(std::span(count)), "Replicate"},
            {"bias", st::Dtype::u16, {7}, {7}, {0}, {}, "Replicate"},
            {"weight",
             st::Dtype::f32,
             {rows, columns},
             {4, 0},
             {2, columns},
             std::as_bytes(w.last(2 * columns)),
             "Shard<0, dp>"}};
  }
};

cp::Description about(std::uint64_t step) { return {step, "dp=2", "0123", {{"seed", "7"}}}; }

/// @param large bytes of a further tensor, of a third writer
void save(cp::Writer& writer, std::uint64_t step, std::size_t keep, std::size_t large = 0) {
  cp::UnfinishedSave unfinished = writer.begin(step);
  const Model model(step);
  cp::Manifest contents{about(step), {}, {}};
  for (const std::uint64_t rank : {0U, 1U})
    cp::join(contents, cp::write_part(unfinished.path(), rank, model.blocks(rank)));
  const std::vector<std::byte> bytes(large, std::byte(step));
  if (large > 0)
    cp::join(contents, cp::write_part(unfinished.path(), 2,
                                      {{"large", st::Dtype::u8, {large}, {0}, {large}, bytes, ""}}));
  unfinished.commit(contents);
  writer.retain(keep);
}

/// Reads a checkpoint and compares it with the model at the step that it names.
bool holds_model(const fs::path& path) {
  const cp::Reader reader(path);
  const Model model(reader.manifest().description.step);
  std::vector<float> weight(rows * columns);
  for (std::size_t i = 0; i < 2; ++i) {
    const cp::SavedBlock& block = reader.tensor("weight").blocks[i];
    reader.read("weight", i,
                std::as_writable_bytes(
                    std::span(weight).subspan(block.offset[0] * columns, block.extent[0] * columns)));
  }
  std::vector<std::uint16_t> bias(7);
  reader.read("bias", 0, std::as_writable_bytes(std::span(bias)));
  std::vector<std::uint64_t> count(1);
  reader.read("count", 0, std::as_writable_bytes(std::span(count)));
  return reader.manifest().description == about(count[0]) && weight == model.weight && bias == model.bias &&
         count == model.count &&
         reader.manifest().tensors.size() == 3 + reader.manifest().tensors.count("large");
}

std::uint64_t newest_step(const fs::path& directory, std::size_t refused = 0) {
  const cp::Newest found = cp::newest(directory);
  CHECK(found.refused.size() == refused);
  if (!found.path || !holds_model(*found.path))
    return 0;
  return *cp::detail::step_of(found.path->filename().string());
}

std::size_t unfinished_in(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::count_if(fs::directory_iterator(directory), fs::directory_iterator(), [](const auto& entry) {
        return entry.path().filename().string().find(".tmp-") != std::string::npos;
      }));
}

/// A directory with a checkpoint of step 1.
struct Saved {
  Scratch scratch;
  fs::path directory = scratch.root() / "checkpoints";
  Saved() {
    cp::Writer writer(directory);
    save(writer, 1, 2);
  }
};

} // namespace

TEST_CASE("checkpoint: blocks of several writers are saved and read, step after step") {
  const Saved saved;
  cp::Writer writer(saved.directory);
  CHECK(newest_step(saved.directory) == 1);
  save(writer, 2, 2);
  save(writer, 30, 2);
  CHECK(cp::saved_steps(saved.directory) == std::vector<std::uint64_t>{2, 30});
  CHECK(newest_step(saved.directory) == 30);
  // Parts are safetensors files, which any reader of that format accepts.
  const st::File part(saved.directory / "step-30" / "part-1.safetensors");
  CHECK(part.read_as<std::uint64_t>("count") == std::vector<std::uint64_t>{30});
  CHECK(part.entry("weight@4,0").shape == std::vector<std::uint64_t>{2, columns});
  CHECK(part.header().find("bias") == nullptr);

  const cp::Reader reader(saved.directory / "step-2");
  CHECK_THAT(sentence_of([&] { (void)reader.tensor("wait"); }),
             ContainsSubstring("must hold the tensor 'wait', but none of its 3"));
  std::vector<std::byte> bytes(8);
  CHECK_THAT(sentence_of([&] { reader.read("count", 1, bytes); }),
             ContainsSubstring("has 1 blocks, but number 1"));
  // Any block, from all parts that overlap it.
  std::vector<float> column(4);
  reader.read("weight", st::BlockOf{{2, 3}, {4, 1}}, std::as_writable_bytes(std::span(column)));
  const std::vector<float> all = Model(2).weight;
  CHECK(column == std::vector<float>{all[13], all[18], all[23], all[28]});
  for (const st::BlockOf& wrong : {st::BlockOf{{3, 3}, {4, 1}}, {{2, 3}, {3, 1}}, {{2}, {4}}})
    CHECK_THAT(sentence_of([&] { reader.read("weight", wrong, std::as_writable_bytes(std::span(column))); }),
               ContainsSubstring("tensor 'weight' of F32 [6, 5] must contain the requested block"));
  CHECK_THAT(sentence_of([&] { writer.retain(0); }), ContainsSubstring("at least one must be kept"));
  CHECK_THAT(sentence_of([&] { (void)writer.begin(30); }), ContainsSubstring("step 30 does not come after"));
  CHECK_THAT(sentence_of([&] { (void)writer.begin(29); }), ContainsSubstring("step-30 (set that one aside"));
  {
    const cp::UnfinishedSave one = writer.begin(31);
    CHECK_THAT(sentence_of([&] { (void)writer.begin(32); }),
               ContainsSubstring("one save must end before the next"));
  }
  CHECK(unfinished_in(saved.directory) == 0);
  CHECK(writer.set_aside(30).filename() == "step-30.aside-0");
  save(writer, 30, 2);
  CHECK(writer.set_aside(30).filename() == "step-30.aside-1");
  CHECK(newest_step(saved.directory) == 2);
}

TEST_CASE("checkpoint: blocks become whole tensors of one file, and two checkpoints are compared by tensor") {
  const Saved saved;
  cp::Writer writer(saved.directory);
  save(writer, 2, 3);
  const cp::Reader first(saved.directory / "step-1"), second(saved.directory / "step-2");
  const fs::path path = saved.scratch.root() / "whole.safetensors";
  cp::write_one_file(second, path, {"weight", "bias"});
  const st::File file(path);
  CHECK(file.header().tensors.size() == 2);
  CHECK(file.read_as<float>("weight") == Model(2).weight);
  CHECK(file.read_as<std::uint16_t>("bias") == Model(2).bias);
  CHECK(cp::read_whole(second, "weight").size() == rows * columns * sizeof(float));
  CHECK_THAT(sentence_of([&] { cp::write_one_file(second, path, {"wait"}); }),
             ContainsSubstring("must hold the tensor 'wait'"));
  CHECK(st::File(path).header().tensors.size() == 2); // as before

  CHECK(cp::differences(second, second).empty());
  const std::vector<cp::TensorDifference> found = cp::differences(first, second);
  REQUIRE(found.size() == 3);
  CHECK((found[0].name == "bias" && found[0].elements == 7 && found[0].all == 7 && found[0].largest == 0));
  CHECK((found[2].name == "weight" && found[2].elements == rows * columns && found[2].largest == 1));
  double norm = 0;
  for (const float value : Model(1).weight)
    norm += double(value) * double(value);
  CHECK(std::abs(found[2].relative - std::sqrt(double(rows * columns) / norm)) < 1e-12);

  // Other shapes, types and names, and a number that is not one.
  const std::vector<double> wide{1, std::nan("")}, same{1, 2};
  const auto save_one = [&](std::uint64_t step, const std::string& name, const std::vector<double>& values) {
    cp::UnfinishedSave unfinished = writer.begin(step);
    const std::vector<cp::Block> blocks{
        {name, st::Dtype::f64, {2}, {0}, {2}, std::as_bytes(std::span(values)), ""},
        {"count", st::Dtype::f64, {2}, {0}, {2}, std::as_bytes(std::span(same)), ""}};
    cp::Manifest contents{about(step), {}, {}};
    cp::join(contents, cp::write_part(unfinished.path(), 0, blocks));
    unfinished.commit(contents);
  };
  save_one(3, "new", wide);
  save_one(4, "new", same);
  const cp::Reader third(saved.directory / "step-3"), fourth(saved.directory / "step-4");
  const std::vector<cp::TensorDifference> others = cp::differences(second, third);
  REQUIRE(others.size() == 4);
  CHECK(others[0].sentence == "only in the first");
  CHECK(others[1].sentence == "U64 [] in the first, F64 [2] in the second");
  CHECK(others[2].sentence == "only in the second");
  const std::vector<cp::TensorDifference> odd = cp::differences(third, fourth);
  REQUIRE(odd.size() == 1);
  CHECK((odd[0].elements == 1 && std::isinf(odd[0].largest)));
}

TEST_CASE(
    "checkpoint: everything is on disk before the final name appears, and the older one is removed last") {
  const Saved saved;
  cp::Writer writer(saved.directory);
  disk = {};
  disk.recorded = true;
  save(writer, 2, 1);
  std::vector<std::string> record = std::exchange(disk, {}).record;
  const std::string root = fs::canonical(saved.directory).string();
  for (std::string& call : record) {
    if (const std::size_t at = call.find(root); at != call.npos)
      call.erase(at, root.size());
    // Names of unfinished files end in unique numbers.
    for (const char* const mark : {".tmp-", ".part-"})
      if (const std::size_t at = call.find(mark); at != call.npos)
        call.erase(at + std::strlen(mark),
                   std::min(call.find('/', at), call.size()) - at - std::strlen(mark));
  }
  const std::vector<std::string> expected{"mkdir /step-2.tmp-",
                                          "fsync /step-2.tmp-/part-0.safetensors.part-",
                                          "rename /step-2.tmp-/part-0.safetensors",
                                          "fsync /step-2.tmp-",
                                          "fsync /step-2.tmp-/part-1.safetensors.part-",
                                          "rename /step-2.tmp-/part-1.safetensors",
                                          "fsync /step-2.tmp-",
                                          "fsync /step-2.tmp-/manifest.json.part-",
                                          "rename /step-2.tmp-/manifest.json",
                                          "fsync /step-2.tmp-",
                                          "rename /step-2",
                                          "fsync ",
                                          "rename /step-1.tmp-"};
  REQUIRE(record.size() > expected.size());
  const std::vector<std::string> first(record.begin(),
                                       record.begin() + static_cast<std::ptrdiff_t>(expected.size()));
  CHECK(first == expected);
  for (std::size_t i = expected.size(); i < record.size(); ++i)
    CHECK_THAT(record[i], Catch::Matchers::StartsWith("remove "));
}

TEST_CASE("checkpoint: a process killed at any call leaves the older checkpoint or the new one complete") {
  int kills = 0, unnamed = 0;
  std::uint64_t before = 1;
  for (int call = 1;; ++call) {
    CAPTURE(call);
    const Saved saved;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        disk = {};
        disk.fault = Disk::Fault::kill;
        disk.from = call;
        cp::Writer writer(saved.directory);
        save(writer, 2, 1, shardwright::detail::LargeFile::chunk + 1000);
      } catch (...) {
        ::_exit(2);
      }
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const std::uint64_t step = newest_step(saved.directory);
    CHECK(step >= before); // step 1, and from some call on step 2
    before = step;
    if (WIFEXITED(status)) {
      CHECK((WEXITSTATUS(status) == 0 && step == 2));
      break;
    }
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    ++kills;
    // The next run finds the remains and removes them without help.
    cp::Writer writer(saved.directory);
    CHECK(writer.stale().size() == unfinished_in(saved.directory));
    unnamed += writer.stale().empty() ? 0 : 1;
    save(writer, 3, 1);
    CHECK(newest_step(saved.directory) == 3);
    CHECK(unfinished_in(saved.directory) == 0);
  }
  CHECK(kills >= 20); // at least one in each of the seven steps
  CHECK(unnamed >= 15);
}

TEST_CASE("checkpoint: a failed call or a full disk is an error and loses nothing") {
  for (const auto& [fault, code] : {std::pair{Disk::Fault::fail_one, EIO}, {Disk::Fault::fail_all, ENOSPC}}) {
    int failed = 0;
    for (int call = 1;; ++call) {
      CAPTURE(call, code);
      const Saved saved;
      cp::Writer writer(saved.directory);
      disk = {};
      disk.fault = fault;
      disk.from = call;
      disk.code = code;
      const std::string sentence = sentence_of([&] { save(writer, 2, 1); });
      const int calls = std::exchange(disk, {}).calls;
      const std::uint64_t step = newest_step(saved.directory);
      CHECK((step == 1 || step == 2));
      if (sentence.empty()) {
        CHECK(step == 2);
        if (calls < call)
          break;
        continue; // calls that fail without harm
      }
      ++failed;
      CHECK_THAT(sentence,
                 ContainsSubstring("must be writable, but ") && ContainsSubstring(std::strerror(code)));
      if (step == 1 && fault == Disk::Fault::fail_one)
        CHECK(unfinished_in(saved.directory) == 0);
      save(writer, 3, 1);
      CHECK(newest_step(saved.directory) == 3);
    }
    CHECK(failed >= 15);
  }
}

TEST_CASE("checkpoint: a flipped bit anywhere is detected, and the older checkpoint is used") {
  const Saved saved;
  {
    cp::Writer writer(saved.directory);
    save(writer, 2, 2);
  }
  std::mt19937 random(7);
  for (const char* const name : {"manifest.json", "part-0.safetensors", "part-1.safetensors"}) {
    const fs::path path = saved.directory / "step-2" / name;
    const std::string bytes = bytes_of(path);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const char changed = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(at))
          .put(changed);
      const cp::Newest found = cp::newest(saved.directory);
      if (found.path != saved.directory / "step-1" || found.refused.size() != 1 ||
          found.refused[0].find("step-2/" + std::string(name)) == std::string::npos)
        FAIL_CHECK(name << ", byte " << at << ": " << (found.refused.empty() ? "taken" : found.refused[0]));
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(at))
          .put(bytes[at]);
    }
  }
  CHECK(newest_step(saved.directory) == 2);
  // Headers are not enough to read data, and the error says so.
  const fs::path part = saved.directory / "step-2" / "part-1.safetensors";
  std::fstream(part, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\xff');
  CHECK(cp::newest(saved.directory, cp::Check::headers).path == saved.directory / "step-2");
  CHECK_THAT(sentence_of([&] { cp::Reader(saved.directory / "step-2").verify(); }),
             ContainsSubstring(
                 "part-1.safetensors: tensor 'weight', block [2, 5] at [4, 0]: the bytes must have the "
                 "hash that was saved, but have changed (the checkpoint is damaged: use another)"));
}

TEST_CASE("checkpoint: files that are truncated, missing or of another kind are detected") {
  const Saved saved;
  const fs::path damaged = saved.directory / "step-2";
  const auto refused = [&](const auto& damage) {
    fs::remove_all(damaged);
    {
      cp::Writer writer(saved.directory);
      save(writer, 2, 2);
    }
    damage();
    const cp::Newest found = cp::newest(saved.directory);
    CHECK(found.path == saved.directory / "step-1");
    return found.refused.size() == 1 ? found.refused[0] : std::string();
  };
  for (const char* const name : {"manifest.json", "part-0.safetensors", "part-1.safetensors"}) {
    CAPTURE(name);
    const fs::path path = damaged / name;
    for (const int fewer : {0, 1, 40})
      CHECK(!refused([&] {
               fs::resize_file(path, fewer == 0 ? 0 : fs::file_size(path) - static_cast<unsigned>(fewer));
             }).empty());
    CHECK(!refused([&] { std::ofstream(path, std::ios::app) << 'x'; }).empty());
    CHECK_THAT(refused([&] { fs::remove(path); }),
               ContainsSubstring("must have this file, but it is missing"));
    CHECK_THAT(refused([&] {
                 fs::rename(path, saved.scratch.root() / "elsewhere");
                 fs::create_symlink(saved.scratch.root() / "elsewhere", path);
               }),
               ContainsSubstring("must be a regular file, and no symbolic link"));
    CHECK_THAT(refused([&] {
                 fs::remove(path);
                 REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
               }),
               ContainsSubstring("must be a regular file"));
  }
  // Has the same contents, spelled differently.
  CHECK_THAT(refused([&] {
               const fs::path path = damaged / "part-0.safetensors";
               std::string bytes = bytes_of(path);
               const std::string fields = R"("dtype":"U16","shape":[7])";
               bytes.replace(bytes.find(fields), fields.size(), R"("shape":[7],"dtype":"U16")");
               std::ofstream(path, std::ios::binary) << bytes;
             }),
             ContainsSubstring("its header must have the hash that was saved"));
  // A part of another step matches in everything but its hashes.
  CHECK_THAT(refused([&] {
               fs::copy_file(saved.directory / "step-1" / "part-0.safetensors",
                             damaged / "part-0.safetensors", fs::copy_options::overwrite_existing);
             }),
             ContainsSubstring("must have the hash that was saved"));
  CHECK_THAT(refused([&] {
               fs::remove_all(damaged);
               fs::copy(saved.directory / "step-1", damaged);
             }),
             ContainsSubstring("must be of the step that its directory names, but is of step 1"));
  CHECK_THAT(refused([&] { fs::remove_all(damaged), fs::create_directory(damaged); }),
             ContainsSubstring("manifest.json"));
  CHECK_THAT(sentence_of([&] { (void)cp::newest(saved.scratch.root() / "none"); }),
             ContainsSubstring("must be a directory that can be read"));
}

TEST_CASE("checkpoint: a directory has one writer, until that process ends in any way") {
  const Saved saved;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const cp::Writer writer(saved.directory);
    (void)!::write(ready[1], "x", 1);
    for (;;)
      ::pause();
  }
  char one = 0;
  REQUIRE(::read(ready[0], &one, 1) == 1);
  const auto refused = [&] { return sentence_of([&] { const cp::Writer writer(saved.directory); }); };
  CHECK_THAT(refused(),
             ContainsSubstring("must have one writer at a time, but another one holds it: process " +
                               std::to_string(child)));
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const cp::Writer writer(saved.directory);
  CHECK_THAT(refused(), ContainsSubstring("process " + std::to_string(::getpid()) + " on "));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("checkpoint: a read-only directory is rejected for writing, and can be read") {
  const Saved saved;
  fs::permissions(saved.scratch.root(), fs::perms(0755));
  fs::permissions(saved.directory, fs::perms(0555));
  fs::permissions(saved.directory / "lock", fs::perms(0444));
  const bool is_root = ::geteuid() == 0; // a user who may write everywhere
  if (is_root)
    REQUIRE(::seteuid(65534) == 0);
  const std::string sentence = sentence_of([&] { const cp::Writer writer(saved.directory); });
  const std::uint64_t step = newest_step(saved.directory);
  if (is_root)
    REQUIRE(::seteuid(0) == 0);
  CHECK_THAT(sentence, ContainsSubstring("lock must be writable, but Permission denied"));
  CHECK(step == 1);
  fs::permissions(saved.directory, fs::perms(0755));
  (void)saved.scratch.write("file", "");
  CHECK_THAT(sentence_of([&] { const cp::Writer writer(saved.scratch.root() / "file" / "below"); }),
             ContainsSubstring("must be writable, but Not a directory"));
}

TEST_CASE("checkpoint: a save whose blocks do not cover the tensors is rejected") {
  const Saved saved;
  cp::Writer writer(saved.directory);
  const Model model(2);
  const auto refused = [&](std::vector<cp::Block> blocks) {
    return sentence_of([&] {
      cp::UnfinishedSave unfinished = writer.begin(2);
      cp::Manifest contents = cp::write_part(unfinished.path(), 0, blocks);
      contents.description = about(2);
      unfinished.commit(contents);
    });
  };
  const cp::Block half = model.blocks(0)[0];
  CHECK_THAT(
      refused({half}),
      ContainsSubstring("tensor 'weight': its blocks must cover all of [6, 5], but 10 elements are in none"));
  CHECK_THAT(refused({half, half}),
             ContainsSubstring("must have a unique name, but 'weight@0,0' is given twice"));
  cp::Block lower = half;
  lower.offset[0] = 2;
  CHECK_THAT(refused({half, lower}), ContainsSubstring("more elements than [6, 5] (save each block once)"));
  lower.extent[0] = 2;
  CHECK_THAT(refused({half, lower}), ContainsSubstring("must come with the bytes of its extent, but has 80"));
  lower.bytes = lower.bytes.first(40);
  CHECK_THAT(refused({half, lower}), ContainsSubstring("but [4, 5] at [0, 0] and [2, 5] at [2, 0] overlap"));
  lower.offset[0] = 5;
  CHECK_THAT(refused({half, lower}), ContainsSubstring("must lie inside [6, 5]"));
  lower.shape[0] = 7;
  CHECK_THAT(refused({half, lower}), ContainsSubstring("must agree on its shape and element type"));
  CHECK_THAT(sentence_of([&] {
               cp::UnfinishedSave unfinished = writer.begin(2);
               unfinished.commit({about(3), {}, {}});
             }),
             ContainsSubstring("must be of step 2, but it is of step 3"));
  cp::Manifest first, second;
  first.parts["part-0.safetensors"] = {};
  CHECK_THAT(sentence_of([&] { cp::join(first, first); }),
             ContainsSubstring("part-0.safetensors appears twice"));
  first.tensors["a"].shape = {1};
  second.tensors["a"].shape = {2};
  CHECK_THAT(sentence_of([&] { cp::join(first, second); }),
             ContainsSubstring("blocks of tensor 'a' must agree"));
  CHECK(newest_step(saved.directory) == 1);
  CHECK(unfinished_in(saved.directory) == 0);
}

TEST_CASE("checkpoint: the check for blocks that cover a tensor once agrees with counting") {
  std::mt19937 random(7);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  int good = 0, bad = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::uint64_t height = 1 + below(5), width = 1 + below(5);
    cp::SavedTensor tensor{st::Dtype::u8, {height, width}, "", {}};
    // A grid, then perhaps one number of it changed.
    for (std::uint64_t i = 0, rise; i < height; i += rise) {
      rise = 1 + below(height - i);
      for (std::uint64_t j = 0, run; j < width; j += run) {
        run = 1 + below(width - j);
        tensor.blocks.push_back({{i, j}, {rise, run}, "", rise * run, {}});
      }
    }
    std::shuffle(tensor.blocks.begin(), tensor.blocks.end(), random);
    if (below(3) > 0) {
      cp::SavedBlock& block = tensor.blocks[below(tensor.blocks.size())];
      (below(2) == 0 ? block.offset : block.extent)[below(2)] = below(6);
      block.bytes = block.extent[0] * block.extent[1];
    }
    std::vector<int> counts(100, 0);
    bool valid = true;
    for (const cp::SavedBlock& block : tensor.blocks) {
      valid = valid && block.bytes > 0;
      for (std::uint64_t i = 0; i < block.extent[0]; ++i)
        for (std::uint64_t j = 0; j < block.extent[1]; ++j)
          ++counts[(block.offset[0] + i) % 10 * 10 + (block.offset[1] + j) % 10];
    }
    for (std::uint64_t i = 0; i < 10; ++i)
      for (std::uint64_t j = 0; j < 10; ++j)
        valid = valid && counts[i * 10 + j] == (i < height && j < width ? 1 : 0);
    (valid ? good : bad) += 1;
    if (valid != cp::cover_fault(tensor).empty())
      FAIL_CHECK("round " << round << ": " << cp::cover_fault(tensor));
  }
  CHECK((good > 500 && bad > 500));
  CHECK(cp::cover_fault({st::Dtype::f32, {0, 4}, "", {}}).empty());
  CHECK(cp::cover_fault({st::Dtype::f32, {}, "", {{{}, {}, "", 4, {}}}}).empty());
  CHECK_THAT(cp::cover_fault({st::Dtype::f32, {}, "", {}}), ContainsSubstring("1 elements are in none"));
  CHECK_THAT(cp::cover_fault({st::Dtype::f32, {}, "", {{{}, {}, "", 5, {}}}}),
             ContainsSubstring("must have the bytes of its elements, but has 5"));
  const std::uint64_t huge = std::uint64_t{1} << 63;
  CHECK_THAT(cp::cover_fault({st::Dtype::u8, {huge, 4}, "", {}}),
             ContainsSubstring("whose number must fit in 64 bits"));
  CHECK_THAT(cp::cover_fault({st::Dtype::u8, {4}, "", {{{huge + huge / 2}, {huge}, "", 1, {}}}}),
             ContainsSubstring("must lie inside"));
}

TEST_CASE("checkpoint: a manifest is read as it was written, and invalid ones are rejected with the field") {
  const cp::BlockHash hash = cp::hash_of(std::string_view("abc"));
  CHECK(hash.text() == "06b05ab6733a618578af5f94892f3950"); // as xxh128sum prints it
  CHECK(cp::find_hash(hash.text()) == hash);
  CHECK((!cp::find_hash("06B05ab6733a618578af5f94892f3950") && !cp::find_hash("0")));
  cp::Manifest manifest{about(7), {}, {}};
  manifest.parts["part-3.safetensors"] = cp::SavedPart{100, hash};
  manifest.tensors["t\"\n"] = {
      st::Dtype::bf16, {2}, "Shard<0, dp>", {{{0}, {2}, "part-3.safetensors", 4, hash}}};
  const std::string text = cp::manifest_text(manifest);
  CHECK(cp::parse_manifest(text, "m") == manifest);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text.substr(0, text.size() - 35);
    REQUIRE(changed.find(from) != changed.npos);
    changed.replace(changed.find(from), from.size(), to);
    changed += cp::hash_of(changed).text() + "\"}\n";
    return sentence_of([&] { (void)cp::parse_manifest(changed, "m"); });
  };
  CHECK(refused("dp=2", "dp=4").empty());
  CHECK_THAT(
      refused("\"version\":1", "\"version\":2"),
      ContainsSubstring(
          "must be of version 1, but this one is of version 2 (load it with the library that wrote it"));
  CHECK_THAT(refused("\"mesh\"", "\"mess\""),
             ContainsSubstring("m: the file.manifest must have the field mesh"));
  CHECK_THAT(refused("\"step\":7", "\"step\":-7"),
             ContainsSubstring("the file.manifest.step must be a whole number"));
  CHECK_THAT(refused("part-3", "../part-3"), ContainsSubstring("must be called part-NUMBER.safetensors"));
  CHECK_THAT(refused("\"file\":\"part-3", "\"file\":\"part-4"),
             ContainsSubstring("must be in a file of the checkpoint"));
  CHECK_THAT(refused("[2],\"file\"", "[1],\"file\""),
             ContainsSubstring("its block [1] at [0] must have the bytes of its elements"));
  CHECK_THAT(refused("BF16", "BF17"), ContainsSubstring("must be of an element type of safetensors"));
  CHECK_THAT(refused(hash.text(), "x"), ContainsSubstring("must be 32 hexadecimal digits"));
  CHECK_THAT(refused("{\"manifest\"", "{manifest"), ContainsSubstring("a manifest must be JSON"));
  CHECK_THAT(sentence_of([&] { (void)cp::parse_manifest("", "m"); }),
             ContainsSubstring("must end with its hash"));
  manifest.tensors["\xff"] = {};
  CHECK_THAT(sentence_of([&] { (void)cp::manifest_text(manifest); }), ContainsSubstring("must be UTF-8"));
  const Scratch scratch;
  fs::resize_file(scratch.write("step-1/manifest.json", ""), cp::most_manifest_bytes + 1);
  CHECK_THAT(sentence_of([&] { cp::Reader(scratch.root() / "step-1"); }),
             ContainsSubstring("at most 1073741824 bytes"));
  static_assert(cp::manifest_version == 1);
  CHECK(cp::block_name("a", {4, 4}, {0, 2}, {4, 2}) == "a@0,2");
}
