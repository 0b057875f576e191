// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A published model on a mesh of pipeline and tensor parallel ranks, for generation.

#include "model.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/embedding.hpp>
#include <shardwright/nn/kv_cache.hpp>
#include <shardwright/nn/rms_norm.hpp>
#include <shardwright/nn/swiglu.hpp>
#include <shardwright/tensor/arithmetic.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/redistribute.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace generate {
namespace {

using namespace sw::axis;

using Element = float;
template <sw::LayoutType L>
using Tensor = sw::ShardedTensor<L, Element>;

//! [layouts]
// As in DecoderLayouts, without the axes of training: the names say what a matrix does.
using Ids = sw::Layout<2>;                     // [batch, sequence]
using Tokens = sw::Layout<3>;                  // [batch, sequence, width], on every rank of tp
using Vector = sw::Layout<1>;                  // gains, and biases of what has been summed
using Table = sw::Layout<2, sw::Shard<0, tp>>; // [vocabulary, width]
using Qkv = sw::Layout<3, sw::Shard<1, tp>>;   // [width, kv_heads, (queries + 2) * head width]
using QkvBias = sw::Layout<2, sw::Shard<0, tp>>;
using Rows = sw::Layout<2, sw::Shard<0, tp>>; // [heads * head width or hidden, width]
using GateUp = sw::Layout<3, sw::Shard<2, tp>>;
using Router = sw::Layout<2>;
using Heads = sw::MatmulLayout<Tokens, Qkv>;                    // what a rank attends with
using Sum = sw::MatmulLayout<sw::AttentionLayout<Heads>, Rows>; // each rank's part of a sum
static_assert(std::is_same_v<Sum, sw::Layout<3, sw::Partial<sw::Sum, tp>>>);
static_assert(sw::Transition<Sum, Tokens>::count<sw::AllReduce> == 1);
//! [layouts]

using Mesh = sw::DeviceMesh<pp, tp>;
using Cache = sw::KeyValueCache<Heads, Element>;
using Angles = sw::RotaryTable<Element, sw::DefaultTarget>;

/// The MLP of a layer, or of an expert.
struct Mlp {
  Tensor<GateUp> gate_up;
  Tensor<Rows> down;
};

/// The weights of a layer.
struct Layer {
  Tensor<Vector> attention_norm;
  Tensor<Qkv> qkv;
  std::optional<Tensor<QkvBias>> qkv_bias;
  std::optional<Tensor<Vector>> query_norm, key_norm;
  Tensor<Rows> out;
  std::optional<Tensor<Vector>> out_bias;
  Tensor<Vector> mlp_norm;
  std::optional<Tensor<Router>> router;
  std::deque<Mlp> mlps; // one, or one for each expert
  Cache cache;
};

sw::HeadShape heads_of(const Settings& settings) {
  return {settings.heads / settings.kv_heads, settings.head_width};
}

/// The layers of a rank's stage, as even as they come.
struct Range {
  std::int64_t begin, end;
};
Range layers_of(const Settings& settings, const Mesh& mesh) {
  const std::int64_t stages = mesh.extent<pp>(), stage = mesh.coordinate<pp>();
  return {settings.layers * stage / stages, settings.layers * (stage + 1) / stages};
}

/// Makes the tensors of a stage and reads this rank's blocks of them.
class Loader {
public:
  Loader(const Mesh& mesh, const Settings& settings, const sw::safetensors::Files& files)
      : mesh_(mesh), settings_(settings), files_(files) {}

