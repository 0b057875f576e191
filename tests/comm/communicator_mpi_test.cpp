// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_parts.hpp"
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/standard_error.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/comm/observe/simulated_link.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

namespace {

sw::LaunchOptions options(bool check = true) {
  return {.ranks = 0, .deadline = std::chrono::seconds(60), .check = check};
}

/// A separate world, which a test may break. All ranks meet before, since some ranks end a test late.
sw::HostCommunicator breakable_world(bool check = true,
                                     std::chrono::milliseconds deadline = std::chrono::seconds(30),
                                     int ranks_per_node = 0,
                                     std::chrono::milliseconds notice = std::chrono::seconds(10)) {
  static sw::HostCommunicator meeting = sw::mpi_world({.deadline = std::chrono::seconds(30)});
  meeting.barrier();
  return sw::HostCommunicator(sw::detail::make_mpi_transport(
      MPI_COMM_WORLD, {.deadline = deadline, .notice = notice, .check = check}, ranks_per_node));
}

template <class Error, class Call> std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Whole pages, which can become unreadable.
class Pages {
public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(memory_, bytes_); }
  [[nodiscard]] std::span<std::uint8_t> bytes() const noexcept {
    return {static_cast<std::uint8_t*>(memory_), bytes_};
  }
  /// From page `first` on.
  void close(std::size_t first = 0) const {
    const std::size_t open = first * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (open < bytes_)
      REQUIRE(::mprotect(static_cast<std::byte*>(memory_) + open, bytes_ - open, PROT_NONE) == 0);
  }

private:
  std::size_t bytes_;
  void* memory_;
};

int refusal = 0; ///< The error of this rank's reads in other processes, if they are refused.

} // namespace

/// Replaces that of the C library, in a rank that may not read other processes.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* own, unsigned long own_count,
                                    const iovec* theirs, unsigned long their_count, unsigned long flags) {
  if (refusal == 0)
    return ::syscall(SYS_process_vm_readv, process, own, own_count, theirs, their_count, flags);
  errno = refusal;
  return -1;
}

TEST_CASE("MPI ranks pass the communicator suite", "[comm]") {
  const bool check = GENERATE(true, false);
  for (const communicator_suite::Part& part : communicator_suite::mpi_parts()) {
    INFO(part.name);
    REQUIRE(sw::launch(options(check), part.run) == 0);
  }
}

TEST_CASE("MPI ranks behind a slow link and a clock pass the communicator suite", "[comm]") {
  for (const communicator_suite::Part& part : communicator_suite::mpi_parts()) {
    INFO(part.name);
    REQUIRE(sw::launch(options(), [&](sw::HostCommunicator world) {
              const auto clock = std::make_shared<sw::CommunicationClock>();
              const sw::LinkOptions link{.latency_seconds = 1e-6, .bytes_per_second = 4e9};
              const bool alone = world.size() == 1;
              part.run(sw::timed(sw::simulated_link(std::move(world), link), clock));
              const sw::CommunicationTotals total = clock->total();
              communicator_suite::require(alone ||
                                              total.seconds >= total.bytes / link.bytes_per_second - 1e-6,
                                          "the clock must see what the link takes");
            }) == 0);
  }
}

TEST_CASE("MPI ranks pass the suite if each is on a separate node", "[comm]") {
  for (const communicator_suite::Part& part : communicator_suite::mpi_parts()) {
    if (std::string(part.name) == "all_reduce")
      continue; // it takes the longest; the next test has one
    INFO(part.name);
    sw::HostCommunicator world = breakable_world(true, std::chrono::seconds(60), 1);
    part.run(world);
  }
}

TEST_CASE("MPI ranks reduce on one node and on several", "[comm]") {
  const int ranks_per_node = GENERATE(0, 1, 2);
  sw::HostCommunicator world = breakable_world(true, std::chrono::seconds(60), ranks_per_node);
  // With two ranks on a node, the pair shares memory, although the world does not.
  sw::HostCommunicator pair = world.split(world.rank() / 2, world.rank());
  for (sw::HostCommunicator& group : std::array{std::ref(world), std::ref(pair)})
    // Lengths that go with the fingerprint in memory or in a message, and longer ones.
    for (const std::size_t count : {1U, 56U, 57U, 500U, 982U, 984U, 1024U, 1025U, 2048U, 2049U, 5000U}) {
      std::vector<std::uint32_t> data =
          communicator_suite::elements_of<std::uint32_t>(group.rank(), count, 7);
      std::vector<std::uint32_t> expected(count, 0);
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto one = communicator_suite::elements_of<std::uint32_t>(rank, count, 7);
        for (std::size_t i = 0; i < count; ++i)
          expected[i] += one[i];
      }
      group.all_reduce_in_place(data);
      INFO(count << " elements, " << ranks_per_node << " ranks on a node");
      CHECK(data == expected);
    }
}

