// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_suite.hpp"
#include "comm/rank_outcomes.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/fake_nccl.hpp"
#include "support/fake_place.hpp"

#include <shardwright/device/graphs.hpp>
#include <shardwright/device/nccl/eager_loading.hpp>
#include <shardwright/device/nccl/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <latch>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace sw = shardwright;
using communicator_suite::require;
using rank_outcomes::ample;
using rank_outcomes::brief;
using shardwright_test::FakeDevice;
using shardwright_test::FakeNccl;
using shardwright_test::FakeNcclWorld;
using shardwright_test::FakeRuntime;
using shardwright_test::launch_ranks;
using shardwright_test::NcclScript;
using Transport = sw::detail::NcclTransport<FakeNccl, FakeRuntime>;

/// One rank's fakes and its communicator.
struct Rank : FakeDevice {
  struct ignores_tags {};

  explicit Rank(const sw::HostCommunicator& host, sw::NcclOptions options = {.check = false},
                std::shared_ptr<NcclScript> own = std::make_shared<NcclScript>())
      : FakeDevice(FakeRuntime(static_cast<unsigned>(host.rank()) * 1000 + 1)), script(std::move(own)),
        comm(std::make_shared<Transport>(host, FakeNccl(script), runtime, stream, options)) {}

  std::shared_ptr<NcclScript> script;
  sw::DeviceCommunicator comm;
};

/// Nothing was done that would hang the real NCCL, and no communicator was forgotten.
void check_leftovers() {
  CHECK(FakeNcclWorld::get().violations() == "");
  CHECK(FakeNcclWorld::get().communicators == 0);
}

} // namespace

TEST_CASE("NCCL ranks pass the communicator suite", "[comm]") {
  for (const bool check : {false, true})
    for (const int ranks : {1, 2, 3})
      for (const auto& part : communicator_suite::parts<Rank>()) {
        // NCCL chooses its own order of reduction: one level here.
        if (std::string_view(part.name) == "nested reduction orders" || check != (ranks == 3))
          continue;
        INFO(part.name << " on " << ranks << " ranks" << (check ? ", with fingerprints" : ""));
        REQUIRE_NOTHROW(
            launch_ranks({.ranks = ranks, .deadline = ample}, [&](const sw::HostCommunicator& world) {
              part.run(Rank(world, {.check = check}));
            }));
        check_leftovers();
      }
}

namespace {

/// The exceptions of three ranks.
template <class Program>
std::vector<std::exception_ptr> outcomes(Program program, std::chrono::milliseconds deadline = ample) {
  return rank_outcomes::of(3, deadline, program);
}

/// Ranks 0 and 2 have found out that rank 1 did not arrive, or heard it from one another.
void check_that_1_is_late(const std::vector<std::exception_ptr>& errors) {
  for (const std::size_t rank : {0U, 2U}) {
    const std::string text = rank_outcomes::text<sw::DeadlineExceeded>(errors[rank]);
    CHECK(shardwright_test::has(text, "but rank 1 did not arrive"));
    if (!text.starts_with("(another type)")) // otherwise it heard of it before its own call was late
      CHECK(rank_outcomes::as<sw::DeadlineExceeded>(errors[rank]).missing() == std::vector<int>{1});
  }
}

void all_reduce_on(Rank& rank) {
  std::vector<float> data(10, 1.0F);
  rank.comm.all_reduce_in_place(std::span(data));
  rank.comm.await_stream();
}

} // namespace

