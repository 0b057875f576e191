// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Common parts of the examples' command lines, beyond CLI11: checks with readable messages, and the
/// format of the help.

#include <command_line/words.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace command_line {

template <class T> CLI::Validator whole_from(T least, T most) {
  return CLI::Validator(
      [least, most](std::string& word) {
        const std::optional<T> value = whole_number<T>(word);
        if (value && *value >= least && *value <= most)
          return std::string();
        return "must be a whole number from " + std::to_string(least) +
               (most == std::numeric_limits<T>::max() ? " up" : " to " + std::to_string(most)) +
               ", but it is '" + clipped(word) + "'";
      },
      std::string());
}

/// A number from `least`, or above it, to `most`: the range of the option's quantity, so that results
/// computed from it stay finite and do not overflow.
inline CLI::Validator real_from(double least, bool least_allowed, double most = 1e30) {
  return CLI::Validator(
      [least, least_allowed, most](std::string& word) {
        const std::optional<double> value = real_number(word);
        if (value && (*value > least || (least_allowed && *value == least)) && *value <= most)
          return std::string();
        const std::string end = value && *value > most ? " and at most " + text(most)
                                : least_allowed        ? " up"
                                                       : "";
        return "must be a number " + std::string(least_allowed ? "from " : "above ") + text(least) + end +
               ", but it is '" + clipped(word) + "'";
      },
      std::string());
}

inline CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& word) {
        if (std::find(words.begin(), words.end(), word) != words.end())
          return std::string();
        const std::string_view near = nearest(word, words);
        return "must be " + joined(words, " or ") + ", but it is '" + clipped(word) + "'" +
               (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?");
      },
      std::string());
}

inline constexpr std::size_t help_column = 30;

/// The help with lines of at most 100 characters; continuation lines of an option are indented to its column.
inline std::string wrapped(const std::string& help) {
  constexpr std::size_t longest = 100;
  std::istringstream lines(help);
  std::string out;
  std::string line;
  bool blank = true;
  while (std::getline(lines, line)) {
    if (line.empty() && blank)
      continue;
    blank = line.empty();
    const bool described = line.rfind("  -", 0) == 0 || line.rfind(std::string(help_column, ' '), 0) == 0;
    const std::string indent(described ? help_column : 0, ' ');
    while (line.size() > longest) {
      const std::size_t space = line.rfind(' ', longest);
      if (space == std::string::npos || space <= indent.size())
        break;
      out += line.substr(0, space) + "\n";
      line = indent + line.substr(space + 1);
    }
    out += line + "\n";
  }
  return out;
}

/// The option that a CLI11 error is about: the text before its colon.
inline std::string subject(const CLI::ParseError& error) {
  const std::string what = error.what();
  return what.substr(0, what.find(':'));
}

/// Reports arguments that CLI11 did not recognize; `hint` suggests which option may be meant.
inline void check_leftovers(const CLI::App& app, const std::string& hint) {
  const std::vector<std::string> left = app.remaining();
  if (left.empty())
    return;
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (option == left.end())
    throw UsageError("'" + left.front() + "' belongs to no option (" + hint + " " + left.front() + ")");
  const std::string name = option->substr(0, option->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* known : app.get_options())
    for (const std::string& word : known->get_lnames())
      names.push_back("--" + word);
  const std::string_view near = nearest(name, names);
  throw UsageError("unknown option " + name +
                   (near.empty() ? "" : "; did you mean " + std::string(near) + "?") +
                   " (--help lists all options)");
}

/// Parses the arguments; returns the help if it is asked for, else nothing. `paths` names the option that
/// takes several paths.
/// @throws UsageError with a message for whatever is wrong.
inline std::optional<std::string> help_or_parse(CLI::App& app, int argc, const char* const* argv,
                                                const std::string& hint, std::string_view paths = {}) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return wrapped(app.help());
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string name = subject(error);
    throw UsageError(name + (name == paths ? " needs at least one path" : " needs exactly one value") +
                     " (--help explains the options)");
  } catch (const CLI::ConversionError& error) {
    const std::string what = error.what();
    throw UsageError(what.substr(std::min(what.find("--"), what.size())) +
                     " cannot be read: a flag takes no value (--help explains the options)");
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    const std::string name = subject(error);
    throw UsageError(name + (name == what ? "" : what.substr(name.size() + 1)) +
                     " (--help explains the options)");
  }
  check_leftovers(app, hint);
  return std::nullopt;
}

} // namespace command_line
