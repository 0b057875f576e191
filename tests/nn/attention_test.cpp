// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/attention/kv_cache.hpp>
#include <shardwright/nn/attention/rotary_frequencies.hpp>
#include <shardwright/tensor/kernels/attention/cached.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/tape.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr std::size_t batch = 3, sequence = 5, groups = 6, queries = 2, width = 4;
constexpr std::size_t group_width = (queries + 2) * width;
constexpr double base = 100;

double& element(Vector& qkv, std::size_t b, std::size_t t, std::size_t g, std::size_t i) {
  return qkv[((b * sequence + t) * groups + g) * group_width + i];
}

/// Rotary positions on queries and keys: element i is rotated with element i + width / 2.
Vector plain_rotation(Vector qkv) {
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < sequence; ++t)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t head = 0; head <= queries; ++head)
          for (std::size_t i = 0; i < width / 2; ++i) {
            const double angle =
                static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / width);
            double& low = element(qkv, b, t, g, head * width + i);
            double& high = element(qkv, b, t, g, head * width + i + width / 2);
            const double turned = low * std::cos(angle) - high * std::sin(angle);
            high = high * std::cos(angle) + low * std::sin(angle);
            low = turned;
          }
  return qkv;
}

/// Whether a query sees a key of a sequence.
using Sees = bool (*)(std::size_t sequence, std::size_t query, std::size_t key);

/// softmax(q k' / sqrt(width)) v over the visible keys, with all probabilities stored.
Vector plain_attention(Vector qkv, Sees sees) {
  Vector out;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < sequence; ++t)
      for (std::size_t g = 0; g < groups; ++g)
        for (std::size_t head = 0; head < queries; ++head) {
          Vector weights;
          double total = 0;
          for (std::size_t s = 0; s < sequence; ++s) {
            double score = 0;
            for (std::size_t i = 0; i < width; ++i)
              score += element(qkv, b, t, g, head * width + i) * element(qkv, b, s, g, queries * width + i);
            weights.push_back(sees(b, t, s) ? std::exp(score / std::sqrt(static_cast<double>(width))) : 0);
            total += weights.back();
          }
          for (std::size_t i = 0; i < width; ++i) {
            double value = 0;
            for (std::size_t s = 0; s < sequence && total > 0; ++s)
              value += weights[s] / total * element(qkv, b, s, g, (queries + 1) * width + i);
            out.push_back(value);
          }
        }
  return out;
}

using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
using Out = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<2, tp>>;
static_assert(std::is_same_v<sw::AttentionLayout<Qkv>, Out>);
constexpr sw::HeadShape heads{queries, width};

/// This rank's part of the lengths of all sequences.
constexpr std::int32_t all_lengths[batch] = {3, 0, sequence};
using Lengths = sw::ShardedTensor<sw::KeyLengthsLayout<Qkv>, std::int32_t>;
static_assert(std::is_same_v<sw::KeyLengthsLayout<Qkv>, sw::Layout<1, sw::Shard<0, dp>>>);

Lengths lengths_on(const Mesh& mesh) {
  Lengths lengths(mesh, {batch});
  const auto offset = static_cast<std::size_t>(lengths.local_offset()[0]);
  for (std::size_t i = 0; i < lengths.local_size(); ++i)
    lengths.mutable_data()[i] = all_lengths[offset + i];
  return lengths;
}

/// Documents in the sequences; the last one has a token of padding.
constexpr std::int32_t document_of[batch][sequence] = {{0, 0, 1, 2, 2}, {0, 0, 0, 0, 0}, {0, 1, 1, 1, 2}};
using Starts = sw::ShardedTensor<sw::DocumentStartsLayout<Qkv>, std::int32_t>;
static_assert(std::is_same_v<sw::DocumentStartsLayout<Qkv>, sw::Layout<2, sw::Shard<0, dp>>>);

Starts starts_on(const Mesh& mesh) {
  static const std::vector<std::vector<std::int32_t>> lengths{{2, 1, 2}, {5}, {1, 3}};
  Starts starts(mesh, {batch, sequence});
  const auto offset = static_cast<std::size_t>(starts.local_offset()[0]);
  for (std::size_t row = 0; row < starts.local_size() / sequence; ++row)
    sw::fill_document_starts(lengths[offset + row],
                             std::span(starts.mutable_data() + row * sequence, sequence));
  return starts;
}

