// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief run(): the main function of a program whose only option is its number of ranks.
///
/// Compiles the transports, like <shardwright/launch.hpp>: include it only in the source file of main().

#include <shardwright/core/error.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/launch.hpp>

#include <Kokkos_Core.hpp>

#include <charconv>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Reads `--ranks N` or `--ranks=N`, and rejects every other argument.
inline void read_ranks(int argc, char** argv, LaunchOptions& options) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (!word.starts_with("--ranks") || (word.size() > 7 && word[7] != '='))
      throw InvalidArgument(
          "run: the arguments must be --ranks N or Kokkos' own (--kokkos-...), but there is '" +
          std::string(word) + "' (a program with other options reads them itself, and calls launch)");
    const bool separate = word.size() == 7;
    word = !separate ? word.substr(8) : i + 1 < argc ? std::string_view(argv[++i]) : std::string_view();
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), options.ranks);
    if (problem != std::errc() || end != word.data() + word.size())
      throw InvalidArgument("run: --ranks must be followed by a number, but it is '" + std::string(word) +
                            "' (--ranks 4, for example; 0 stands for one per usable core)");
  }
}

} // namespace detail

/// @brief The main function of a program: `return sw::run(argc, argv, program);`.
///
/// Initialises Kokkos, runs `program(HostCommunicator world)` on every rank as launch() does, checks that
/// all printed text was written (checked_output()), and prints an exception's sentence on stderr. The command
/// line may hold `--ranks N`, which replaces LaunchOptions::ranks, and the arguments of Kokkos.
/// @param argc,argv those of main(); Kokkos removes its own arguments from them
/// @return the largest code that a rank returned, or 1 after an exception or lost output
template <class Program>
[[nodiscard]] int run(int& argc, char** argv, Program&& program, LaunchOptions options = {}) {
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    detail::read_ranks(argc, argv, options);
    const std::string_view path = argc > 0 ? argv[0] : "program";
    const std::string_view name = path.substr(path.find_last_of('/') + 1);
    return checked_output(name, launch(options, std::forward<Program>(program)));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
