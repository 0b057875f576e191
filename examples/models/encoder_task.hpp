// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Votes for the Encoder.

#include "encoder.hpp"
#include "trainer.hpp"

namespace models {

struct EncoderTask {
  template <class Plan> using Model = Encoder<Plan>;

  template <class> [[nodiscard]] static EncoderConfig config(const Options& options) {
    return {.recompute = {options.recompute}};
  }
  [[nodiscard]] static auto sample(const EncoderConfig& config, std::uint64_t seed) {
    return [=](std::uint64_t number) { return votes(seed, number, config.vocabulary, config.sequence); };
  }
  template <class Model, class Mesh, class MakeSample>
  [[nodiscard]] static typename Model::Batch batch(const Mesh& mesh, const EncoderConfig& config,
                                                   const Rows& rows, MakeSample sample) {
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
