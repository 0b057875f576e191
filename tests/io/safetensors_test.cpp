// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/safetensors.hpp>

#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

using namespace shardwright;
using namespace shardwright_test;
namespace st = shardwright::safetensors;
namespace fs = std::filesystem;

namespace {

template <class Function> std::string sentence_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// The bytes of a file with this header.
std::string file_with(const std::string& text, const std::string& data = {}) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    out[i] = static_cast<char>(text.size() >> (8 * i));
  return out + text + data;
}

std::string refusal(const std::string& text, const std::string& data = {}) {
  return sentence_of([&] { (void)st::read_header(file_with(text, data), "m.safetensors"); });
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::string out(count, '\0');
  for (char& byte : out)
    byte = static_cast<char>(random());
  return out;
}

st::Source source_of(std::string name, st::Dtype dtype, std::vector<std::uint64_t> shape,
                     const std::string& bytes) {
  return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(bytes))};
}

} // namespace

TEST_CASE("safetensors: a file has exactly the bytes of the format") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "m.safetensors";
  const std::vector<std::int64_t> wide{1, -2};
  const std::vector<bfloat16> narrow{bfloat16(1.0F), bfloat16(-2.0F), bfloat16(3.5F)};
  const std::vector<std::uint8_t> bytes{7};
  st::write(path,
            {st::source<std::uint8_t>("b", {1}, bytes), st::source<bfloat16>("z", {3, 1}, narrow),
             st::source<std::int64_t>("n\"\n", {2}, wide), st::source<std::uint8_t>("a", {0, 4}, {})},
            {{"format", "pt"}});
  // Larger elements first, then by name; the length is a multiple of 8.
  std::string text =
      R"({"__metadata__":{"format":"pt"},"n\"\n":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("z":{"dtype":"BF16","shape":[3,1],"data_offsets":[16,22]},)"
      R"("a":{"dtype":"U8","shape":[0,4],"data_offsets":[22,22]},)"
      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[22,23]}})";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string data(23, '\0');
  std::memcpy(data.data(), wide.data(), 16);
  std::memcpy(data.data() + 16, "\x80\x3f\x00\xc0\x60\x40\x07", 7);
  CHECK(shardwright_test::bytes_of(path) == file_with(text, data));
  CHECK(std::distance(fs::directory_iterator(scratch.root()), fs::directory_iterator()) == 1);

  const st::File file(path);
  CHECK(file.header().metadata == st::Metadata{{"format", "pt"}});
  CHECK(file.read_as<std::int64_t>("n\"\n") == wide);
  CHECK(static_cast<float>(file.read_as<bfloat16>("z")[2]) == 3.5F);
  CHECK(file.read_as<std::uint8_t>("a").empty());
  CHECK(file.entry("z").shape == std::vector<std::uint64_t>{3, 1});
  CHECK_THAT(sentence_of([&] { (void)file.read_as<float>("z"); }),
             ContainsSubstring("tensor 'z' must hold F32, but holds BF16 (read that, and convert it)"));
  CHECK_THAT(sentence_of([&] { (void)file.entry("y"); }),
             ContainsSubstring("must hold the tensor 'y', but none of its 4"));
}

TEST_CASE("safetensors: complex numbers are stored as C64") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "m.safetensors";
  const std::vector<std::complex<float>> numbers{{1, -2}, {0.5F, 3}};
  st::write(path, {st::source<std::complex<float>>("z", {2}, numbers)});
  const st::File file(path);
  CHECK(file.entry("z").dtype == st::Dtype::c64);
  CHECK(file.read_as<std::complex<float>>("z") == numbers);
  CHECK_THAT(sentence_of([&] { (void)file.read_as<double>("z"); }),
             ContainsSubstring("tensor 'z' must hold F64, but holds C64"));
}

