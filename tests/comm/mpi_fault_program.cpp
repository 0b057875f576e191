// SPDX-License-Identifier: Apache-2.0
// A program under mpirun whose last rank fails in the way that the argument names; tests check how the job
// ends.
#include <shardwright/launch.hpp>

#include <dlfcn.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sw = shardwright;

namespace {

std::size_t allocations = 0;
bool stops_before_the_memory = false;
bool stops_in_split = false;
pid_t dies_amid_a_read = 0; ///< The process that ends when this rank has read half of a block of it.

/// The failing rank does this instead of its second collective.
void fail(const std::string& fault) {
  if (fault == "throws_controls")
    throw std::runtime_error("the disk\x1b[2J is \a on\rfire");
  if (fault.starts_with("throws"))
    throw std::runtime_error("the disk is on fire");
  if (fault == "killed" || fault == "killed_while_busy")
    std::raise(SIGKILL);
  if (fault == "freezes")
    std::raise(SIGSTOP);
  if (fault == "exits")
    std::exit(0);
  if (fault == "leaves")
    ::_exit(0);
}

/// Does not join the others' call, so that the job ends while they are busy.
bool is_busy(const sw::HostCommunicator& world, const std::string& fault) {
  return (fault == "caught_goes_on" || fault == "killed_while_busy") && world.rank() != world.size() - 1;
}

/// The rank of three that fails, before MPI has started: by the variables of Open MPI's mpirun or of Hydra.
bool is_last_by_launcher() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr)
    rank = std::getenv("PMI_RANK");
  return rank != nullptr && std::string(rank) == "2";
}

/// The last rank does this instead of starting MPI.
void fail_to_start(const std::string& fault) {
  if (fault.starts_with("starts")) {
    std::printf("pid %d\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
  }
  // If another rank already waits, the launcher notices an exit; before that, it does not.
  if (fault == "starts_not" && !is_last_by_launcher())
    std::this_thread::sleep_for(std::chrono::seconds(1));
  if (!is_last_by_launcher())
    return;
  if (fault == "starts_not")
    std::_Exit(0);
  if (fault == "starts_frozen")
    std::raise(SIGSTOP);
  if (fault == "starts_late")
    std::this_thread::sleep_for(std::chrono::minutes(5));
}

struct Destroyed {
  Destroyed() = default;
  Destroyed(const Destroyed&) = delete;
  Destroyed& operator=(const Destroyed&) = delete;
  ~Destroyed() {
    std::printf("destroyed\n");
    std::fflush(stdout);
  }
};

void collectives(sw::HostCommunicator world, const std::string& fault) {
  const bool fails = world.rank() == world.size() - 1;
  std::printf("pid %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  std::vector<float> data(std::size_t{1} << 20, 1.0F);
  world.all_reduce_in_place(data);
  // All ranks must have left the first call: a failure while a rank is still inside is reported there, not in
  // the second call. Ranks that are threads have no MPI, and none of them fails.
  int has_mpi = 0;
  MPI_Initialized(&has_mpi);
  if (has_mpi != 0)
    MPI_Barrier(MPI_COMM_WORLD);
  if (fault == "returns" && fails)
    return;
  const bool killed_inside = fault.starts_with("killed_inside");
  if (killed_inside && fails)
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::raise(SIGKILL);
    }).detach();
  if (fault == "killed_amid_a_read") {
    pid_t last = ::getpid();
    world.broadcast(std::span<pid_t>(&last, 1), world.size() - 1);
    dies_amid_a_read = world.rank() == 0 ? last : 0;
  }
  const Destroyed destroyed;
  if (fails && fault.starts_with("caught"))
    world.broadcast(data, 7);
  if (fails)
    fail(fault);
  if (is_busy(world, fault))
    std::this_thread::sleep_for(std::chrono::minutes(5));
  try {
    const std::size_t largest = data.size() / static_cast<std::size_t>(world.size());
    const std::span<float> in(data.data(), largest * static_cast<std::size_t>(world.size()));
    std::vector<float> out(in.size());
    const bool reads = fault == "killed_inside_reads" || fault == "killed_amid_a_read";
    for (int round = 0; round < (killed_inside ? 100000 : 1); ++round)
      reads ? world.all_to_all(in, out) : world.all_reduce_in_place(data);
  } catch (const sw::PeerFailed& error) {
    std::printf("rank %d woke by rank %d: %s\n", world.rank(), error.peer(), error.what());
    std::fflush(stdout);
    throw;
  } catch (const sw::DeadlineExceeded& error) {
    std::printf("rank %d missed rank %d\n", world.rank(), error.missing().at(0));
    std::fflush(stdout);
    throw;
  }
}