TEST_CASE("an NCCL call that fails is a typed error on its rank and wakes the others", "[comm][faults]") {
  struct Case {
    sw::detail::NcclResult result;
    const char* advice;
  };
  using Result = sw::detail::NcclResult;
  for (const Case& each :
       {Case{Result::unhandled_cuda_error, "compute-sanitizer"}, Case{Result::system_error, "shared memory"},
        Case{Result::internal_error, "written out of bounds"},
        Case{Result::invalid_argument, "this rank's own GPU"},
        Case{Result::invalid_usage, "the same NCCL version"},
        Case{Result::remote_error, "the rank that ended"}}) {
    const auto code = static_cast<int>(each.result);
    INFO("result " << code);
    const auto errors = outcomes([&](sw::HostCommunicator world) {
      Rank rank(world);
      all_reduce_on(rank);
      if (world.rank() == 1)
        rank.script->group_end = code;
      all_reduce_on(rank);
    });
    std::string text;
    switch (each.result) {
    case Result::invalid_argument:
      text = rank_outcomes::text<sw::InvalidArgument>(errors[1]);
      break;
    case Result::invalid_usage:
      text = rank_outcomes::text<sw::LifecycleError>(errors[1]);
      break;
    case Result::remote_error:
      text = rank_outcomes::text<sw::PeerFailed>(errors[1]);
      break;
    default:
      text = rank_outcomes::text<sw::TransportError>(errors[1]);
      CHECK(rank_outcomes::as<sw::TransportError>(errors[1]).code() == code);
    }
    CHECK(shardwright_test::has(text, "the fake's result " + std::to_string(code)));
    CHECK(shardwright_test::has(text, each.advice));
    CHECK(shardwright_test::has(text, "rank 1, group world, all_reduce #2, at "));
    for (const int other : {0, 2}) {
      const std::string echo = rank_outcomes::text<sw::PeerFailed>(errors[static_cast<std::size_t>(other)]);
      CHECK(shardwright_test::has(echo, "rank 1 called abort: all_reduce(sum, 10 float32) #2"));
    }
    check_leftovers();
  }
}

TEST_CASE("an NCCL communicator that cannot form is a typed error on all ranks", "[comm][faults]") {
  for (const bool identity : {true, false}) {
    const auto errors = outcomes([&](sw::HostCommunicator world) {
      auto script = std::make_shared<NcclScript>();
      if (world.rank() == (identity ? 0 : 1))
        (identity ? script->unique_id : script->init) = 2;
      const Rank rank(world, {.check = false}, script);
    });
    const char* const function = identity ? "ncclGetUniqueId" : "ncclCommInitRankConfig";
    CHECK(shardwright_test::has(rank_outcomes::text<sw::TransportError>(errors[identity ? 0 : 1]),
                                std::string(function) + ": NCCL must succeed"));
    for (const auto& error : errors)
      CHECK(shardwright_test::has(rank_outcomes::text<sw::Error>(error), function));
    check_leftovers();
  }
}

TEST_CASE("an NCCL communicator that does not finish is aborted", "[comm][faults]") {
  std::array<int, 3> aborts{};
  const auto errors = outcomes(
      [&](sw::HostCommunicator world) {
        auto script = std::make_shared<NcclScript>();
        {
          Rank rank(world, {.check = false}, script);
          all_reduce_on(rank);
          script->never_ends = world.rank() == 1;
        }
        aborts[static_cast<std::size_t>(world.rank())] = script->aborts;
      },
      brief);
  CHECK(errors[1] == nullptr); // a destructor throws nothing
  CHECK(aborts[1] == 1);
  check_leftovers();
}

TEST_CASE("an error that NCCL reports later is thrown where the host waits", "[comm][faults]") {
  const auto errors = outcomes([&](sw::HostCommunicator world) {
    Rank rank(world);
    all_reduce_on(rank);
    if (world.rank() == 2)
      return std::this_thread::sleep_for(brief); // does not come to the next one
    std::vector<float> data(10, 1.0F);
    sw::Pending pending = rank.comm.async().all_reduce_in_place(std::span(data));
    if (world.rank() == 0)
      rank.script->state = static_cast<int>(sw::detail::NcclResult::remote_error);
    pending.wait();
    rank.comm.await_stream();
  });
  CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[0]), "the fake's result 6"));
  CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[1]), "rank 0 called abort"));
  check_leftovers();
}

