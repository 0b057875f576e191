// SPDX-License-Identifier: Apache-2.0
// Random communication programs on threads or under mpiexec, each compared with a plain model: collectives in
// every form, blocking and started, messages in between, groups that some of their ranks split, drop or make
// a mesh of, and simulated nodes.
//
//   fuzz_communication --seconds 3600             random cases from a random seed, which is printed
//   fuzz_communication --seed 7 --cases 1         one case again, under mpiexec with as many ranks as before
#include "random_calls.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using fuzz::Random;

/// A group as all ranks of the world know it; only its members have the handle.
struct Group {
  std::vector<int> members; ///< World ranks, in order.
  sw::HostCommunicator ranks;
};

/// A call that has been started, and the check of its result.
struct Started {
  sw::Pending pending;
  std::function<void()> check;
};

/// One random program on one rank. All ranks draw the same list of events, and each takes part in those of
/// its groups, in the order of the list: so no rank waits for one that waits for it.
class Program {
public:
  Program(std::uint64_t seed, sw::HostCommunicator world)
      : seed_(seed), rank_(world.rank()), own_(seed, rank_, 5) {
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank)
      all[static_cast<std::size_t>(rank)] = rank;
    groups_.push_back({std::move(all), std::move(world)});
  }

  /// @return the number of events.
  int run() {
    const int events = 5 + Random(seed_, 1).number(60);
    for (event_ = 0; event_ < events; ++event_) {
      Random random(seed_, event_, 2);
      const std::size_t group = random(groups_.size());
      what_ = "starting event " + std::to_string(event_);
      step(random, group);
      if (own_.chance(30))
        finish_one();
      if (own_.chance(10))
        std::this_thread::sleep_for(std::chrono::microseconds(own_(300)));
    }
    while (!started_.empty())
      finish_one();
    groups_.front().ranks.barrier();
    return events;
  }
  [[nodiscard]] const std::string& what() const { return what_; }

