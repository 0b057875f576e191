// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The published schedules by name, for programs that read one from a command line.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

struct NamedSchedule {
  std::string_view name;
  std::string_view title; ///< As written in its paper.
  bool takes_chunks;      ///< May have several numbers of stages per rank.
  Schedule (*make)(std::int64_t ranks, std::int64_t microbatches, int chunks);
};

template <class Policy> [[nodiscard]] Schedule make_any(std::int64_t ranks, std::int64_t microbatches, int) {
  return make_schedule<Policy>(ranks, microbatches);
}
template <class Policy>
[[nodiscard]] Schedule make_interleaved(std::int64_t ranks, std::int64_t microbatches, int chunks) {
  return make_schedule<Policy>(ranks, microbatches, chunks);
}

inline constexpr std::array<NamedSchedule, 9> named_schedules{
    {{"gpipe", "GPipe", false, make_any<GPipe>},
     {"1f1b", "1F1B", false, make_any<OneFOneB>},
     {"interleaved", "Interleaved 1F1B", true, make_interleaved<Interleaved<2>>},
     {"zbh1", "ZB-H1", false, make_any<ZBH1>},
     {"zbh2", "ZB-H2", false, make_any<ZBH2>},
     {"interleavedzb", "Interleaved zero bubble", true, make_interleaved<InterleavedZB<2>>},
     {"zbv", "ZB-V", false, make_any<ZBV>},
     {"dualpipe", "DualPipe", false, make_any<DualPipe>},
     {"dualpipev", "DualPipeV", false, make_any<DualPipeV>}}};

} // namespace detail

/// @brief The names that `make_schedule` accepts.
[[nodiscard]] inline std::vector<std::string> schedule_names() {
  std::vector<std::string> out;
  for (const detail::NamedSchedule& known : detail::named_schedules)
    out.emplace_back(known.name);
  return out;
}

/// @brief A name as papers write it, such as "ZB-V" for "zbv"; any other name as it is.
[[nodiscard]] inline std::string schedule_title(std::string_view name) {
  for (const detail::NamedSchedule& known : detail::named_schedules)
    if (known.name == name)
      return std::string(known.title);
  return std::string(name);
}

/// @brief Returns whether `make_schedule` takes a number of chunks for a name.
[[nodiscard]] inline bool schedule_takes_chunks(std::string_view name) {
  for (const detail::NamedSchedule& known : detail::named_schedules)
    if (known.name == name)
      return known.takes_chunks;
  return false;
}

/// @brief Makes a published schedule by its name.
/// @param chunks stages per rank of "interleaved" and "interleavedzb", 2 to `most_chunks`; the others have a
/// fixed number of them.
/// @throws InvalidArgument for an unknown name or number, listing the valid ones, and if the schedule does
/// not allow the numbers of ranks or microbatches, with the nearest legal values.
[[nodiscard]] inline Schedule make_schedule(std::string_view name, std::int64_t ranks,
                                            std::int64_t microbatches, std::int64_t chunks = 2) {
  std::string names;
  for (const detail::NamedSchedule& known : detail::named_schedules)
    if (known.name == name) {
      if (known.takes_chunks && (chunks < 2 || chunks > most_chunks))
        throw InvalidArgument(std::string(name) + ": there must be 2 to " + std::to_string(most_chunks) +
                              " chunks, but there are " + std::to_string(chunks) + " (take 2)");
      return known.make(ranks, microbatches, static_cast<int>(chunks));
    }
  for (const std::string& known : schedule_names())
    names += (names.empty() ? "" : ", ") + known;
  throw InvalidArgument("Schedule: the name must be known, but it is " + detail::quoted_text(name) +
                        " (use one of " + names + ")");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
