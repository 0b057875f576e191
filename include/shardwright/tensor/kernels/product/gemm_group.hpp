// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matrix products of different sizes that a device library starts in one call.

#include <shardwright/core/config.hpp>
#include <shardwright/tensor/kernels/product/gemm_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

/// Products that agree in types, transposes, alpha and beta. Sizes are on the host, in one array for each, as
/// libraries expect them; addresses are read on the device.
class GemmGroup {
public:
  void clear() {
    for (auto* sizes : {&m, &n, &k, &lda, &ldb, &ldc})
      sizes->clear();
    operands.clear();
  }
  void add(const GemmProblem& problem, const GemmOperands& with) {
    if (operands.empty())
      shared = problem;
    m.push_back(problem.m);
    n.push_back(problem.n);
    k.push_back(problem.k);
    lda.push_back(problem.lda);
    ldb.push_back(problem.ldb);
    ldc.push_back(problem.ldc);
    operands.push_back(with);
  }
  [[nodiscard]] std::size_t size() const { return operands.size(); }

  GemmProblem shared{}; ///< The common properties.
  std::vector<std::int64_t> m, n, k, lda, ldb, ldc;
  std::vector<GemmOperands> operands;
};

/// Writes the products' addresses where the library reads them: all of A, all of B, all of C. They are passed
/// as kernel arguments, for which the host need not wait.
struct PlaceAddresses {
  static constexpr std::size_t most = 128;
  const void* from[most][3];
  const void** to; // [3, count]
  std::size_t count;
  std::size_t first;

  [[nodiscard]] static PlaceAddresses of(const GemmGroup& group, std::size_t first, const void** to) {
    PlaceAddresses out{};
    out.to = to;
    out.count = group.size();
    out.first = first;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const GemmOperands& operands = group.operands[first + i];
      out.from[i][0] = operands.a;
      out.from[i][1] = operands.b;
      out.from[i][2] = operands.c;
    }
    return out;
  }
  [[nodiscard]] std::size_t size() const { return std::min(most, count - first); }
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    for (std::size_t matrix = 0; matrix < 3; ++matrix)
      to[matrix * count + first + i] = from[i][matrix];
  }
};

/// A library's call for a group, `bool multiply(execution, group)`, which is false if it has no kernel for
/// the types; specialized by headers of targets.
template <class Execution> struct LibraryGemmGroup { static constexpr bool available = false; };

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