private:
  [[nodiscard]] int place_in(const Group& group) const {
    for (std::size_t i = 0; i < group.members.size(); ++i)
      if (group.members[i] == rank_)
        return static_cast<int>(i);
    return -1;
  }
  void require(const std::string& wrong, const std::string& what) const {
    if (!wrong.empty())
      throw std::logic_error(what + ": " + wrong);
  }

  void step(Random& random, std::size_t at) {
    const int kind = random.number(100);
    if (kind < 55)
      return collective(random, groups_[at]);
    if (kind < 70)
      return messages(random, groups_[at]);
    if (kind < 75)
      return barrier(random, groups_[at]);
    if (kind < 90)
      return groups_.size() < 12 ? split(random, at) : drop(at);
    if (kind < 93)
      return groups_.size() < 12 ? mesh(random, at) : drop(at);
    drop(at);
  }

  void say(const Group& group, const std::string& what) {
    what_ = "event " + std::to_string(event_) + ", " + what + " on a group of " +
            std::to_string(group.members.size()) + ", rank " + std::to_string(place_in(group)) + " of it";
  }

  [[nodiscard]] bool may_start(int percent) { return own_.chance(percent) && started_.size() < 8; }
  void perform(sw::HostCommunicator& ranks, const sw::CollectiveCall& call, bool starts,
               std::function<void()> check) {
    if (!starts) {
      ranks.run(call);
      return check();
    }
    started_.push_back({ranks.start(call), std::move(check)});
  }

  void collective(Random& random, Group& group) {
    const auto ranks = static_cast<int>(group.members.size());
    const fuzz::Drawn drawn = fuzz::draw_collective(random(1U << 31U), ranks);
    const int place = place_in(group);
    if (place < 0)
      return;
    auto part = std::make_shared<fuzz::Part>(drawn, place, ranks);
    say(group, std::string(name_of(part->call.operation)) + " of " + std::to_string(part->call.count) + " " +
                   std::string(name_of(part->call.element)));
    // A rank may start what another one waits for.
    perform(group.ranks, part->call, may_start(40),
            [this, part, what = what_] { require(part->wrong(), what); });
  }

  void barrier(Random&, Group& group) {
    if (place_in(group) < 0)
      return;
    say(group, "barrier");
    sw::CollectiveCall call;
    perform(group.ranks, call, may_start(30), [] {});
  }

  /// One to three messages from one rank to another, received in any order if they are started.
  void messages(Random& random, Group& group) {
    const auto ranks = static_cast<int>(group.members.size());
    if (ranks == 1)
      return;
    const int from = random.number(ranks), to = (from + 1 + random.number(ranks - 1)) % ranks;
    const int place = place_in(group);
    const int count = 1 + random.number(3);
    const int tag = random.chance(20) ? sw::message_tags - 4 : random.number(5);
    const bool same_tag = random.chance(30);
    std::vector<int> order;
    for (int i = 0; i < count; ++i)
      order.push_back(i);
    if (!same_tag && place == to)
      for (int i = count; i > 1; --i)
        std::swap(order[static_cast<std::size_t>(i - 1)], order[own_(static_cast<std::uint64_t>(i))]);
    if (place != from && place != to)
      return;
    for (const int i : order) {
      Random one(seed_, event_, i, 3);
      constexpr std::size_t most[] = {0, 10, 1000, 20'000};
      auto data = std::make_shared<std::vector<std::int32_t>>(one(most[one(4)] + 1), -1);
      std::vector<std::int32_t> wanted(data->size());
      for (std::int32_t& number : wanted)
        number = static_cast<std::int32_t>(one(1U << 30U));
      const bool sends = place == from;
      if (sends)
        *data = wanted;
      sw::CollectiveCall call;
      call.operation = sends ? sw::Operation::send : sw::Operation::receive;
      call.element = sw::ElementType::int32;
      call.root = sends ? to : from;
      call.tag = same_tag ? tag : tag + i;
      call.count = data->size();
      if (sends)
        call.in = data->data();
      else
        call.out = data->data();
      say(group, std::string(sends ? "send " : "receive ") + std::to_string(i) + " under tag " +
                     std::to_string(call.tag));
      // A send that is not started waits for its receive, which may come after that of another one.
      const bool starts = (sends && count > 1) || may_start(50);
      perform(group.ranks, call, starts, [this, data, wanted = std::move(wanted), what = what_] {
        require(*data == wanted ? "" : "wrong numbers", what);
      });
    }
  }

  void split(Random& random, std::size_t at) {
    const std::vector<int> members = groups_[at].members;
    const int colours = 1 + random.number(3);
    const bool by_list = random.chance(30), by_rule = random.chance(30), some_in_none = random.chance(30);
    std::vector<sw::GroupPlace> places;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const int colour = random.number(colours);
      places.push_back({some_in_none && random.chance(30) ? -1 : colour, random.number(5)});
    }
    std::vector<std::vector<int>> lists(static_cast<std::size_t>(colours)); // places in the group
    for (std::size_t i = 0; i < members.size(); ++i)
      if (places[i].colour >= 0)
        lists[static_cast<std::size_t>(places[i].colour)].push_back(static_cast<int>(i));
    for (std::vector<int>& list : lists)
      std::stable_sort(list.begin(), list.end(), [&](int a, int b) {
        return places[static_cast<std::size_t>(a)].key < places[static_cast<std::size_t>(b)].key;
      });
    const int place = place_in(groups_[at]);
    sw::HostCommunicator part;
    if (place >= 0) {
      say(groups_[at], "split");
      sw::HostCommunicator& ranks = groups_[at].ranks;
      const sw::GroupPlace own = places[static_cast<std::size_t>(place)];
      if (by_list)
        part =
            ranks.subgroup(own.colour < 0 ? std::vector<int>() : lists[static_cast<std::size_t>(own.colour)]);
      else if (by_rule)
        part = ranks.split_by([&](int rank) { return places[static_cast<std::size_t>(rank)]; });
      else
        part = ranks.split(own.colour, own.key);
      require(part.valid() == (own.colour >= 0) ? "" : "a group is missing", what_);
    }
    for (int colour = 0; colour < colours; ++colour) {
      Group formed;
      for (const int member : lists[static_cast<std::size_t>(colour)])
        formed.members.push_back(members[static_cast<std::size_t>(member)]);
      if (formed.members.empty())
        continue;
      if (place >= 0 && places[static_cast<std::size_t>(place)].colour == colour)
        formed.ranks = part;
      add(std::move(formed));
    }
  }

  /// A mesh over the group, and the groups of its axes.
  void mesh(Random& random, std::size_t at) {
    const std::vector<int> members = groups_[at].members;
    const auto ranks = static_cast<int>(members.size());
    int rows = 1 + random.number(ranks);
    while (ranks % rows != 0)
      --rows;
    const int columns = ranks / rows, place = place_in(groups_[at]);
    sw::HostCommunicator row, column;
    if (place >= 0) {
      say(groups_[at], "mesh");
      const sw::DeviceMesh mesh{groups_[at].ranks, sw::extent<sw::axis::dp>(rows),
                                sw::extent<sw::axis::tp>(columns)};
      column = mesh.communicator<sw::axis::dp>();
      row = mesh.communicator<sw::axis::tp>();
    }
    for (int r = 0; r < rows; ++r) {
      Group formed;
      for (int c = 0; c < columns; ++c)
        formed.members.push_back(members[static_cast<std::size_t>(r * columns + c)]);
      if (place >= 0 && place / columns == r)
        formed.ranks = row;
      add(std::move(formed));
    }
    for (int c = 0; c < columns; ++c) {
      Group formed;
      for (int r = 0; r < rows; ++r)
        formed.members.push_back(members[static_cast<std::size_t>(r * columns + c)]);
      if (place >= 0 && place % columns == c)
        formed.ranks = column;
      add(std::move(formed));
    }
  }

  void add(Group&& formed) {
    if (const int place = place_in(formed); place >= 0) {
      bool right = formed.ranks.valid() && formed.ranks.rank() == place &&
                   formed.ranks.size() == static_cast<int>(formed.members.size());
      for (std::size_t i = 0; right && i < formed.members.size(); ++i)
        right = formed.ranks.world_rank(static_cast<int>(i)) == formed.members[i];
      require(right ? "" : "a group has other ranks", what_);
    }
    groups_.push_back(std::move(formed));
  }

  /// Every rank drops its handle, though not at the same time; never that of the world.
  void drop(std::size_t at) {
    if (at == 0)
      return;
    what_ = "event " + std::to_string(event_) + ", a handle is dropped";
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  /// Waits for one of the started calls, or polls for it.
  void finish_one() {
    if (started_.empty())
      return;
    const std::size_t at = own_(started_.size());
    Started one = std::move(started_[at]);
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(at));
    what_ = "event " + std::to_string(event_) + " or before, waiting for a started call";
    if (own_.chance(30))
      while (!one.pending.ready())
        std::this_thread::yield();
    one.pending.wait();
    one.check();
  }

  std::uint64_t seed_;
  int rank_;
  int event_ = 0;
  Random own_; ///< Of this rank alone: when it waits, and what it starts.
  std::string what_;
  std::vector<Group> groups_;
  std::vector<Started> started_;
};

