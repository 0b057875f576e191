// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief From the words of the command line to the policies of schedules.

#include "schedules.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/schedule/dual_pipe.hpp>
#include <shardwright/schedule/dual_pipe_v.hpp>
#include <shardwright/schedule/gpipe.hpp>
#include <shardwright/schedule/interleaved.hpp>
#include <shardwright/schedule/one_f_one_b.hpp>
#include <shardwright/schedule/zb_h1.hpp>
#include <shardwright/schedule/zb_h2.hpp>
#include <shardwright/schedule/zb_v.hpp>

#include <array>

namespace train_gpt {

namespace {

namespace sw = shardwright;

template <class Policy>
sw::Schedule make(int ranks, int microbatches) {
  return sw::make_schedule<Policy>(ranks, microbatches);
}

struct Entry {
  const char* name;
  int chunks; ///< Of --chunks; 0 where the schedule sets them.
  sw::Schedule (*make)(int ranks, int microbatches);
};

constexpr std::array<Entry, 10> entries{{{"gpipe", 0, make<sw::GPipe>},
                                         {"1f1b", 0, make<sw::OneFOneB>},
                                         {"interleaved", 2, make<sw::Interleaved<2>>},
                                         {"interleaved", 3, make<sw::Interleaved<3>>},
                                         {"interleaved", 4, make<sw::Interleaved<4>>},
                                         {"zbh1", 0, make<sw::ZBH1>},
                                         {"zbh2", 0, make<sw::ZBH2>},
                                         {"zbv", 0, make<sw::ZBV>},
                                         {"dualpipe", 0, make<sw::DualPipe>},
                                         {"dualpipev", 0, make<sw::DualPipeV>}}};

} // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> out;
  for (const Entry& entry : entries)
    if (out.empty() || out.back() != entry.name)
      out.emplace_back(entry.name);
  return out;
}

sw::Schedule schedule_of(const Options& options) {
  for (const Entry& entry : entries)
    if (options.schedule == entry.name && (entry.chunks == 0 || entry.chunks == options.chunks))
      return entry.make(options.extent("pp"), options.accumulation);
  throw sw::InvalidArgument(options.schedule + ": there must be 2 to 4 chunks, but there are " +
                            std::to_string(options.chunks) + " (give --chunks 2)");
}

} // namespace train_gpt
