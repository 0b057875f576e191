// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Chooses among the compiled trainings; where train_as is not defined, so that no file compiles the
/// others' models.

#include "training.hpp"

#include <shardwright/core/element.hpp>
#include <shardwright/layout/zero.hpp>

namespace train_gpt {

RunResult train(const shardwright::HostCommunicator& world, const Options& options,
                const shardwright::ByteDataset& dataset, bool quiet) {
  namespace sw = shardwright;
  if (options.ring)
    return train_as<float, sw::DataParallel, sw::RingContext>(world, options, dataset, quiet);
  switch (options.precision) {
  case Precision::fp64:
    return train_as<double, sw::DataParallel>(world, options, dataset, quiet);
  case Precision::bf16:
    return options.zero == 3 ? train_as<sw::bfloat16, sw::Zero3>(world, options, dataset, quiet)
                             : train_as<sw::bfloat16, sw::DataParallel>(world, options, dataset, quiet);
  case Precision::fp16:
    return train_as<sw::float16, sw::DataParallel>(world, options, dataset, quiet);
  case Precision::fp32:
    break;
  }
  switch (options.zero) {
  case 1:
    return train_as<float, sw::Zero1>(world, options, dataset, quiet);
  case 2:
    return train_as<float, sw::Zero2>(world, options, dataset, quiet);
  case 3:
    return train_as<float, sw::Zero3>(world, options, dataset, quiet);
  default:
    return train_as<float, sw::DataParallel>(world, options, dataset, quiet);
  }
}

} // namespace train_gpt
