// SPDX-License-Identifier: Apache-2.0
#include "sparse/conjugate_gradient.hpp"
#include "support/catch.hpp"
#include "support/counted_transport.hpp"
#include "support/heap_count.hpp"
#include "support/ranks.hpp"
#include "support/scratch.hpp"
#include "tensor/exchange_cases.hpp"
#include "tensor/sparse_cases.hpp"

#include <shardwright/io/matrix_market.hpp>
#include <shardwright/train/dry_run.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace sparse_test;
using shardwright_test::CountedTransport;
using shardwright_test::Counts;
using shardwright_test::on_ranks;
using Line = Layout<1, Shard<0, x>>;

TEST_CASE("index halos and sparse products equal plain sums on every mesh") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            check_meshes(world, findings);
          }) == "");
}

/// Expects the error, with a part of its sentence, on every rank.
template <class Error, class Action>
void expect_error(Findings& findings, const std::string& part, Action action) {
  try {
    action();
    findings.expect(false, "no error: ", part);
  } catch (const Error& error) {
    findings.expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

TEST_CASE("a wrong index, entry or extent on one rank is an error on every rank") {
  const std::string found = on_ranks(3, [](const HostCommunicator& world, Findings& findings) {
    const DeviceMesh mesh{world, extent<x>(3)};
    const auto rank = static_cast<std::int64_t>(world.rank());
    const auto plan = [&](std::int64_t extent, std::int64_t index) {
      static_cast<void>(IndexHalo<Line>(mesh, extent, std::array{index}));
    };
    expect_error<InvalidArgument>(findings,
                                  "IndexHalo: every index must be at least 0 and below 7, but rank 1 reads 7",
                                  [&] { plan(7, rank == 1 ? 7 : 0); });
    expect_error<InvalidArgument>(findings, "below 7, but rank 2 reads -1",
                                  [&] { plan(7, rank == 2 ? -1 : 0); });
    expect_error<ConfigurationMismatch>(
        findings, "must give the same extent of the vector, but it is 7 on rank 0 and 8 on rank 2",
        [&] { plan(rank == 2 ? 8 : 7, 0); });
    expect_error<InvalidArgument>(
        findings,
        "a rank must hold fewer than 2147483647 elements, but it would hold 2863311531 of 8589934592",
        [&] { plan(std::int64_t{1} << 33, 0); });
    expect_error<InvalidArgument>(
        findings, "but it would hold 3074457345618258603 of 9223372036854775807 (split them over more ranks)",
        [&] { plan(most, 0); });
    expect_error<InvalidArgument>(
        findings, "IndexHalo: the elements must be at least 0, but they are -3 (give", [&] { plan(-3, 0); });
    const auto matrix = [&](const std::array<std::int64_t, 2>& shape, const MatrixEntry<double>& entry) {
      static_cast<void>(CsrMatrix<Line>(mesh, shape, std::array{entry}));
    };
    expect_error<InvalidArgument>(
        findings,
        "CsrMatrix: every entry must be inside the matrix of 4 rows and 5 columns, but rank 1 gives one in row 3, column 5 (count from 0)",
        [&] {
          matrix({4, 5}, {3, rank == 1 ? 5 : 0, 1.0});
        });
    expect_error<InvalidArgument>(findings, "rank 0 gives one in row -1", [&] {
      matrix({4, 5}, {rank == 0 ? -1 : 3, 0, 1.0});
    });
    expect_error<ConfigurationMismatch>(
        findings, "must give the same number of columns, but it is 5 on rank 0 and 6 on rank 1", [&] {
          matrix({4, rank == 1 ? 6 : 5}, {3, 0, 1.0});
        });
    expect_error<InvalidArgument>(findings, "fewer than 2147483647 rows", [&] {
      matrix({std::int64_t{1} << 33, 5}, {3, 0, 1.0});
    });
    expect_error<InvalidArgument>(findings, "CsrMatrix: a rank must hold fewer than 2147483647 columns", [&] {
      matrix({4, std::int64_t{1} << 33}, {3, 0, 1.0});
    });
    expect_error<InvalidArgument>(findings, "fewer than 2147483647 columns", [&] {
      matrix({4, most}, {3, 0, 1.0});
    });
    for (const std::int64_t rows : {std::int64_t{-1}, most})
      expect_error<InvalidArgument>(
          findings, rows < 0 ? "CsrMatrix: the rows must be at least 0" : "CsrMatrix: a rank must hold fewer",
          [&] { static_cast<void>(CsrMatrix<Line>::row_block(mesh, rows)); });
    expect_error<InvalidArgument>(findings, "the rows must be at least 0, but they are -1", [&] {
      matrix({-1, 5}, {3, 0, 1.0});
    });
    expect_error<InvalidArgument>(findings, "the columns must be at least 0, but they are -5", [&] {
      matrix({4, -5}, {3, 0, 1.0});
    });
  });
  CHECK(found == "");
}

TEST_CASE("a halo takes only its own plan's elements, and vectors of its extent") {
  const std::string found = on_ranks(2, [](const HostCommunicator& world, Findings& findings) {
    const DeviceMesh mesh{world, extent<x>(2)};
    const std::array<std::int64_t, 2> reads{0, 5};
    const IndexHalo<Line> one(mesh, 6, reads), other(mesh, 6, reads);
    ShardedTensor<Line, double> vector(mesh, {6}), longer(mesh, {7});
    auto elements = one.elements<double>();
    const auto place = [&](std::int64_t index) { static_cast<void>(one.local_index(index)); };
    for (const std::int64_t index :
         {std::int64_t{-1}, std::int64_t{world.rank() == 0 ? 4 : 1}, std::int64_t{6}})
      expect_error<InvalidArgument>(findings,
                                    "IndexHalo: the plan must read an element to know its place, but it does "
                                    "not read element " +
                                        std::to_string(index) + " (plan for it)",
                                    [&] { place(index); });
    place(world.rank() == 0 ? 1 : 4); // the rank's own, though not planned for
    expect_error<InvalidArgument>(findings,
                                  "the elements must be those of this plan, but another one made them",
                                  [&] { other.gather_into(elements, vector); });
    expect_error<InvalidArgument>(findings, "the vector must have the shape [6], but it has [7]",
                                  [&] { one.scatter_add(elements, longer); });
    const CsrMatrix<Line> matrix(mesh, {6, 6}, {});
    expect_error<InvalidArgument>(findings, "the result must be another tensor than the vector",
                                  [&] { spmv_into(vector, matrix, vector); });
    expect_error<InvalidArgument>(findings, "the vector must have the shape [6], but it has [7]",
                                  [&] { spmv_transposed_into(vector, matrix, longer); });
    // A rank without elements decides as the other one does.
    const CsrMatrix<Line> small(mesh, {1, 1}, {});
    ShardedTensor<Line, double> single(mesh, {1});
    expect_error<InvalidArgument>(findings, "the result must be another tensor than the vector",
                                  [&] { spmv_into(single, small, single); });
  });
  CHECK(found == "");
}

TEST_CASE("vectors on another mesh than the matrix's are refused before anything is computed") {
  const std::string found = on_ranks(2, [](const HostCommunicator& world, Findings& findings) {
    const DeviceMesh mesh{world, extent<x>(2)};
    const DeviceMesh whole{world, extent<x>(1), extent<y>(2)};
    const std::array<MatrixEntry<double>, 1> given{{{5, 0, 2.0}}}; // by both
    const CsrMatrix<Line> matrix(mesh, {6, 6}, given);
    ShardedTensor<Line, double> v(mesh, {6}), product(mesh, {6});
    ShardedTensor<Line, double> other(whole, {6}), longer(whole, {6});
    expect_error<InvalidArgument>(findings, "spmv: the tensors must be on one mesh",
                                  [&] { spmv_into(longer, matrix, other); });
    expect_error<InvalidArgument>(findings, "spmv_transposed: the tensors must be on one mesh",
                                  [&] { spmv_transposed_into(longer, matrix, other); });
    fill_vector(v, 1);
    spmv_transposed_into(product, matrix, v); // its copy of the matrix is that of the right mesh
    for (std::size_t i = 0; i < product.local_size(); ++i)
      findings.expect(product.data()[i] == (world.rank() == 0 && i == 0 ? 4 * element_of(5, 1) : 0),
                      "element ", i);
  });
  CHECK(found == "");
}

/// Memory in use after each step of products with the matrix of a Poisson equation.
template <class Where> std::vector<std::size_t> products(const HostCommunicator& world) {
  constexpr std::int64_t side = 6, points = side * side * side;
  using Matrix = CsrMatrix<sparse::Split, sparse::Split, double, Where>;
  const DeviceMesh mesh{world, extent<sparse::rows>(world.size())};
  std::vector<std::size_t> out;
  const auto note = [&] {
    const PoolStatistics now = mesh.template pool_statistics<Where>();
    out.insert(out.end(), {now.used_bytes, now.requested_bytes, now.peak_bytes, now.allocations});
  };
  const Matrix a(mesh, {points, points}, sparse::poisson(side, Matrix::row_block(mesh, points)));
  note();
  ShardedTensor<sparse::Split, double, Where> v(mesh, {points}), product(mesh, {points});
  fill(v, 1.0);
  spmv_into(product, a, v);
  note();
  spmv_transposed_into(product, a, v);
  note();
  static_cast<void>(diagonal(a));
  note();
  out.insert(out.end(), {a.local_entries(), a.plan().neighbours(), a.plan().indices().size()});
  return out;
}

TEST_CASE("a dry run of sparse products takes the memory of a real one, and states its kernels' bytes") {
  using Dry = Counting<DefaultTarget>;
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [&](const HostCommunicator& world, Findings& findings) {
            std::vector<std::size_t> counted;
            const DryRun run = dry_run(world.size(), world.rank(), [&](const HostCommunicator& pretended) {
              counted = products<Dry>(pretended);
            });
            findings.expect(counted == products<DefaultTarget>(world), "memory of rank ", world.rank());
            if (world.size() > 1)
              for (const char* kernel : {"sw::spmv", "sw::spmv_edge", "sw::halo_gather", "sw::halo_add"})
                findings.expect(run.kernel_bytes.at(kernel) > 0, kernel);
            else // 1296 entries in 216 rows: twice the product, and the diagonal
              findings.expect(run.kernel_bytes == KernelBytes{{"sw::fill", 0},
                                                              {"sw::spmv", 2 * (4 * 1512.0 + 8 * 1728)},
                                                              {"sw::diagonal", (4 + 8) * 1512.0}},
                              "bytes of the kernels");
          }) == "");
  // Entries that a rank gives for others' rows: none of them is its own.
  const DryRun run = dry_run(3, 1, [](const HostCommunicator& world) {
    const DeviceMesh mesh{world, extent<x>(3)};
    const std::array<MatrixEntry<double>, 2> given{{{0, 5, 1.0}, {3, 2, 1.0}}};
    const CsrMatrix<Line, Line, double, Dry> matrix(mesh, {6, 6}, given);
    CHECK(matrix.local_entries() == 1);
  });
  CHECK(!run.calls.empty());
}

