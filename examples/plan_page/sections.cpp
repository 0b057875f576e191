// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The sections of a page on the plan itself: the verdict, memory, time, bottlenecks, other plans,
/// sources.

#include "sections.hpp"

#include "chart.hpp"

#include <algorithm>
#include <cmath>

namespace plan_page {

namespace {

std::string card(std::string_view what, const std::string& figure, const std::string& small) {
  return "<div class=\"card\"><span class=\"what\">" + escaped(what) + "</span><b>" + figure + "</b><small>" +
         small + "</small></div>\n";
}

std::vector<Segment> segments_of(const Document& study, const std::string& path) {
  std::vector<Segment> out;
  for (const auto& [name, value] : study.at(path).items())
    out.push_back({name, study.figure(path + "/" + name)});
  return out;
}

std::string in_gigabytes(double bytes) { return short_text(bytes / 1e9) + " GB"; }

/// The positions in the study of the plans other than the best one, and their names.
std::vector<std::pair<std::string, std::string>> other_plans(const Document& study) {
  std::vector<std::pair<std::string, std::string>> out;
  if (study.has("/recipe/plan"))
    out.emplace_back("/recipe", "usual recipe");
  if (study.has("/without_pipeline/plan") && study.at("/without_pipeline/plan") != study.at("/plan"))
    out.emplace_back("/without_pipeline", "without a pipeline");
  return out;
}

/// Whether a pipeline is needed, and why.
std::string need_of_pipeline(const Document& study) {
  if (study.at("/plan/pp") == 1)
    return "No pipeline is needed.";
  std::string out = "The best plan has a pipeline of " + study.number("/plan/pp") + " ranks (" +
                    escaped(study.word("/plan/schedule")) + "). ";
  out += study.has("/without_pipeline/problem")
             ? "Without one there is no plan: " + escaped(study.word("/without_pipeline/problem")) + "."
             : "Without one a step takes " + study.number("/without_pipeline/step_seconds", 1, "s") +
                   " instead of " + study.number("/step_seconds", 1, "s") + ".";
  if (study.at("/turns_with_1f1b").empty())
    return out;
  return out + (study.at("/turns_with_1f1b/0/factor") == 1.0
                    ? " It is there to hide the traffic of experts: the best plan with 1F1B has none."
                    : " It also hides the traffic of experts.");
}

std::string verdict(const Document& study) {
  if (study.has("/problem")) {
    std::string words = study.word("/problem_text");
    words.front() = 'T'; // of "there"
    return "<p class=\"verdict none\">" + escaped(words) + ".</p>\n";
  }
  std::string words = need_of_pipeline(study);
  double most = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < study.at("/binding").size(); ++i)
    if (const double saves = study.figure("/binding/" + std::to_string(i) + "/saves").value; saves > most) {
      most = saves;
      at = i;
    }
  const std::string binds = "/binding/" + std::to_string(at);
  words += " What binds most is " + escaped(study.word(binds + "/resource")) + ": twice as much saves " +
           study.percent(binds + "/saves") + " of the time per token.";
  return "<p class=\"verdict\">" + words + "</p>\n";
}

/// The runs that intervals are about.
std::string four_of_five(const Document& study) {
  return std::string("four of five ") + (!study.has("/measured") ? "published runs"
                                         : study.figure("/measured/runs").value == 0
                                             ? "runs of programs that are not named"
                                             : "other runs of one program");
}

/// How long the plan takes with a program that is not named, if nothing says which will run.
std::string unnamed(const Document& study) {
  const std::string at = "/unnamed_program";
  return study.has(at)
             ? " They are runs of programs that their authors tuned; with any other this plan usually takes " +
                   study.number(at + "/step_seconds", 1, "s") + ", in four of five runs " +
                   study.number(at + "/least_seconds", 1, "s") + " to " +
                   study.number(at + "/most_seconds", 1, "s") + "."
             : std::string();
}

/// By what the times are scaled, before something else.
std::string scaled(const Document& study) {
  if (!study.has("/measured"))
    return {};
  return "scaled by " + study.number("/measured/factor") +
         (study.figure("/measured/runs").value == 0
              ? std::string(", as of programs that are not named; ")
              : " (measured runs of " + escaped(study.word("/measured/file")) + ": " +
                    study.number("/measured/runs") + "); ");
}

} // namespace