TEST_CASE("safetensors: every element type survives a round trip") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "m.safetensors";
  const std::string bytes = random_bytes(8 * 24);
  std::vector<st::Source> sources;
  for (unsigned i = 0; i < 22; ++i) {
    const auto dtype = static_cast<st::Dtype>(i);
    const std::size_t size = 24 * st::bits_of(dtype) / 8;
    sources.push_back({std::string(st::name_of(dtype)),
                       dtype,
                       {2, 3, 4},
                       std::as_bytes(std::span(bytes)).subspan(i, size)});
    CHECK(st::find_dtype(st::name_of(dtype)) == dtype);
  }
  CHECK(!st::find_dtype("F128"));
  st::write(path, sources);
  const st::File file(path);
  REQUIRE(file.header().tensors.size() == 22);
  for (const st::Source& one : sources) {
    CHECK(file.entry(one.name).dtype == one.dtype);
    std::vector<std::byte> got(one.bytes.size());
    file.read(one.name, got);
    CHECK(std::memcmp(got.data(), one.bytes.data(), got.size()) == 0);
  }
  static_assert(!st::StoredElement<std::string> && st::StoredElement<bfloat16>);
  static_assert(st::dtype_of<bool>() == st::Dtype::boolean && st::dtype_of<float16>() == st::Dtype::f16 &&
                st::dtype_of<double>() == st::Dtype::f64 && st::dtype_of<std::int8_t>() == st::Dtype::i8 &&
                st::dtype_of<std::uint16_t>() == st::Dtype::u16 &&
                st::dtype_of<std::int32_t>() == st::Dtype::i32 &&
                st::dtype_of<std::uint64_t>() == st::Dtype::u64);
}