template <class Mask>
void check(const sw::HostCommunicator& world, Findings& findings, Extents extents, const char* name,
           const Mask& mask, Sees sees) {
  const Mesh mesh = mesh_of(world, extents);
  auto qkv = random_tensor<Qkv>(mesh, {batch, sequence, groups, group_width}, 1);
  const auto upstream = random_tensor<Out>(mesh, {batch, sequence, groups * queries * width}, 2);
  const Vector before = whole_of(qkv), weights = whole_of(upstream);
  const auto same = [&](const char* what, const Vector& values, const Vector& reference, double tolerance) {
    findings.expect(difference(values, reference) <= tolerance, what, " under ", name, " differs by ",
                    difference(values, reference), " on dp ", extents.data, " tp ", extents.tensor);
  };

  const sw::RotaryTable<double, sw::DefaultTarget> table(mesh, sequence, width, base);
  const sw::TokenPositions<sw::NaturalOrder> positions(sequence, 1, 0);
  qkv = sw::rotary(std::move(qkv), table, positions, heads);
  const Vector turned = whole_of(qkv);
  same("rotation", turned, plain_rotation(before), 1e-14);
  const auto out = sw::attention(qkv, heads, mask(mesh));
  same("value", whole_of(out.value), plain_attention(turned, sees), 1e-13);

  const sw::operation::Rotary<double, sw::DefaultTarget, sw::NaturalOrder> rotation{&table, positions, heads};
  const auto gradient =
      rotation.gradient(sw::attention_gradient(upstream, qkv, out, positions, heads, mask(mesh)), qkv, qkv);
  findings.expect(whole_of(sw::attention_gradient(upstream, qkv, out, positions, heads, mask(mesh),
                                                  &table)) == whole_of(gradient),
                  "the rotation undone with attention's gradient has other bits under ", name);
  const auto objective = [&](const Vector& at) {
    return dot(plain_attention(plain_rotation(at), sees), weights);
  };
  if (world.size() == 1)
    same("gradient", whole_of(gradient), finite_differences(objective, before), 1e-7);
  // Elsewhere one direction is enough, and much cheaper.
  const Vector analytic = whole_of(gradient);
  const auto along = [&](double step) {
    Vector at = before;
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] += step * analytic[i];
    return objective(at);
  };
  const double slope = (8 * (along(1e-3) - along(-1e-3)) - (along(2e-3) - along(-2e-3))) / 12e-3;
  same("slope along the gradient", {dot(analytic, analytic)}, {slope}, 1e-7);
}

/// The meaning of a mask, without and with lengths of keys.
bool up_to_own(std::size_t, std::size_t query, std::size_t key) { return key <= query; }
bool every(std::size_t, std::size_t, std::size_t) { return true; }
bool own(std::size_t, std::size_t query, std::size_t key) { return key == query; }
bool last_three(std::size_t, std::size_t query, std::size_t key) { return key <= query && query < key + 3; }
template <Sees sees> bool below_length(std::size_t sequence, std::size_t query, std::size_t key) {
  return sees(sequence, query, key) && key < static_cast<std::size_t>(all_lengths[sequence]);
}

template <Sees sees> bool in_document(std::size_t b, std::size_t query, std::size_t key) {
  return sees(b, query, key) && document_of[b][query] == document_of[b][key];
}

template <Sees sees, class Mask>
void check_padded_too(const sw::HostCommunicator& world, Findings& findings, Extents extents,
                      const char* name, Mask mask) {
  check(
      world, findings, extents, name, [mask](const Mesh&) { return mask; }, sees);
  check(
      world, findings, extents, (std::string(name) + " and lengths").c_str(),
      [mask](const Mesh& mesh) { return sw::padded(mask, lengths_on(mesh)); }, below_length<sees>);
  check(
      world, findings, extents, (std::string(name) + " in documents").c_str(),
      [mask](const Mesh& mesh) { return sw::documents(mask, starts_on(mesh)); }, in_document<sees>);
}

} // namespace