std::string chart_figure(const std::string& chart, const std::string& caption) {
  return "<figure>" + chart + "<p class=\"readout\" aria-hidden=\"true\"></p><figcaption>" + caption +
         "</figcaption></figure>\n";
}

std::string head_section(const Document& study) {
  std::string out =
      "<h1>" + escaped(study.word("/model") + " on " + study.word("/cluster")) + "</h1>\n<p class=\"sub\">" +
      study.number("/sequences") + " sequences of " + study.number("/sequence_length") + " tokens, " +
      study.number("/tokens", 1e6) + " M tokens a step, products in " + escaped(study.word("/precision")) +
      "; " + study.number("/inputs/model/parameters", 1e9, "B") + " parameters, " +
      study.number("/inputs/model/active_parameters", 1e9, "B") + " of them per token; " +
      study.number("/inputs/chips") + " × " + escaped(study.word("/inputs/chip/name")) + "</p>\n";
  out += verdict(study);
  if (study.has("/problem"))
    return out;
  out += "<p>Plan: <code>" + escaped(study.word("/plan/text")) + "</code></p>\n<div class=\"cards\">\n";
  out += card("Step", study.number("/step_seconds", 1, "s"),
              scaled(study) + four_of_five(study) + " lie within " + study.number("/least_seconds") + " to " +
                  study.number("/most_seconds", 1, "s") + " for such a prediction");
  out += card("Throughput", study.number("/tokens_per_second_per_chip") + " tokens/s",
              "per chip; microbatches a step: " + study.number("/plan/microbatches"));
  out +=
      card("MFU, causal", study.percent("/mfu_causal"),
           "of " + study.number("/inputs/chip/peak", 1e12, "TFLOP/s") + " in " +
               escaped(study.word("/precision")) + "; " + study.percent("/mfu_non_causal") +
               " counted without the mask; HFU " + study.percent("/hfu_causal") + " with what is recomputed");
  out += card("Memory", study.number("/memory_bytes", 1e9, "GB"),
              "of " + study.number("/inputs/chip/memory_bytes", 1e9, "GB") + " on the fullest rank" +
                  (study.figure("/second_copy_bytes").value > 0
                       ? ", " + study.number("/second_copy_bytes", 1e9, "GB") +
                             " for the second copies that DualPipe keeps of parameters and gradients"
                       : std::string()));
  return out + "</div>\n";
}

std::string memory_section(const Document& study) {
  BarChart chart{"Memory of the ranks of one pipeline", "GB of memory per chip", 1e9, {}, 0, {}, true};
  const std::size_t ranks = study.at("/ranks").size(), every = (ranks + 15) / 16;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> head{"Rank"};
  for (const Segment& segment : segments_of(study, "/bytes"))
    head.push_back(escaped(segment.name));
  head.insert(head.end(), {"together", "free"});
  const double has = study.figure("/inputs/chip/memory_bytes").value;
  const auto add = [&](const std::string& label, const std::string& at) {
    const Figure total = study.figure(at + "/memory_bytes");
    chart.bars.push_back({label, segments_of(study, at + "/bytes"), in_gigabytes(total.value)});
    std::vector<std::string> row{escaped(label)};
    for (const Segment& segment : segments_of(study, at + "/bytes"))
      row.push_back(study.number(segment.figure.path, 1e9));
    row.insert(row.end(), {study.number(at + "/memory_bytes", 1e9), short_text((has - total.value) / 1e9)});
    rows.push_back(row);
  };
  for (std::size_t rank = 0; rank < ranks; rank += every)
    add(ranks == 1 ? "every rank" : "rank " + std::to_string(rank), "/ranks/" + std::to_string(rank));
  for (const auto& [at, name] : other_plans(study))
    add(name, at);
  chart.limit = has;
  chart.limit_label = in_gigabytes(has) + " on a chip";
  std::string caption =
      ranks == 1
          ? "The fullest rank; all ranks use the same memory."
          : "Ranks of one pipeline" +
                (every > 1 ? ", every " + std::to_string(every) + "th" : std::string()) +
                ": states are those of the fullest stage, activations what the schedule keeps on each rank.";
  if (!study.has("/problem"))
    caption += " Other plans: their fullest rank.";
  return "<h2 id=\"memory\">" +
         std::string(study.has("/problem") ? "What needs the least memory" : "Does it fit?") + "</h2>\n" +
         (study.has("/problem") ? "<p>Plan: <code>" + escaped(study.word("/plan/text")) + "</code></p>\n"
                                : std::string()) +
         chart_figure(draw(chart), caption) + "<details><summary>Memory as a table</summary>" +
         table("GB of memory per chip", head, rows) + "</details>\n";
}