/// Numbers that are the same in every run with one seed (Steele et al., OOPSLA 2014).
struct Random {
  std::uint64_t state;
  std::uint64_t operator()(std::uint64_t below) {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
    return (bits ^ (bits >> 31U)) % below;
  }
};

/// Endless calls of every kind on several groups, until one rank halts at a random moment: the argument is
/// stops_RANK_SEED, which stops the process in a call or outside, or spins_RANK_SEED, which keeps it busy
/// between two calls. All others must name that rank and no other one.
void halts_at_random(sw::HostCommunicator world, const std::string& fault) {
  const std::size_t mark = fault.rfind('_');
  const int victim = std::atoi(fault.c_str() + fault.find('_') + 1);
  Random stop{static_cast<std::uint64_t>(std::atoi(fault.c_str() + mark + 1))};
  Random choose{stop.state}; // the same on all ranks
  const std::chrono::microseconds until_stop(300000 + stop(400000));
  std::printf("pid %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  const int ranks = world.size(), rank = world.rank();
  sw::HostCommunicator pairs = world.split(rank / 2, rank, "pairs");
  sw::HostCommunicator stripes = world.split(rank % 2, rank, "stripes");
  std::vector<float> data(std::size_t{1} << 18, 1.0F), other(data.size());
  world.barrier();
  const bool spins = fault.starts_with("spins");
  const auto begin = std::chrono::steady_clock::now();
  if (rank == victim && !spins)
    std::thread([until_stop] {
      std::this_thread::sleep_for(until_stop);
      std::raise(SIGSTOP);
    }).detach();
  try {
    for (;;) {
      while (spins && rank == victim && std::chrono::steady_clock::now() - begin > until_stop)
        std::this_thread::yield();
      const std::uint64_t kind = choose(7);
      const std::span<float> part(data.data(), choose(2) == 0 ? 100 : data.size());
      if (kind == 0)
        world.all_reduce_in_place(part);
      if (kind == 1)
        pairs.all_reduce_in_place(part);
      if (kind == 2)
        stripes.broadcast(part, 0);
      if (kind == 3)
        world.barrier();
      if (kind == 4) {
        sw::Pending sent = world.async().send(std::span<const float>(part), (rank + 1) % ranks);
        world.receive(std::span<float>(other.data(), part.size()), (rank + ranks - 1) % ranks);
        sent.wait();
      }
      if (kind == 5 && rank % 2 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (kind == 6)
        world.all_to_all(std::span<const float>(part), std::span<float>(other.data(), part.size()));
      std::fill(part.begin(), part.end(), 1.0F);
    }
  } catch (const sw::DeadlineExceeded& error) {
    for (const int missing : error.missing())
      std::printf("rank %d missed %s rank %d: %s\n", rank, missing == victim ? "the stopped" : "the innocent",
                  missing, error.what());
    if (error.missing().empty())
      std::printf("rank %d missed nobody: %s\n", rank, error.what());
    std::fflush(stdout);
    throw;
  }
}

/// A child that exits as a rank must not.
void fork_child() {
  const pid_t child = ::fork();
  if (child == 0)
    std::exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  std::printf("child ended with %d\n", status);
  std::fflush(stdout);
}

/// The last rank comes late to a barrier, and to a message of rank 0.
void late(sw::HostCommunicator world) {
  const auto come_late = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2500)); };
  const int last = world.size() - 1;
  std::vector<float> data(4);
  world.barrier();
  if (world.rank() == last)
    come_late();
  world.barrier();
  if (world.rank() == last)
    come_late();
  if (world.rank() == last)
    world.send(data, 0, 3);
  if (world.rank() == 0)
    world.receive(data, last, 3);
}

