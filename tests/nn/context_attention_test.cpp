// SPDX-License-Identifier: Apache-2.0
#include "nn/context_check.hpp"
#include "support/catch.hpp"
#include "support/mimic_target.hpp"

#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<1, cp>, sw::Shard<2, tp>>;
static_assert(std::is_same_v<sw::AllToAllContext::AttentionInput<Qkv>,
                             sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp, cp>>>);
static_assert(std::is_same_v<sw::RingContext::AttentionInput<Qkv>, Qkv>);

} // namespace

TEST_CASE("attention over context ranks equals that of whole sequences, in both forms") {
  for (const ContextWay way : context_ways)
    CHECK(on_ranks(way.context * way.tensor, [way](sw::HostCommunicator world, Findings& findings) {
            check_context<sw::RingContext, double>(world, findings, way, 1e-14);
            check_context<sw::AllToAllContext, double>(world, findings, way, 1e-14);
            check_context<sw::RingContext, float>(world, findings, way, 4e-6);
            // One unit in the last place of values up to 4: blocks add up in float and are rounded once.
            check_context<sw::RingContext, sw::bfloat16>(world, findings, way, 0x1p-6);
          }) == "");
}

namespace {

template <class Masking>
void check_mask(const sw::HostCommunicator& world, Findings& findings, ContextWay way) {
  check_context<sw::RingContext, double, Masking>(world, findings, way, 1e-14);
  check_context<sw::AllToAllContext, double, Masking>(world, findings, way, 1e-14);
  check_context<sw::RingContext, float, Masking>(world, findings, way, 4e-6);
}

} // namespace

TEST_CASE("context ranks compute attention under every mask") {
  for (const ContextWay way : {ContextWay{1, 1}, ContextWay{2, 1}, ContextWay{3, 1}, ContextWay{2, 2}})
    CHECK(on_ranks(way.context * way.tensor, [way](sw::HostCommunicator world, Findings& findings) {
            check_mask<ContextMask<sw::FullMask>>(world, findings, way);
            check_mask<ContextMask<sw::SlidingWindowMask<3>>>(world, findings, way);
            check_mask<ContextMask<sw::SlidingWindowMask<20>>>(world, findings, way);
            check_mask<ContextMask<sw::SlidingWindowMask<64>>>(world, findings, way);
            check_mask<ContextMask<sw::CausalMask, true>>(world, findings, way);
            check_mask<ContextMask<sw::FullMask, true>>(world, findings, way);
            check_mask<ContextMask<sw::SlidingWindowMask<3>, true>>(world, findings, way);
            check_mask<ContextDocuments<sw::CausalMask>>(world, findings, way);
            check_mask<ContextDocuments<sw::FullMask>>(world, findings, way);
            check_mask<ContextDocuments<sw::SlidingWindowMask<5>>>(world, findings, way);
            using Padded = ContextMask<sw::FullMask, true>;
            using PaddedWindow = ContextMask<sw::SlidingWindowMask<3>, true>;
            check_context<sw::RingContext, double, Padded>(world, findings, way, 1e-14, true);
            check_context<sw::RingContext, double, PaddedWindow>(world, findings, way, 1e-14, true);
            check_context<sw::RingContext, double, ContextDocuments<sw::FullMask>>(world, findings, way,
                                                                                   1e-14, true);
            check_context<sw::RingContext, sw::bfloat16, Padded>(world, findings, way, 0x1p-6);
            check_context<sw::RingContext, sw::float16, Padded>(world, findings, way, 0x1p-9);
          }) == "");
}

namespace {

using Mimic = shardwright_test::MimicTarget;

template <class OnHost, class OnDevice = OnHost>
void check_device(const ContextMesh& mesh, Findings& findings) {
  const auto host = ContextProblem<sw::RingContext, sw::bfloat16, sw::DefaultTarget, OnHost>(mesh).together();
  const auto device = ContextProblem<sw::RingContext, sw::bfloat16, Mimic, OnDevice>(mesh).together();
  const auto same = [](const auto& left, const auto& right) {
    return left.size() == right.size() &&
           std::memcmp(left.data(), right.data(), left.size() * sizeof(left[0])) == 0;
  };
  findings.expect(!host.first.empty() && same(host.first, device.first), "the values");
  findings.expect(same(host.second, device.second), "the gradients");
}

} // namespace