namespace {

/// Short for a person, long for a rank on a busy machine whose part must succeed.
constexpr std::chrono::milliseconds patience{2'000};

/// outcomes() of programs in which some ranks freeze: `frozen()` returns once all others have ended, and
/// until then the rank neither fails nor leaves.
template <class Program> std::vector<std::exception_ptr> outcomes_beside(int frozen_ranks, Program program) {
  std::latch others(3 - frozen_ranks);
  return outcomes(
      [&](sw::HostCommunicator world) {
        bool froze = false;
        const auto frozen = [&] {
          froze = true;
          others.wait();
        };
        try {
          program(world, frozen);
        } catch (...) {
          if (!froze)
            others.count_down();
          throw;
        }
        if (!froze)
          others.count_down();
      },
      patience);
}

} // namespace

TEST_CASE("a rank that never arrives ends NCCL at the deadline", "[comm][faults][deadline]") {
  SECTION("while the communicator forms") {
    const auto errors = outcomes_beside(2, [&](sw::HostCommunicator world, auto frozen) {
      auto script = std::make_shared<NcclScript>();
      script->polls = world.rank() == 1 ? 1'000'000'000 : 2; // its communicator never gets ready
      Rank rank(world, {.check = false}, script);
      frozen();
      all_reduce_on(rank);
    });
    const std::string text = rank_outcomes::text<sw::DeadlineExceeded>(errors[1]);
    CHECK(shardwright_test::has(text, "must form its NCCL communicator within 2 s"));
    for (const std::size_t rank : {0U, 2U})
      CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[rank]), "must form its NCCL"));
  }
  SECTION("in the middle of a collective, whoever waits for its stream") {
    const auto errors = outcomes_beside(1, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world);
      sw::DeviceCommunicator other = rank.comm.split(0, world.rank());
      all_reduce_on(rank);
      if (world.rank() == 1)
        return frozen();
      std::vector<float> data(10, 1.0F);
      if (world.rank() == 0)
        rank.comm.async().all_reduce_in_place(std::span(data)).wait();
      else
        rank.comm.all_reduce_in_place(std::span(data));
      // As reads by the host do, which do not know any communicator.
      if (world.rank() == 0)
        return other.await_stream();
      auto event = rank.runtime.make_event();
      rank.runtime.record(event, rank.stream);
      static_cast<void>(sw::detail::await_device([&] { return rank.runtime.done(event); }));
    });
    int late = 0;
    for (const std::size_t rank : {0U, 2U}) {
      const std::string text = rank_outcomes::text<sw::DeadlineExceeded>(errors[rank]);
      if (text.starts_with("(another type)")) { // another rank was late first, and said so
        CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[rank]),
                                    "must be done on the GPU"));
        continue;
      }
      ++late;
      CHECK(shardwright_test::has(text, "all_reduce(sum, 10 float32) #2"));
      CHECK(shardwright_test::has(text, "must be done on the GPU within 2 s"));
      const auto missing = rank_outcomes::as<sw::DeadlineExceeded>(errors[rank]).missing();
      CHECK(std::find(missing.begin(), missing.end(), 1) != missing.end());
    }
    CHECK(late >= 1);
  }
  SECTION("before memory is freed, which throws nothing and is told by the next wait") {
    const auto errors = outcomes_beside(1, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world);
      all_reduce_on(rank);
      if (world.rank() == 1)
        return frozen();
      std::vector<float> data(10, 1.0F);
      rank.comm.all_reduce_in_place(std::span(data));
      sw::detail::settle_device();
      require(rank.script->aborts == 1, "what lies on the stream is gone");
      static_cast<void>(sw::detail::await_device([] { return true; }));
    });
    for (const std::size_t rank : {0U, 2U})
      CHECK(shardwright_test::has(rank_outcomes::text<sw::Error>(errors[rank]), "must be done on the GPU"));
  }
  SECTION("with a message whose sender does not start it") {
    const auto errors = outcomes_beside(2, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world);
      std::vector<float> data(4, 1.0F);
      sw::Pending call;
      if (world.rank() == 0) {
        rank.script->stuck = true;
        call = rank.comm.async().send(std::span(data), 1, 3);
      }
      if (world.rank() != 1) {
        frozen();
        return call.wait();
      }
      rank.comm.async().receive(std::span(data), 0, 3).wait();
      sw::detail::settle_device();
      static_cast<void>(sw::detail::await_device([] { return true; }));
    });
    const std::string text = rank_outcomes::text<sw::DeadlineExceeded>(errors[1]);
    CHECK(shardwright_test::has(text, "receive(4 float32, from rank 0, tag 3) #1"));
    CHECK(shardwright_test::has(text, "must be done on the GPU within 2 s"));
  }
  SECTION("with messages around a ring that are not exchanged together") {
    const auto errors = outcomes(
        [&](sw::HostCommunicator world) {
          Rank rank(world);
          std::vector<float> data(4, 1.0F), other(4);
          sw::Pending sent = rank.comm.async().send(std::span(data), (world.rank() + 1) % 3);
          rank.comm.receive(std::span(other), (world.rank() + 2) % 3);
          sent.wait();
          rank.comm.await_stream();
        },
        patience);
    const bool told = std::any_of(errors.begin(), errors.end(), [](const auto& error) {
      return rank_outcomes::text<sw::DeadlineExceeded>(error).find("in one exchange()") != std::string::npos;
    });
    CHECK(told);
  }
  SECTION("while NCCL connects at the first collective") {
    const auto errors = outcomes_beside(2, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world);
      rank.script->stuck = world.rank() == 0;
      std::vector<float> data(10, 1.0F);
      rank.comm.all_reduce_in_place(std::span(data));
      frozen();
      rank.comm.await_stream();
    });
    CHECK(shardwright_test::has(rank_outcomes::text<sw::DeadlineExceeded>(errors[0]),
                                "must be issued by all its ranks within 2 s"));
    for (const std::size_t rank : {1U, 2U})
      CHECK(errors[rank] != nullptr);
  }
  SECTION("in a split") {
    const auto errors = outcomes_beside(1, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world);
      if (world.rank() == 1)
        return frozen();
      static_cast<void>(rank.comm.split(0, world.rank()));
    });
    check_that_1_is_late(errors);
  }
  SECTION("with fingerprints, by name") {
    const auto errors = outcomes_beside(1, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world, {.check = true});
      all_reduce_on(rank);
      if (world.rank() == 1)
        return frozen();
      all_reduce_on(rank);
    });
    check_that_1_is_late(errors);
  }
  SECTION("for a message, with fingerprints") {
    const auto errors = outcomes_beside(2, [&](sw::HostCommunicator world, auto frozen) {
      Rank rank(world, {.check = true});
      std::vector<float> data(4, 1.0F);
      if (world.rank() == 1)
        return rank.comm.receive(std::span(data), 0, 8);
      frozen();
    });
    const std::string text = rank_outcomes::text<sw::DeadlineExceeded>(errors[1]);
    CHECK(shardwright_test::has(text, "receive(4 float32, from rank 0, tag 8) #1"));
    CHECK(shardwright_test::has(text, "must be issued by all its ranks within 2 s"));
    CHECK(rank_outcomes::as<sw::DeadlineExceeded>(errors[1]).missing() == std::vector<int>{0});
  }
  check_leftovers();
}

