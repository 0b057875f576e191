// SPDX-License-Identifier: Apache-2.0
#include "mpi_peer.hpp"

#include "library_side.hpp"

#include <stdexcept>

#if defined(SHARDWRIGHT_WITH_MPI)

#include <shardwright/comm/mpi/transport.hpp>

#include <fcntl.h>
#include <linux/futex.h>
#include <mpi.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>

namespace collectives {
namespace {

constexpr int most_ranks = 64;
constexpr int most_repetitions = 64;

/// Memory that the parent and all processes of mpirun map.
struct Control {
  std::atomic<std::uint32_t> turn{0};
  std::atomic<std::uint32_t> finished{0};
  std::atomic<std::uint32_t> stop{0};
  std::int32_t parent = 0;
  std::uint64_t most_bytes = 0;
  Case test{};
  Sustained sustained{};
  SeenCore cores[2];
  Span spans[most_repetitions * most_ranks];
};

/// Sleeps while a word has a value, at most for a second.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  timespec second{1, 0};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &second, nullptr, 0);
}
void wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, most_ranks, nullptr, nullptr, 0);
}

Control* map_control(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR);
  if (file < 0)
    return nullptr;
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Control*>(memory);
}

void collective(const Case& test, const Buffers& buffers, int rank, int ranks) {
  float* const in = buffers.in(test, rank, ranks);
  float* const out = buffers.out(test, rank, ranks);
  const auto in_count = static_cast<int>(Buffers::in_count(test, ranks));
  const auto out_count = static_cast<int>(Buffers::out_count(test, ranks));
  switch (test.kind) {
  case Kind::all_reduce:
    MPI_Allreduce(test.in_place ? MPI_IN_PLACE : in, out, out_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    break;
  case Kind::reduce_scatter:
    if (test.in_place)
      MPI_Reduce_scatter_block(MPI_IN_PLACE, in, out_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
      MPI_Reduce_scatter_block(in, out, out_count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    break;
  case Kind::all_gather:
    MPI_Allgather(test.in_place ? MPI_IN_PLACE : static_cast<void*>(in), in_count, MPI_FLOAT, out, in_count,
                  MPI_FLOAT, MPI_COMM_WORLD);
    break;
  }
}

/// A turn of calls back to back, by Open MPI or by the library; the result counts on rank 0.
void sustained_turn(Control& control, Buffers& buffers, int rank, int ranks,
                    std::optional<shardwright::HostCommunicator>& library) {
  const Case test = control.test;
  if (test.library && !library)
    library = shardwright::mpi_world();
  const auto call = [&] {
    if (test.library)
      run_collective(*library, test, buffers);
    else
      collective(test, buffers, rank, ranks);
  };
  const auto any = [&](bool stop) {
    float one = stop ? 1.0F : 0.0F, all = 0;
    if (test.library)
      library->all_reduce(std::span<const float>(&one, 1), std::span<float>(&all, 1));
    else
      MPI_Allreduce(&one, &all, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return all > 0;
  };
  const Sustained own = sustain(test.seconds, rank, control.cores, call, any);
  if (rank == 0)
    control.sustained = own;
}

void one_turn(Control& control, Buffers& buffers, int rank, int ranks) {
  const Case test = control.test;
  const int count = repetitions(test.bytes);
  for (int r = -1; r < count; ++r) {
    buffers.renew(test, rank, ranks, r + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    Span span;
    span.start = now_ns();
    collective(test, buffers, rank, ranks);
    span.end = now_ns();
    MPI_Barrier(MPI_COMM_WORLD); // as in the turn of the thread ranks
    if (r >= 0)
      control.spans[r * ranks + rank] = span;
  }
}

} // namespace

int run_mpi_peer(const std::string& path) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Control* const control = map_control(path);
  if (control == nullptr) {
    std::fprintf(stderr, "collectives: the control block %s must be readable (started by hand?)\n",
                 path.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
  Buffers buffers(control->most_bytes);
  std::optional<shardwright::HostCommunicator> library;
  control->finished.fetch_add(1);
  wake(control->finished);
  for (std::uint32_t seen = 0; control->stop.load() == 0;) {
    if (control->turn.load() == seen) {
      sleep_while(control->turn, seen);
      if (kill(control->parent, 0) != 0)
        break;
      continue;
    }
    ++seen;
    if (control->stop.load() != 0)
      break;
    if (control->test.seconds > 0)
      sustained_turn(*control, buffers, rank, ranks, library);
    else
      one_turn(*control, buffers, rank, ranks);
    control->finished.fetch_add(1);
    wake(control->finished);
  }
  library.reset();
  MPI_Finalize();
  return 0;
}

struct MpiPeer::Impl {
  std::string path;
  Control* control = nullptr;
  pid_t process = -1;
  int ranks = 0;

  void run(const Case& test) const {
    control->test = test;
    control->finished.store(0);
    control->turn.fetch_add(1);
    wake(control->turn);
    await_ranks();
  }
  void await_ranks() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (;;) {
      const std::uint32_t count = control->finished.load();
      if (count == static_cast<std::uint32_t>(ranks))
        return;
      if (waitpid(process, nullptr, WNOHANG) == process || std::chrono::steady_clock::now() > limit)
        throw std::runtime_error(
            "collectives: mpirun must answer within 30 s (run it by hand to see why it does not)");
      sleep_while(control->finished, count);
    }
  }
};

MpiPeer::MpiPeer(const std::string& program, int ranks, std::uint64_t most_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->ranks = ranks;
  char name[] = "/dev/shm/collectives-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0 || ftruncate(file, sizeof(Control)) != 0)
    throw std::runtime_error("collectives: /dev/shm must be writable for the control block");
  close(file);
  impl_->path = name;
  impl_->control = new (map_control(impl_->path)) Control;
  impl_->control->parent = getpid();
  impl_->control->most_bytes = most_bytes;
  const pid_t parent = getpid();
  impl_->process = fork();
  if (impl_->process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
      _exit(1);
    const std::string count = std::to_string(ranks);
    execlp("mpirun", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
           count.c_str(), program.c_str(), "--mpi-peer", impl_->path.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  impl_->await_ranks();
}

MpiPeer::~MpiPeer() {
  impl_->control->stop.store(1);
  impl_->control->turn.fetch_add(1);
  wake(impl_->control->turn);
  waitpid(impl_->process, nullptr, 0);
  munmap(impl_->control, sizeof(Control));
  unlink(impl_->path.c_str());
}

double MpiPeer::turn(const Case& test) {
  impl_->run(test);
  return turn_seconds(impl_->control->spans, impl_->ranks, repetitions(test.bytes));
}
Sustained MpiPeer::sustained_turn(const Case& test) {
  impl_->run(test);
  return impl_->control->sustained;
}

bool MpiPeer::available() { return std::system("command -v mpirun > /dev/null 2>&1") == 0; }

} // namespace collectives

#else

namespace collectives {

struct MpiPeer::Impl {};
int run_mpi_peer(const std::string&) { return 1; }
MpiPeer::MpiPeer(const std::string&, int, std::uint64_t) {
  throw std::runtime_error("collectives: built without MPI");
}
MpiPeer::~MpiPeer() = default;
double MpiPeer::turn(const Case&) { return 0; }
Sustained MpiPeer::sustained_turn(const Case&) { return {}; }
bool MpiPeer::available() { return false; }

} // namespace collectives

#endif
