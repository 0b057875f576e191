// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds ranks whose copy of a parameter or of its optimizer state differs from the others.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/failure.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/optimizer/optimizer_for.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief A block whose copies are not all equal.
struct ReplicaDifference {
  std::string parameter;
  std::string part; ///< "weights", "first moment", "second moment" or "master weights".
  std::vector<int>
      odd; ///< Ranks that differ from the majority, or from the first rank if there is no majority.
  std::vector<int> ranks; ///< All that hold a copy, in the numbering of the check.

  /// @brief "weights of layers.1.down: rank 3 differs from the others of ranks 1, 3 and 5".
  [[nodiscard]] std::string text() const {
    const bool undecided = 2 * odd.size() >= ranks.size();
    const std::string others =
        undecided ? "rank " + std::to_string(ranks.front()) + " and nobody can say which is right"
                  : "the others of " + detail::ranks_text(ranks);
    return part + " of " + parameter + ": " + detail::ranks_text(odd) +
           (odd.size() == 1 ? " differs from " : " differ from ") + others;
  }
};

/// @brief Copies that must be equal are not: a fault of the memory or the machine, or an update that some
/// ranks skipped.
class ReplicaMismatch : public Error {
public:
  ReplicaMismatch(const std::string& sentence, std::vector<ReplicaDifference> differences,
                  ErrorContext context = {})
      : Error(sentence, std::move(context)), differences_(std::move(differences)) {}
  [[nodiscard]] const std::vector<ReplicaDifference>& differences() const noexcept { return differences_; }

private:
  std::vector<ReplicaDifference> differences_;
};

namespace detail {

/// Hashes of a block's identity and content; ranks with the same identity must have the same content.
struct BlockHash {
  std::uint64_t block = 0;
  std::uint64_t content = 0;
};

/// Collects the hashes of one rank's blocks, and their names.
class BlockHashes {
public:
  struct Name {
    std::string parameter;
    std::string part;
  };

  /// Adds the blocks of a parameter. Out of line: a model has several of one type.
  /// @param origin the same on all meshes that hold copies, and different elsewhere
  template <class P, class Optimizer>
  [[gnu::noinline]] void add(const P& parameter, Optimizer& optimizer, std::uint64_t origin) {
    add(parameter.name(), "weights", origin, parameter.stored());
    if constexpr (P::trained)
      optimizer.for_each_state(parameter, [&](std::string_view name, const auto& state) {
        add(parameter.name(), name, origin, state);
      });
    if (parameter.master())
      add(parameter.name(), "master weights", origin, *parameter.master());
  }
  template <AnyShardedTensor Tensor>
  void add(const std::string& parameter, std::string_view part, std::uint64_t origin, const Tensor& tensor) {
    add(parameter, part, origin, tensor.core(), Tensor::layout::axes, content_hash(tensor));
  }
  void add(const std::string& parameter, std::string_view part, std::uint64_t origin, const MeshCore& core,
           std::span<const std::string_view> axes, std::uint64_t content);