  template <sw::LayoutType L>
  [[nodiscard]] Tensor<L> load(const Parameter& parameter) const {
    const auto shape = shape_of(settings_, parameter.part);
    typename Tensor<L>::Shape extents{};
    std::copy(shape.begin(), shape.end(), extents.begin());
    Tensor<L> out(mesh_, extents);
    read_block<Element>(files_, settings_, parameter, out.local_offset(), out.local_shape(),
                        {out.mutable_data(), out.local_size()});
    return out;
  }
  template <sw::LayoutType L>
  [[nodiscard]] std::optional<Tensor<L>> load_if(bool wanted, const Parameter& parameter) const {
    if (wanted)
      return load<L>(parameter);
    return std::nullopt;
  }
  [[nodiscard]] Layer layer(std::int64_t number, std::int64_t positions) const {
    std::optional<sw::KeyWindow> window;
    if (settings_.window)
      window = sw::KeyWindow{.before = static_cast<std::size_t>(*settings_.window - 1)};
    Layer out{load<Vector>({Part::attention_norm, number}),
              load<Qkv>({Part::qkv, number}),
              load_if<QkvBias>(settings_.qkv_bias, {Part::qkv_bias, number}),
              load_if<Vector>(settings_.head_norms, {Part::query_norm, number}),
              load_if<Vector>(settings_.head_norms, {Part::key_norm, number}),
              load<Rows>({Part::out, number}),
              load_if<Vector>(settings_.out_bias, {Part::out_bias, number}),
              load<Vector>({Part::mlp_norm, number}),
              load_if<Router>(settings_.experts > 0, {Part::router, number}),
              {},
              Cache(mesh_, 1, positions, settings_.kv_heads, heads_of(settings_),
                    window.value_or(sw::KeyWindow{}))};
    for (std::int64_t expert = 0; expert < std::max<std::int64_t>(settings_.experts, 1); ++expert)
      out.mlps.push_back(
          {load<GateUp>({Part::gate_up, number, expert}), load<Rows>({Part::down, number, expert})});
    return out;
  }

private:
  const Mesh& mesh_;
  const Settings& settings_;
  const sw::safetensors::Files& files_;
};

/// Divides every head of the queries, or of the keys, by its root mean square (Henry et al., arXiv
/// 2010.04245, with RMSNorm).
void norm_heads(Tensor<Heads>& qkv, const Settings& settings, const Tensor<Vector>& queries,
                const Tensor<Vector>& keys) {
  const auto shape = heads_of(settings);
  const auto d = static_cast<std::size_t>(shape.width), of_group = static_cast<std::size_t>(shape.queries);
  const std::size_t heads = qkv.local_size() / d;
  Element* head = qkv.mutable_data();
  for (std::size_t h = 0; h < heads; ++h, head += d) {
    const std::size_t place = h % (of_group + 2);
    if (place > of_group)
      continue; // a value
    const Element* const gain = (place < of_group ? queries : keys).data();
    const Element squares = std::inner_product(head, head + d, head, Element(0));
    const auto factor = static_cast<Element>(
        1 / std::sqrt(static_cast<double>(squares) / static_cast<double>(d) + settings.norm_epsilon));
    for (std::size_t i = 0; i < d; ++i)
      head[i] *= factor * gain[i];
  }
}

/// A token's experts, and what each adds to it.
struct Choice {
  std::size_t expert;
  std::size_t token;
  Element gate;
};

/// The experts of every token by the greatest scores, with gates that sum to 1 (Jiang et al., arXiv
/// 2401.04088): every rank of tp finds the same.
std::vector<Choice> choose(std::span<const Element> scores, std::size_t experts, std::size_t chosen) {
  std::vector<Choice> out;
  std::vector<std::size_t> order(experts);
  for (std::size_t token = 0; token < scores.size() / experts; ++token) {
    const auto row = scores.subspan(token * experts, experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
    Element total = 0;
    for (std::size_t i = 0; i < chosen; ++i)
      total += std::exp(row[order[i]] - row[order[0]]);
    for (std::size_t i = 0; i < chosen; ++i)
      out.push_back({order[i], token, std::exp(row[order[i]] - row[order[0]]) / total});
  }
  return out;
}

class Stage final : public Model {
public:
  Stage(const sw::HostCommunicator& world, const Extents& extents, const Settings& settings,
        const sw::safetensors::Files& files, std::int64_t positions)
      : settings_(settings), mesh_(world, sw::extent<pp>(extents.pp), sw::extent<tp>(extents.tp)),
        positions_(positions),
        angles_(mesh_, positions,
                sw::rotary_frequencies(settings.head_width, settings.rope_base, settings.rope_scaling)) {
    const Loader loader(mesh_, settings_, files);
    const bool tied = settings.tied_embedding;
    if (is_first() || (is_last() && tied))
      embedding_ = loader.load<Table>({Part::embedding});
    for (std::int64_t layer = layers_of(settings_, mesh_).begin; layer < layers_of(settings_, mesh_).end;
         ++layer)
      layers_.push_back(loader.layer(layer, positions));
    if (is_last()) {
      final_norm_ = loader.load<Vector>({Part::final_norm});
      head_ = loader.load_if<Table>(!tied, {Part::head});
    }
  }

  std::int64_t size() const override { return size_; }

  std::vector<float> append(std::span<const std::int32_t> ids, Scores of) override {
    if (size_ + static_cast<std::int64_t>(ids.size()) > positions_)
      throw sw::InvalidArgument("Model: the tokens must be at most the " + std::to_string(positions_) +
                                " that it was made for (make it for more)");
    const auto tokens = static_cast<std::int64_t>(ids.size());
    sw::HostCommunicator& stages = mesh_.communicator<pp>();
    Tensor<Tokens> x = is_first() ? embed(ids) : Tensor<Tokens>(mesh_, {1, tokens, settings_.width});
    if (!is_first())
      stages.receive(std::span(x.mutable_data(), x.local_size()), stages.rank() - 1);
    for (Layer& layer : layers_)
      advance(layer, x);
    if (!is_last())
      stages.send(std::span(x.data(), x.local_size()), stages.rank() + 1);
    size_ += tokens;
    return scores(x, of);
  }

  std::vector<float> parameter(const Parameter& parameter) override;

private:
  [[nodiscard]] bool is_first() const { return mesh_.coordinate<pp>() == 0; }
  [[nodiscard]] bool is_last() const { return mesh_.coordinate<pp>() + 1 == mesh_.extent<pp>(); }

  [[nodiscard]] Tensor<Tokens> embed(std::span<const std::int32_t> ids) {
    sw::ShardedTensor<Ids, std::int32_t> tokens(mesh_, {1, static_cast<std::int64_t>(ids.size())});
    std::copy(ids.begin(), ids.end(), tokens.mutable_data());
    return sw::redistribute<Tokens>(sw::embed(tokens, *embedding_));
  }

  //! [layer]
  void advance(Layer& layer, Tensor<Tokens>& x) {
    auto qkv = sw::matmul(normed(x, layer.attention_norm), layer.qkv);
    if (layer.qkv_bias)
      sw::add_into(qkv, qkv, *layer.qkv_bias);
    if (layer.query_norm)
      norm_heads(qkv, settings_, *layer.query_norm, *layer.key_norm);
    const auto rows = static_cast<std::size_t>(x.shape()[1]), first = static_cast<std::size_t>(size_);
    sw::rotate(qkv, angles_, sw::TokenRuns::one(rows, first), heads_of(settings_));
    auto attended = sw::matmul(layer.cache.attend(qkv), layer.out);
    sw::add_into(x, x, sw::redistribute<Tokens>(std::move(attended))); // one all_reduce over tp
    if (layer.out_bias)
      sw::add_into(x, x, *layer.out_bias);
    const auto read = normed(x, layer.mlp_norm);
    auto out = layer.router ? experts(layer, read) : mlp(layer.mlps.front(), read);
    sw::add_into(x, x, sw::redistribute<Tokens>(std::move(out))); // and another
  }
  //! [layer]

  [[nodiscard]] Tensor<Tokens> normed(const Tensor<Tokens>& x, const Tensor<Vector>& gain) const {
    return sw::rms_norm(x, gain, settings_.norm_epsilon).normed;
  }
  [[nodiscard]] static Tensor<Sum> mlp(const Mlp& weights, const Tensor<Tokens>& x) {
    return sw::matmul(sw::swiglu(sw::matmul(x, weights.gate_up)), weights.down);
  }

  /// The sum over each token's experts: an expert reads the rows that chose it, and no others.
  [[nodiscard]] Tensor<Sum> experts(const Layer& layer, const Tensor<Tokens>& x) const {
    const auto scores = sw::matmul(x, *layer.router);
    const auto width = static_cast<std::size_t>(settings_.width);
    std::vector<Choice> choices =
        choose({scores.data(), scores.local_size()}, static_cast<std::size_t>(settings_.experts),
               static_cast<std::size_t>(settings_.chosen_experts));
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
    Tensor<Sum> out(x.resources(), x.shape());
    Element* const sum = out.mutable_data();
    std::fill_n(sum, out.local_size(), Element(0));
    for (auto begin = choices.begin(), end = begin; begin != choices.end(); begin = end) {
      end = std::find_if(begin, choices.end(),
                         [&](const Choice& each) { return each.expert != begin->expert; });
      Tensor<Tokens> rows(x.resources(), {1, end - begin, settings_.width});
      Element* to = rows.mutable_data();
      for (auto choice = begin; choice != end; ++choice)
        to = std::copy_n(x.data() + choice->token * width, width, to);
      const auto result = mlp(layer.mlps[begin->expert], rows);
      const Element* from = result.data();
      for (auto choice = begin; choice != end; ++choice)
        for (std::size_t i = 0; i < width; ++i)
          sum[choice->token * width + i] += choice->gate * *from++;
    }
    return out;
  }

  /// The last stage's scores, on all ranks.
  [[nodiscard]] std::vector<float> scores(const Tensor<Tokens>& x, Scores of) {
    const std::int64_t tokens = of == Scores::all ? x.shape()[1] : 1;
    std::vector<float> out(static_cast<std::size_t>(tokens * settings_.vocabulary));
    if (is_last()) {
      Tensor<Tokens> last(x.resources(), {1, tokens, settings_.width});
      std::copy_n(x.data() + x.local_size() - last.local_size(), last.local_size(), last.mutable_data());
      const auto parts = sw::matmul_transposed(normed(last, *final_norm_), head_ ? *head_ : *embedding_);
      const auto whole = sw::redistribute<Tokens>(parts); // one all_gather over tp
      std::copy_n(whole.data(), out.size(), out.begin());
    }
    mesh_.communicator<pp>().broadcast(out, mesh_.extent<pp>() - 1);
    return out;
  }

  Settings settings_;
  Mesh mesh_;
  std::int64_t positions_, size_ = 0;
  Angles angles_;
  std::optional<Tensor<Table>> embedding_, head_;
  std::optional<Tensor<Vector>> final_norm_;
  std::deque<Layer> layers_;
};

/// A whole tensor on this rank.
template <class From>
std::vector<float> whole(const From& tensor) {
  const auto replicated = sw::redistribute<sw::Layout<From::tensor_rank>>(tensor);
  return {replicated.data(), replicated.data() + replicated.local_size()};
}

std::vector<float> Stage::parameter(const Parameter& parameter) {
  const auto shape = shape_of(settings_, parameter.part);
  std::vector<float> out(static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
  const std::int64_t last = mesh_.extent<pp>() - 1;
  std::int64_t owner = parameter.part == Part::embedding ? 0 : last;
  const bool of_layer =
      parameter.part != Part::embedding && parameter.part != Part::final_norm && parameter.part != Part::head;
  if (of_layer)
    for (owner = 0; settings_.layers * (owner + 1) / (last + 1) <= parameter.layer; ++owner) {
    }
  if (mesh_.coordinate<pp>() == owner) {
    const auto layer = [&]() -> const Layer& {
      return layers_[static_cast<std::size_t>(parameter.layer - layers_of(settings_, mesh_).begin)];
    };
    const auto mlp = [&]() -> const Mlp& { return layer().mlps[static_cast<std::size_t>(parameter.expert)]; };
    switch (parameter.part) {
    case Part::embedding:
      out = whole(*embedding_);
      break;
    case Part::attention_norm:
      out = whole(layer().attention_norm);
      break;
    case Part::qkv:
      out = whole(layer().qkv);
      break;
    case Part::qkv_bias:
      out = whole(*layer().qkv_bias);
      break;
    case Part::query_norm:
      out = whole(*layer().query_norm);
      break;
    case Part::key_norm:
      out = whole(*layer().key_norm);
      break;
    case Part::out:
      out = whole(layer().out);
      break;
    case Part::out_bias:
      out = whole(*layer().out_bias);
      break;
    case Part::mlp_norm:
      out = whole(layer().mlp_norm);
      break;
    case Part::gate_up:
      out = whole(mlp().gate_up);
      break;
    case Part::down:
      out = whole(mlp().down);
      break;
    case Part::router:
      out = whole(*layer().router);
      break;
    case Part::final_norm:
      out = whole(*final_norm_);
      break;
    case Part::head:
      out = whole(*head_);
      break;
    }
  }
  mesh_.communicator<pp>().broadcast(out, static_cast<int>(owner));
  return out;
}

void check_mesh(const Settings& settings, const Extents& extents) {
  const auto fail = [](const std::string& sentence) { throw sw::InvalidArgument("Model: " + sentence); };
  if (settings.kv_heads % extents.tp != 0)
    fail("the " + std::to_string(settings.kv_heads) + " key and value heads must be a multiple of the " +
         std::to_string(extents.tp) + " ranks of tp (use fewer)");
  if (settings.layers < extents.pp)
    fail("the " + std::to_string(settings.layers) + " layers must be at least as many as the " +
         std::to_string(extents.pp) + " ranks of pp (use fewer)");
}

} // namespace

std::unique_ptr<Model> load_model(const sw::HostCommunicator& world, const Extents& extents,
                                  const Settings& settings, const sw::safetensors::Files& files,
                                  std::int64_t positions) {
  check_mesh(settings, extents);
  check_tensors(settings, files);
  return std::make_unique<Stage>(world, extents, settings, files, positions);
}

} // namespace generate