/// One rank keeps working, or stops, after the programs of the others have returned.
void at_the_end(sw::HostCommunicator world, const std::string& fault) {
  std::printf("pid %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  world.barrier();
  if (world.rank() != world.size() - 1)
    return;
  if (fault.starts_with("stops"))
    std::raise(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(4000));
  std::printf("its work is done\n");
}

/// The same after launch().
void after_launch(const std::string& fault) {
  if (fault == "stops_after")
    std::raise(SIGSTOP);
  if (fault == "killed_after")
    std::raise(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(4000));
  std::printf("its work is done\n");
}

/// No call of a steady state allocates, started ones included.
void steady(sw::HostCommunicator world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<float> data(400000, 1.0F), part(data.size() / 12), whole(part.size() * ranks),
      out(whole.size());
  std::vector<sw::StridedBlock> columns;
  for (std::size_t r = 0; r < ranks; ++r)
    columns.push_back({r * 4, part.size() / 4, 4, 4 * ranks});
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  const auto step = [&] {
    sw::Pending first = world.async().all_reduce_in_place(data, sw::ReduceOp::maximum);
    sw::Pending second = world.async().all_gather(part, whole, columns);
    world.barrier();
    second.wait();
    first.wait();
    world.reduce_scatter(whole, part, columns, sw::ReduceOp::average);
    world.all_to_all(whole, out);
    world.broadcast(data, 0);
    if (ranks > 1) {
      sw::Pending sent = world.async().send(data, next);
      world.receive(out, before);
      sent.wait();
    }
  };
  out.resize(data.size());
  part.resize(part.size() / 4 * 4);
  whole.resize(part.size() * ranks);
  for (sw::StridedBlock& block : columns)
    block.rows = part.size() / 4;
  out.resize(whole.size());
  data.resize(out.size());
  // A rank that runs further ahead of another one than ever before needs one more record; on a busy machine
  // that may happen late. An allocation that repeats in every step would leave no block of rounds without
  // one.
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (int block = 0; block < 6; ++block) {
    const std::size_t earlier = allocations;
    for (int round = 0; round < 10; ++round)
      step();
    fewest = std::min(fewest, allocations - earlier);
  }
  if (fewest != 0)
    throw std::runtime_error(std::to_string(fewest) + " allocations in ten steady steps");
  std::printf("steady on %d ranks\n", world.size());
}

template <class Call> void expect_lifecycle_error(const std::string& what, Call call) {
  try {
    call();
  } catch (const sw::LifecycleError& error) {
    std::printf("%s: %s\n", what.c_str(), error.what());
    return;
  }
  std::fprintf(stderr, "%s: no LifecycleError\n", what.c_str());
  std::_Exit(9);
}

/// MPI at the thread level that a program has requested, with calls on another thread than the one that
/// requested it.
void level(const std::string& asked) {
  int provided = 0;
  if (asked == "level_single") {
    MPI_Init(nullptr, nullptr);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  {
    sw::HostCommunicator world = sw::world_from(MPI_COMM_WORLD);
    sw::HostCommunicator part = world.split(0, 0);
    part.barrier();
    sw::Pending started = world.async().barrier();
    std::thread([&] {
      expect_lifecycle_error(asked + " barrier", [&] { world.barrier(); });
      expect_lifecycle_error(asked + " split", [&] { static_cast<void>(world.split(0, 0)); });
      expect_lifecycle_error(asked + " ready", [&] { static_cast<void>(started.ready()); });
      part = {}; // must not free what it may not touch
    }).join();
    started.wait();
    world.barrier();
  }
  int finalised = 1;
  MPI_Finalized(&finalised);
  if (finalised != 0)
    std::_Exit(9);
  MPI_Finalize();
}

void lifecycle() {
  expect_lifecycle_error("before init", [] { static_cast<void>(sw::mpi_world()); });
  sw::HostCommunicator kept;
  {
    const sw::MpiEnvironment environment;
    expect_lifecycle_error("double init", [] { const sw::MpiEnvironment second; });
    kept = sw::mpi_world();
    kept.barrier();
  }
  expect_lifecycle_error("after finalise", [&] { kept.barrier(); });
  expect_lifecycle_error("init after finalise", [] { const sw::MpiEnvironment second; });
  expect_lifecycle_error("launch after finalise", [] { sw::launch({}, [](sw::HostCommunicator) {}); });
}

} // namespace

/// Replaces that of the C library: one rank stops before it opens the memory of its node.
extern "C" int shm_open(const char* name, int flags, mode_t mode) {
  using Open = int (*)(const char*, int, mode_t);
  static const Open open = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "shm_open"));
  if (stops_before_the_memory && std::string(name).starts_with("/shardwright")) {
    std::printf("pid %d\nboard %s\n", static_cast<int>(::getpid()), name);
    std::fflush(stdout);
    if (is_last_by_launcher())
      std::raise(SIGSTOP);
  }
  return open(name, flags, mode);
}