  std::vector<BlockHash> hashes;
  std::vector<Name> names;
};

/// Numbers that all meshes with copies of a parameter share, in the order of the model. Collective over the
/// copies, by name: ranks that hold copies may hold them in different orders.
[[nodiscard]] std::vector<std::uint64_t> origins_of(const std::vector<ParameterBase*>& parameters);

/// The blocks whose copies on all ranks differ. Collective.
[[nodiscard]] std::vector<ReplicaDifference> odd_replicas(const BlockHashes& own,
                                                          const HostCommunicator& ranks);

/// @throws ReplicaMismatch naming the first of the differences.
[[noreturn]] void reject_odd_replicas(std::vector<ReplicaDifference> found, const HostCommunicator& ranks,
                                      std::int64_t step);
/// The same of gradients.
[[noreturn]] void reject_odd_gradients(std::vector<ReplicaDifference> found, const HostCommunicator& ranks);
/// The axes over which blocks in the first layout of a transition differ: those that split them, or over
/// which they are parts of a sum.
[[nodiscard]] std::vector<std::string_view> differing_axes(const TransitionSteps& steps);

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void BlockHashes::add(const std::string& parameter, std::string_view part,
                                         std::uint64_t origin, const MeshCore& core,
                                         std::span<const std::string_view> axes, std::uint64_t content) {
  std::uint64_t block = origin;
  for (const std::string_view text : {std::string_view(parameter), part})
    for (const char letter : text)
      block = mixed(block, static_cast<unsigned char>(letter));
  for (int axis = 0; axis < core.axis_count(); ++axis)
    if (axis_index(axes, core.name(axis)) >= 0)
      block = mixed(block, static_cast<std::uint64_t>(core.coordinate(axis)) + 1);
  hashes.push_back({block, content});
  names.push_back({parameter, std::string(part)});
}

SHARDWRIGHT_INLINE std::vector<std::uint64_t> origins_of(const std::vector<ParameterBase*>& parameters) {
  std::vector<std::uint64_t> out;
  std::vector<std::pair<const ParameterBase*, std::size_t>> by_name;
  for (const ParameterBase* const parameter : parameters) {
    by_name.emplace_back(parameter, out.size());
    out.push_back(static_cast<std::uint64_t>(parameter->core().world().world_rank(0)));
  }
  std::stable_sort(by_name.begin(), by_name.end(), [](const auto& left, const auto& right) {
    return left.first->name() < right.first->name();
  });
  for (const auto& [parameter, place] : by_name) {
    HostCommunicator copies = parameter->copies();
    if (copies.valid())
      copies.broadcast(std::span<std::uint64_t>(&out[place], 1), 0);
  }
  return out;
}

SHARDWRIGHT_INLINE std::vector<ReplicaDifference> odd_replicas(const BlockHashes& own,
                                                               const HostCommunicator& ranks) {
  // By block: the ranks that hold it and their hashes.
  std::map<std::uint64_t, std::pair<std::vector<int>, std::vector<std::uint64_t>>> blocks;
  const auto all = all_gather_v(ranks, own.hashes);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const BlockHash& hash : all[rank]) {
      auto& [holders, contents] = blocks[hash.block];
      holders.push_back(static_cast<int>(rank));
      contents.push_back(hash.content);
    }
  // Only holders know names: the first holder of an odd block sends them to all.
  std::vector<std::string> told;
  for (std::size_t i = 0; i < own.hashes.size(); ++i) {
    const auto& [holders, contents] = blocks[own.hashes[i].block];
    const auto is_first = [&first = contents[0]](std::uint64_t content) { return content == first; };
    if (holders.front() == ranks.rank() && !std::all_of(contents.begin(), contents.end(), is_first))
      told.insert(told.end(),
                  {std::to_string(own.hashes[i].block), own.names[i].parameter, own.names[i].part});
  }
  std::vector<ReplicaDifference> out;
  for (const std::vector<std::string>& texts : gather_texts(ranks, told))
    for (std::size_t i = 0; i < texts.size(); i += 3) {
      const auto& [holders, contents] = blocks[std::stoull(texts[i])];
      ReplicaDifference& difference =
          out.emplace_back(ReplicaDifference{texts[i + 1], texts[i + 2], {}, holders});
      const std::uint64_t usual = majority(contents);
      for (std::size_t holder = 0; holder < holders.size(); ++holder)
        if (contents[holder] != usual)
          difference.odd.push_back(holders[holder]);
    }
  return out;
}

SHARDWRIGHT_INLINE std::string text_of(const std::vector<ReplicaDifference>& found) {
  constexpr std::size_t shown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(shown, found.size()); ++i)
    out += (i == 0 ? "" : "; ") + found[i].text();
  return found.size() > shown ? out + "; and " + std::to_string(found.size() - shown) + " more" : out;
}

SHARDWRIGHT_INLINE void reject_odd_replicas(std::vector<ReplicaDifference> found,
                                            const HostCommunicator& ranks, std::int64_t step) {
  const std::string sentence =
      "Replica check: all copies of a parameter must be equal, but " +
      (step == 0 ? std::string("before the first step") : "after step " + std::to_string(step)) + " " +
      text_of(found) +
      (step == 0 ? " (initialize the model from one seed, with the same distributions, on all ranks)"
                 : " (check the memory of the ranks that differ, and resume from a checkpoint)");
  throw ReplicaMismatch(sentence, std::move(found), {ranks.world_rank(), ranks.name(), "replica check"});
}