std::string time_section(const Document& study) {
  constexpr const char* hidden = "hidden behind computation";
  BarChart parts{"Time of a step by its parts", "seconds of a step", 1, {}, 0, {}, false};
  std::vector<std::vector<std::string>> rows;
  const double step = study.figure("/step_seconds").value;
  std::string nothing;
  for (const Segment& segment : segments_of(study, "/seconds")) {
    const std::string traffic = "/traffic/" + segment.name;
    const bool sends = study.has(traffic);
    if (segment.figure.value <= 0 && (!sends || study.figure(traffic + "/seconds").value <= 0)) {
      nothing += (nothing.empty() ? "" : ", ") + segment.name;
      continue;
    }
    Bar bar{segment.name, {segment}, short_text(segment.figure.value) + " s"};
    if (sends) {
      bar.segments.push_back({hidden, study.figure(traffic + "/hidden_seconds")});
      bar.total += ", " + short_text(bar.segments.back().figure.value) + " s hidden";
    }
    rows.push_back({escaped(segment.name), study.number(segment.figure.path),
                    short_text(100 * segment.figure.value / step) + "&nbsp;%",
                    sends ? study.number(traffic + "/hidden_seconds") : "",
                    sends ? study.number(traffic + "/bytes", 1e9) : ""});
    parts.bars.push_back(std::move(bar));
  }
  BarChart plans{"Time of a step of several plans", "seconds of a step", 1, {}, 0, {}, true};
  const auto add = [&](const std::string& at, const std::string& name) {
    plans.bars.push_back({name,
                          segments_of(study, at + "/seconds"),
                          short_text(study.figure(at + "/step_seconds").value) + " s",
                          {study.figure(at + "/least_seconds"), study.figure(at + "/most_seconds")}});
  };
  add("", "the plan");
  for (const auto& [at, name] : other_plans(study))
    if (!study.has(at + "/problem"))
      add(at, name);
  return "<h2 id=\"time\">Where the time goes</h2>\n" +
         chart_figure(
             draw(parts),
             "Communication is solid where a step waits for it, and pale where computation hides it; the solid bars sum to the step. "
             "Nothing: " +
                 escaped(nothing.empty() ? "none" : nothing) + ".") +
         "<details><summary>Time as a table</summary>" +
         table("Parts of a step", {"Part", "s", "of the step", "hidden, s", "sent by a rank, GB"}, rows) +
         "</details>\n" +
         chart_figure(draw(plans), "The plan beside others; the lines are the intervals that hold " +
                                       four_of_five(study) + "." + unnamed(study));
}

