// SPDX-License-Identifier: Apache-2.0
// Random calls on a random mesh in which one rank fails in one way, as scripts/chaos runs them, on threads or
// under mpiexec. The words on the command line describe the case, so that it can be repeated.
#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sw = shardwright;

namespace {

/// Allocations of this thread until one fails; 0: none does.
thread_local long allocations_left = 0;

struct Case {
  int rows = 1, columns = 1;
  int steps = 10;
  unsigned seed = 1;
  std::string fault = "none";
  int rank = 0;
  int at = 0; ///< The step of the fault.
  int amount = 1;
  std::chrono::milliseconds deadline{2000};
};

Case parsed(int argc, char** argv) {
  std::map<std::string, std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  const auto number = [&](const char* name, int otherwise) {
    return words.count(name) == 0 ? otherwise : std::stoi(words[name]);
  };
  Case out;
  out.rows = number("rows", 1);
  out.columns = number("columns", 1);
  out.steps = number("steps", 10);
  out.seed = static_cast<unsigned>(number("seed", 1));
  out.fault = words.count("fault") == 0 ? "none" : words["fault"];
  out.rank = number("rank", 0);
  out.at = number("at", 0);
  out.amount = number("amount", 1);
  out.deadline = std::chrono::milliseconds(number("deadline", 2000));
  return out;
}

using Number = std::int64_t;
using Numbers = std::vector<Number>;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

struct WrongNumber : std::logic_error {
  using logic_error::logic_error;
};

/// The contribution of a rank of the world to a position in a step.
Number element(int world_rank, std::size_t place, int step) {
  return (world_rank + 1) * 1000 + static_cast<Number>(place % 97) * 7 + step;
}
Numbers elements(int world_rank, std::size_t count, int step) {
  Numbers out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = element(world_rank, i, step);
  return out;
}
Numbers sums(const sw::HostCommunicator& group, std::size_t count, int step) {
  Numbers out(count);
  for (int rank = 0; rank < group.size(); ++rank)
    for (std::size_t i = 0; i < count; ++i)
      out[i] += element(group.world_rank(rank), i, step);
  return out;
}
void require(bool right, const char* what) {
  if (!right)
    throw WrongNumber(std::string("wrong numbers in ") + what);
}

enum class Kind {
  all_reduce,
  started,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  ring,
  count
};

/// Calls in flight at the same time, completed in another order.
void start_several(sw::HostCommunicator& group, Numbers data, int step) {
  const int own = group.world_rank();
  const std::size_t count = data.size();
  Numbers other = elements(own, count + 1, step), maximum = data;
  sw::Pending first = group.async().all_reduce_in_place(data);
  sw::Pending second = group.async().all_reduce_in_place(other);
  sw::Pending third = group.async().all_reduce_in_place(maximum, sw::ReduceOp::maximum);
  third.wait();
  first.wait();
  second.wait();
  int largest = 0;
  for (int r = 0; r < group.size(); ++r)
    largest = std::max(largest, group.world_rank(r));
  require(data == sums(group, count, step) && other == sums(group, count + 1, step) &&
              maximum == elements(largest, count, step),
          "started calls");
}

/// One call of all ranks of a group, with its check.
void perform(sw::HostCommunicator& group, Kind kind, std::size_t count, int step) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  const int own = group.world_rank();
  Numbers data = elements(own, count, step);
  switch (kind) {
  case Kind::all_reduce:
    group.all_reduce_in_place(data);
    return require(data == sums(group, count, step), "all_reduce");
  case Kind::started:
    return start_several(group, std::move(data), step);
  case Kind::all_gather: {
    Numbers all(count * ranks);
    group.all_gather(data, all);
    for (int r = 0; r < group.size(); ++r)
      for (std::size_t i = 0; i < count; ++i)
        require(all[static_cast<std::size_t>(r) * count + i] == element(group.world_rank(r), i, step),
                "all_gather");
    return;
  }
  case Kind::reduce_scatter: {
    const Numbers all = elements(own, count * ranks, step);
    group.reduce_scatter(all, data);
    const Numbers wanted = sums(group, count * ranks, step);
    return require(
        std::equal(data.begin(), data.end(), wanted.begin() + static_cast<std::ptrdiff_t>(rank * count)),
        "reduce_scatter");
  }
  case Kind::all_to_all: {
    const Numbers all = elements(own, count * ranks, step);
    Numbers got(count * ranks);
    group.all_to_all(all, got);
    for (int r = 0; r < group.size(); ++r)
      for (std::size_t i = 0; i < count; ++i)
        require(got[static_cast<std::size_t>(r) * count + i] ==
                    element(group.world_rank(r), rank * count + i, step),
                "all_to_all");
    return;
  }
  case Kind::broadcast: {
    const int root = step % group.size();
    group.broadcast(data, root);
    return require(data == elements(group.world_rank(root), count, step), "broadcast");
  }
  case Kind::ring: {
    if (ranks == 1)
      return;
    const int next = (group.rank() + 1) % group.size(),
              before = (group.rank() + group.size() - 1) % group.size();
    Numbers got(count);
    sw::Pending sent = group.async().send(data, next, step);
    group.receive(got, before, step);
    sent.wait();
    return require(got == elements(group.world_rank(before), count, step), "messages");
  }
  default:
    return group.barrier();
  }
}

