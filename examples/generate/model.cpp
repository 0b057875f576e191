// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A published model on a mesh of pipeline, expert and tensor parallel ranks, for generation.

#include "model.hpp"

#include "experts.hpp"
#include "latent_attention.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/norm.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace generate {
namespace {

using Angles = sw::RotaryTable<Element, sw::DefaultTarget>;

/// A layer's parts around the stream.
struct Layer {
  Layer(Weights& weights, std::int64_t number, const CacheSize& cache, const Angles* angles)
      : norm(weights.load<Vector>({Part::attention_norm, number})),
        out_bias(weights.load_if<Vector>(weights.settings().out_bias, {Part::out_bias, number})),
        mlp_norm(weights.load<Vector>({Part::mlp_norm, number})) {
    if (angles != nullptr)
      grouped.emplace(weights, number, cache, *angles);
    else
      latent.emplace(weights, number, cache);
    if (weights.settings().has_experts(number))
      experts.emplace(weights, number);
    else
      mlp.emplace(
          Mlp{weights.load<GateUp>({Part::gate_up, number}), weights.load<Rows>({Part::down, number})});
  }

  const Tensor<Vector>& norm;
  const Tensor<Vector>* out_bias;
  const Tensor<Vector>& mlp_norm;
  std::optional<GroupedAttention> grouped; // either this or the next
  std::optional<LatentAttention> latent;
  std::optional<Experts> experts; // either this or the next
  std::optional<Mlp> mlp;
};

class Stage final : public Model {
public:
  Stage(const sw::HostCommunicator& world, const Extents& extents, const Settings& settings,
        const sw::safetensors::Files& files, const CacheSize& cache, const pretrained::AdapterFiles* adapters)
      : settings_(settings),
        mesh_(world, sw::extent<pp>(extents.pp), sw::extent<ep>(extents.ep), sw::extent<tp>(extents.tp)),
        positions_(cache.positions), sizes_(static_cast<std::size_t>(cache.sequences)),
        weights_(mesh_, settings_, files, adapters) {
    if (!settings_.latent)
      angles_.emplace(GroupedAttention::angles(mesh_, settings_, positions_));
    const bool tied = settings_.tied_embedding;
    embedding_ = weights_.load_if<Table>(is_first() || (is_last() && tied), {Part::embedding});
    const Range mine = Range::of(settings_.layers, mesh_.coordinate<pp>(), mesh_.extent<pp>());
    for (std::int64_t layer = mine.begin; layer < mine.end; ++layer)
      layers_.emplace_back(weights_, layer, cache, angles_ ? &*angles_ : nullptr);
    final_norm_ = weights_.load_if<Vector>(is_last(), {Part::final_norm});
    head_ = is_last() && tied ? embedding_ : weights_.load_if<Table>(is_last(), {Part::head});
  }

  using Model::append;
  std::int64_t size(std::int64_t sequence) const override { return sizes_[index_of(sequence)]; }

  std::vector<float> append(std::span<const NewTokens> added, Scores of) override {
    if (added.empty() ||
        std::any_of(added.begin(), added.end(), [](const NewTokens& each) { return each.ids.empty(); }))
      throw sw::InvalidArgument("Model: there must be tokens to append, at least one for each sequence that "
                                "is given (leave out sequences without any)");
    std::vector<std::int64_t> sizes = sizes_; // an error must leave them as they are
    std::vector<sw::kernels::CachedToken> places;
    std::vector<std::int32_t> ids;
    for (const NewTokens& each : added) {
      const std::size_t sequence = index_of(each.sequence);
      std::int64_t& size = sizes[sequence];
      if (size + static_cast<std::int64_t>(each.ids.size()) > positions_)
        throw sw::InvalidArgument("Model: the tokens must be at most the " + std::to_string(positions_) +
                                  " that it was made for (make it for more)");
      for (const std::int32_t id : each.ids) {
        ids.push_back(id);
        places.push_back({sequence, static_cast<std::size_t>(size++)});
      }
    }
    sizes_ = std::move(sizes);
    const auto tokens = static_cast<std::int64_t>(ids.size());
    sw::HostCommunicator& stages = mesh_.communicator<pp>();
    Tensor<Tokens> x = is_first() ? embed(ids) : Tensor<Tokens>(mesh_, {1, tokens, settings_.width});
    if (!is_first())
      stages.receive(std::span(x.mutable_data(), x.local_size()), stages.rank() - 1);
    for (Layer& layer : layers_)
      advance(layer, x, places);
    if (!is_last())
      stages.send(std::span(x.data(), x.local_size()), stages.rank() + 1);
    return scores(x, added, of);
  }

  std::vector<float> parameter(const Parameter& parameter) override;

private:
  [[nodiscard]] std::size_t index_of(std::int64_t sequence) const {
    const auto index = static_cast<std::size_t>(sequence);
    if (index >= sizes_.size())
      throw sw::InvalidArgument("Model: a sequence must be one of the " + std::to_string(sizes_.size()) +
                                " that it was made for, from 0 on, but it is " + std::to_string(sequence) +
                                " (make it for more)");
    return index;
  }
  [[nodiscard]] bool is_first() const { return mesh_.coordinate<pp>() == 0; }
  [[nodiscard]] bool is_last() const { return mesh_.coordinate<pp>() + 1 == mesh_.extent<pp>(); }

  [[nodiscard]] Tensor<Tokens> embed(std::span<const std::int32_t> ids) {
    sw::ShardedTensor<Ids, std::int32_t> tokens(mesh_, {1, static_cast<std::int64_t>(ids.size())});
    std::copy(ids.begin(), ids.end(), tokens.mutable_data());
    return sw::redistribute<Tokens>(sw::embed(tokens, *embedding_));
  }

