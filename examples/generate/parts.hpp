// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The mesh of a model for generation, the layouts of its tensors, and its weights.

#include "model.hpp"

#include <pretrained/adapter_files.hpp>
#include <pretrained/tensor_files.hpp>

#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/attention.hpp>
#include <shardwright/nn/layers/swiglu.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace generate {

using namespace sw::axis;
using pretrained::Parameter;
using pretrained::Part;

using Element = float;
template <sw::LayoutType L> using Tensor = sw::ShardedTensor<L, Element>;

//! [layouts]
// As in DecoderLayouts, without the axes of training: the names say what a matrix does.
using Ids = sw::Layout<2>;                     // [batch, sequence]
using Tokens = sw::Layout<3>;                  // [batch, sequence, width], on every rank of ep and tp
using Vector = sw::Layout<1>;                  // gains, and biases added after the sum
using Whole = sw::Layout<2>;                   // a matrix that every rank has
using Table = sw::Layout<2, sw::Shard<0, tp>>; // [vocabulary, width]
using Qkv = sw::Layout<3, sw::Shard<1, tp>>;   // [width, kv_heads, (queries + 2) * head width]
using QkvBias = sw::Layout<2, sw::Shard<0, tp>>;
using HeadRows = sw::Layout<3, sw::Shard<0, tp>>; // [heads, out, in]
using Rows = sw::Layout<2, sw::Shard<0, tp>>;     // [heads * head width or hidden, width]
using GateUp = sw::Layout<3, sw::Shard<2, tp>>;
using Heads = sw::MatmulLayout<Tokens, Qkv>;                    // a rank's input of attention
using Sum = sw::MatmulLayout<sw::AttentionLayout<Heads>, Rows>; // each rank's part of a sum
using ExpertSum = sw::Layout<3, sw::Partial<sw::Sum, ep, tp>>;  // ep owns experts, tp shards each
static_assert(std::is_same_v<Sum, sw::Layout<3, sw::Partial<sw::Sum, tp>>>);
static_assert(sw::Transition<Sum, Tokens>::count<sw::AllReduce> == 1);
static_assert(sw::Transition<ExpertSum, Tokens>::count<sw::AllReduce> == 1);
//! [layouts]

using Mesh = sw::DeviceMesh<pp, ep, tp>;

/// @brief The weights of a rank: created and read from files on demand, and returned whole.
class Weights {
public:
  /// @param adapters added to the weights as they are read; null: none
  Weights(const Mesh& mesh, const Settings& settings, const sw::safetensors::Files& files,
          const pretrained::AdapterFiles* adapters)
      : mesh_(mesh), settings_(settings), files_(files), adapters_(adapters) {}

  /// @brief This rank's block of a parameter, whose address is stable.
  template <sw::LayoutType L> [[nodiscard]] Tensor<L>& load(const Parameter& parameter) {
    const auto shape = pretrained::shape_of(settings_, parameter.part);
    typename Tensor<L>::Shape extents{};
    std::copy(shape.begin(), shape.end(), extents.begin());
    auto made = std::make_unique<Held<L>>(Tensor<L>(mesh_, extents));
    Tensor<L>& out = made->tensor;
    const auto pieces = pretrained::pieces_of(settings_, parameter, out.local_offset(), out.local_shape());
    const std::span<float> block(out.mutable_data(), out.local_size());
    pretrained::read_pieces(files_, settings_, pieces, block);
    if (adapters_ != nullptr)
      adapters_->add_to(pieces, block);
    held_.emplace(parameter, std::move(made));
    return out;
  }
  /// @brief As load(); null if it is not wanted.
  template <sw::LayoutType L> [[nodiscard]] Tensor<L>* load_if(bool wanted, const Parameter& parameter) {
    return wanted ? &load<L>(parameter) : nullptr;
  }
  /// @brief A whole parameter that this rank has loaded. Collective over tp.
  [[nodiscard]] std::vector<float> whole(const Parameter& parameter) const {
    return held_.at(parameter)->whole();
  }

  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }

private:
  struct AnyHeld {
    virtual ~AnyHeld() = default;
    [[nodiscard]] virtual std::vector<float> whole() const = 0;
  };
  template <sw::LayoutType L> struct Held final : AnyHeld {
    explicit Held(Tensor<L> made) : tensor(std::move(made)) {}
    [[nodiscard]] std::vector<float> whole() const override {
      const auto replicated = sw::redistribute<sw::Layout<L::tensor_rank>>(tensor);
      return {replicated.data(), replicated.data() + replicated.local_size()};
    }
    Tensor<L> tensor;
  };

  const Mesh& mesh_;
  const Settings& settings_;
  const sw::safetensors::Files& files_;
  const pretrained::AdapterFiles* adapters_;
  std::map<Parameter, std::unique_ptr<AnyHeld>> held_;
};

/// @brief The MLP of a layer or an expert, or the shared MLP beside the experts.
struct Mlp {
  const Tensor<GateUp>& gate_up;
  const Tensor<Rows>& down;

  [[nodiscard]] Tensor<Sum> operator()(const Tensor<Tokens>& x) const {
    return sw::matmul(sw::swiglu(sw::matmul(x, gate_up)), down);
  }
};

/// @brief The numbers [begin, end) of `count` that one of `ranks` ranks takes, divided as evenly as possible.
struct Range {
  std::int64_t begin = 0, end = 0;

  [[nodiscard]] static Range of(std::int64_t count, std::int64_t rank, std::int64_t ranks) {
    return {count * rank / ranks, count * (rank + 1) / ranks};
  }
  [[nodiscard]] bool has(std::int64_t number) const { return number >= begin && number < end; }
};

} // namespace generate
