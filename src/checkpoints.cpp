// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: reading and saving checkpoints, compiled once.
#define SHARDWRIGHT_COMPILING
#include <shardwright/io/checkpoint/model_state.hpp>
#include <shardwright/io/checkpoint/reader_definitions.hpp>
#include <shardwright/io/checkpoint/saver_definitions.hpp>
#include <shardwright/io/checkpoint/training_state.hpp>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail {

template void read_block<float, DefaultTarget>(const BlockSource&, const std::string&, const TensorPlace&,
                                               bool, const DefaultTarget::execution_space&, float*,
                                               std::size_t);
template void read_block<double, DefaultTarget>(const BlockSource&, const std::string&, const TensorPlace&,
                                                bool, const DefaultTarget::execution_space&, double*,
                                                std::size_t);
template void read_block<bfloat16, DefaultTarget>(const BlockSource&, const std::string&, const TensorPlace&,
                                                  bool, const DefaultTarget::execution_space&, bfloat16*,
                                                  std::size_t);

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint::detail