namespace {

using Ordered = sw::Reproducible<sw::DefaultTarget>;

/// Whole sequences and those that ranks share, by a ring or by all-to-all, give the same bits.
template <class Element, class Masking>
void check_ordered(const sw::HostCommunicator& world, Findings& findings, ContextWay way) {
  const ContextMesh mesh(world, sw::extent<cp>(way.context), sw::extent<tp>(way.tensor));
  const auto expect = [&](const auto& left, const auto& right, const char* what) {
    findings.expect(!left.empty() && left.size() == right.size() &&
                        std::memcmp(left.data(), right.data(), left.size() * sizeof(left[0])) == 0,
                    what, ", cp ", way.context, ", tp ", way.tensor, ", ",
                    sw::name_of(sw::element_type_of<Element>()));
  };
  const ContextProblem<sw::RingContext, Element, Ordered, Masking> ring(mesh);
  const auto shared = ring.together(), alone = ring.alone();
  expect(shared.first, alone.first, "values of a ring");
  expect(shared.second, alone.second, "gradients of a ring");
  const ContextProblem<sw::AllToAllContext, Element, Ordered, Masking> by_heads(mesh);
  const auto moved = by_heads.together(), whole = by_heads.alone();
  expect(moved.first, whole.first, "values by all-to-all");
  expect(moved.second, whole.second, "gradients by all-to-all");
}

} // namespace

TEST_CASE("attention on a reproducible target has the same bits on every number of context ranks") {
  for (const ContextWay way : {ContextWay{1, 1}, ContextWay{2, 1}, ContextWay{2, 2}, ContextWay{4, 1}})
    CHECK(on_ranks(way.context * way.tensor, [way](sw::HostCommunicator world, Findings& findings) {
            check_ordered<float, ContextMask<sw::CausalMask>>(world, findings, way);
            check_ordered<sw::bfloat16, ContextDocuments<sw::CausalMask>>(world, findings, way);
            check_ordered<double, ContextMask<sw::SlidingWindowMask<20>, true>>(world, findings, way);
          }) == "");
}

TEST_CASE("the ring of a device target gives the same bits as the host") {
  for (const ContextWay way : context_ways)
    CHECK(on_ranks(way.context * way.tensor, [way](sw::HostCommunicator world, Findings& findings) {
            const ContextMesh mesh(world, sw::extent<cp>(way.context), sw::extent<tp>(way.tensor));
            check_device<ContextMask<sw::CausalMask>>(mesh, findings);
            check_device<ContextMask<sw::FullMask>>(mesh, findings);
            check_device<ContextDocuments<sw::CausalMask>, ContextDocuments<sw::CausalMask, Mimic>>(mesh,
                                                                                                    findings);
          }) == "");
}

TEST_CASE("a tape that checks its inputs rejects starts on a device that no documents have") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const ContextMesh mesh(world, sw::extent<cp>(1), sw::extent<tp>(1));
          sw::ShardedTensor<sw::Layout<4>, float, Mimic> qkv(mesh, {1, 5, 1, 3 * 4});
          sw::fill_normal(qkv, {11, 1});
          const auto said = [&](const std::vector<std::int32_t>& values) {
            sw::ShardedTensor<sw::Layout<2>, std::int32_t, Mimic> starts(mesh, {1, 5});
            sw::set_local_values(starts, values);
            sw::Tape<Mimic> tape;
            tape.check_inputs(true);
            try {
              static_cast<void>(
                  sw::attention(tape.variable(qkv), sw::HeadShape{1, 4}, sw::documents(sw::causal, starts)));
            } catch (const sw::InvalidArgument& error) {
              return std::string(error.what());
            }
            return std::string("no error");
          };
          findings.expect(said({0, 0, 2, 2, 2}) == "no error", said({0, 0, 2, 2, 2}));
          const std::string wrong = said({0, 0, 1, 1, 1});
          findings.expect(wrong.find("but at position 2 it is 1 (fill a sequence by") != std::string::npos,
                          wrong);
        }) == "");
}