struct Options {
  std::uint64_t seed = std::random_device{}();
  int cases = -1; ///< As many as the time allows.
  std::chrono::seconds seconds{20};
};

/// Runs a case on one rank. A failure ends the process, after a line that repeats it.
int run_case(std::uint64_t seed, const sw::HostCommunicator& world, const std::string& where) {
  const int rank = world.rank();
  Program program(seed, world);
  try {
    return program.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_communication: --seed %llu --cases 1, %s: rank %d failed in %s: %s\n",
                 static_cast<unsigned long long>(seed), where.c_str(), rank, program.what().c_str(),
                 error.what());
    throw;
  }
}

/// Calls `one(seed)`, which returns a number of events, for as long as `goes_on()`.
template <class GoesOn, class One>
void run_cases(const Options& options, GoesOn goes_on, One one, long& cases, long& events) {
  for (std::uint64_t seed = options.seed; options.cases < 0 || cases < options.cases; ++seed, ++cases) {
    if (options.cases < 0 && !goes_on())
      return;
    events += one(seed);
  }
}

sw::LaunchOptions random_options(std::uint64_t seed) {
  sw::LaunchOptions out;
  out.deadline = std::chrono::minutes(2);
  out.check = !Random(seed, 11).chance(25);
  return out;
}

int on_threads(const Options& options) {
  const auto end = std::chrono::steady_clock::now() + options.seconds;
  long cases = 0, events = 0;
  run_cases(
      options, [&] { return std::chrono::steady_clock::now() < end; },
      [](std::uint64_t seed) {
        sw::LaunchOptions launch = random_options(seed);
        launch.ranks = 1 + Random(seed, 12).number(6);
        int count = 0;
        sw::launch(launch, [&](sw::HostCommunicator world) {
          const int own = run_case(seed, world, "on threads");
          if (world.rank() == 0)
            count = own;
        });
        return count;
      },
      cases, events);
  std::printf("fuzz_communication: %ld cases with %ld events on threads, from --seed %llu\n", cases, events,
              static_cast<unsigned long long>(options.seed));
  return 0;
}

#if defined(SHARDWRIGHT_WITH_MPI)
int on_processes(Options options) {
  const auto end = std::chrono::steady_clock::now() + options.seconds;
  return sw::launch({}, [&](sw::HostCommunicator meeting) {
    std::uint64_t seed[] = {options.seed};
    meeting.broadcast(seed, 0);
    options.seed = seed[0];
    const std::string where = "under mpiexec -n " + std::to_string(meeting.size());
    long cases = 0, events = 0;
    run_cases(
        options,
        [&] {
          std::int32_t goes_on[] = {std::chrono::steady_clock::now() < end ? 1 : 0};
          meeting.broadcast(goes_on, 0);
          return goes_on[0] != 0;
        },
        [&](std::uint64_t seed) {
          const int per_node = Random(seed, 13).number(4); // 0: all ranks share memory
          return run_case(seed,
                          sw::HostCommunicator(
                              sw::detail::make_mpi_transport(MPI_COMM_WORLD, random_options(seed), per_node)),
                          where);
        },
        cases, events);
    if (meeting.rank() == 0)
      std::printf("fuzz_communication: %ld cases with %ld events %s, from --seed %llu\n", cases, events,
                  where.c_str(), static_cast<unsigned long long>(options.seed));
    return 0;
  });
}
#endif

} // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed")
      options.seed = value;
    else if (name == "--cases")
      options.cases = static_cast<int>(value);
    else if (name == "--seconds")
      options.seconds = std::chrono::seconds(value);
  }
  try {
#if defined(SHARDWRIGHT_WITH_MPI)
    if (sw::detail::launcher_set() != nullptr)
      return on_processes(options);
#endif
    return on_threads(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_communication: %s\n", error.what());
    return 1;
  }
}