TEST_CASE("a host that waits in one NCCL communicator advances the calls of its others", "[comm]") {
  for (const bool check : {false, true})
    REQUIRE_NOTHROW(launch_ranks({.ranks = 2, .deadline = patience}, [&](sw::HostCommunicator world) {
      Rank rank(world, {.check = check});
      sw::DeviceCommunicator other = rank.comm.split(0, world.rank());
      std::vector<float> first(10, 1.0F), second(10, 1.0F), third(10, 1.0F), message(10, 1.0F);
      if (world.rank() == 0) { // the other rank reaches the last call after all that are started here
        sw::Pending a = other.async().all_reduce_in_place(std::span(first));
        sw::Pending b = other.async().all_reduce_in_place(std::span(second));
        sw::Pending sent = other.async().send(std::span(message), 1, 1);
        rank.comm.all_reduce_in_place(std::span(third));
        a.wait();
        b.wait();
        sent.wait();
      } else {
        other.all_reduce_in_place(std::span(first));
        other.all_reduce_in_place(std::span(second));
        other.receive(std::span(message), 0, 1);
        rank.comm.all_reduce_in_place(std::span(third));
      }
      rank.comm.await_stream();
      require(first == std::vector<float>(10, 2.0F) && second == first && third == first, "the sums");
    }));
  check_leftovers();
}