TEST_CASE("a ring on a tape attends under its mask, also in a recomputation") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const ContextMesh mesh(world, sw::extent<cp>(2), sw::extent<tp>(1));
          using Sharded = sw::Layout<4, sw::Shard<1, cp>>;
          const sw::HeadShape heads{2, 6};
          sw::ShardedTensor<Sharded> qkv(mesh, {3, 48, 2, 4 * 6});
          sw::ShardedTensor<sw::AttentionLayout<Sharded>> upstream(mesh, {3, 48, 2 * 2 * 6});
          sw::fill_normal(qkv, {11, 1});
          sw::fill_normal(upstream, {11, 2});
          const sw::TokenPositions<sw::ZigZagOrder> positions(48, 2, mesh.coordinate<cp>());
          const auto mask = ContextMask<sw::SlidingWindowMask<20>, true>::on(mesh);
          const auto out = sw::attention(qkv, positions, heads, mask);
          const auto gradient = sw::attention_gradient(upstream, qkv, out, positions, heads, mask);
          const auto same = [](const auto& left, const auto& right) {
            return std::memcmp(left.data(), right.data(), left.local_size() * sizeof(float)) == 0;
          };
          for (const sw::Recompute kind :
               {sw::Recompute::none, sw::Recompute::selective, sw::Recompute::full}) {
            sw::Tape<> tape;
            const auto x = tape.variable(qkv);
            auto attend = sw::recompute(
                [&](auto in) { return attention(std::move(in), positions, heads, mask); }, kind);
            const auto y = attend(x);
            findings.expect(same(y.value(), out.value), "the value");
            tape.seed(y, upstream.share());
            tape.backward();
            findings.expect(same(tape.gradient(x), gradient), "the gradient");
          }
        }) == "");
}

TEST_CASE("attention over context ranks names sizes that do not divide evenly") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<cp>(2), sw::extent<tp>(2)};
          const auto expect = [&](const char* part, const auto& function) {
            std::string said = "no error";
            try {
              function();
            } catch (const sw::InvalidArgument& error) {
              said = error.what();
            }
            findings.expect(said.find(part) != std::string::npos, said);
          };
          using Ids = sw::Layout<2, sw::Shard<1, cp>>;
          expect(
              "ZigZagOrder: the sequence 6 must be a multiple of 4, two chunks for each of 2 context ranks",
              [&] {
                sw::TokenTensor<sw::ZigZagOrder, Ids>(mesh, {1, 6});
              });
          using Heads = sw::Layout<4, sw::Shard<2, tp, cp>>;
          const sw::ShardedTensor<Heads> few(mesh, {1, 8, 6, 4 * 8});
          expect("attention: kv_heads 6 must be a multiple of the 4 ranks of tp x cp, which share them", [&] {
            static_cast<void>(sw::attention(few, {2, 8}));
          });
          using Sharded = sw::Layout<4, sw::Shard<1, cp>>;
          const sw::ShardedTensor<Sharded> qkv(mesh, {1, 8, 1, 4 * 8});
          expect("attention: the positions must be those of the input's sequence of 8, but they are of 16",
                 [&] {
                   static_cast<void>(sw::attention(
                       qkv, sw::TokenPositions<sw::ZigZagOrder>(16, 2, mesh.coordinate<cp>()), {2, 8}));
                 });
          const int rank = mesh.coordinate<cp>();
          const auto at = [&](int ranks, int which) {
            return [&, ranks, which] {
              const sw::TokenPositions<sw::ZigZagOrder> positions(8, ranks, which);
              static_cast<void>(sw::attention(qkv, positions, {2, 8}));
            };
          };
          const std::string here =
              "sequence of 8 on rank " + std::to_string(rank) + " of 2, but they are of 8 ";
          expect((here + "on rank " + std::to_string(1 - rank) + " of 2 (take").c_str(), at(2, 1 - rank));
          expect((here + "on rank 0 of 1 (take them").c_str(), at(1, 0));
          const sw::ShardedTensor<Sharded, float, Ordered> ordered(mesh, {1, 8, 1, 4 * 8});
          const auto in_order = [&](sw::TextOrder text) {
            return [&, text] {
              const sw::TokenPositions<sw::ZigZagOrder> positions(8, 2, rank, text);
              static_cast<void>(sw::attention(ordered, positions, {2, 8}));
            };
          };
          expect("must be a multiple of 16, but it is 8 (change", in_order({}));
          const std::vector<std::int32_t> text{0, 1, 2, 3, 4, 5, 6, 7};
          expect("must be in the order of their text, but a balanced order",
                 in_order(std::make_shared<const std::vector<std::int32_t>>(text)));
        }) == "");
}
