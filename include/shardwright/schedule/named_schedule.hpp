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
  int chunks;             ///< Stages per rank, of the schedule that may have several numbers of them; else 0.
  Schedule (*make)(std::int64_t ranks, std::int64_t microbatches);
};

template <class Policy> [[nodiscard]] Schedule make_any(std::int64_t ranks, std::int64_t microbatches) {
  return make_schedule<Policy>(ranks, microbatches);
}

inline constexpr std::array<NamedSchedule, 13> named_schedules{
    {{"gpipe", "GPipe", 0, make_any<GPipe>},
     {"1f1b", "1F1B", 0, make_any<OneFOneB>},
     {"interleaved", "Interleaved 1F1B", 2, make_any<Interleaved<2>>},
     {"interleaved", "Interleaved 1F1B", 3, make_any<Interleaved<3>>},
     {"interleaved", "Interleaved 1F1B", 4, make_any<Interleaved<4>>},
     {"zbh1", "ZB-H1", 0, make_any<ZBH1>},
     {"zbh2", "ZB-H2", 0, make_any<ZBH2>},
     {"interleavedzb", "Interleaved zero bubble", 2, make_any<InterleavedZB<2>>},
     {"interleavedzb", "Interleaved zero bubble", 3, make_any<InterleavedZB<3>>},
     {"interleavedzb", "Interleaved zero bubble", 4, make_any<InterleavedZB<4>>},
     {"zbv", "ZB-V", 0, make_any<ZBV>},
     {"dualpipe", "DualPipe", 0, make_any<DualPipe>},
     {"dualpipev", "DualPipeV", 0, make_any<DualPipeV>}}};

} // namespace detail

/// @brief The names that `make_schedule` accepts.
[[nodiscard]] inline std::vector<std::string> schedule_names() {
  std::vector<std::string> out;
  for (const detail::NamedSchedule& known : detail::named_schedules)
    if (out.empty() || out.back() != known.name)
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
      return known.chunks > 0;
  return false;
}

/// @brief Makes a published schedule by its name.
/// @param chunks stages per rank of "interleaved" and "interleavedzb", 2 to 4; the others have a fixed number
/// of them.
/// @throws InvalidArgument for an unknown name or number, listing the valid ones, and if the schedule does
/// not allow the numbers of ranks or microbatches, with the nearest legal values.
[[nodiscard]] inline Schedule make_schedule(std::string_view name, std::int64_t ranks,
                                            std::int64_t microbatches, std::int64_t chunks = 2) {
  std::string names;
  bool exists = false;
  for (const detail::NamedSchedule& known : detail::named_schedules) {
    exists = exists || known.name == name;
    if (known.name == name && (known.chunks == 0 || known.chunks == chunks))
      return known.make(ranks, microbatches);
  }
  if (exists)
    throw InvalidArgument(std::string(name) + ": there must be 2 to 4 chunks, but there are " +
                          std::to_string(chunks) + " (take 2)");
  for (const std::string& known : schedule_names())
    names += (names.empty() ? "" : ", ") + known;
  throw InvalidArgument("Schedule: the name must be known, but it is " + detail::quoted_text(name) +
                        " (use one of " + names + ")");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