TEST_CASE("a rank that throws or leaves wakes those that wait on the GPU", "[comm][faults]") {
  for (const bool throws : {true, false}) {
    const auto errors = outcomes(
        [&](sw::HostCommunicator world) {
          {
            Rank rank(world);
            all_reduce_on(rank);
            if (world.rank() != 1)
              all_reduce_on(rank);
            if (throws)
              throw std::runtime_error("disk full");
          }
          if (world.rank() != 1)
            throw std::runtime_error("an all-reduce without all ranks has ended");
        },
        std::chrono::seconds(1));
    for (const std::size_t rank : {0U, 2U})
      CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[rank]), "rank 1 "));
    check_leftovers();
  }
}

TEST_CASE("abort wakes all ranks and ends the communicator", "[comm][faults]") {
  const auto errors = outcomes([&](sw::HostCommunicator world) {
    Rank rank(world);
    all_reduce_on(rank);
    if (world.rank() == 0)
      rank.comm.abort("enough");
    all_reduce_on(rank);
  });
  CHECK(shardwright_test::has(
      rank_outcomes::text<sw::LifecycleError>(errors[0]),
      "must not be used after it has failed (end the program, or launch a new world); it failed because enough"));
  for (const std::size_t rank : {1U, 2U})
    CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[rank]),
                                "rank 0 called abort: enough"));
  check_leftovers();
}

TEST_CASE("the communicators of a rank are aborted concurrently, since each may wait for the others",
          "[comm][faults]") {
  using Channel = sw::detail::NcclChannel<FakeNccl>;
  const auto script = std::make_shared<NcclScript>();
  script->aborts_meet = 3;
  FakeNccl api(script);
  const auto of_rank = std::make_shared<sw::detail::NcclRankChannels<FakeNccl>>();
  std::array<Channel, 3> channels{Channel(api, of_rank), Channel(api, of_rank), Channel(api, of_rank)};
  for (Channel& channel : channels) {
    FakeNccl::UniqueId id;
    static_cast<void>(api.unique_id(id));
    static_cast<void>(channel.open(id, 1, 0, "one of three"));
  }
  of_rank->abort("enough");
  for (Channel& channel : channels) {
    CHECK(channel.state() == sw::detail::NcclResult::invalid_usage);
    CHECK(channel.aborted() == "enough");
  }
  check_leftovers();
}

TEST_CASE("a program with NCCL makes CUDA load all kernels at startup") {
  CHECK(sw::detail::kernels_load_eagerly);
  CHECK(std::getenv("CUDA_MODULE_LOADING") != nullptr);
}

