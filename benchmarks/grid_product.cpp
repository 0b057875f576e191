// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares a matrix product over a grid of processes with ScaLAPACK's pdgemm, with the same BLAS.
///
/// Under mpirun both take turns in the same processes; the figure is the median of the ratios of neighbouring
/// turns. pdgemm gets the blocks of the same ranks in its cyclic layout, of a width that suits it best.
#include "timing.hpp"

#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

extern "C" {
void Cblacs_pinfo(int* rank, int* ranks);
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* extent, const int* block, const int* place, const int* source, const int* places);
void descinit_(int* descriptor, const int* rows, const int* columns, const int* row_block,
               const int* column_block, const int* row_source, const int* column_source, const int* context,
               const int* stride, int* error);
void pdgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
             const double* alpha, const double* a, const int* ia, const int* ja, const int* descriptor_a,
             const double* b, const int* ib, const int* jb, const int* descriptor_b, const double* beta,
             double* c, const int* ic, const int* jc, const int* descriptor_c);
}

namespace {

namespace sw = shardwright;

//! [grid]
struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};
using Grid = sw::Layout<2, sw::Shard<0, rows>, sw::Shard<1, columns>>;
static_assert(std::is_same_v<sw::MatmulLayout<Grid, Grid>, Grid>);
// On 2 x 2 ranks, eight panels; a rank receives half of its 1024 rows of A and of its 1024 columns of B.
static_assert(sw::GridProduct<Grid>::steps(std::array{2, 2}, 2048) == 8);
static_assert(sw::GridProduct<Grid>::bytes(std::array{2, 2}, {2048, 2048, 2048}, sizeof(double)) ==
              2 * 1024 * 1024 * 8);
//! [grid]

struct Options {
  int size = 2048;
  std::vector<int> blocks{64, 128, 256, 0};
  int turns = 15;
  bool check = true;
  std::string form = "NN";
};

/// Any element of a matrix, the same on all ranks.
double element(std::int64_t row, std::int64_t column, int seed) {
  return static_cast<double>((row * 37 + column * 101 + seed * 13) % 17 - 8);
}

/// Square matrices in ScaLAPACK's layout, column-major.
class Scalapack {
public:
  Scalapack(int size, int block, int grid_rows, int grid_columns) : size_(size), block_(block) {
    Cblacs_get(-1, 0, &context_);
    Cblacs_gridinit(&context_, "Row", grid_rows, grid_columns);
    Cblacs_gridinfo(context_, &grid_rows_, &grid_columns_, &row_, &column_);
    const int zero = 0;
    local_rows_ = numroc_(&size_, &block_, &row_, &zero, &grid_rows_);
    local_columns_ = numroc_(&size_, &block_, &column_, &zero, &grid_columns_);
    const int stride = std::max(1, local_rows_);
    int error = 0;
    descinit_(descriptor_.data(), &size_, &size_, &block_, &block_, &zero, &zero, &context_, &stride, &error);
    if (error != 0)
      throw std::runtime_error("grid_product: descinit must succeed, but it returned " +
                               std::to_string(error));
    a_ = filled(1);
    b_ = filled(2);
    c_.resize(a_.size());
  }
  Scalapack(const Scalapack&) = delete;
  Scalapack& operator=(const Scalapack&) = delete;
  ~Scalapack() { Cblacs_gridexit(context_); }

  /// @param form "N" or "T" for each operand, as in pdgemm
  void multiply(const std::string& form) {
    const double one = 1, zero = 0;
    const int first = 1;
    pdgemm_(&form[0], &form[1], &size_, &size_, &size_, &one, a_.data(), &first, &first, descriptor_.data(),
            b_.data(), &first, &first, descriptor_.data(), &zero, c_.data(), &first, &first,
            descriptor_.data());
  }
  /// Calls visit(row, column, element of C) for this rank's elements.
  template <class Visit> void for_each(Visit visit) const {
    for (int j = 0; j < local_columns_; ++j)
      for (int i = 0; i < local_rows_; ++i)
        visit(global(i, row_, grid_rows_), global(j, column_, grid_columns_),
              c_[static_cast<std::size_t>(j) * static_cast<std::size_t>(local_rows_) +
                 static_cast<std::size_t>(i)]);
  }

private:
  [[nodiscard]] std::int64_t global(int local, int place, int places) const {
    return static_cast<std::int64_t>((local / block_ * places + place) * block_ + local % block_);
  }
  [[nodiscard]] std::vector<double> filled(int seed) const {
    std::vector<double> out;
    for (int j = 0; j < local_columns_; ++j)
      for (int i = 0; i < local_rows_; ++i)
        out.push_back(element(global(i, row_, grid_rows_), global(j, column_, grid_columns_), seed));
    return out;
  }

