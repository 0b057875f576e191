// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief run(): the main function of a program.
///
/// Compiles the transports, like <shardwright/launch.hpp>: include it only in the source file of main().

#include <shardwright/core/error.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/launch.hpp>

#include <Kokkos_Core.hpp>

#include <charconv>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Reads `--ranks N` or `--ranks=N`. @return the other arguments
[[nodiscard]] inline std::vector<std::string_view> read_ranks(int argc, char** argv, LaunchOptions& options) {
  std::vector<std::string_view> others;
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (!word.starts_with("--ranks") || (word.size() > 7 && word[7] != '=')) {
      others.push_back(word);
      continue;
    }
    const bool separate = word.size() == 7;
    word = !separate ? word.substr(8) : i + 1 < argc ? std::string_view(argv[++i]) : std::string_view();
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), options.ranks);
    if (problem != std::errc() || end != word.data() + word.size())
      throw InvalidArgument("run: --ranks must be followed by a number, but it is '" + std::string(word) +
                            "' (--ranks 4, for example; 0 stands for one per usable core)");
  }
  return others;
}

} // namespace detail

/// @brief The main function of a program: `return sw::run(argc, argv, program);`.
///
/// Initialises Kokkos, runs `program(HostCommunicator world)` on every rank as launch() does, checks that
/// all printed text was written (checked_output()), and prints an exception's sentence on stderr. The command
/// line may hold `--ranks N`, which replaces LaunchOptions::ranks, and the arguments of Kokkos. Others are an
/// error, unless the program takes them: `program(world, std::span<const std::string_view> arguments)`.
/// @param argc,argv those of main(); Kokkos removes its own arguments from them
/// @return the largest code that a rank returned, or 1 after an exception or lost output; throws nothing
template <class Program>
[[nodiscard]] int run(int& argc, char** argv, Program&& program, LaunchOptions options = {}) {
  using Arguments = std::span<const std::string_view>;
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    const std::vector<std::string_view> others = detail::read_ranks(argc, argv, options);
    const std::string_view path = argc > 0 ? argv[0] : "program";
    const std::string_view name = path.substr(path.find_last_of('/') + 1);
    if constexpr (std::is_invocable_v<Program&, HostCommunicator, Arguments>) {
      const auto with_arguments = [&](HostCommunicator world) {
        return program(std::move(world), Arguments(others));
      };
      return checked_output(name, launch(options, with_arguments));
    } else {
      if (!others.empty())
        throw InvalidArgument(
            "run: the arguments must be --ranks N or Kokkos' own (--kokkos-...), but there is '" +
            std::string(others.front()) +
            "' (a program with arguments of its own takes them as std::span<const std::string_view>)");
      return checked_output(name, launch(options, std::forward<Program>(program)));
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
