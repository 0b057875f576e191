// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/metrics.hpp>
#include <shardwright/io/tensorboard.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <csignal>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace shardwright;
using namespace shardwright_test;
namespace fs = std::filesystem;

/// A directory for one test.
class Directory {
public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "shardwright_events_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] std::vector<fs::path> files() const {
    return {fs::directory_iterator(path_), fs::directory_iterator()};
  }

private:
  fs::path path_;
};

/// CRC-32C bit by bit, as RFC 3720 defines it.
std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc & 1u) != 0 ? crc >> 1u ^ 0x82f63b78u : crc >> 1u;
  }
  return ~crc;
}

template <class Number> Number number_at(std::string_view bytes) {
  Number out{};
  if (bytes.size() < sizeof out)
    throw std::runtime_error("the bytes end in a number");
  std::memcpy(&out, bytes.data(), sizeof out); // x86 and ARM are little-endian, as the format is
  return out;
}

/// A message of Protocol Buffers: fields in their order, with their bytes.
struct Field {
  unsigned number;
  std::uint64_t varint = 0;
  std::string_view bytes;
};
std::vector<Field> fields_of(std::string_view message) {
  const auto varint = [&message] {
    std::uint64_t out = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      out |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
      if (byte < 0x80u)
        return out;
    }
  };
  std::vector<Field> out;
  while (!message.empty()) {
    const std::uint64_t key = varint();
    Field field{static_cast<unsigned>(key >> 3u), 0, {}};
    std::size_t size = 0;
    switch (key & 7u) {
    case 0:
      field.varint = varint();
      break;
    case 1:
      size = 8;
      break;
    case 2:
      size = varint();
      break;
    case 5:
      size = 4;
      break;
    default:
      throw std::runtime_error("a wire type that does not exist");
    }
    field.bytes = message.substr(0, size);
    if (field.bytes.size() != size)
      throw std::runtime_error("a field ends early");
    message.remove_prefix(size);
    out.push_back(field);
  }
  return out;
}

struct Event {
  double wall_seconds = 0;
  std::int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

/// Reads a file of events and checks every checksum.
[[maybe_unused]] std::vector<Event> events_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return static_cast<std::uint32_t>((crc >> 15u | crc << 17u) + 0xa282ead8u);
  };
  std::vector<Event> out;
  for (std::string_view left = file; !left.empty();) {
    const auto length = number_at<std::uint64_t>(left);
    REQUIRE(number_at<std::uint32_t>(left.substr(8)) == masked(left.substr(0, 8)));
    const std::string_view record = left.substr(12, length);
    REQUIRE(record.size() == length);
    REQUIRE(number_at<std::uint32_t>(left.substr(12 + length)) == masked(record));
    left.remove_prefix(16 + length);
    Event& event = out.emplace_back();
    for (const Field& field : fields_of(record)) {
      if (field.number == 1)
        event.wall_seconds = number_at<double>(field.bytes);
      if (field.number == 2)
        event.step = static_cast<std::int64_t>(field.varint);
      if (field.number == 3)
        event.version = field.bytes;
      if (field.number != 5)
        continue;
      for (const Field& value : fields_of(field.bytes)) {
        const std::vector<Field> parts = fields_of(value.bytes);
        REQUIRE((parts.size() == 2 && parts[0].number == 1 && parts[1].number == 2));
        event.scalars[std::string(parts[0].bytes)] = number_at<float>(parts[1].bytes);
      }
    }
  }
  return out;
}

struct Collected {
  std::vector<std::string> warnings;
  [[nodiscard]] LogWarning take() {
    return [this](const std::string& sentence) { warnings.push_back(sentence); };
  }
};

} // namespace

TEST_CASE("the checksum of the test is CRC-32C, by the vectors of RFC 3720") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("123456789") == 0xe3069283u);
}

TEST_CASE("tensorboard: without a directory nothing is written and there is no warning") {
  Collected collected;
  TensorBoardWriter none;
  TensorBoardWriter unnamed("", {}, collected.take());
  const std::vector<Scalar> scalars{{"loss", 1}};
  none.write(1, scalars);
  unnamed.write(1, scalars);
  CHECK_FALSE(none.active());
  CHECK_FALSE(unnamed.active());
  CHECK(collected.warnings.empty());
}