TEST_CASE("attention and its gradient are those of whole tensors on every mesh, under every mask") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check_padded_too<up_to_own>(world, findings, extents, "causal", sw::causal);
            check_padded_too<every>(world, findings, extents, "full", sw::full);
            check_padded_too<own>(world, findings, extents, "a window of 1", sw::sliding_window<1>);
            check_padded_too<last_three>(world, findings, extents, "a window of 3", sw::sliding_window<3>);
            check_padded_too<up_to_own>(world, findings, extents, "a window of 64", sw::sliding_window<64>);
          }) == "");
}

namespace {

template <class A, class B> bool same_bits(const A& a, const B& b) {
  return a.local_size() == b.local_size() &&
         std::memcmp(a.data(), b.data(), a.local_size() * sizeof(*a.data())) == 0;
}

/// Value and gradient on a tape, with and without positions, compared with those of tensors.
template <class Mask>
void check_tape(const sw::HostCommunicator& world, Findings& findings, const char* name, const Mask& mask) {
  const Mesh mesh = mesh_of(world, {2, 1});
  const auto qkv = random_tensor<Qkv>(mesh, {batch, sequence, groups, group_width}, 1);
  const auto upstream = random_tensor<Out>(mesh, {batch, sequence, groups * queries * width}, 2);
  const auto out = sw::attention(qkv, heads, mask(mesh));
  const sw::TokenPositions<sw::NaturalOrder> positions(sequence, 1, 0);
  const auto gradient = sw::attention_gradient(upstream, qkv, out, positions, heads, mask(mesh));
  for (const bool with_positions : {false, true}) {
    sw::Tape<> tape;
    const auto x = tape.variable(qkv);
    const auto y =
        with_positions ? attention(x, positions, heads, mask(mesh)) : attention(x, heads, mask(mesh));
    tape.seed(y, upstream.share());
    findings.expect(same_bits(y.value(), out.value), "the value under ", name);
    tape.backward();
    findings.expect(same_bits(tape.gradient(x), gradient), "the gradient under ", name);
  }
}

} // namespace

TEST_CASE("attention on a tape equals that of tensors, under every mask") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          check_tape(world, findings, "causal", [](const Mesh&) { return sw::causal; });
          check_tape(world, findings, "full", [](const Mesh&) { return sw::full; });
          check_tape(world, findings, "a window", [](const Mesh&) { return sw::sliding_window<2>; });
          check_tape(world, findings, "lengths",
                     [](const Mesh& mesh) { return sw::padded(sw::full, lengths_on(mesh)); });
          check_tape(world, findings, "documents",
                     [](const Mesh& mesh) { return sw::documents(sw::causal, starts_on(mesh)); });
        }) == "");
}

