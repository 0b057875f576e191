// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/train/step/graph.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// When a step is captured and when it is replayed, on a stream of words.

namespace {

namespace sw = shardwright;
using sw::StepMode;
using Words = std::vector<std::string>;

/// A stream that records what it runs; work enqueued in a capture is kept.
struct Stream {
  Words ran;
  std::optional<Words> captured;
  bool spoilt = false; ///< Whether the capture in progress fails.
  int instantiated = 0;

  void enqueue(const std::string& word) { (captured ? *captured : ran).push_back(word); }
};

/// Work of one shape, the same number of words, may be updated.
struct FakeCapture {
  using Captured = Words;
  using Replayable = std::unique_ptr<Words>;
  Stream* stream;

  void begin() { stream->captured.emplace(); }
  [[nodiscard]] std::optional<Captured> end() {
    std::optional<Words> out = std::move(stream->captured);
    stream->captured.reset();
    return stream->spoilt ? std::nullopt : out;
  }
  void discard() { static_cast<void>(end()); }
  [[nodiscard]] Replayable instantiate(Captured words) {
    ++stream->instantiated;
    return std::make_unique<Words>(std::move(words));
  }
  void launch(Replayable& replayable) {
    for (const std::string& word : *replayable)
      stream->enqueue(word);
  }
};
static_assert(sw::StepCapture<FakeCapture>);

} // namespace

TEST_CASE("a step is captured after the warm-up and then replayed, without host calls") {
  Stream stream;
  sw::StepGraph graph{FakeCapture{&stream}};
  int calls = 0;
  const auto step = [&] {
    return graph.step([&] {
      ++calls;
      stream.enqueue("forward");
      stream.enqueue("update");
    });
  };
  CHECK(step() == StepMode::plain);
  CHECK(step() == StepMode::plain);
  CHECK(step() == StepMode::captured);
  CHECK(step() == StepMode::replayed);
  CHECK(step() == StepMode::replayed);
  CHECK(calls == 3);
  CHECK(stream.ran.size() == 10);
  CHECK(graph.obstacle().empty());
}

TEST_CASE("an obstacle leaves every step plain, and one found in a capture all later steps") {
  Stream stream;
  sw::StepGraph known{FakeCapture{&stream}, "thread ranks meet on the host", 0};
  CHECK(known.step([&] { stream.enqueue("a"); }) == StepMode::plain);
  CHECK(known.obstacle() == "thread ranks meet on the host");

  sw::StepGraph found{FakeCapture{&stream}, {}, 0};
  stream.spoilt = true;
  CHECK(found.step([&] { stream.enqueue("b"); }) == StepMode::plain);
  CHECK(found.step([&] { stream.enqueue("c"); }) == StepMode::plain);
  CHECK(found.obstacle().find("could not be captured") != std::string::npos);
  CHECK(stream.ran == Words{"a", "b", "c"});
}

TEST_CASE("if a launcher cannot be captured, the step runs call by call") {
  Stream stream;
  sw::StepGraph graph{FakeCapture{&stream}, {}, 0};
  int calls = 0;
  const auto step = [&] {
    return graph.step([&] {
      ++calls;
      if (!sw::detail::CaptureMark::spoil())
        stream.enqueue("product"); // outside a capture it can
      stream.enqueue("update");
    });
  };
  CHECK(step() == StepMode::plain);
  CHECK(step() == StepMode::plain);
  CHECK(calls == 3);
  CHECK(stream.ran == Words{"product", "update", "product", "update"});
  CHECK(graph.obstacle().find("finds no kernel for a product") != std::string::npos);
}

TEST_CASE("a step that throws in a capture ends the capture and reports the cause") {
  Stream stream;
  sw::StepGraph graph{FakeCapture{&stream}, {}, 0};
  const auto fail = [&] {
    stream.enqueue("half");
    throw std::runtime_error("the host wanted a number");
  };
  CHECK_THROWS_WITH(graph.step(fail), Catch::Contains("the host wanted a number"));
  CHECK(!stream.captured.has_value());
  CHECK(stream.ran.empty());
  CHECK_THROWS_AS(graph.step(fail), sw::CaptureFailed);
}