TEST_CASE("MPI proceeds while a rank waits for others", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  const MPI_Comm comm = sw::mpi_communicator(world);
  if (world.size() == 1)
    return;
  // The sender may arrive only after the receiver, which waits for it there, has replied.
  int data = world.rank();
  MPI_Request received = MPI_REQUEST_NULL;
  if (world.rank() == 0)
    MPI_Irecv(&data, 1, MPI_INT, 1, 0, comm, &received);
  if (world.rank() == 1)
    MPI_Ssend(&data, 1, MPI_INT, 0, 0, comm);
  world.barrier();
  MPI_Wait(&received, MPI_STATUS_IGNORE);
  CHECK(data == (world.rank() == 0 ? 1 : world.rank()));
}

TEST_CASE("half of the MPI ranks make a mesh while the others wait for them", "[comm]") {
  sw::HostCommunicator world = breakable_world(true, std::chrono::seconds(60), GENERATE(0, 1));
  const int half = (world.size() + 1) / 2;
  sw::HostCommunicator own = world.split(world.rank() < half ? 0 : 1, world.rank());
  if (world.rank() < half) {
    const sw::DeviceMesh mesh{own, sw::extent<sw::axis::dp>(own.size()), sw::extent<sw::axis::tp>(1)};
    std::vector<std::int64_t> sum{world.rank()};
    sw::HostCommunicator rows = mesh.communicator<sw::axis::dp>();
    rows.all_reduce_in_place(sum);
    CHECK(sum[0] == half * (half - 1) / 2);
  }
  world.barrier();
}

TEST_CASE("a split that a rank of the group misses names that rank and the group", "[comm]") {
  sw::HostCommunicator world = breakable_world(true, std::chrono::milliseconds(400));
  if (world.size() < 4)
    return;
  sw::HostCommunicator half = world.split(world.rank() / 2, world.rank(), world.rank() < 2 ? "low" : "high");
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  } else if (world.rank() == 0) {
    const std::string told = message_of<sw::DeadlineExceeded>([&] { static_cast<void>(half.split(0, 0)); });
    CHECK_THAT(told, ContainsSubstring("every rank of group low must enter split() #") &&
                         ContainsSubstring("rank 1 did not arrive"));
  } else {
    CHECK(half.split(0, 0).size() == 2);
  }
}

TEST_CASE("launch returns the largest exit code of the MPI ranks", "[comm]") {
  int ranks = 0;
  const int code = sw::launch(options(), [&](sw::HostCommunicator world) {
    ranks = world.size();
    return world.rank();
  });
  CHECK(code == ranks - 1);
}