namespace {

/// Tokens [first, first + count) of every sequence.
sw::ShardedTensor<Qkv, double> part_of(const sw::ShardedTensor<Qkv, double>& qkv, std::int64_t first,
                                       std::int64_t count) {
  auto shape = qkv.shape();
  const std::int64_t all = std::exchange(shape[1], count);
  sw::ShardedTensor<Qkv, double> out(qkv.resources(), shape);
  const std::int64_t row = out.local_shape()[2] * out.local_shape()[3];
  for (std::int64_t b = 0; b < out.local_shape()[0]; ++b)
    std::copy_n(qkv.data() + (b * all + first) * row, count * row, out.mutable_data() + b * count * row);
  return out;
}

/// Tokens that arrive a few at a time, compared with all at once.
template <class Mask>
void check_cache(const sw::HostCommunicator& world, Findings& findings, Extents extents, const Mask& mask,
                 const sw::HeadShape& heads = ::heads) {
  constexpr std::int64_t tokens = 150; // more than two blocks of keys
  const Mesh mesh = mesh_of(world, extents);
  auto qkv = random_tensor<Qkv>(mesh, {batch, tokens, groups, heads.of_group()}, 1);
  const auto before = qkv.clone();
  const sw::RotaryTable<double, sw::DefaultTarget> table(mesh, tokens, width, base);
  const sw::RotaryTable<double, sw::DefaultTarget> same(mesh, tokens, sw::rotary_frequencies(width, base));
  qkv = sw::rotary(std::move(qkv), table, sw::TokenPositions<sw::NaturalOrder>(tokens, 1, 0), heads);
  const Vector reference = whole_of(sw::attention(qkv, heads, mask).value);
  sw::KeyValueCache<Qkv, double> cache(mesh, batch, tokens + 3, groups, heads, Mask::window);
  std::vector<Vector> sequences(batch);
  for (const std::int64_t count : {70, 1, 1, 75, 3}) {
    auto part = part_of(before, cache.size(), count);
    sw::rotate(part, same,
               sw::TokenRuns::one(static_cast<std::size_t>(count), static_cast<std::size_t>(cache.size())),
               heads);
    const Vector out = whole_of(cache.attend(part));
    for (std::size_t b = 0; b < batch; ++b)
      sequences[b].insert(sequences[b].end(),
                          out.begin() + static_cast<std::ptrdiff_t>(b * out.size() / batch),
                          out.begin() + static_cast<std::ptrdiff_t>((b + 1) * out.size() / batch));
  }
  Vector all;
  for (const Vector& sequence : sequences)
    all.insert(all.end(), sequence.begin(), sequence.end());
  findings.expect(difference(all, reference) < 1e-13, "tokens that come a few at a time differ by ",
                  difference(all, reference), " on dp ", extents.data, " tp ", extents.tensor);
  // Again from the middle on.
  cache.truncate(tokens - 4);
  const Vector last = whole_of(cache.attend(part_of(qkv, tokens - 4, 4)));
  const std::size_t of_sequence = last.size() / batch;
  findings.expect(
      difference({last.begin(), last.begin() + static_cast<std::ptrdiff_t>(of_sequence)},
                 {sequences[0].end() - static_cast<std::ptrdiff_t>(of_sequence), sequences[0].end()}) < 1e-13,
      "tokens after truncate() must be those of before");
  const auto sentence = [](const auto& call) {
    try {
      call();
    } catch (const sw::InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string full = sentence([&] { static_cast<void>(cache.attend(part_of(before, 0, 4))); });
  findings.expect(full.find("room for 154 tokens, but it has 153") != std::string::npos, full);
  const std::string others = sentence([&] {
    static_cast<void>(cache.attend(random_tensor<Qkv>(mesh, {batch + 1, 1, groups, heads.of_group()}, 2)));
  });
  findings.expect(others.find("KeyValueCache: the new tokens must be of the cache's 3 sequences and 6 "
                              "kv_heads, but they are of 4 and 6") != std::string::npos,
                  others);
  const std::string fewer = sentence([&] { cache.truncate(tokens + 1); });
  findings.expect(fewer.find("the 151 tokens that are kept, but holds 150") != std::string::npos, fewer);
}

} // namespace

TEST_CASE("attention with a cache of keys and values equals attention over all tokens, on every mesh") {
  for (const Extents extents : {Extents{1, 1}, {1, 3}, {3, 2}})
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check_cache(world, findings, extents, sw::causal);
            check_cache(world, findings, extents, sw::sliding_window<67>);
            for (const std::int64_t of_value : {3, 6})
              check_cache(world, findings, extents, sw::causal,
                          {.queries = queries, .width = width, .value_width = of_value});
          }) == "");
}

TEST_CASE("cached attention weighs the values of all rows up to the query's own") {
  const sw::DefaultTarget::execution_space execution;
  std::vector<double> qkv{1, 2, 0, 0, 0, 0}, rows{3, 1, 10, 20, 1, 3, 30, 40}, out(2);
  const auto attend = [&](std::size_t first) {
    sw::kernels::cached_attention(execution, sw::MatrixView<double, sw::DefaultTarget>(qkv.data(), 1, 6),
                                  sw::MatrixView<double, sw::DefaultTarget>(rows.data(), 2, 4),
                                  sw::MatrixView<double, sw::DefaultTarget>(out.data(), 1, 2),
                                  {1, 1, 1, 1, 2}, {2, first}, 0.5);
  };
  attend(0);
  CHECK(out == Vector{10, 20});
  attend(1);
  const double a = std::exp(2.5), b = std::exp(3.5);
  CHECK(difference(out, {(10 * a + 30 * b) / (a + b), (20 * a + 40 * b) / (a + b)}) < 1e-15);
  CHECK_THROWS_AS(attend(2), sw::InvalidArgument);
}