std::string binding_section(const Document& study) {
  BarChart chart{"Time saved with twice of each resource", "% of the time per token", 0.01, {}, 0, {}, false};
  std::vector<std::vector<std::string>> rows;
  double most = 0;
  for (std::size_t i = 0; i < study.at("/binding").size(); ++i)
    most = std::max(most, study.figure("/binding/" + std::to_string(i) + "/saves").value);
  for (std::size_t i = 0; i < study.at("/binding").size(); ++i) {
    const std::string at = "/binding/" + std::to_string(i);
    const Figure saves = study.figure(at + "/saves");
    const bool slack = saves.value < 0.005;
    const std::string verdict = saves.value == most ? "binds most" : slack ? "slack" : "binds";
    chart.bars.push_back({study.word(at + "/resource"),
                          {{saves.value == most ? "binds" : "helps", saves}},
                          slack ? "slack" : short_text(100 * saves.value) + " %"});
    rows.push_back(
        {escaped(study.word(at + "/resource")),
         study.figure(at + "/now").value > 0
             ? study.number(at + "/now", study.figure(at + "/unit_size").value, study.word(at + "/unit"))
             : "none",
         study.percent(at + "/saves"), verdict});
  }
  const double free = study.figure("/inputs/chip/memory_bytes").value - study.figure("/memory_bytes").value;
  return "<h2 id=\"binding\">What binds, and what has slack</h2>\n" +
         chart_figure(draw(chart),
                      "What the fastest plan saves with twice as much of one thing, planned again. "
                      "The fullest rank leaves " +
                          in_gigabytes(free) + " of its memory free.") +
         table("Twice as much of each", {"Resource", "now", "saves", ""}, rows);
}

std::string plans_section(const Document& study) {
  std::vector<std::pair<std::string, std::string>> plans{{"", "the plan"}};
  for (const auto& one : other_plans(study))
    plans.push_back(one);
  std::vector<std::string> head{""};
  std::vector<std::vector<std::string>> rows{
      {"plan"},   {"step"},      {"tokens/s per chip"}, {"MFU, causal"}, {"MFU without the mask"},
      {"memory"}, {"decided by"}};
  for (const auto& [at, name] : plans) {
    head.push_back(escaped(name));
    const bool fits = !study.has(at + "/problem");
    std::size_t row = 0;
    rows[row++].push_back("<code>" + escaped(study.word(at + "/plan/text")) + "</code>");
    rows[row++].push_back(fits ? study.number(at + "/step_seconds", 1, "s") : "does not fit");
    rows[row++].push_back(fits ? study.number(at + "/tokens_per_second_per_chip") : "");
    rows[row++].push_back(fits ? study.percent(at + "/mfu_causal") : "");
    rows[row++].push_back(fits ? study.percent(at + "/mfu_non_causal") : "");
    rows[row++].push_back(study.number(at + "/memory_bytes", 1e9, "GB"));
    rows[row++].push_back(study.has(at + "/decided_by")
                              ? escaped(study.word(at + "/decided_by/part")) + " " +
                                    study.number(at + "/decided_by/seconds", 1, "s") + " &gt; " +
                                    study.number(at + "/decided_by/best_seconds", 1, "s") +
                                    "; what helps: " + escaped(study.word(at + "/decided_by/helps"))
                              : "");
  }
  std::string out =
      "<h2 id=\"recipe\">Beside the usual recipe</h2>\n<p>The recipe: on GPUs tensor parallel over the scale-up domain (eight chips of a larger one), as few 1F1B stages as fit, data parallel over the rest, experts inside the domain; on a torus ZeRO-3 without stages.";
  for (const auto& [at, name] : {std::pair("/recipe", "The recipe finds"),
                                 std::pair("/without_pipeline", "Without a pipeline there is")})
    if (!study.has(std::string(at) + "/plan"))
      out += std::string(" ") + name + " no plan: " + escaped(study.word(std::string(at) + "/problem")) + ".";
  if (study.has("/divisible_sequences"))
    out += " " + study.number("/divisible_sequences") + " sequences do.";
  return out + "</p>\n" + table("Plans side by side", head, rows);
}