TEST_CASE("rows of unlike lengths are grouped within windows, and keep their entries") {
  const auto rows_of = [](std::size_t count, auto length) {
    detail::CsrRows<double> out;
    for (std::size_t row = 0; row < count; ++row) {
      for (std::uint64_t k = 0; k < length(row); ++k)
        out.add(static_cast<std::int32_t>(k), static_cast<double>(1000 * row + k));
      out.end_row();
    }
    return out;
  };
  const auto random = [](std::size_t row) { return hash_of(row, 9) % 6; };
  const auto grouped = detail::grouped_by_length(rows_of(600, random));
  REQUIRE(grouped.count() == 600);
  int changes = 0;
  for (std::size_t i = 0; i < 600; ++i) {
    const auto row = static_cast<std::size_t>(grouped.row(i));
    CHECK(row / 256 == i / 256);
    REQUIRE(grouped.length(i) == static_cast<std::int32_t>(random(row)));
    for (std::int32_t k = 0; k < grouped.length(i); ++k) {
      const auto at = static_cast<std::size_t>(grouped.begin[i] + k);
      CHECK((grouped.columns[at] == k && grouped.values[at] == 1000 * static_cast<double>(row) + k));
    }
    changes += i > 0 && grouped.length(i) != grouped.length(i - 1) ? 1 : 0;
  }
  CHECK(changes <= 3 * 5 + 2); // the lengths of three windows, and their ends
  CHECK(detail::grouped_by_length(rows_of(600, [](std::size_t row) { return row % 4 < 2 ? 3u : 4u; })).rows ==
        std::vector<std::int32_t>());
}