TEST_CASE("NCCL ranks whose calls differ get an error before data moves", "[comm][faults]") {
  SECTION("in the count") {
    std::array<std::vector<float>, 3> data;
    const auto errors = outcomes([&](sw::HostCommunicator world) {
      Rank rank(world, {.check = true});
      auto& own = data[static_cast<std::size_t>(world.rank())];
      own.assign(world.rank() == 2 ? 5 : 4, 1.0F);
      rank.comm.all_reduce_in_place(std::span(own));
    });
    for (const auto& error : errors) {
      const std::string text = rank_outcomes::text<sw::CollectiveMismatch>(error);
      CHECK(shardwright_test::has(text, "ranks 0 and 1 issued all_reduce(sum, 4 float32) #1"));
      CHECK(shardwright_test::has(text, "rank 2 issued all_reduce(sum, 5 float32) #1"));
    }
    for (const auto& own : data)
      CHECK(own == std::vector<float>(own.size(), 1.0F));
  }
  SECTION("in the size or the tag of a message") {
    for (const bool size : {true, false}) {
      const auto errors = outcomes([&](sw::HostCommunicator world) {
        Rank rank(world, {.check = true});
        std::vector<float> data(size && world.rank() == 0 ? 5 : 4);
        if (world.rank() == 0)
          rank.comm.send(std::span(data), 1, size ? 3 : 4);
        if (world.rank() == 1)
          rank.comm.receive(std::span(data), 0, 3);
        rank.comm.barrier();
      });
      const std::string text = rank_outcomes::text<sw::CollectiveMismatch>(errors[1]);
      CHECK(shardwright_test::has(text, "receive(4 float32, from rank 0, tag 3) #1"));
      CHECK(shardwright_test::has(
          text, size ? "must agree on the count, but rank 0 issued send(5 float32, to rank 1, tag 3)"
                     : "must agree on the tag, but rank 0 issued send(4 float32, to rank 1, tag 4)"));
    }
  }
  SECTION("in a GPU that two of them share") {
    const auto errors = outcomes([&](sw::HostCommunicator world) {
      auto script = std::make_shared<NcclScript>();
      script->device = world.rank() / 2;
      const Rank rank(world, {}, script);
    });
    for (const auto& error : errors)
      CHECK(shardwright_test::has(rank_outcomes::text<sw::ConfigurationMismatch>(error),
                                  "every rank must have a separate GPU, but ranks 0 and 1 share one"));
  }
  check_leftovers();
}

TEST_CASE("an NCCL call that is dropped ends the group", "[comm][faults]") {
  const auto errors = outcomes([&](sw::HostCommunicator world) {
    Rank rank(world);
    std::vector<float> data(10, 1.0F);
    {
      sw::Pending pending = rank.comm.async().all_reduce_in_place(std::span(data));
      if (world.rank() != 1)
        pending.wait();
    }
    all_reduce_on(rank);
  });
  CHECK(shardwright_test::has(rank_outcomes::text<sw::LifecycleError>(errors[1]), "was dropped"));
  for (const std::size_t rank : {0U, 2U})
    CHECK(shardwright_test::has(rank_outcomes::text<sw::PeerFailed>(errors[rank]), "rank 1 called abort"));
  check_leftovers();
}

namespace {

/// Strided blocks of two ranks, with numbers that differ by the salts.
struct Columns {
  Columns(std::size_t of_rows, float of_salt) : rows(of_rows), whole(6 * rows), part(3 * rows) {
    for (std::size_t i = 0; i < whole.size(); ++i)
      whole[i] = number(i) + of_salt;
  }
  [[nodiscard]] std::vector<sw::StridedBlock> blocks() const { return {{0, rows, 3, 6}, {3, rows, 3, 6}}; }
  [[nodiscard]] sw::Pending start(Rank& rank) {
    return rank.comm.async().reduce_scatter(std::span(whole), std::span(part), blocks());
  }
  void require_sums(int rank, float salts) const {
    for (std::size_t i = 0; i < part.size(); ++i) {
      const float once = number(i / 3 * 6 + i % 3 + 3 * static_cast<std::size_t>(rank));
      require(part[i] == 2 * once + salts, "the sum of both ranks");
    }
  }
  static float number(std::size_t i) { return static_cast<float>(i * i % 97); }

  std::size_t rows;
  std::vector<float> whole, part;
};

} // namespace