/// Replaces that of the C library: the other process is gone before the second half of a block.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* own, unsigned long own_count,
                                    const iovec* theirs, unsigned long their_count, unsigned long flags) {
  if (process != dies_amid_a_read)
    return ::syscall(SYS_process_vm_readv, process, own, own_count, theirs, their_count, flags);
  const iovec half{own->iov_base, own->iov_len / 2};
  const ssize_t bytes = ::syscall(SYS_process_vm_readv, process, &half, 1, theirs, their_count, flags);
  ::kill(std::exchange(dies_amid_a_read, 0), SIGKILL);
  std::byte one{};
  const iovec to{&one, 1}, from{theirs->iov_base, 1};
  while (::syscall(SYS_process_vm_readv, process, &to, 1, &from, 1, 0) == 1)
    std::this_thread::yield();
  return bytes;
}

/// Stands before MPI's own: one rank stops when all have met for a split.
extern "C" int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* out) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (stops_in_split && rank == 2)
    std::raise(SIGSTOP);
  return PMPI_Comm_create_group(comm, group, tag, out);
}

// Out of line, or g++ takes malloc() for the counterpart of operator delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes))
    return memory;
  throw std::bad_alloc();
}
// A sanitizer's own would not call the one above, and std::stable_sort does call this.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  if (fault.starts_with("level")) {
    level(fault);
    return 0;
  }
  if (fault == "lifecycle") {
    lifecycle();
    return 0;
  }
  fail_to_start(fault);
  stops_before_the_memory = fault == "stops_before_the_memory";
  stops_in_split = fault == "stops_in_split";
  const bool notices = fault == "late" || fault.starts_with("works_on");
  // The others must hear of a fault long before the deadline, which a rank without a core must not pass.
  const bool halts = fault == "freezes" || fault.starts_with("stops") || fault.starts_with("spins") ||
                     fault.starts_with("works_on");
  sw::LaunchOptions options{.ranks = 0,
                            .deadline = std::chrono::milliseconds(halts ? 1500 : 30000),
                            .notice = std::chrono::milliseconds(notices ? 1000 : 0),
                            .start_deadline = std::chrono::seconds(fault.starts_with("starts") ? 2 : 60)};
  std::optional<int> own_rank;
  if (fault == "endless")
    options.deadline = options.start_deadline = std::chrono::nanoseconds::max();
  const auto launch = [&] {
    return sw::launch(options, [&](sw::HostCommunicator world) {
      own_rank = world.rank();
      if (fault[0] == 's' && fault.size() > 6 && std::isdigit(fault[6]) != 0)
        halts_at_random(std::move(world), fault);
      else if (fault == "works_on_inside" || fault == "stops_at_the_end")
        at_the_end(std::move(world), fault);
      else if (fault == "steady")
        steady(std::move(world));
      else if (fault == "late")
        late(std::move(world));
      else if (fault == "forks")
        fork_child();
      else if (fault == "stops_in_split")
        static_cast<void>(world.split(0, world.rank()));
      else
        collectives(std::move(world), fault);
    });
  };
  if (fault == "forks") {
    launch();
    fork_child();
  }
  if (fault.ends_with("_after")) {
    const int code = launch();
    if (own_rank == 2)
      after_launch(fault);
    return code;
  }
  if (!fault.starts_with("caught"))
    return launch();
  if (fault == "caught_finalises") {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  try {
    launch();
  } catch (const sw::InvalidArgument& error) {
    std::printf("caught: %s\n", error.what());
    std::fflush(stdout);
  }
  if (fault == "caught_goes_on")
    std::this_thread::sleep_for(std::chrono::minutes(5));
  if (fault == "caught_finalises")
    MPI_Finalize();
  return 0;
}