/// A call that differs from that of the others.
void mismatch(sw::HostCommunicator& group, Kind kind, std::size_t count, int step) {
  Numbers data = elements(group.world_rank(), count + 1, step);
  if (kind == Kind::all_reduce)
    group.broadcast(data, 0);
  else
    group.all_reduce_in_place(data, sw::ReduceOp::product);
}

/// Makes the failing rank fail in its step. @return whether the program continues with the call.
bool fail(const Case& what, sw::HostCommunicator& world) {
  if (what.fault == "throw")
    throw std::runtime_error("chaos: rank " + std::to_string(what.rank) + " throws");
  if (what.fault == "kill")
    std::raise(SIGKILL);
  if (what.fault == "stop")
    std::raise(SIGSTOP);
  if (what.fault == "leave")
    ::_exit(0);
  if (what.fault == "exit")
    std::exit(0);
  if (what.fault == "kill_later" || what.fault == "stop_later")
    std::thread([signal = what.fault == "kill_later" ? SIGKILL : SIGSTOP, amount = what.amount] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * amount));
      std::raise(signal);
    }).detach();
  if (what.fault == "late")
    std::this_thread::sleep_for(what.deadline * std::min(what.amount, 40) / 100);
  if (what.fault == "freeze")
    std::this_thread::sleep_for(what.deadline * 3);
  if (what.fault == "allocation")
    allocations_left = what.amount;
  if (what.fault == "abort")
    world.abort("chaos: rank " + std::to_string(what.rank) + " aborts");
  if (what.fault == "drop") {
    Numbers data(4);
    static_cast<void>(world.async().all_reduce_in_place(data));
  }
  if (what.fault == "extra")
    world.barrier();
  return what.fault != "skip";
}

void run(const Case& what, sw::HostCommunicator world) {
  using namespace sw::axis;
  say("rank " + std::to_string(world.rank()) + " pid " + std::to_string(::getpid()));
  const sw::DeviceMesh mesh{world, sw::extent<dp>(what.rows), sw::extent<tp>(what.columns)};
  sw::HostCommunicator groups[] = {world, mesh.communicator<dp>(), mesh.communicator<tp>()};
  std::mt19937 random(what.seed);
  const bool guilty = world.rank() == what.rank;
  for (int step = 0; step < what.steps; ++step) {
    const auto kind = static_cast<Kind>(random() % static_cast<unsigned>(Kind::count));
    sw::HostCommunicator* chosen = &groups[random() % 3];
    sw::HostCommunicator& group = chosen->size() > 1 ? *chosen : world;
    const std::size_t count = random() % 3 == 0 ? random() % 100'000 : random() % 50;
    if (guilty && step == what.at) {
      if (what.fault == "return")
        return;
      if (what.fault == "mismatch") {
        mismatch(group, kind, count, step);
        continue;
      }
      if (!fail(what, world))
        continue;
    }
    perform(group, kind, count, step);
  }
  allocations_left = 0;
  world.barrier();
  say("rank " + std::to_string(world.rank()) + " is done");
}

template <class Error> std::string blamed(const Error& error) {
  std::string out;
  for (const int rank : error.missing())
    out += (out.empty() ? "" : ",") + std::to_string(rank);
  return out;
}

} // namespace

// Out of line, or g++ takes malloc() for the counterpart of operator delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left > 0 && --allocations_left == 0)
    throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes))
    return memory;
  throw std::bad_alloc();
}
// A sanitizer's own would not call the one above, and std::stable_sort does call this.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocations_left > 0 && --allocations_left == 0 ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main(int argc, char** argv) {
  const Case what = parsed(argc, argv);
  const sw::LaunchOptions options{.ranks = what.rows * what.columns,
                                  .deadline = what.deadline,
                                  .notice = std::chrono::nanoseconds(0),
                                  .start_deadline = std::chrono::seconds(30)};
  try {
    return sw::launch(options, [&](sw::HostCommunicator world) {
      const std::string own = "rank " + std::to_string(world.rank());
      try {
        run(what, std::move(world));
      } catch (const WrongNumber& error) {
        say(own + " has WRONG NUMBERS: " + error.what());
        std::_Exit(7);
      } catch (const sw::DeadlineExceeded& error) {
        allocations_left = 0;
        say(own + " caught deadline missing=" + blamed(error) + ": " + error.what());
        throw;
      } catch (const sw::PeerFailed& error) {
        allocations_left = 0;
        say(own + " caught peer=" + std::to_string(error.peer()) + ": " + error.what());
        throw;
      } catch (const std::exception& error) {
        allocations_left = 0;
        say(own + " caught " + error.what());
        throw;
      }
    });
  } catch (const std::exception& error) {
    say(std::string("launch threw ") + error.what());
    return 1;
  }
}