TEST_CASE("MPI and thread ranks reduce to the same bits", "[comm]") {
  using Order = sw::ReductionOrder;
  Order pairs_inside;
  pairs_inside.count = 2;
  pairs_inside.levels[0] = {2, 1};
  pairs_inside.levels[1] = {2, 2};
  Order pairs_outside;
  pairs_outside.count = 2;
  pairs_outside.levels[0] = {2, 2};
  pairs_outside.levels[1] = {2, 1};
  // With the fingerprint, in one round and in two, in parts that are sent at once, and in several segments,
  // with ends inside a vector and a cache line.
  for (const std::size_t count : {std::size_t{5}, std::size_t{402}, std::size_t{982}, std::size_t{992},
                                  std::size_t{3501}, std::size_t{600'013}})
    for (const sw::ReduceOp op : {sw::ReduceOp::sum, sw::ReduceOp::average, sw::ReduceOp::product})
      for (const Order& order : {Order{}, pairs_inside, pairs_outside}) {
        // The lengths in between take different paths, but their sums agree.
        if (count > 5 && count < 600'013 && (op != sw::ReduceOp::average || order.count > 0))
          continue;
        const auto reduce = [&](sw::HostCommunicator world) {
          std::vector<float> data = communicator_suite::elements_of<float>(world.rank(), count, 91);
          world.all_reduce_in_place(data, op, order);
          return data;
        };
        std::vector<float> own;
        bool fits = true;
        sw::launch(options(), [&](sw::HostCommunicator world) {
          fits = order.count == 0 || world.size() == 4;
          if (fits)
            own = reduce(world);
        });
        if (!fits)
          continue;
        int ranks = 0;
        sw::launch(options(), [&](sw::HostCommunicator world) { ranks = world.size(); });
        std::vector<float> of_threads;
        std::mutex mutex;
        sw::LaunchOptions threads = options();
        threads.ranks = ranks;
        const int code = sw::detail::launch_threads(threads, [&](sw::HostCommunicator world) {
          const std::vector<float> data = reduce(world);
          const std::lock_guard lock(mutex);
          of_threads = data;
          return 0;
        });
        REQUIRE(code == 0);
        INFO(count << " elements by " << sw::name_of(op) << ", " << order.count << " levels");
        REQUIRE(own.size() == of_threads.size());
        CHECK(std::memcmp(own.data(), of_threads.data(), count * sizeof(float)) == 0);
      }
}

TEST_CASE("blocks of every size, in long rows and short ones, are exchanged on one node and on several",
          "[comm]") {
  // Comparing ranks announce a block with their call, others by a message.
  const auto [ranks_per_node, all_may_read, check] = GENERATE(table<int, bool, bool>(
      {{0, true, true}, {0, true, false}, {0, false, true}, {2, true, true}, {2, true, false}}));
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  refusal = all_may_read || rank != 0 ? 0 : EPERM; // and if one may not, all send messages
  sw::HostCommunicator world = breakable_world(check, std::chrono::seconds(60), ranks_per_node);
  refusal = 0;
  const auto ranks = static_cast<std::size_t>(world.size()), own = static_cast<std::size_t>(world.rank());
  // Rank r has rows_of(r) rows, and rank s wants the columns of width_of(s): read where they lie, packed
  // into several messages, in one message, or empty.
  const auto rows_of = [](std::size_t rank) { return rank == 2 ? std::size_t{0} : 12 + 500 * (rank % 2); };
  const auto width_of = [](std::size_t rank) { return std::array<std::size_t, 3>{4099, 333, 2}[rank % 3]; };
  const auto element = [](std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<std::uint32_t>((from * 8 + to) * 3'000'000 + i);
  };
  std::vector<sw::StridedBlock> columns;
  std::vector<std::size_t> counts;
  std::size_t width = 0;
  for (std::size_t r = 0; r < ranks; width += width_of(r++)) {
    columns.push_back({width, rows_of(own), width_of(r), 0});
    counts.push_back(rows_of(r) * width_of(own));
  }
  const std::vector<sw::StridedBlock> packed = sw::packed_blocks(counts);
  std::vector<std::uint32_t> matrix(rows_of(own) * width), block(packed.back().end());
  for (std::size_t r = 0; r < ranks; ++r) {
    columns[r].row_stride = width;
    for (std::size_t i = 0; i < columns[r].count(); ++i)
      matrix[columns[r].offset + i / width_of(r) * width + i % width_of(r)] = element(own, r, i);
  }
  block.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  world.all_to_all(matrix, block, columns, packed);
  std::size_t at = 0, wrong = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < counts[r]; ++i)
      wrong += block[at++] == element(r, own, i) ? 0 : 1;
  CHECK(wrong == 0);
  std::vector<std::uint32_t> back(matrix.size());
  sw::Pending pending = world.async().all_to_all(block, back, packed, columns);
  pending.wait();
  CHECK(back == matrix);
}

TEST_CASE("the calls of all MPI ranks must agree, and buffers stay unchanged otherwise", "[comm]") {
  const int kind = GENERATE(range(0, 7));
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  const bool odd = world.rank() == world.size() - 1;
  const std::vector<float> before(60, 1.5F);
  std::vector<float> data = before;
  std::vector<std::int32_t> same_bytes(60, 7);
  const std::array<const char*, 7> wanted{
      "the operations differ",    "the counts differ",
      "the element types differ", "the reduce operations differ",
      "the roots differ",         "the counts of block 0 differ (2 and 1)",
      "which expects 1"};
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> ones(ranks, 1), others = ones;
  others[0] = 2;
  std::vector<float> out(60, -1.0F);
  const std::string told = message_of<sw::CollectiveMismatch>([&] {
    switch (kind) {
    case 0:
      return odd ? world.barrier() : world.all_reduce_in_place(data);
    case 1:
      return world.all_reduce_in_place(std::span<float>(data).first(odd ? 59 : 60));
    case 2:
      return odd ? world.all_reduce_in_place(same_bytes) : world.all_reduce_in_place(data);
    case 3:
      return world.all_reduce_in_place(data, odd ? sw::ReduceOp::average : sw::ReduceOp::sum);
    case 4:
      return world.broadcast(data, odd ? 1 : 0);
    case 5: {
      // Rank 0 would send two elements by its own count, so that the counts of all others are of one block.
      const std::vector<std::size_t>& counts = odd ? ones : others;
      const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
      return world.all_gather(std::span<float>(data).first(own),
                              std::span<float>(out).first(odd ? ranks : ranks + 1), counts);
    }
    default: {
      const std::vector<std::size_t>& sent = odd ? others : ones;
      return world.all_to_all(std::span<float>(data).first(odd ? ranks + 1 : ranks),
                              std::span<float>(out).first(ranks), sent, ones);
    }
    }
  });
  CHECK_THAT(told, ContainsSubstring(wanted[static_cast<std::size_t>(kind)]));
  CHECK_THAT(told, ContainsSubstring("all ranks of group world must issue the same call"));
  CHECK_THAT(told, ContainsSubstring("communicator_mpi_test.cpp:"));
  CHECK_THAT(told, ContainsSubstring("#1"));
  CHECK(data == before);
  CHECK(same_bytes == std::vector<std::int32_t>(60, 7));
  CHECK(out == std::vector<float>(60, -1.0F));
  // The group has ended; a new world has not.
  CHECK_THAT(message_of<sw::LifecycleError>([&] { world.barrier(); }),
             ContainsSubstring("after it has failed"));
  sw::HostCommunicator again = breakable_world();
  again.barrier();
}

TEST_CASE("swapped collectives are detected at the first of them", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  std::vector<double> data(8, 1.0);
  world.barrier();
  const std::string told = message_of<sw::CollectiveMismatch>([&] {
    if (world.rank() == 0) {
      world.barrier();
      world.broadcast(data, 0);
    } else {
      world.broadcast(data, 0);
      world.barrier();
    }
  });
  CHECK_THAT(told, ContainsSubstring("barrier() #2 at ") &&
                       ContainsSubstring("broadcast(8 float64, root 0) #2 at "));
}

TEST_CASE("without fingerprints the lengths of messages are still compared", "[comm]") {
  sw::HostCommunicator world = breakable_world(false);
  if (world.size() == 1)
    return;
  std::vector<float> data(world.rank() == 0 ? 10 : 1000, 1.0F);
  try {
    world.all_reduce_in_place(data);
    FAIL("unequal counts went through");
  } catch (const sw::CollectiveMismatch& error) {
    CHECK_THAT(error.what(), ContainsSubstring("must send"));
  } catch (const sw::PeerFailed& error) {
    CHECK_THAT(error.what(), ContainsSubstring("must send"));
  }
}

TEST_CASE("without fingerprints the lengths of blocks are compared, whether or not they are messages",
          "[comm]") {
  const auto [sent, expected] = GENERATE(table<std::size_t, std::size_t>({{200'000, 400'000},
                                                                          {400'000, 200'000},
                                                                          {4'000, 5'000},
                                                                          {5'000, 20'000},
                                                                          {100, 200'000},
                                                                          {20'000, 200'000},
                                                                          {200'000, 100},
                                                                          {200'000, 20'000},
                                                                          {200'000, 5'000}}));
  sw::HostCommunicator world = breakable_world(false);
  if (world.size() == 1)
    return;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> to(ranks, 0), from(ranks, 0);
  if (world.rank() == 0)
    to[1] = sent;
  if (world.rank() == 1)
    from[0] = expected;
  std::vector<std::uint8_t> in(world.rank() == 0 ? sent : 0), out(world.rank() == 1 ? expected : 0);
  std::string told = "no error";
  try {
    world.all_to_all(in, out, to, from);
  } catch (const sw::CollectiveMismatch& error) {
    told = error.what();
  } catch (const sw::PeerFailed&) { // of rank 1
  }
  if (world.rank() != 1)
    return;
  INFO(sent << " sent, " << expected << " expected");
  CHECK_THAT(told, ContainsSubstring("all_to_all: rank 0 of the group must send "));
  CHECK_THAT(told, ContainsSubstring("must send " + std::to_string(expected) + " bytes"));
  CHECK_THAT(told, ContainsSubstring(sent < expected ? "but it sent fewer" : "but it sent more") ||
                       ContainsSubstring("but it sent " + std::to_string(sent) + " bytes"));
}

TEST_CASE("a block whose sender has given up is not taken for its data", "[comm]") {
  const bool readable = GENERATE(true, false);
  sw::HostCommunicator world = breakable_world(true, std::chrono::milliseconds(300));
  if (world.size() == 1)
    return;
  const Pages pages(static_cast<std::size_t>(world.size()) << 20);
  std::ranges::fill(pages.bytes(), std::uint8_t{1});
  std::vector<std::uint8_t> out(pages.bytes().size());
  std::string told;
  if (world.rank() == 1) {
    told = message_of<sw::Error>([&] {
      sw::Pending pending = world.async().all_to_all(pages.bytes(), out);
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      pending.wait();
    });
  } else {
    told = message_of<sw::Error>([&] { world.all_to_all(pages.bytes(), out); });
  }
  if (world.rank() == 0) {
    readable ? static_cast<void>(std::ranges::fill(pages.bytes(), std::uint8_t{9})) : pages.close();
    MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  }
  CHECK_THAT(told, !ContainsSubstring("process_vm_readv"));
  // If rank 1 was quick, it has read the data before.
  if (told == "no error")
    CHECK(std::ranges::count(out, 1) == static_cast<std::ptrdiff_t>(out.size()));
}

TEST_CASE("a block that cannot be read is named, with the system's reason", "[comm]") {
  struct Case {
    const char* reason;
    const char* advice;
    std::size_t open_pages; ///< Of 49.
    int refused;            ///< From the call on, or 0.
  };
  const auto [reason, advice, open_pages, refused] =
      GENERATE(Case{"Bad address", "(pass memory that lives", 0, 0},
               Case{"Bad address", "(pass memory that lives", 40, 0},
               Case{"Operation not permitted", "(let ranks read one another", 49, EPERM},
               Case{"Cannot allocate memory", "(leave more memory", 49, ENOMEM});
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  const auto ranks = static_cast<std::size_t>(world.size());
  const Pages pages(200'000);
  std::vector<std::size_t> to(ranks, 0), from(ranks, 0);
  (world.rank() == 0 ? to[1] : from[0]) = world.rank() < 2 ? pages.bytes().size() : 0;
  std::vector<std::uint8_t> out(from[0]);
  pages.close(open_pages);
  refusal = refused;
  const std::string told = message_of<sw::Error>([&] {
    world.all_to_all(pages.bytes().first(to[1]), out, to, from);
    world.barrier();
  });
  refusal = 0;
  CHECK_THAT(told, ContainsSubstring("the data of rank 0 of the group must be readable") &&
                       ContainsSubstring(reason) && ContainsSubstring(advice));
}

TEST_CASE("without fingerprints a message that ends at a part boundary of another is detected", "[comm]") {
  sw::HostCommunicator world = breakable_world(false);
  if (world.size() == 1)
    return;
  constexpr std::size_t part = sw::detail::MpiRequests::eager_bytes / sizeof(float);
  std::vector<float> data(world.rank() == 0 ? part : 2 * part, 1.0F);
  bool noticed = false;
  try {
    world.broadcast(data, 0);
  } catch (const sw::Error&) {
    noticed = true;
  }
  // The root may be done before the others look.
  CHECK((noticed || world.rank() == 0));
}

TEST_CASE("data sent with fingerprints arrive complete, however their message is divided", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  for (std::size_t count = 50; count <= 130; ++count) {
    std::vector<float> data(count), wanted(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = static_cast<float>((static_cast<std::size_t>(world.rank()) + 1) * (i + 1));
      wanted[i] =
          static_cast<float>(static_cast<std::size_t>(world.size() * (world.size() + 1) / 2) * (i + 1));
    }
    world.all_reduce_in_place(data);
    CHECK(data == wanted);
  }
}

TEST_CASE("a call whose data are sent with its fingerprint is compared with one whose data are not",
          "[comm]") {
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  const std::size_t others = GENERATE(5000, 60); // this one in a message of two parts
  const std::vector<float> before(world.rank() == 0 ? 3 : others, 1.5F);
  std::vector<float> data = before;
  const std::string told =
      message_of<sw::CollectiveMismatch>([&] { world.all_reduce_in_place(data, sw::ReduceOp::average); });
  CHECK_THAT(told, ContainsSubstring("the counts differ"));
  CHECK(data == before);
}

TEST_CASE("data beside a fingerprint are compared with calls of every other length", "[comm]") {
  const int ranks_per_node = GENERATE(0, 1);
  sw::HostCommunicator world = breakable_world(true, std::chrono::seconds(30), ranks_per_node);
  if (world.size() == 1)
    return;
  const std::vector<std::int64_t> before(32, 300);
  std::vector<std::int64_t> data = before;
  const std::size_t others = GENERATE(0, 4, 31, 40, 480, 1000, 5000);
  const bool reversed = GENERATE(true, false);
  const std::string told = message_of<sw::CollectiveMismatch>([&] {
    if ((world.rank() == 0) != reversed)
      return world.all_reduce_in_place(data);
    std::vector<std::int64_t> other(others, 300);
    others == 0 ? world.barrier() : world.all_reduce_in_place(other);
  });
  CHECK_THAT(told, ContainsSubstring(others == 0 ? "the operations differ" : "the counts differ"));
  CHECK(data == before);
}

TEST_CASE("groups without a place in the node's memory compare their calls by messages", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  for (std::size_t i = 0; i <= sw::detail::NodeExchange::most_groups; ++i) {
    sw::HostCommunicator group = world.split(0, world.rank());
    std::vector<float> data(64, static_cast<float>(i));
    group.all_reduce_in_place(data);
    CHECK(data == std::vector<float>(64, static_cast<float>(i) * static_cast<float>(world.size())));
  }
}

TEST_CASE("both ends of a message must agree", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  const bool types = GENERATE(true, false);
  std::vector<float> data(4, 2.0F);
  std::vector<std::int32_t> words(4, 3);
  const std::string what = types ? "the element type" : "the count";
  if (world.rank() == 0) {
    const std::string told =
        message_of<sw::PeerFailed>([&] { world.send(std::span<float>(data).first(types ? 4 : 3), 1); });
    CHECK_THAT(told, ContainsSubstring("must agree on " + what));
  } else if (world.rank() == 1) {
    const std::string told =
        message_of<sw::CollectiveMismatch>([&] { types ? world.receive(words, 0) : world.receive(data, 0); });
    CHECK_THAT(told, ContainsSubstring("must agree on " + what) && ContainsSubstring("rank 0 issued send("));
    CHECK(words == std::vector<std::int32_t>(4, 3));
    CHECK(data == std::vector<float>(4, 2.0F));
  }
}

TEST_CASE("a rank that does not arrive is named with its last operation", "[comm]") {
  sw::HostCommunicator world = breakable_world(GENERATE(true, false), std::chrono::milliseconds(300));
  if (world.size() == 1)
    return;
  const int late = world.size() - 1;
  std::vector<float> data(100, 1.0F);
  world.all_reduce_in_place(data);
  if (world.rank() == late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
    CHECK_THAT(message_of<sw::PeerFailed>([&] { world.barrier(); }), ContainsSubstring("gave up waiting"));
    return;
  }
  try {
    world.barrier();
    FAIL("the barrier went through");
  } catch (const sw::DeadlineExceeded& error) {
    CHECK(error.missing() == std::vector<int>{late});
    CHECK(error.context().rank == world.rank());
    CHECK(error.context().sequence == 2);
    CHECK_THAT(error.what(), ContainsSubstring("rank " + std::to_string(late) + " did not arrive"));
    CHECK_THAT(error.what(), ContainsSubstring("its last operation was all_reduce #1 on group world at "));
  }
}

TEST_CASE("a slow rank within the deadline changes nothing", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  if (world.rank() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::vector<float> data(100, 1.0F);
  world.all_reduce_in_place(data);
  CHECK(data == std::vector<float>(100, static_cast<float>(world.size())));
}

TEST_CASE("MPI ranks that wait for one another in a ring do not wait for the deadline", "[comm]") {
  struct Groups {
    sw::HostCommunicator world, other;
    std::vector<sw::HostCommunicator> pairs; ///< Of a rank and the next one.
    std::vector<float> data = std::vector<float>(4);
    [[nodiscard]] int next() const { return (world.rank() + 1) % world.size(); }
  };
  struct Case {
    const char* name;
    bool check, all; ///< Whether all ranks do it; else the others wait for the last one in a barrier.
    void (*deed)(Groups&);
  };
  const auto poll_first = [](Groups& on) { // which is no wait yet
    sw::Pending pending = on.other.async().receive(on.data, 0, 3);
    for (int poll = 0; poll < 100; ++poll)
      if (!pending.ready())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pending.wait();
  };
  const auto wait_for_second = [](Groups& on) {
    sw::Pending first = on.other.async().barrier(), second = on.other.async().barrier();
    second.wait();
  };
  const Case cases[] = {
      {"a call that one rank makes", true, false, [](Groups& on) { on.other.all_reduce_in_place(on.data); }},
      {"the same, unchecked", false, false, [](Groups& on) { on.other.all_reduce_in_place(on.data); }},
      {"a message that one rank receives", true, false, [](Groups& on) { on.world.receive(on.data, 0, 3); }},
      {"a call that one rank has started", false, false,
       [](Groups& on) { on.other.async().barrier().wait(); }},
      {"a call behind one that one rank makes", true, false, wait_for_second},
      {"a message that one rank polls before", true, false, poll_first},
      {"sends to the next rank", false, true, [](Groups& on) { on.world.send(on.data, on.next(), 1); }},
      {"a group for each pair", true, true,
       [](Groups& on) { on.pairs[static_cast<std::size_t>(on.world.rank())].barrier(); }}};
  const shardwright_test::StandardError standard_error;
  for (const Case& one : cases) {
    sw::HostCommunicator world =
        breakable_world(one.check, std::chrono::seconds(60), 0, std::chrono::milliseconds(50));
    if (world.size() == 1)
      return;
    Groups on{world, world.split(0, world.rank(), "other"), {}};
    for (int rank = 0; rank < world.size(); ++rank) {
      const bool in = world.rank() == rank || world.rank() == (rank + 1) % world.size();
      on.pairs.push_back(world.split(in ? 0 : -1, world.rank(), "pair " + std::to_string(rank)));
    }
    const std::string told = message_of<sw::Error>([&] {
      if (one.all || world.rank() == world.size() - 1)
        one.deed(on);
      else
        on.world.barrier();
    });
    INFO(one.name);
    CHECK_THAT(told, ContainsSubstring("they wait in a cycle: rank "));
    CHECK_THAT(told, !ContainsSubstring(" within "));
  }
}

TEST_CASE("MPI ranks that wait for a busy one are in no ring, however long it takes", "[comm]") {
  const bool check = GENERATE(true, false);
  const shardwright_test::StandardError standard_error;
  sw::HostCommunicator world =
      breakable_world(check, std::chrono::seconds(60), 0, std::chrono::milliseconds(20));
  const int rank = world.rank(), last = world.size() - 1;
  if (last == 0)
    return;
  sw::HostCommunicator other = world.split(0, rank, "other");
  const auto compute = [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); };
  std::vector<float> data(4), more(std::size_t{1} << 18);
  // It computes.
  if (rank == last)
    compute();
  world.barrier();
  // It has started the others' call, and waits for a message.
  if (rank == 0) {
    compute();
    other.send(data, last);
  }
  sw::Pending started = world.async().barrier();
  if (rank == last)
    other.receive(data, 0);
  started.wait();
  // Two ranks wait for each other, and each has started what the other one needs.
  sw::Pending sent;
  if (rank == 0)
    sent = world.async().send(more, last, 1);
  if (rank == last)
    sent = other.async().send(more, 0, 2);
  if (rank == last)
    compute();
  if (rank == 0)
    other.receive(more, last, 2);
  if (rank == last)
    world.receive(more, 0, 1);
  if (rank == 0 || rank == last)
    sent.wait();
  // One of the two polls, so that it may go on.
  if (rank == 0) {
    world.receive(data, last, 1);
    world.send(data, last, 2);
  }
  if (rank == last) {
    sw::Pending polled = world.async().receive(data, 0, 2);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
    while (std::chrono::steady_clock::now() < end)
      static_cast<void>(polled.ready());
    world.send(data, 0, 1);
    polled.wait();
  }
  other.barrier();
}

TEST_CASE("a send without its receive, and one under another tag, end at the deadline", "[comm]") {
  sw::HostCommunicator world = breakable_world(true, std::chrono::milliseconds(300));
  if (world.size() == 1 || world.rank() > 1)
    return;
  std::vector<float> data(10);
  // Whichever rank reaches its deadline first says so, and the other may learn it from that one.
  const std::string told =
      message_of<sw::Error>([&] { world.rank() == 0 ? world.send(data, 1, 5) : world.receive(data, 0, 6); });
  CHECK_THAT(told, ContainsSubstring("must meet its receive") || ContainsSubstring("must meet its send"));
}

TEST_CASE("a failure of one group does not affect other groups", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  sw::HostCommunicator other = world.split(0, world.rank(), "other");
  std::vector<float> data(world.rank() == 0 ? 3 : 4, 1.0F);
  if (world.size() > 1) {
    CHECK_THROWS_AS(other.all_reduce_in_place(data), sw::CollectiveMismatch);
    CHECK_THROWS_AS(other.barrier(), sw::LifecycleError);
  }
  std::vector<float> sum{1.0F};
  world.all_reduce_in_place(sum);
  CHECK(sum[0] == static_cast<float>(world.size()));
}

TEST_CASE("abort wakes every waiting rank with its reason", "[comm]") {
  // On one node, and with messages between nodes.
  sw::HostCommunicator world = breakable_world(true, std::chrono::seconds(30), GENERATE(0, 1));
  if (world.size() == 1)
    return;
  if (world.rank() == 1) {
    world.abort("the disk is full");
    CHECK_THROWS_AS(world.barrier(), sw::LifecycleError);
    return;
  }
  try {
    world.barrier();
    FAIL("the barrier went through");
  } catch (const sw::PeerFailed& error) {
    CHECK(error.peer() == 1);
    CHECK_THAT(error.what(), ContainsSubstring("rank 1 called abort: the disk is full"));
  }
  CHECK_THROWS_AS(world.barrier(), sw::LifecycleError);
}

TEST_CASE("a started call that nobody waits for ends the group", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  if (world.size() == 1)
    return;
  std::vector<float> data(100, 1.0F);
  if (world.rank() == 0) {
    { const sw::Pending dropped = world.async().all_reduce_in_place(data); }
    CHECK_THAT(message_of<sw::LifecycleError>([&] { world.barrier(); }),
               ContainsSubstring("dropped a started call"));
    return;
  }
  const std::string told = message_of<sw::PeerFailed>([&] {
    world.all_reduce_in_place(data);
    world.barrier();
  });
  CHECK_THAT(told, ContainsSubstring("rank 0 dropped a started call"));
}

TEST_CASE("a started call must be waited for exactly once", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  sw::Pending pending = world.async().barrier();
  pending.wait();
  CHECK_THROWS_AS(pending.wait(), sw::LifecycleError);
}

TEST_CASE("invalid arguments are rejected before anything moves", "[comm]") {
  sw::HostCommunicator world = breakable_world();
  std::vector<float> data(8, 1.0F);
  CHECK_THROWS_AS(world.broadcast(data, world.size()), sw::InvalidArgument);
  CHECK_THROWS_AS(world.send(data, -1), sw::InvalidArgument);
  if (world.size() > 1) {
    const int peer = (world.rank() + 1) % world.size();
    CHECK_THROWS_AS(world.send(data, peer, -1), sw::InvalidArgument);
    CHECK_THROWS_AS(world.send(data, peer, std::numeric_limits<int>::max()), sw::InvalidArgument);
  }
  CHECK_THROWS_AS(world.all_reduce(std::span<float>(data).first(5), std::span<float>(data).last(5)),
                  sw::InvalidArgument);
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_reduce;
  call.element = sw::ElementType::float32;
  call.count = 3;
  CHECK_THROWS_AS(world.run(call), sw::InvalidArgument);
  CHECK(data == std::vector<float>(8, 1.0F));
  world.barrier();
}

TEST_CASE("MPI's error codes become TransportError with MPI's text", "[comm]") {
  CHECK_NOTHROW(sw::detail::check_mpi(MPI_SUCCESS, "MPI_Send"));
  try {
    sw::detail::check_mpi(MPI_ERR_RANK, "MPI_Isend");
    FAIL("no error");
  } catch (const sw::TransportError& error) {
    CHECK(error.code() == MPI_ERR_RANK);
    CHECK_THAT(error.what(), ContainsSubstring("MPI_Isend") &&
                                 (ContainsSubstring("MPI_ERR_RANK") || ContainsSubstring("Invalid rank")));
  }
  // A code that MPI itself returns: a message to a rank that does not exist.
  const auto transport = sw::detail::make_mpi_transport(MPI_COMM_WORLD, options(), 0);
  sw::detail::MpiRequests requests;
  const sw::detail::MpiCallSite site{};
  CHECK_THROWS_AS(requests.send(transport->world().channel(), "x", 1, transport->size() + 5, 1, site),
                  sw::TransportError);
}

TEST_CASE("MPI is initialised once, and launches do not nest", "[comm]") {
  CHECK_THROWS_AS(sw::MpiEnvironment(), sw::LifecycleError);
  std::string told;
  sw::HostCommunicator kept;
  sw::launch(options(), [&](sw::HostCommunicator world) {
    told = message_of<sw::LifecycleError>([] { sw::launch(options(), [](sw::HostCommunicator) {}); });
    kept = std::move(world);
  });
  CHECK_THAT(told, ContainsSubstring("must not launch another"));
  CHECK_THAT(message_of<sw::LifecycleError>([&] { kept.barrier(); }),
             ContainsSubstring("after launch() has returned"));
}

TEST_CASE("contradicting launch variables are named with their values", "[comm]") {
  struct Variable {
    Variable(const char* variable, const std::string& value) : name(variable) {
      ::setenv(name, value.c_str(), 1);
    }
    ~Variable() { ::unsetenv(name); }
    const char* name;
  };
  const auto told = [] {
    return message_of<sw::ConfigurationMismatch>([] { sw::launch(options(), [](sw::HostCommunicator) {}); });
  };
  {
    const Variable world("WORLD_SIZE", "77");
    CHECK_THAT(told(), ContainsSubstring("WORLD_SIZE=77") &&
                           (ContainsSubstring("OMPI_COMM_WORLD_SIZE=") || ContainsSubstring("PMI_SIZE=")));
  }
  {
    const Variable rank("RANK", "two");
    CHECK_THAT(told(), ContainsSubstring("RANK must be a whole number") && ContainsSubstring("\"two\""));
  }
  {
    const Variable rank("RANK", "99");
    CHECK_THAT(told(), ContainsSubstring("RANK=99"));
  }
  CHECK_THAT(message_of<sw::ConfigurationMismatch>([] {
               sw::LaunchOptions asks = options();
               asks.ranks = 99;
               sw::launch(asks, [](sw::HostCommunicator) {});
             }),
             ContainsSubstring("asks for 99"));
}
