// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A training of train_gpt over any layouts, element type and target.

#include "model_export.hpp"
#include "sample.hpp"
#include "text_task.hpp"
#include "training.hpp"

#include <trainer/trainer.hpp>

#include <memory>

namespace train_gpt {

/// @brief Trains a task, then does what the options ask for at the end. Collective.
template <class Task>
[[nodiscard]] RunResult train_task(const sw::HostCommunicator& world, const Options& options,
                                   const sw::TokenRows& dataset, bool quiet) {
  trainer::Trainer<Task> training(world, options, &dataset, quiet);
  auto& run = training.parts();
  RunResult result;
  if (options.sample_every > 0) {
    const std::shared_ptr<const pretrained::Tokenizer> tokenizer =
        pretrained::read_tokenizer(options.init / "tokenizer.json");
    training.tell_every(options.sample_every, [&, tokenizer, questions = held_out_questions(dataset)] {
      return result.answers =
                 answer_lines(questions, answer(run, training.batches(), options, questions), *tokenizer);
    });
  }
  static_cast<trainer::RunResult&>(result) = training.run();
  if (result.stopped && run.training.steps() != options.checkpoint.stop_after)
    return result; // by a signal, after which there is little time
  if (!options.export_to.empty()) {
    sw::checkpoint::Staging staging;
    sw::checkpoint::stage(run.model, run.training.optimizer(), staging);
    trainer::together(run.whole.world(), [&] { export_model(run.whole.world(), options, staging); });
  }
  if (options.sample > 0)
    result.sample = sample_text(run, training.batches(), options);
  if (options.verify)
    result.parameters = training.parameters();
  return result;
}

/// @brief Trains on every rank of `world` with parameters of `Element`, sharded by `Zero`, and attention
/// over cp by `Context`, on a target. Collective; rank 0 reports unless `quiet`.
template <class Element, class Zero, class Context = sw::AllToAllContext, class Target = sw::DefaultTarget>
[[nodiscard]] RunResult train_as(const sw::HostCommunicator& world, const Options& options,
                                 const sw::TokenRows& dataset, bool quiet) {
  if constexpr (requires { Target::use_device(0); })
    if (options.gpus > 1)
      Target::use_device(world.rank() % options.gpus);
  if constexpr (has_plain_layouts<Element, Context, Target>)
    if (!options.sequence_parallel)
      return train_task<TextTask<sw::DecoderLayouts<false, Zero, Context>, Element, Target>>(world, options,
                                                                                             dataset, quiet);
  return train_task<TextTask<sw::DecoderLayouts<true, Zero, Context>, Element, Target>>(world, options,
                                                                                        dataset, quiet);
}

/// @brief The same with experts in the layers; `Zero` shards over the axes of MoeZeroAxes.
template <class Element, class Zero, class Target = sw::DefaultTarget>
[[nodiscard]] RunResult train_experts(const sw::HostCommunicator& world, const Options& options,
                                      const sw::TokenRows& dataset, bool quiet) {
  return train_task<TextTask<sw::MoeLayouts<Zero>, Element, Target>>(world, options, dataset, quiet);
}

/// @brief Trains adapters beside frozen weights, quantized if there is a Form.
template <class Element, class Zero, class Form = void, class Target = sw::DefaultTarget>
[[nodiscard]] RunResult train_lora(const sw::HostCommunicator& world, const Options& options,
                                   const sw::TokenRows& dataset, bool quiet) {
  return train_task<TextTask<sw::FrozenLayouts<sw::DecoderLayouts<true, Zero>, Form>, Element, Target, true>>(
      world, options, dataset, quiet);
}

/// @brief The same with experts in the layers.
template <class Element, class Zero, class Target = sw::DefaultTarget>
[[nodiscard]] RunResult train_experts_lora(const sw::HostCommunicator& world, const Options& options,
                                           const sw::TokenRows& dataset, bool quiet) {
  return train_task<TextTask<sw::FrozenLayouts<sw::MoeLayouts<Zero>>, Element, Target, true>>(world, options,
                                                                                              dataset, quiet);
}

} // namespace train_gpt