TEST_CASE("rotary frequencies are scaled by their wavelength") {
  const auto plain = sw::rotary_frequencies(8, 1e4);
  CHECK(plain == Vector{1, 0.1, 0.01, 0.001});
  // 2000 positions are 318, 31.8, 3.18 and 0.318 turns.
  const auto stretched = sw::rotary_frequencies(8, 1e4, sw::RotaryScaling{8, 1, 4, 2000});
  CHECK(std::equal(stretched.begin(), stretched.begin() + 2, plain.begin()));
  CHECK(std::abs(stretched[2] - 0.01 * (0.7277 + 0.2723 / 8)) < 1e-6);
  CHECK(std::abs(stretched[3] - 0.001 / 8) < 1e-18);
}

TEST_CASE("a tape compares key lengths and documents between ranks that must have the same") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2});
          const auto qkv = random_tensor<Qkv>(mesh, {batch, sequence, groups, group_width}, 1);
          Lengths lengths = lengths_on(mesh);
          Starts starts = starts_on(mesh);
          const auto said = [&](bool compares, bool packed = false) {
            sw::Tape<> tape;
            tape.check_inputs(compares);
            try {
              if (packed)
                static_cast<void>(attention(tape.variable(qkv), heads, sw::documents(sw::causal, starts)));
              else
                static_cast<void>(attention(tape.variable(qkv), heads, sw::padded(sw::full, lengths)));
            } catch (const sw::ConfigurationMismatch& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          findings.expect(said(true) == "no error", said(true));
          lengths.mutable_data()[0] = mesh.coordinate<tp>();
          findings.expect(sw::always_checked || said(false) == "no error", said(false));
          const std::string odd = said(true);
          findings.expect(odd.find("Input: ranks along tp") != std::string::npos, odd);
          findings.expect(said(true, true) == "no error", said(true, true));
          sw::fill_document_starts(std::vector<std::int32_t>{1 + mesh.coordinate<tp>()},
                                   std::span(starts.mutable_data(), sequence));
          const std::string packed = said(true, true);
          findings.expect(packed.find("Input: ranks along tp") != std::string::npos, packed);
        }) == "");
}

TEST_CASE("a dry run counts attention with key lengths as if there were none") {
  using Counting = sw::Counting<sw::DefaultTarget>;
  const sw::DryRun run = sw::dry_run(2, 1, [](sw::HostCommunicator world) {
    const Mesh mesh = mesh_of(world, {2, 1});
    const sw::ShardedTensor<Qkv, float, Counting> qkv(mesh, {batch, sequence, groups, group_width});
    const sw::ShardedTensor<sw::KeyLengthsLayout<Qkv>, std::int32_t, Counting> lengths(mesh, {batch});
    sw::Tape<Counting> tape;
    static_cast<void>(attention(tape.variable(qkv), heads, sw::padded(sw::full, lengths)));
  });
  CHECK(run.memory.requested() > 0);
}

TEST_CASE("attention rejects key lengths that do not match its sequences") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 1});
          const auto qkv = random_tensor<Qkv>(mesh, {2, sequence, groups, group_width}, 1);
          const auto sentence = [&](std::int64_t count, std::int32_t value) {
            Lengths lengths(mesh, {count});
            for (std::size_t i = 0; i < lengths.local_size(); ++i)
              lengths.mutable_data()[i] = i == 0 ? 1 : value;
            try {
              static_cast<void>(sw::attention(qkv, heads, sw::padded(sw::causal, lengths)));
            } catch (const sw::InvalidArgument& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          const auto expect = [&](const std::string& said, const char* part) {
            findings.expect(said.find(part) != std::string::npos, said);
          };
          expect(sentence(2, 0), "no error");
          expect(sentence(2, 5), "no error");
          expect(sentence(2, 6), "attention: key lengths must be from 0 to the sequence of 5, but one is 6");
          expect(sentence(2, -1),
                 "attention: key lengths must be from 0 to the sequence of 5, but one is -1");
          expect(sentence(3, 1),
                 "attention: the tensor of key lengths must have the shape [2], but it has [3]");
        }) == "");
}