TEST_CASE("an iteration of conjugate gradients allocates nothing and sends one message to each neighbour") {
  constexpr std::int64_t side = 5, points = side * side * side;
  std::vector<double> first; // of a product on one rank
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    std::vector<double> whole;
    const std::string found = on_ranks(ranks, [&](const HostCommunicator& world, Findings& findings) {
      Counts counts;
      const HostCommunicator counted(std::make_shared<CountedTransport>(world, counts));
      const DeviceMesh mesh{counted, extent<sparse::rows>(world.size())};
      const sparse::Matrix a(mesh, {points, points},
                             sparse::poisson(side, sparse::Matrix::row_block(mesh, points)));
      sparse::Vector b(mesh, {points}), solution(mesh, {points});
      fill_vector(b, 1);
      // A row reads those at most a plane away: of two ranks on either side, where blocks are smaller.
      const std::int64_t length = (points + ranks - 1) / ranks, plane = side * side;
      const std::int64_t first_row = world.rank() * length;
      int neighbours = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = rank * length, end = std::min(begin + length, points);
        neighbours += rank != world.rank() && end > first_row - plane &&
                      begin < std::min(first_row + length, points) + plane;
      }
      findings.expect(a.plan().neighbours() == static_cast<std::size_t>(neighbours), "neighbours");

      const auto solve = [&](int steps) {
        const Counts before = counts;
        const std::size_t heap = shardwright_test::heap_allocations();
        const auto done = sparse::solve(a, b, solution, 0, steps);
        const std::size_t allocations = shardwright_test::heap_allocations() - heap;
        findings.expect(done.steps == steps, "steps");
        return std::array<int, 4>{
            static_cast<int>(allocations), counts.messages - before.messages,
            counts.calls[Operation::all_to_all] - before.calls.at(Operation::all_to_all),
            counts.calls[Operation::all_reduce] - before.calls.at(Operation::all_reduce)};
      };
      counts.calls[Operation::all_reduce] += 0;
      static_cast<void>(solve(2)); // fills the pool
      const auto few = solve(3), many = solve(8);
      if constexpr (shardwright_test::counts_heap)
        findings.expect(many[0] == few[0], "allocations of five iterations: ", many[0] - few[0]);
      findings.expect(many[1] - few[1] == 5 * neighbours, "messages of five iterations: ", many[1] - few[1]);
      findings.expect(many[2] - few[2] == (world.size() > 1 ? 5 : 0), "exchanges of five iterations");
      findings.expect(many[3] - few[3] == (world.size() > 1 ? 10 : 0), "sums of five iterations");

      const auto exact = sparse::solve(a, b, solution, 1e-13, 1000);
      sparse::Vector product(mesh, {points});
      spmv_into(product, a, solution);
      axpy(-1, b, product);
      findings.expect(exact.residual <= 1e-13 && norm_max_value(product) < 1e-11, "solution");
      spmv_into(product, a, b);
      const auto all = redistribute<Layout<1>>(product);
      if (world.rank() == 0)
        whole.assign(all.data(), all.data() + points);
    });
    CHECK(found == "");
    if (ranks == 1)
      first = whole;
    REQUIRE(whole.size() == first.size());
    CHECK(whole == first); // to the bit, as this file is compiled with -ffp-contract=off
  }
}