std::string choice_section(const Document& study) {
  std::string out = "<h2 id=\"choice\">Launching it, and what comes next</h2>\n";
  if (study.at("/launch/reasons").empty()) {
    out += "<p>With this library: <code>" + escaped(study.word("/launch/command")) + "</code></p>\n";
  } else {
    out += "<p>Not by train_gpt of this library:";
    for (std::size_t i = 0; i < study.at("/launch/reasons").size(); ++i)
      out += (i == 0 ? " " : "; ") + escaped(study.word("/launch/reasons/" + std::to_string(i)));
    out += ".</p>\n";
  }
  if (study.has("/programs"))
    out += "<p>The schedule runs in " + escaped(study.word("/programs")) + ".</p>\n";
  out += "<p>The fullest chip keeps " + study.percent("/memory_free") +
         " of its memory free, of which a plan must leave " + study.percent("/headroom") + ".</p>\n";
  if (study.has("/rounder_sequences"))
    out += "<p class=\"verdict none\">Warning: " + study.number("/sequences") +
           " sequences have few divisors. " + study.number("/rounder_sequences/sequences") + " would take " +
           study.percent("/rounder_sequences/saves") + " less time per token, with <code>" +
           escaped(study.word("/rounder_sequences/plan")) + "</code>.</p>\n";
  std::vector<std::vector<std::string>> batches;
  for (std::size_t i = 0; i < study.at("/dividing_sequences").size(); ++i) {
    const std::string at = "/dividing_sequences/" + std::to_string(i);
    batches.push_back({study.number(at + "/sequences"), study.percent(at + "/saves"),
                       "<code>" + escaped(study.word(at + "/plan")) + "</code>"});
  }
  if (!batches.empty())
    out += table("Of " + study.number("/sequences") + " sequences and " + study.number("/inputs/chips") +
                     " chips neither divides the other; the nearest numbers that do",
                 {"Sequences", "save of the time per token", "Plan"}, batches);
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < study.at("/runners_up").size(); ++i) {
    const std::string at = "/runners_up/" + std::to_string(i);
    rows.push_back({"<code>" + escaped(study.word(at + "/plan")) + "</code>",
                    study.number(at + "/step_seconds", 1, "s"), study.percent(at + "/loses")});
  }
  if (!rows.empty())
    out += table("Runners-up, and what they lose", {"Plan", "step", "loses"}, rows);
  return out;
}

std::string source_section(const Document& study) {
  const auto source = [&](const std::string& what, const std::string& at) {
    return study.has(at) && !study.word(at).empty()
               ? "<li>" + what + ": " + escaped(study.word(at)) + "</li>\n"
               : std::string();
  };
  std::string out = "<h2 id=\"conventions\">Conventions and sources</h2>\n<ul>\n";
  out +=
      "<li>MFU counts 6 operations per active matrix parameter and token and the scores of attention, the causal half of them or all, but nothing that is recomputed. "
      "The peak is " +
      study.number("/inputs/chip/peak", 1e12, "TFLOP/s") + " per chip, dense, in " +
      escaped(study.word("/precision")) + ".</li>\n";
  out +=
      "<li>GB are 10<sup>9</sup> bytes. "
      "Bandwidths are one way and per chip, of the data sheet; the model takes what collectives reach of them.</li>\n";
  out += "<li>The interval holds " + four_of_five(study) +
         (study.has("/measured") ? ". " : " when each source is predicted without its own rows. ") +
         "Plans within 1&nbsp;% of the fastest count as equal, and the simplest of them is taken.</li>\n";
  out += "<li>Optimizer: " + study.number("/inputs/optimizer_bytes/parameter") +
         " bytes per parameter that computes, " + study.number("/inputs/optimizer_bytes/gradient") +
         " per gradient, " + study.number("/inputs/optimizer_bytes/state") + " of state.</li>\n";
  for (std::size_t i = 0; i < study.at("/inputs/domains").size(); ++i) {
    const std::string at = "/inputs/domains/" + std::to_string(i);
    out += "<li>" + std::string(i == 0 ? "Scale-up domain" : "Network around it") + ": " +
           study.number(at + "/chips") + " chips, " + study.number(at + "/bandwidth", 1e9, "GB/s") +
           " per chip" +
           (study.at(at + "/torus_dimensions") > 0
                ? ", a torus of " + study.number(at + "/torus_dimensions") + " dimensions"
                : std::string()) +
           ".</li>\n";
  }
  out += source("Model", "/inputs/model/source") + source("Chip", "/inputs/chip/source") +
         source("Cluster", "/inputs/cluster_source");
  out +=
      "<li>Constants: fitted to published runs of data/, each with its source; docs/explanation/planner.md derives every term and says where it is wrong.</li>\n</ul>\n";
  return out + "<footer>Made by <code>" + escaped(study.word("/command")) + "</code> in " +
         study.number("/took_seconds", 1, "s") + "</footer>\n";
}

} // namespace plan_page