  int size_, block_, context_ = 0;
  int grid_rows_ = 0, grid_columns_ = 0, row_ = 0, column_ = 0, local_rows_ = 0, local_columns_ = 0;
  std::array<int, 9> descriptor_{};
  std::vector<double> a_, b_, c_;
};

using Matrix = sw::ShardedTensor<Grid, double>;

void fill(Matrix& matrix, int seed) {
  const auto [row, column] = matrix.local_offset();
  const auto [height, width] = matrix.local_shape();
  double* out = matrix.mutable_data();
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      *out++ = element(row + i, column + j, seed);
}

int compare(sw::HostCommunicator world, const Options& options) {
  int grid_rows = 1;
  for (int i = 1; i * i <= world.size(); ++i)
    if (world.size() % i == 0)
      grid_rows = i;
  const int grid_columns = world.size() / grid_rows;
  const sw::DeviceMesh mesh{world, sw::extent<rows>(grid_rows), sw::extent<columns>(grid_columns)};
  Matrix a(mesh, {options.size, options.size}), b(mesh, {options.size, options.size}),
      c(mesh, {options.size, options.size});
  fill(a, 1);
  fill(b, 2);
  const auto turn = [&](const auto& call) {
    world.barrier();
    const auto begin = benchmark::Clock::now();
    call();
    world.barrier();
    return benchmark::seconds_since(begin);
  };
  const auto multiply = [&] {
    if (options.form == "NT")
      sw::matmul_input_gradient_into(c, a, b);
    else if (options.form == "TN")
      sw::matmul_weight_gradient_into(c, a, b);
    else
      sw::matmul_into(c, a, b);
  };
  multiply();
  const auto whole = sw::redistribute<sw::Layout<2>>(c);
  for (int block : options.blocks) {
    if (block == 0) // one block a rank, as ours
      block = options.size / std::max(grid_rows, grid_columns);
    Scalapack theirs(options.size, block, grid_rows, grid_columns);
    theirs.multiply(options.form);
    std::array<double, 1> difference{0};
    theirs.for_each([&](std::int64_t i, std::int64_t j, double value) {
      const double own = whole.data()[i * options.size + j];
      difference[0] = std::max(difference[0], std::abs(value - own));
    });
    world.all_reduce_in_place(difference, sw::ReduceOp::maximum);
    std::vector<double> times, ratios;
    for (int i = 0; i < options.turns; ++i) {
      const double mine = turn(multiply);
      const double other = turn([&] { theirs.multiply(options.form); });
      times.push_back(mine);
      ratios.push_back(other / mine);
    }
    if (world.rank() == 0)
      std::printf("%d x %d ranks, %d x %d, %s, %s: %.1f ms, %.2f of the speed of pdgemm in blocks of %d "
                  "(largest difference %.1e)\n",
                  grid_rows, grid_columns, options.size, options.size, options.form.c_str(),
                  options.check ? "calls compared" : "unchecked", benchmark::median(times) * 1e3,
                  benchmark::median(ratios), block, difference[0]);
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Matrix products over a grid of processes against ScaLAPACK's pdgemm");
  app.add_option("--size", options.size, "rows and columns of the matrices");
  app.add_option("--blocks", options.blocks, "widths of pdgemm's blocks; 0: one block a rank")
      ->delimiter(',');
  app.add_option("--turns", options.turns, "pairs of turns; figures are medians over them");
  app.add_option("--form", options.form, "which operands are transposed")
      ->check(CLI::IsMember({"NN", "NT", "TN"}));
  app.add_flag("!--unchecked", options.check, "ranks do not compare their calls");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    return sw::launch({.check = options.check},
                      [&](sw::HostCommunicator world) { return compare(std::move(world), options); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