TEST_CASE("items that change their owners arrive in order, in one message to each neighbour") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_ranks(ranks, exchange_test::check_exchanges) == "");
}

/// The entries of a file, "row column value; ...", or its error.
std::string read(const std::filesystem::path& path) {
  try {
    detail::MatrixMarketFile file(path);
    std::string out = std::to_string(file.shape()[0]) + "x" + std::to_string(file.shape()[1]);
    for (MatrixEntry<double> entry; file.next(entry);)
      out += "; " + std::to_string(entry.row) + " " + std::to_string(entry.column) + " " +
             std::to_string(entry.value).substr(0, 5);
    return out;
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST_CASE("files in Matrix Market's format are read, and wrong ones are refused with their line") {
  const shardwright_test::Scratch scratch;
  const auto text = [&](const std::string& bytes) { return read(scratch.write("a.mtx", bytes)); };
  const std::string real = "%%MatrixMarket matrix coordinate real general\n";
  CHECK(text(real + "% a comment\n\n2 3 2\n1 1 1.5\r\n 2  3 -2e0\n") == "2x3; 0 0 1.500; 1 2 -2.00");
  CHECK(text("%%matrixmarket MATRIX coordinate Integer Symmetric\n2 2 2\n1 1 +4\n2 1 3\n") ==
        "2x2; 0 0 4.000; 1 0 3.000; 0 1 3.000");
  CHECK(text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n3 1\n") ==
        "3x3; 2 0 1.000; 0 2 1.000");
  CHECK(text("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 7\n") ==
        "2x2; 1 0 7.000; 0 1 -7.00");
  CHECK(text(real + "0 0 0\n") == "0x0");
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    const std::string found = text(bytes);
    INFO(found);
    CHECK(found.find(part) != std::string::npos);
  };
  refused("", "a.mtx: the file must begin with '%%MatrixMarket matrix', but it begins with '' (give");
  refused("%MatrixMarket matrix\n", "but it begins with '%matrixmarket matrix' (give an unpacked file");
  refused("\x1f\x8b\x08\n", "but it begins with '\\x1f");
  refused("%%MatrixMarket matrix array real general\n", "in the format 'coordinate', but it is 'array'");
  refused("%%MatrixMarket matrix coordinate complex general\n", "but they are 'complex' (convert them)");
  refused("%%MatrixMarket matrix coordinate real hermitian\n", "but it is 'hermitian' (convert the file)");
  refused(real + "% only comments\n", "line 2: a line with rows, columns and entries must follow");
  refused(real + "2 2\n", "line 2: the number of entries must be a number, but it is ''");
  refused(real + "2 -2 1\n", "the sizes must be three numbers of at least 0");
  refused("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n",
          "must be square, but it has 2 rows and 3 columns");
  refused(real + "2 2 3\n1 1 1\n2 2 1\n",
          "line 4: the file must hold 3 entries, but it ends after 2 (fetch it again, as it is cut short)");
  refused(real + "2 2 1\n1 1\n",
          "line 3: the value must be a number, but it is '' (correct the line; the file may be cut short)");
  refused(real + "2 2 1\n1 1 1x\n", "the value must be a number, but it is '1x'");
  refused(
      real + "2 2 1\n1 3 1\n",
      "line 3: the entry must be inside the matrix of 2 rows and 2 columns, but it is in row 1, column 3");
  refused(real + "2 2 1\n0 1 1\n", "but it is in row 0, column 1 (the format counts from 1)");
  refused(real + "2 2 1\n99999999999999999999 1 1\n", "the row must be a number of at most 64 bits, but");
  refused(real + "2 2 1\n-9223372036854775808 1 1\n", "but it is in row -9223372036854775808, column 1");
  CHECK(text(real + "1 1 1\n1 1 -1e-400\n") == "1x1; 0 0 -0.00");
  for (const std::string value : {"1e400", "-1e99999999999", "nan", "inf"})
    refused(real + "1 1 1\n1 1 " + value + "\n",
            "line 3: the value must be a finite number that a double can hold, but it is '" + value +
                "' (correct it, or scale the matrix)");
  refused(real + "2 2 1\n1 1 \x1b[2J\n", "but it is '\\x1b[2J'");
  refused(
      real + "2000000000 1 0\n",
      "line 2: the rows, and the columns, must be at most 16777216 more than the entries, which are 0, but");
  refused(real + "1 16777218 1\n1 1 1\n",
          "which are 1, but they are 16777218 (set MatrixMarketLimits::empty");
  CHECK(text(real + "16777217 1 1\n1 1 1\n") == "16777217x1; 0 0 1.000");
  CHECK(text(real + "1 1 1\n%" + std::string(1023, ' ') + "\r\n1 1 2") == "1x1; 0 0 2.000");
  refused(real + "1 1 1\n" + std::string(5000, '1'), "line 3: a line must have at most 1024 characters");
  refused(std::string(5000, '%'), "line 1: a line must have at most 1024 characters");
  refused(real + "2 2 1\n1 1 1 1\n", "must be a row, a column and a value, but more follows");
  refused(real + "2 2 1\n1 1 1\n2 2 2\n", "line 4: the file must end after its 1 entries");
  refused(
      "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n",
      "a symmetric matrix must be given by its entries below the diagonal and on it, but one is in row 1, column 2");
  refused("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n",
          "a skew-symmetric matrix must be given by its entries below the diagonal, but");
  CHECK(read(scratch.root() / "none.mtx").find("it must be a file that can be read") != std::string::npos);
  CHECK(read(scratch.root() / std::string(300, 'n')).find("it must be a file") != std::string::npos);
  CHECK(read(scratch.root()).find("it must be a file that can be read") != std::string::npos);
}

TEST_CASE("a rank keeps the entries of a file that are in its rows") {
  const shardwright_test::Scratch scratch;
  const auto path = scratch.write(
      "a.mtx", "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 2\n2 1 -1\n3 2 5\n2 1 -1\n");
  const std::string real = "%%MatrixMarket matrix coordinate real general\n";
  const auto huge = scratch.write("huge.mtx", real + "9223372036854775807 1 9223372036854775807\n");
  const auto empty = scratch.write("empty.mtx", real + "2 2 0\n");
  const auto large = scratch.write("large.mtx", real + "2 2 2\n1 1 1\n2 2 1e39\n");
  const std::string found = on_ranks(2, [&](const HostCommunicator& world, Findings& findings) {
    const DeviceMesh mesh{world, extent<x>(2)};
    const auto matrix = read_matrix_market<CsrMatrix<Line>>(mesh, path);
    ShardedTensor<Line, double> ones(mesh, {3}), product(mesh, {3});
    for (std::size_t i = 0; i < ones.local_size(); ++i)
      ones.mutable_data()[i] = 1;
    spmv_into(product, matrix, ones);
    const std::array<double, 3> wanted{0, 3, 5};
    for (std::size_t i = 0; i < product.local_size(); ++i)
      findings.expect(product.data()[i] == wanted[static_cast<std::size_t>(product.local_offset()[0]) + i],
                      "row ", i);
    findings.expect(matrix.local_entries() == (world.rank() == 0 ? 4 : 1), "entries");
    expect_error<InvalidArgument>(findings, "CsrMatrix: a rank must hold fewer than 2147483647 rows", [&] {
      static_cast<void>(read_matrix_market<CsrMatrix<Line>>(mesh, huge));
    });
    expect_error<DataError>(findings, "must be at most 1 more than the entries, which are 0, but", [&] {
      static_cast<void>(read_matrix_market<CsrMatrix<Line>>(mesh, empty, {.empty = 1}));
    });
    const auto nothing = read_matrix_market<CsrMatrix<Line>>(mesh, empty, {.empty = 2});
    findings.expect(nothing.shape()[0] == 2 && nothing.local_entries() == 0, "no entries");
    expect_error<DataError>(findings, "line 4: the value must fit a float (give", [&] {
      static_cast<void>(read_matrix_market<CsrMatrix<Line, Line, float>>(mesh, large));
    });
  });
  CHECK(found == "");
}

} // namespace