TEST_CASE("memory for packed blocks is kept until the stream that used it last is done with it", "[comm]") {
  const auto gate = std::make_shared<shardwright_test::FakeSignal>();
  REQUIRE_NOTHROW(launch_ranks({.ranks = 2, .deadline = ample}, [&](sw::HostCommunicator world) {
    Rank rank(world);
    const auto own = static_cast<float>(world.rank());
    Columns direct(4, own), small(4, 10 + own), large(64, 20 + own);
    std::array<sw::Pending, 2> started;
    const auto open = [&gate](const void*) { gate->set(); };
    const std::unique_ptr<const void, decltype(open)> opens(&gate, open); // even if a call throws
    rank.comm.reduce_scatter(std::span(direct.whole), std::span(direct.part), direct.blocks());
    rank.comm.await_stream();
    // Rank 1 holds up the small call of rank 0, whose packed blocks are not read before.
    if (world.rank() == 1)
      rank.stream.run([gate] { gate->wait(); });
    const auto& counts = rank.runtime.counts();
    const auto poll_until = [&](auto holds) {
      const auto end = std::chrono::steady_clock::now() + ample;
      while (!holds() && std::chrono::steady_clock::now() < end)
        static_cast<void>(started[0].done()); // issues all that can be
      require(holds(), "a call is issued");
    };
    started[0] = small.start(rank);
    if (world.rank() == 0)
      poll_until([&] { return counts.launches == 2 && counts.unfinished == 0; }); // its blocks are packed
    started[1] = large.start(rank);
    if (world.rank() == 0) {
      poll_until([&] { return counts.memories == 2; }); // the memory has been replaced
      rank.stream.finish();                             // of the direct call, for which it was made
      gate->set();
    }
    for (sw::Pending& each : started)
      each.wait();
    rank.comm.await_stream();
    direct.require_sums(world.rank(), 1);
    small.require_sums(world.rank(), 21);
    large.require_sums(world.rank(), 41);
  }));
  check_leftovers();
}

TEST_CASE("a call of NCCL in a captured step is an error before anything is enqueued", "[comm][faults]") {
  REQUIRE_NOTHROW(launch_ranks({.ranks = 2, .deadline = ample}, [](sw::HostCommunicator world) {
    Rank rank(world);
    all_reduce_on(rank);
    const int before = rank.script->operations;
    {
      const sw::detail::CaptureMark mark;
      std::string text;
      try {
        all_reduce_on(rank);
      } catch (const sw::LifecycleError& error) {
        text = error.what();
      }
      require(shardwright_test::has(text, "all_reduce: a call of NCCL must not be part of a captured step"),
              text);
      require(mark.spoilt() && rank.script->operations == before, "nothing is enqueued");
    }
    all_reduce_on(rank);
  }));
  check_leftovers();
}

TEST_CASE("NCCL calls in steady state create no streams, events or memory", "[comm]") {
  REQUIRE_NOTHROW(launch_ranks({.ranks = 2, .deadline = ample}, [](sw::HostCommunicator world) {
    Rank rank(world);
    std::vector<float> data(24, 1.0F), part(12), whole(24);
    const std::vector<sw::StridedBlock> columns{{0, 4, 3, 6}, {3, 4, 3, 6}};
    // A record is reused once its call is done on the device, so a step needs the most of them if the device
    // does nothing until all calls are issued.
    const auto step = [&](bool device_is_late) {
      const auto gate = std::make_shared<shardwright_test::FakeSignal>();
      const auto open = [&gate](const void*) { gate->set(); };
      const std::unique_ptr<const void, decltype(open)> opens(&gate, open); // even if a call throws
      if (device_is_late)
        rank.stream.run([gate] { gate->wait(); });
      sw::Pending started = rank.comm.async().all_reduce_in_place(std::span(data), sw::ReduceOp::average);
      rank.comm.reduce_scatter(std::span(whole), std::span(part), columns);
      rank.comm.all_gather(std::span(part), std::span(whole), columns);
      started.wait();
      const int other = 1 - world.rank();
      std::array<sw::Pending, 2> crossing;
      {
        const auto exchange = rank.comm.exchange();
        crossing[0] = rank.comm.async().send(std::span(part), other, 1);
        crossing[1] = rank.comm.async().receive(std::span(whole).first(12), other, 1);
      }
      for (sw::Pending& each : crossing)
        each.wait();
      gate->set();
      rank.comm.await_stream();
    };
    const auto& counts = rank.runtime.counts();
    const auto made = [&] { return std::array<long, 3>{counts.streams, counts.events, counts.memories}; };
    step(true);
    const std::array<long, 3> before = made();
    for (int i = 0; i < 20; ++i)
      step(i % 4 == 3);
    require(before == made(), "a steady state");
    require(before[2] > 0, "packed blocks need memory");
  }));
  check_leftovers();
}