  //! [layer]
  void advance(Layer& layer, Tensor<Tokens>& x, const Places& places) {
    const auto read = normed(x, layer.norm);
    auto attended = layer.grouped ? (*layer.grouped)(read, places) : (*layer.latent)(read, places);
    sw::add.into(x, x, sw::redistribute<Tokens>(std::move(attended))); // one all_reduce over tp
    if (layer.out_bias != nullptr)
      sw::add.into(x, x, *layer.out_bias);
    const auto again = normed(x, layer.mlp_norm);
    if (layer.experts)
      sw::add.into(x, x, sw::redistribute<Tokens>((*layer.experts)(again))); // and one over ep and tp
    else
      sw::add.into(x, x, sw::redistribute<Tokens>((*layer.mlp)(again))); // or over tp
  }
  //! [layer]

  [[nodiscard]] Tensor<Tokens> normed(const Tensor<Tokens>& x, const Tensor<Vector>& gain) const {
    return sw::rms_norm(x, gain, settings_.norm_epsilon);
  }

  /// The last stage's scores, on all ranks.
  [[nodiscard]] std::vector<float> scores(const Tensor<Tokens>& x, std::span<const NewTokens> added,
                                          Scores of) {
    std::vector<std::size_t> rows(of == Scores::all ? static_cast<std::size_t>(x.shape()[1]) : 0);
    std::iota(rows.begin(), rows.end(), std::size_t{0});
    std::size_t end = 0;
    for (const NewTokens& each : added) {
      end += each.ids.size();
      if (of == Scores::last)
        rows.push_back(end - 1);
    }
    const auto width = static_cast<std::size_t>(settings_.width);
    std::vector<float> out(rows.size() * static_cast<std::size_t>(settings_.vocabulary));
    if (is_last()) {
      Tensor<Tokens> last(x.resources(), {1, static_cast<std::int64_t>(rows.size()), settings_.width});
      for (std::size_t i = 0; i < rows.size(); ++i)
        std::copy_n(x.data() + rows[i] * width, width, last.mutable_data() + i * width);
      const auto parts = sw::matmul_transposed(normed(last, *final_norm_), *head_);
      const auto whole = sw::redistribute<Tokens>(parts); // one all_gather over tp
      std::copy_n(whole.data(), out.size(), out.begin());
    }
    mesh_.communicator<pp>().broadcast(out, mesh_.extent<pp>() - 1);
    return out;
  }

  Settings settings_;
  Mesh mesh_;
  std::int64_t positions_;
  std::vector<std::int64_t> sizes_; // tokens so far, by sequence
  Weights weights_;
  std::optional<Angles> angles_;
  const Tensor<Table>*embedding_ = nullptr, *head_ = nullptr;
  const Tensor<Vector>* final_norm_ = nullptr;
  std::deque<Layer> layers_;
};

std::vector<float> Stage::parameter(const Parameter& parameter) {
  const auto shape = pretrained::shape_of(settings_, parameter.part);
  std::vector<float> out(static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
  const std::int64_t stages = mesh_.extent<pp>(), groups = mesh_.extent<ep>();
  const auto owner = [](std::int64_t count, std::int64_t number, std::int64_t ranks) {
    int rank = 0;
    while (!Range::of(count, rank, ranks).has(number))
      ++rank;
    return rank;
  };
  int stage = static_cast<int>(stages) - 1, group = 0;
  if (parameter.part == Part::embedding)
    stage = 0;
  else if (parameter.part != Part::final_norm && parameter.part != Part::head)
    stage = owner(settings_.layers, parameter.layer, stages);
  if (parameter.part == Part::expert_gate_up || parameter.part == Part::expert_down)
    group = owner(settings_.experts.count, parameter.expert, groups);
  if (mesh_.coordinate<pp>() == stage && mesh_.coordinate<ep>() == group)
    out = weights_.whole(parameter);
  mesh_.communicator<ep>().broadcast(out, group);
  mesh_.communicator<pp>().broadcast(out, stage);
  return out;
}

void check_mesh(const Settings& settings, const Extents& extents) {
  const auto fail = [](const std::string& sentence) { throw sw::InvalidArgument("Model: " + sentence); };
  if (settings.kv_heads % extents.tp != 0)
    fail("the " + std::to_string(settings.kv_heads) + " key and value heads must be a multiple of the " +
         std::to_string(extents.tp) + " ranks of tp (use fewer)");
  if (settings.experts.count == 0 && extents.ep > 1)
    fail("ep=" + std::to_string(extents.ep) +
         " must be 1, as the model has no experts to divide (leave ep out)");
  if (std::max<std::int64_t>(settings.experts.count, 1) < extents.ep)
    fail("the " + std::to_string(settings.experts.count) + " experts must be at least as many as the " +
         std::to_string(extents.ep) + " ranks of ep (use fewer)");
}

} // namespace

std::unique_ptr<Model> load_model(const sw::HostCommunicator& world, const Extents& extents,
                                  const Settings& settings, const sw::safetensors::Files& files,
                                  std::int64_t positions, const std::function<void(const std::string&)>& note,
                                  const pretrained::AdapterFiles* adapters, std::int64_t sequences) {
  check_mesh(settings, extents);
  const auto passed_over = pretrained::check_tensors(settings, files);
  if (world.rank() == 0)
    for (const std::string& line : passed_over)
      note(line);
  return std::make_unique<Stage>(world, extents, settings, files, CacheSize{sequences, positions}, adapters);
}

} // namespace generate