TEST_CASE("attention rejects starts that no documents have") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 1});
          const auto qkv = random_tensor<Qkv>(mesh, {2, sequence, groups, group_width}, 1);
          const auto sentence = [&](std::int64_t rows, std::vector<std::int32_t> values) {
            Starts starts(mesh, {rows, sequence});
            for (std::size_t i = 0; i < starts.local_size(); ++i)
              starts.mutable_data()[i] = values[i % values.size()];
            try {
              static_cast<void>(sw::attention(qkv, heads, sw::documents(sw::causal, starts)));
            } catch (const sw::InvalidArgument& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          const auto expect = [&](const std::string& said, const char* part) {
            findings.expect(said.find(part) != std::string::npos, said);
          };
          expect(sentence(2, {0, 0, 2, 2, 4}), "no error");
          expect(sentence(2, {0, 0, 1, 1, 1}), "but at position 2 it is 1 (fill a sequence by");
          expect(sentence(2, {1, 1, 1, 1, 1}), "but at position 0 it is 1");
          expect(sentence(2, {0, 0, 0, 0, 5}), "but at position 4 it is 5");
          expect(sentence(2, {0, 0, 0, -1, -1}), "but at position 3 it is -1");
          expect(sentence(3, {0}), "the tensor of the starts of documents must have the shape [2, 5]");
        }) == "");
}

TEST_CASE("documents fill a sequence, the last one with padding, and never more") {
  std::vector<std::int32_t> starts(6);
  sw::fill_document_starts(std::vector<std::int32_t>{2, 0, 3}, starts);
  CHECK(starts == std::vector<std::int32_t>{0, 0, 2, 2, 2, 5});
  sw::fill_document_starts({}, starts);
  CHECK(starts == std::vector<std::int32_t>(6, 0));
  const auto refusal = [&](std::vector<std::int32_t> lengths) -> std::string {
    try {
      sw::fill_document_starts(lengths, starts);
    } catch (const sw::InvalidArgument& error) {
      return error.what();
    }
    return "none";
  };
  CHECK(refusal({2, 4}) == "none");
  CHECK(refusal({2, 5}).find("after 2 tokens comes a document of 5 (cut it,") != std::string::npos);
  CHECK(refusal({-1}).find("comes a document of -1") != std::string::npos);
}

TEST_CASE("attention names heads that do not divide evenly and a fused width that does not match them") {
  CHECK(
      on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
        const Mesh mesh = mesh_of(world, {1, 2});
        const auto sentence = [&](std::int64_t kv_heads, std::int64_t fused) {
          const auto qkv = random_tensor<Qkv>(mesh, {1, 2, kv_heads, fused}, 1);
          try {
            static_cast<void>(sw::attention(qkv, heads));
          } catch (const sw::InvalidArgument& error) {
            return std::string(error.what());
          }
          return std::string("no error");
        };
        const std::string uneven = sentence(3, group_width);
        findings.expect(
            uneven.find("attention: kv_heads 3 must be a multiple of the 2 ranks of tp, which share them") !=
                std::string::npos,
            uneven);
        const std::string narrow = sentence(2, group_width + 1);
        findings.expect(
            narrow.find("attention: the last extent must be (queries + 2) * head width = 16, but it is 17") !=
                std::string::npos,
            narrow);
      }) == "");
}