TEST_CASE("safetensors: a header that breaks a rule is rejected with its tensor and the rule") {
  const std::string good = R"({"a":)" + tensor("U8", "[3]", "[0,3]") + "}";
  CHECK(refusal(good, "123").empty());
  CHECK(refusal("{}").empty());
  CHECK(refusal("{}   \n").empty());
  const auto check = [](const std::string& text, const std::string& data, const std::string& part) {
    CAPTURE(text);
    CHECK_THAT(refusal(text, data), ContainsSubstring("m.safetensors: ") && ContainsSubstring(part));
  };
  check("", "", "the header must begin with '{'");
  check(" {}", "", "the header must begin with '{'");
  check("{}" + std::string(6, '\0'), "", "has a zero byte at 2");
  check(R"({"a":)", "", "must be JSON in UTF-8, but breaks off at byte 6");
  check(good + "x", "123", "must be JSON in UTF-8");
  check("{\"\xff\":1}", "", "must be JSON in UTF-8");
  check(good, "12", "must fill the file, which has 2 bytes of data, but they end at 3 (it was cut short");
  check(good, "1234", "must fill the file, which has 4 bytes of data, but they end at 3 (fetch it again)");
  const std::string two = R"({"a":)" + tensor("U8", "[3]", "[0,3]") + R"(,"b":)";
  check(two + tensor("U8", "[1]", "[4,5]") + "}", "12345",
        "tensor 'b': its bytes must follow the tensor before it, from 3 on");
  check(two + tensor("U8", "[3]", "[2,5]") + "}", "12345", "tensor 'b': its bytes must follow");
  check(two + tensor("U8", "[1]", "[3,2]") + "}", "123", "data_offsets are [3, 2]");
  check(R"({"a":)" + tensor("U8", "[3]", "[0,3]") + R"(,"a":)" + tensor("U8", "[1]", "[3,4]") + "}", "1234",
        "must name each tensor once, but 'a' appears twice");
  check(R"({"a":)" + tensor("F32", "[3]", "[0,3]") + "}", "123",
        "must span the 12 bytes of F32 [3], but they span 3");
  check(R"({"a":)" + tensor("F64", "[4294967296,4294967296]", "[0,0]") + "}", "",
        "whose number must fit in 64 bits");
  check(R"({"a":)" + tensor("F64", "[2305843009213693952]", "[0,0]") + "}", "",
        "whose number must fit in 64 bits");
  check(R"({"a":)" + tensor("F4", "[3]", "[0,1]") + "}", "1", "[3] must fill whole bytes of F4");
  check(R"({"a":)" + tensor("F128", "[1]", "[0,16]") + "}", "", "a dtype of the format, but it is 'F128'");
  check(R"({"a":)" + tensor("U8", "[1.0]", "[0,1]") + "}", "1",
        "tensor 'a' must hold whole numbers as shape");
  check(R"({"a":)" + tensor("U8", "[18446744073709551616]", "[0,1]") + "}", "1", "exceeds 64 bits");
  check(R"({"a":)" + tensor("U8", "[-1]", "[0,1]") + "}", "1", "but there is a negative number");
  check(R"({"a":)" + tensor("U8", "[[1]]", "[0,1]") + "}", "1", "but there is a list");
  check(R"({"a":)" + tensor("U8", "1", "[0,1]") + "}", "1", "a list as shape");
  check(R"({"a":)" + tensor("U8", "[1]", "[0]") + "}", "1", "must have two data_offsets");
  check(R"({"a":)" + tensor("U8", "[1]", "[0,1,2]") + "}", "1", "two whole numbers as data_offsets");
  check(R"({"a":{"dtype":7}})", "", "a text as dtype, but there is a number");
  check(R"({"a":{"dtype":"U8","shape":[1]}})", "1", "must name dtype, shape and data_offsets");
  check(R"({"a":{"dtype":"U8","dtype":"U8"}})", "1", "must name dtype once");
  check(R"({"a":{"scale":2}})", "1", "only the fields dtype, shape and data_offsets, but names 'scale'");
  check(R"({"a":null})", "", "must hold an object, but there is null");
  check(R"({"__metadata__":{"a":1}})", "", "__metadata__ must hold only strings, but there is a number");
  check(R"({"__metadata__":null})", "", "must hold an object");
  check(R"({"__metadata__":{"a":"","a":""}})", "", "must name 'a' once");
  check(R"({"__metadata__":{},"__metadata__":{}})", "", "must hold __metadata__ once");
  check(R"({"\u001b[2J":1})", "", R"(tensor '\x1b[2J')");
}

TEST_CASE("safetensors: the length of a header is checked before memory is allocated for it") {
  const auto refused = [](const std::string& bytes) {
    return sentence_of([&] { (void)st::read_header(bytes, "m"); });
  };
  CHECK_THAT(refused(""),
             ContainsSubstring("must begin with 8 bytes that say how long its header is, but it has 0"));
  CHECK_THAT(refused("1234567"), ContainsSubstring("but it has 7"));
  std::string bytes = file_with(std::string(st::most_header_bytes + 1, ' '));
  CHECK_THAT(refused(bytes), ContainsSubstring("at most 100000000 bytes, but this one says 100000001"));
  bytes.resize(100);
  bytes[0] = 0; // 0x05f5e100 is 100,000,000
  CHECK_THAT(refused(bytes), ContainsSubstring("must lie inside the file, but has 100000000 of 100 bytes"));
  CHECK_THAT(refused(std::string(8, '\xff')), ContainsSubstring("says 18446744073709551615"));

  const Scratch scratch;
  const fs::path path = scratch.write("m", bytes);
  CHECK_THAT(sentence_of([&] { const st::File file(path); }), ContainsSubstring("100000000 of 100 bytes"));
  REQUIRE(::mkfifo((scratch.root() / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(sentence_of([&] { const st::File file(scratch.root() / "pipe"); }),
             ContainsSubstring("must be a regular file"));
  CHECK_THAT(sentence_of([&] { const st::File file(scratch.root() / "none"); }),
             ContainsSubstring("none: the file must exist (correct its name"));
}

TEST_CASE("safetensors: any block of a tensor is read without the rest") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "m";
  const std::vector<std::uint64_t> shape{5, 4, 1500};
  std::vector<std::uint16_t> elements(5 * 4 * 1500);
  std::iota(elements.begin(), elements.end(), std::uint16_t{0});
  const std::vector<double> before{1, 2};
  st::write(path,
            {st::source<std::uint16_t>("t", shape, elements), st::source<double>("before", {2}, before)});
  const st::File file(path);
  const auto expect_block = [&](const st::BlockOf& block) {
    CAPTURE(block.offset, block.extent);
    std::vector<std::uint16_t> expected;
    for (std::uint64_t i = block.offset[0]; i < block.offset[0] + block.extent[0]; ++i)
      for (std::uint64_t j = block.offset[1]; j < block.offset[1] + block.extent[1]; ++j)
        for (std::uint64_t k = block.offset[2]; k < block.offset[2] + block.extent[2]; ++k)
          expected.push_back(elements[(i * 4 + j) * 1500 + k]);
    std::vector<std::uint16_t> got(expected.size());
    file.read("t", block, std::as_writable_bytes(std::span(got)));
    CHECK(got == expected);
  };
  for (const std::uint64_t rows : {0U, 1U, 3U, 5U})
    for (const std::uint64_t columns : {0U, 1U, 3U, 4U})
      for (const std::uint64_t depth : {0U, 1U, 700U, 1499U, 1500U}) {
        expect_block({{5 - rows, 0, 1500 - depth}, {rows, columns, depth}});
        expect_block({{0, 4 - columns, 0}, {rows, columns, depth}});
      }
  const auto refused = [&](const st::BlockOf& block, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    return sentence_of([&] { file.read("t", block, out); });
  };
  CHECK_THAT(refused({{0, 0, 1}, {1, 1, 1500}}, 3000),
             ContainsSubstring("a block must lie inside [5, 4, 1500]"));
  CHECK_THAT(refused({{0, std::numeric_limits<std::uint64_t>::max(), 0}, {1, 2, 1}}, 4),
             ContainsSubstring("inside"));
  CHECK_THAT(refused({{0, 0}, {1, 1}}, 2), ContainsSubstring("must lie inside"));
  CHECK_THAT(refused({{0, 0, 0}, {1, 1, 2}}, 3), ContainsSubstring("must have 4 bytes, but has 3"));

  // Data that was there when the file was opened may be gone.
  fs::resize_file(path, file.bytes() - 1);
  std::vector<std::byte> all(elements.size() * 2);
  CHECK_THAT(sentence_of([&] { file.read("t", all); }), ContainsSubstring("has been cut short"));
}

TEST_CASE("safetensors: a tensor is read in pieces, in its order") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "m.safetensors";
  const std::string bytes = random_bytes(50);
  const std::string first = bytes.substr(0, 10), second = bytes.substr(10);
  st::write(path,
            {source_of("a", st::Dtype::u8, {10}, first), source_of("b", st::Dtype::u8, {5, 8}, second)});
  const st::File file(path);
  for (const std::size_t size : {1, 7, 8, 40, 100}) {
    CAPTURE(size);
    std::vector<std::byte> memory(size);
    std::string all;
    std::size_t pieces = 0;
    file.read_through("b", memory, [&](std::span<const std::byte> piece) {
      all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      ++pieces;
    });
    CHECK(all == second);
    CHECK(pieces == (40 + size - 1) / size);
  }
  CHECK_THAT(sentence_of([&] { file.read_through("b", {}, [](auto) {}); }),
             ContainsSubstring("tensor 'b': the memory that it is read into must have 40 bytes, but has 0"));
}

TEST_CASE("safetensors: a block of elements that share bytes must end at whole bytes") {
  const Scratch scratch;
  const std::string bytes = "\x10\x32\x54\x76\x98\xba";
  st::write(scratch.root() / "m", {source_of("f4", st::Dtype::f4, {2, 6}, bytes)});
  const st::File file(scratch.root() / "m");
  std::string got(4, '\0');
  file.read("f4", st::BlockOf{{0, 2}, {2, 4}}, std::as_writable_bytes(std::span(got)));
  CHECK(got == "\x32\x54\x98\xba");
  CHECK_THAT(sentence_of([&] {
               file.read("f4", st::BlockOf{{0, 1}, {2, 4}}, std::as_writable_bytes(std::span(got)));
             }),
             ContainsSubstring("a block of F4 must begin and end at whole bytes in every row"));
}

TEST_CASE("safetensors: tensors that cannot be written are rejected, and the path keeps its contents") {
  const Scratch scratch;
  const fs::path path = scratch.write("m.safetensors", "before");
  const std::string bytes(4, 'x');
  const auto refused = [&](const std::vector<st::Source>& sources) {
    return sentence_of([&] { st::write(path, sources); });
  };
  const st::Source a = source_of("a", st::Dtype::u8, {4}, bytes);
  CHECK_THAT(refused({a, a}), ContainsSubstring("must have a unique name, but 'a' is given twice"));
  CHECK_THAT(refused({source_of("a", st::Dtype::f32, {2}, bytes)}),
             ContainsSubstring("of F32 [2] must come with 8 bytes, but has 4"));
  CHECK_THAT(refused({source_of("a", st::Dtype::f4, {3}, bytes)}),
             ContainsSubstring("must fill whole bytes"));
  CHECK_THAT(refused({source_of("__metadata__", st::Dtype::u8, {4}, bytes)}),
             ContainsSubstring("must not be called __metadata__"));
  CHECK_THAT(refused({source_of("\xff", st::Dtype::u8, {4}, bytes)}), ContainsSubstring("must be UTF-8"));
  CHECK(shardwright_test::bytes_of(path) == "before");
  CHECK_THAT(sentence_of([&] { st::write(scratch.root() / "none" / "m", {a}); }),
             ContainsSubstring("must be writable, but No such file"));
  CHECK_THAT(sentence_of([&] {
               st::write_sharded(scratch.root() / "none", {a, a}, 4);
             }),
             ContainsSubstring("'a' is given twice"));
}

TEST_CASE("safetensors: a model in several files is read through its index, and both must agree") {
  const Scratch scratch;
  const std::string bytes = random_bytes(100);
  const std::vector<st::Source> model{
      {"c", st::Dtype::u8, {40}, std::as_bytes(std::span(bytes)).first(40)},
      {"a", st::Dtype::f32, {5}, std::as_bytes(std::span(bytes)).subspan(40, 20)},
      {"b", st::Dtype::u8, {40}, std::as_bytes(std::span(bytes)).last(40)}};
  const auto expect_model = [&](const fs::path& path, std::size_t files) {
    const st::Files read(path);
    CHECK(read.files().size() == files);
    CHECK(read.names() == std::vector<std::string>{"a", "b", "c"});
    CHECK((read.contains("a") && !read.contains("d") && !read.contains("")));
    CHECK_THAT(sentence_of([&] { (void)read.file_of("d"); }),
               ContainsSubstring("must hold the tensor 'd', but none of its 3"));
    for (const st::Source& one : model) {
      std::vector<std::byte> got(one.bytes.size());
      read.file_of(one.name).read(one.name, got);
      CHECK(std::memcmp(got.data(), one.bytes.data(), got.size()) == 0);
    }
    return read.stray().size();
  };
  fs::create_directory(scratch.root() / "one");
  st::write_sharded(scratch.root() / "one", model, 100);
  CHECK(expect_model(scratch.root() / "one", 1) == 0);
  CHECK(expect_model(scratch.root() / "one" / "model.safetensors", 1) == 0);

  const fs::path many = scratch.root() / "many";
  const fs::path index = many / "model.safetensors.index.json";
  fs::create_directory(many);
  st::write_sharded(many, model, 60);
  CHECK(fs::exists(many / "model-00001-of-00002.safetensors"));
  CHECK(expect_model(many, 2) == 0);
  CHECK_THAT(shardwright_test::bytes_of(index), ContainsSubstring(R"("total_size": 100)"));
  st::write(many / "old.safetensors", {});
  CHECK(expect_model(index, 2) == 1);

  const std::string text = shardwright_test::bytes_of(index);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    (void)scratch.write("many/model.safetensors.index.json", changed);
    return sentence_of([&] { const st::Files files(many); });
  };
  const std::string second = "model-00002-of-00002.safetensors";
  CHECK_THAT(refused("\"c\"", "\"d\""),
             ContainsSubstring("it must name 'model-00001-of-00002.safetensors' for tensor 'c'"));
  CHECK_THAT(refused("{\n    \"a\"", "{\"d\": \"" + second + "\", \"a\""),
             ContainsSubstring("must hold the tensor 'd'"));
  CHECK_THAT(refused(second, "absent.safetensors"),
             ContainsSubstring("absent.safetensors: the file must exist"));
  CHECK_THAT(refused(second, "../many/" + second),
             ContainsSubstring("the file of tensor 'b' must be a name in the same directory"));
  CHECK_THAT(refused(second, ".."), ContainsSubstring("must be a name in the same directory"));
  CHECK_THAT(refused("\"b\"", "\"a\""),
             ContainsSubstring("must name each tensor once, but 'a' appears twice"));
  CHECK_THAT(refused("weight_map", "weights"), ContainsSubstring("must have a weight_map"));
  CHECK_THAT(refused("\"" + second + "\"", "[1]"),
             ContainsSubstring("weight_map must name a file for each tensor"));
  CHECK_THAT(refused("100", std::string(20, '[') + std::string(20, ']')),
             ContainsSubstring("at most 16 deep"));
  // An earlier index is removed with its files.
  st::write_sharded(many, {model[1]}, 60);
  CHECK(!fs::exists(index));
  CHECK(st::Files(many).names() == std::vector<std::string>{"a"});
  (void)scratch.write("many/model.safetensors.index.json", text);
  fs::create_directory(many / "model-00002-of-00002.safetensors.x");
  fs::remove(many / second);
  fs::rename(many / "model-00002-of-00002.safetensors.x", many / second);
  CHECK_THAT(sentence_of([&] { st::write_sharded(many, model, 60); }), ContainsSubstring("must be writable"));
  CHECK(!fs::exists(index));

  (void)scratch.write("many/model.safetensors.index.json", R"({"weight_map": {}})");
  CHECK_THAT(sentence_of([&] { const st::Files files(many); }),
             ContainsSubstring("an index must name a tensor"));
  fs::resize_file(index, st::most_index_bytes + 1);
  CHECK_THAT(sentence_of([&] { const st::Files files(many); }),
             ContainsSubstring("must hold at most 100000000 bytes"));
  CHECK_THAT(sentence_of([&] { const st::Files files(scratch.root()); }),
             ContainsSubstring("model.safetensors: the file must exist"));
}

// For tests/io/safetensors_python.py, which names the directory.
TEST_CASE("safetensors: files for Python, and Python's files", "[.python]") {
  const char* const directory = std::getenv("SHARDWRIGHT_PYTHON_DIRECTORY");
  REQUIRE(directory != nullptr);
  std::vector<std::string> kept;
  std::vector<st::Source> sources;
  for (unsigned i = 0; i < 22; ++i) {
    const auto dtype = static_cast<st::Dtype>(i);
    std::string& bytes = kept.emplace_back(24 * st::bits_of(dtype) / 8, '\0');
    for (std::size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = static_cast<char>(k % 2 == 0 && dtype != st::Dtype::boolean ? k + i : 0);
  }
  for (unsigned i = 0; i < 22; ++i)
    sources.push_back(source_of("\u00e9 " + std::string(st::name_of(static_cast<st::Dtype>(i))),
                                static_cast<st::Dtype>(i), {2, 3, 4}, kept[i]));
  st::write(fs::path(directory) / "ours.safetensors", sources, {{"format", "np"}});
  st::write_sharded(directory, {sources[11], sources[17], sources[20]}, 50);

  const st::File file(fs::path(directory) / "python.safetensors");
  sources.clear();
  kept.clear();
  kept.reserve(file.header().tensors.size());
  for (const st::Entry& entry : file.header().tensors) {
    std::string& bytes = kept.emplace_back(entry.bytes(), '\0');
    file.read(entry.name, std::as_writable_bytes(std::span(bytes)));
    sources.push_back(source_of(entry.name, entry.dtype, entry.shape, bytes));
  }
  st::write(fs::path(directory) / "again.safetensors", sources, file.header().metadata);
}