#if __has_include(<boost/crc.hpp>)
TEST_CASE("tensorboard: every event is a record with its checksums, in a new file") {
  const Directory directory;
  Collected collected;
  const std::int64_t far = 5'000'000'000;
  {
    TensorBoardWriter writer(directory.path() / "run", {}, collected.take());
    TensorBoardWriter other(directory.path() / "run", {}, collected.take());
    REQUIRE(writer.active());
    REQUIRE(other.path() != writer.path());
    CHECK(writer.path().filename().string().rfind("events.out.tfevents.", 0) == 0);
    writer.write(1, std::vector<Scalar>{{"loss", 2.5}, {"seconds/forward", 1e-3}}, 1234.5);
    // Every event reaches the file at once.
    CHECK(events_of(writer.path()).size() == 2);
    writer.write(far, std::vector<Scalar>{{"loss", std::numeric_limits<double>::quiet_NaN()}});
    writer.write(0, std::vector<Scalar>{{std::string(300, 'x'), -1e300}});

    const std::vector<Event> events = events_of(writer.path());
    REQUIRE(events.size() == 4);
    CHECK(events[0].version == "brain.Event:2");
    CHECK(events[0].wall_seconds > 1.7e9);
    CHECK(events[1].wall_seconds == 1234.5);
    CHECK(events[1].step == 1);
    CHECK(events[1].scalars == std::map<std::string, float>{{"loss", 2.5f}, {"seconds/forward", 1e-3f}});
    CHECK(events[2].step == far);
    CHECK(std::isnan(events[2].scalars.at("loss")));
    CHECK(events[3].scalars.at(std::string(300, 'x')) == -std::numeric_limits<float>::infinity());
  }
  CHECK(collected.warnings.empty());
}

TEST_CASE("tensorboard: flushes at intervals lose nothing in the end") {
  const Directory directory;
  fs::path path;
  {
    TensorBoardWriter writer(directory.path(), {.flush_seconds = 3600});
    path = writer.path();
    for (int step = 0; step < 50; ++step)
      writer.write(step, std::vector<Scalar>{{"loss", 1.0 / (1 + step)}});
    CHECK(events_of(path).size() < 3);
  }
  CHECK(events_of(path).size() == 51);
}

TEST_CASE(
    "tensorboard: a directory that cannot be written causes one warning, and the run continues without it") {
  const Directory directory;
  const fs::path blocked = directory.path() / "file";
  std::ofstream(blocked) << "in the way";
  Collected collected;
  TensorBoardWriter writer(blocked / "run", {}, collected.take());
  for (int step = 0; step < 3; ++step)
    writer.write(step, std::vector<Scalar>{{"loss", 1}});
  CHECK_FALSE(writer.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0], ContainsSubstring("TensorBoard: " + blocked.string()) &&
                                        ContainsSubstring("cannot be opened") &&
                                        ContainsSubstring("training continues without TensorBoard"));
}

TEST_CASE(
    "tensorboard: a file that cannot grow causes one warning, keeps its events, and the run continues without it") {
  const Directory directory;
  Collected collected;
  TensorBoardWriter writer(directory.path(), {}, collected.take());
  writer.write(1, std::vector<Scalar>{{"loss", 1}});
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const rlimit tight{fs::file_size(writer.path()) + 10, usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  for (int step = 2; step < 5; ++step)
    writer.write(step, std::vector<Scalar>{{"loss", 1}});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(writer.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0],
             ContainsSubstring("cannot be written") && ContainsSubstring("training continues"));
}

TEST_CASE("metrics: a record is a line and an event with every number in it") {
  const Directory directory;
  fs::path events;
  {
    MetricsWriter metrics(directory.path() / "run.jsonl", directory.path() / "events");
    events = fs::directory_iterator(directory.path() / "events")->path();
    metrics.write({{"step", 7},
                   {"loss", 2.5},
                   {"tokens", 4096},
                   {"name", "not a number"},
                   {"skipped", false},
                   {"seconds", {{"forward", 0.5}, {"dp all_reduce", {{"exposed", 0.25}}}}}});
    metrics.write({{"note", "without a step there is no event"}, {"loss", 1}});
  }
  const std::vector<Event> read = events_of(events);
  REQUIRE(read.size() == 2);
  CHECK(read[1].step == 7);
  CHECK(read[1].scalars == std::map<std::string, float>{{"loss", 2.5f},
                                                        {"tokens", 4096.0f},
                                                        {"seconds/forward", 0.5f},
                                                        {"seconds/dp all_reduce/exposed", 0.25f}});
  std::ifstream lines(directory.path() / "run.jsonl");
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line)["seconds"]["dp all_reduce"]["exposed"] == 0.25);
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line)["loss"] == 1);
}
#else
TEST_CASE("tensorboard: a program without Boost.CRC says so and writes nothing") {
  const Directory directory;
  Collected collected;
  TensorBoardWriter writer(directory.path(), {}, collected.take());
  writer.write(1, std::vector<Scalar>{{"loss", 1}});
  CHECK_FALSE(has_tensorboard);
  CHECK_FALSE(writer.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0], ContainsSubstring("Boost.CRC"));
}
#endif