TEST_CASE("a tape compares the factor of scores and the frequencies of all ranks if told to") {
  CHECK(
      on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
        const sw::DeviceMesh mesh{world, sw::extent<tp>(2)};
        using Heads = sw::Layout<4, sw::Shard<2, tp>>;
        const auto qkv = random_tensor<Heads>(mesh, {1, 3, 2, group_width}, 1);
        const sw::TokenPositions<sw::NaturalOrder> positions(3, 1, 0);
        const auto said = [&](bool checks, double frequency, double factor) {
          const sw::RotaryTable<double, sw::DefaultTarget> table(mesh, 3, {1, frequency});
          sw::Tape<> tape;
          tape.check_inputs(checks);
          try {
            const sw::HeadShape shape{.queries = queries, .width = width, .score_factor = factor};
            static_cast<void>(
                sw::attention(sw::rotary(tape.input(qkv), table, positions, shape), positions, shape));
          } catch (const sw::ConfigurationMismatch& error) {
            return std::string(error.what());
          }
          return std::string("nothing");
        };
        const double odd = 1 + world.rank();
        findings.expect(said(true, 0.1, 0.5) == "nothing", "ranks that agree");
        if (sw::always_checked)
          return; // where the table is made
        findings.expect(said(false, odd, odd) == "nothing", "a tape that does not check");
        const std::string angles = said(true, odd, 1), scores = said(true, 0.1, odd);
        findings.expect(angles.find("rotary: all ranks along tp must give the same frequency 1, but it is 1 "
                                    "on rank 0 and 2 on rank 1") != std::string::npos,
                        angles);
        findings.expect(scores.find("rotary: all ranks along tp must give the same score factor, but it is 1 "
                                    "on rank 0 and 2 on rank 1") != std::string::npos,
                        scores);
      }) == "");
}

TEST_CASE("rotary positions follow from the layout, also of a value that is not split like the ids") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<cp>(2)};
          using Ids = sw::Layout<2, sw::Shard<1, cp>>;
          using Split = sw::Layout<4, sw::Shard<1, cp>>;
          constexpr std::int64_t tokens = 8;
          const sw::RotaryTable<double, sw::DefaultTarget> table(mesh, tokens, width, base);
          auto whole = random_tensor<sw::Layout<4>>(mesh, {2, tokens, groups, group_width}, 1);
          sw::ShardedTensor<sw::Layout<4>, double> row(mesh, {1, 2 * tokens, groups, group_width});
          std::copy_n(whole.data(), whole.local_size(), row.mutable_data());
          auto split = random_tensor<Split>(mesh, {2, tokens, groups, group_width}, 1);
          const sw::TokenTensor<sw::NaturalOrder, Ids> ids(mesh, {2, tokens});
          whole = sw::rotary(std::move(whole), table, ids.positions(), heads);
          split = sw::rotary(std::move(split), table, ids.positions(), heads);
          findings.expect(whole_of(whole) == whole_of(split), "a whole value beside ids over cp");
          // Both sequences side by side in one row: more tokens than the table has rows.
          std::vector<std::int32_t> places(2 * tokens);
          for (std::size_t i = 0; i < places.size(); ++i)
            places[i] = static_cast<std::int32_t>(i % tokens);
          sw::rotate(row, table, places, heads);
          findings.expect(whole_of(row) == whole_of(whole), "two sequences in one row");
          const auto sentence = [&](auto x, const auto& positions) {
            try {
              if constexpr (requires { positions.runs(); })
                static_cast<void>(sw::rotary(std::move(x), table, positions, heads));
              else
                sw::rotate(x, table, positions, heads);
            } catch (const sw::InvalidArgument& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          const std::string order =
              sentence(whole.clone(), sw::TokenPositions<sw::ZigZagOrder>(tokens, 2, world.rank()));
          findings.expect(
              order.find("rotary: the positions must be those of the input's sequence of 8 on rank 0 "
                         "of 1, but they are of 8 on rank ") == 0,
              order);
          const std::string short_table = sentence(whole.clone(), sw::TokenRuns::one(8, 3));
          findings.expect(
              short_table.find("rotary: the table must have a row for each position, but it has 8, and "
                               "the positions need 11") == 0,
              short_table);
          const std::string few = sentence(split.clone(), sw::TokenRuns::one(8));
          findings.expect(
              few.find("rotary: every token of this rank must have a position, but there are 8 positions "
                       "for 4 tokens") == 0,
              few);
          places[3] = 8;
          const std::string beyond = sentence(row.clone(), places);
          findings.expect(beyond.find("but it has 8, and the positions need 9") != beyond.npos, beyond);
          places[5] = -1;
          const std::string negative = sentence(row.clone(), places);
          findings.expect(negative.find("rotary: positions must be from 0 on, but one is -1") == 0, negative);
          const std::string length = sentence(whole.clone(), sw::TokenPositions<sw::NaturalOrder>(6, 2, 0));
          findings.expect(
              length.find("rotary: the positions must be those of the input's sequence of 8, but they "
                          "are of 6") == 0,
              length);
        }) == "");
}