SHARDWRIGHT_INLINE std::vector<std::string_view> differing_axes(const TransitionSteps& steps) {
  std::vector<std::string_view> out;
  for (std::size_t axis = 0; axis < steps.axes.size(); ++axis)
    if (!steps.from->is_replicated(static_cast<int>(axis)))
      out.push_back(steps.axes[axis]);
  return out;
}

SHARDWRIGHT_INLINE void reject_odd_gradients(std::vector<ReplicaDifference> found,
                                             const HostCommunicator& ranks) {
  const std::string sentence =
      "Replica check: ranks over which the layout of a gradient replicates must compute the same one, but " +
      text_of(found) +
      " (where each rank sees only some of the rows, a gradient is Partial<Sum, axis>: declare that in the operation, and as the raw layout of the parameter; processors of different kinds may also round differently)";
  throw ReplicaMismatch(sentence, std::move(found), {ranks.world_rank(), ranks.name(), "replica check"});
}
#endif

} // namespace detail

/// @brief During its lifetime, the raw gradients of a step are hashed before they are summed over ranks, so
/// that a gradient whose layout says less than the truth is found: one that is a sum over an axis, declared
/// to be replicated. For a first step; on a host. Cost: one more read of every raw gradient.
template <ParameterSet Model> class CompareRawGradients {
public:
  explicit CompareRawGradients(const GradAccumulator<Model>& gradients) : gradients_(gradients) {
    hash(true);
  }
  ~CompareRawGradients() { hash(false); }
  CompareRawGradients(const CompareRawGradients&) = delete;
  CompareRawGradients& operator=(const CompareRawGradients&) = delete;

  /// @brief Throws on every rank unless copies of raw gradients are equal. After finish() and before
  /// restart(). Collective over `ranks`, all that hold a part of the model; cost: 16 bytes per gradient and
  /// rank.
  /// @throws ReplicaMismatch naming parameters and ranks.
  void require_equal(const HostCommunicator& ranks) const {
    detail::BlockHashes own;
    gradients_.for_each_gradient([&](const auto& gradient) {
      const ParameterBase& parameter = gradient.parameter();
      own.add(parameter.name(), "gradient",
              static_cast<std::uint64_t>(parameter.core().world().world_rank(0)), parameter.core(),
              detail::differing_axes(gradient.raw_transition()), gradient.raw_hash());
    });
    std::vector<ReplicaDifference> found = detail::odd_replicas(own, ranks);
    if (!found.empty())
      detail::reject_odd_gradients(std::move(found), ranks);
  }

private:
  void hash(bool on) {
    gradients_.for_each_gradient([on](auto& gradient) { gradient.hash_raw(on); });
  }
  const GradAccumulator<Model>& gradients_;
};

/// @brief Compares every copy of every block: of weights as stored, and of the optimizer's state.
///
/// The ranks that hold copies follow from the layouts: blocks are equal along all axes that do not shard
/// them, and on the meshes of a pipeline that share a parameter. Collective over `ranks`, all that hold a
/// part of the model. Cost: one read of the blocks, 16 bytes per block and rank, and one small broadcast for
/// each parameter with copies on other meshes. The result is the same on every rank; empty if all copies
/// agree.
/// @throws the communicator's errors.
/// @param optimizer its state is compared, too
template <ParameterSet Model, class Optimizer>
[[nodiscard]] std::vector<ReplicaDifference> find_odd_replicas(Model& model, Optimizer& optimizer,
                                                               const HostCommunicator& ranks) {
  static_assert(sizeof(detail::StatesOf<Optimizer, Model>) > 0);
  const std::vector<std::uint64_t> origins = detail::origins_of(parameters_of(model));
  detail::BlockHashes own;
  auto next = origins.begin();
  for_each_parameter(model, [&](auto& parameter) { own.add(parameter, optimizer, *next++); });
  return detail::odd_replicas(own, ranks);
}

/// @brief Throws on every rank unless all copies are equal; as find_odd_replicas otherwise.
/// @param step that has been taken; 0: none, so that the initial weights differ
/// @throws ReplicaMismatch naming parameters and ranks.
template <ParameterSet Model, class Optimizer>
void require_equal_replicas(Model& model, Optimizer& optimizer, const HostCommunicator& ranks,
                            std::int64_t step) {
  std::vector<ReplicaDifference> found = find_odd_replicas(model, optimizer, ranks);
  if (!found.empty())
    detail::reject_odd_replicas(std::move(found), ranks, step);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
