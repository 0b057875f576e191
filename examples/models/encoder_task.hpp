// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Votes for the Encoder.

#include "encoder.hpp"
#include "task.hpp"

namespace models {

template <class Plan> struct EncoderTask : SampleTask {
  using Model = Encoder<Plan>;

  [[nodiscard]] static EncoderConfig config(const Options& options) {
    return {.recompute = options.recompute};
  }
  [[nodiscard]] static auto sample(const EncoderConfig& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return votes(seed, number, config.vocabulary, config.sequence); };
  }
  [[nodiscard]] static std::string_view unit(const Options&) { return "sample"; }
  template <class Batch, class Mesh, class MakeSample>
  [[nodiscard]] static Batch batch(const Mesh& mesh, const EncoderConfig& config, const Rows& rows,
                                   MakeSample sample) {
    typename Model::Ids ids(mesh, {rows.count, config.sequence}),
        classes(mesh, {rows.count, config.sequence});
    typename Model::Lengths lengths(mesh, {rows.count});
    load(ids, rows, sample, &Sample::ids);
    load(classes, rows, sample, &Sample::targets);
    load(lengths, rows, sample, &Sample::length);
    return {ids.share(), classes.share(), lengths.share()};
  }
};

} // namespace models
