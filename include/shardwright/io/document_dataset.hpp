// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Separate documents for a language model, such as conversations, each in a row of its own or several
/// in one, with a held-out part, the same on every mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/io/packed_tokens.hpp>
#include <shardwright/io/token_rows.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief How to treat a document that is longer than a row.
enum class LongDocument : bool {
  cut, ///< Its first tokens are kept.
  drop
};

/// @brief How a DocumentDataset makes rows of documents.
struct DocumentDatasetOptions {
  std::size_t sequence = 512; ///< Tokens of a row.
  std::uint64_t seed = 0;     ///< Chooses the order.
  std::size_t batch = 1;      ///< Rows of a step.
  std::size_t vocabulary = 0; ///< Tokens of at least this value are an error.
  std::int32_t padding = 0;   ///< Input after the end of a document.
  /// Of this many documents the last is held out, and of fewer, too; 0: none is.
  std::size_t held_out_every = 10;
  LongDocument longer = LongDocument::cut;
  bool pack = false;    ///< Several documents share a row, by pack_rows(), instead of one in each.
  std::string origin{}; ///< Where they come from, for a report.
};

/// @brief Numbers of documents that are used, cut or left out, and of their tokens: of each document its
/// inputs, all tokens but the last.
struct DocumentCounts {
  /// @brief Documents, and the tokens that they lose.
  struct Lost {
    std::size_t documents = 0;
    std::size_t tokens = 0;
  };

  std::size_t given = 0;
  Lost cut;                ///< Longer than a row, their ends are lost.
  Lost dropped;            ///< Longer than a row, not used.
  Lost unlearned;          ///< Without a token to learn, perhaps after a cut; not used.
  std::size_t cut_off = 0; ///< Of those, documents whose tokens to learn a row is too short for.
  std::size_t tokens = 0;  ///< Of the documents used, after a cut.
  std::size_t learned = 0; ///< Targets that count, of the documents used.
};

/// @brief Documents in rows of their own, or packed into rows that several of them share (PackedTokens):
/// inputs are all tokens but the last, targets all but the first; where a token is not learned, and after the
/// end, the target is -1.
///
/// In each epoch every row of training documents appears once, in an order drawn from the seed and the epoch
/// (a Feistel network over the rows' numbers, Black and Rogaway, CT-RSA 2002). Row r of step s is number
/// s × batch + r of that sequence: it depends neither on the mesh nor on the steps before, so that a resumed
/// run goes on with the rows that it would have had. Documents that share a row do so in every epoch, which
/// changes nothing for them but the order. Every row has a target that counts.
///
/// Immutable once built. Holds all tokens in memory.
class DocumentDataset final : public TokenRows {
public:
  /// @throws DataError for a token outside the vocabulary, a number of marks that is not that of the tokens,
  /// or no document to train on. @throws InvalidArgument for a sequence or batch of zero.
  DocumentDataset(std::vector<Document> documents, const DocumentDatasetOptions& options)
      : TokenRows(options.sequence), options_(options) {
    if (options.batch == 0)
      throw InvalidArgument("DocumentDataset: the batch must be at least 1 row, but it is 0");
    counts_.given = documents.size();
    for (std::size_t number = 0; number < documents.size(); ++number)
      if (take(documents[number], number)) {
        const bool held =
            options.held_out_every != 0 &&
            (training_.documents.size() + validation_.documents.size() + 1) % options.held_out_every == 0;
        (held ? validation_ : training_).documents.push_back(std::move(documents[number]));
      }
    if (validation_.documents.empty() && options.held_out_every != 0 && !training_.documents.empty()) {
      validation_.documents.push_back(std::move(training_.documents.back()));
      training_.documents.pop_back();
    }
    if (training_.documents.empty())
      throw DataError("DocumentDataset: a document to train on must remain, but of " +
                      std::to_string(counts_.given) + " documents " +
                      std::to_string(counts_.dropped.documents) + " are longer than a row of " +
                      std::to_string(options.sequence) + " tokens, " +
                      std::to_string(counts_.unlearned.documents) + " have no token to learn in it" +
                      cut_off_part() + ", and " + std::to_string(validation_.documents.size()) +
                      " are held out (give more documents, with tokens to learn, or a longer sequence)");
    training_.make_rows(options);
    validation_.make_rows(options);
  }

  [[nodiscard]] const DocumentCounts& counts() const noexcept { return counts_; }
  /// @brief Rows of an epoch.
  [[nodiscard]] std::size_t training_samples() const noexcept { return training_.rows.size(); }
  [[nodiscard]] std::size_t epoch_rows() const noexcept override { return training_.rows.size(); }
  [[nodiscard]] std::size_t validation_samples() const noexcept override { return validation_.rows.size(); }
  /// @brief The number, below training_samples(), of the documents in row `row` of step `step`.
  [[nodiscard]] std::size_t training_sample(std::uint64_t step, std::size_t row) const noexcept {
    const std::uint64_t number = step * options_.batch + row;
    return permuted(number / training_samples(), number % training_samples());
  }

  [[nodiscard]] std::uint64_t hash() const noexcept override {
    detail::Fnv1a out;
    for (const auto* part : {&training_, &validation_})
      for (const Document& document : part->documents) {
        out.add(std::string_view(reinterpret_cast<const char*>(document.tokens.data()),
                                 document.tokens.size() * sizeof(std::int32_t)));
        for (const bool learned : document.learned)
          out.add(learned ? "1" : "0");
        out.add(";");
      }
    return out.value();
  }
  [[nodiscard]] std::string description() const override {
    std::string out = std::to_string(training_.documents.size() + validation_.documents.size()) +
                      " documents of " + std::to_string(counts_.tokens) + " tokens, " +
                      std::to_string(counts_.learned) + " of them learned";
    if (options_.pack)
      out += ", packed into " + std::to_string(training_samples() + validation_samples()) + " rows of " +
             std::to_string(sequence());
    if (!options_.origin.empty())
      out += " (" + options_.origin + ")";
    const auto tell = [&](const DocumentCounts::Lost& lost, const char* what) {
      if (lost.documents > 0)
        out += "; " + std::to_string(lost.documents) + what + " " + std::to_string(lost.tokens) + " tokens";
    };
    tell(counts_.cut, " longer than a row are cut, by");
    tell(counts_.dropped, " longer than a row are left out, of");
    tell(counts_.unlearned, " without a token to learn are left out, of");
    return out + cut_off_part();
  }

private:
  /// Documents, and which of them each row holds.
  struct Part {
    std::vector<Document> documents;
    std::vector<std::vector<std::size_t>> rows;

    void make_rows(const DocumentDatasetOptions& options) {
      std::vector<std::size_t> lengths(documents.size(), options.sequence); // of which none share a row
      for (std::size_t i = 0; options.pack && i < documents.size(); ++i)
        lengths[i] = documents[i].tokens.size() - 1;
      rows = pack_rows(lengths, options.sequence);
    }
  };

  /// What a sentence about documents without a token to learn adds.
  [[nodiscard]] std::string cut_off_part() const {
    return counts_.cut_off == 0 ? ""
                                : ", " + std::to_string(counts_.cut_off) + " of them cut before the first";
  }

  /// Cuts a document that is too long, and counts it; false if it is not used.
  [[nodiscard]] bool take(Document& document, std::size_t number) {
    check(document, number);
    const std::size_t most = sequence() + 1; // with the last target
    const std::size_t tokens = std::max<std::size_t>(document.tokens.size(), 1) - 1;
    const bool is_long = document.tokens.size() > most;
    const auto lose = [](DocumentCounts::Lost& to, std::size_t lost) {
      ++to.documents;
      to.tokens += lost;
    };
    if (is_long && options_.longer == LongDocument::drop) {
      lose(counts_.dropped, tokens);
      return false;
    }
    const auto count_learned = [&document] {
      const auto& marks = document.learned;
      return marks.empty() ? 0 : std::count(marks.begin() + 1, marks.end(), true);
    };
    const auto given = count_learned();
    if (is_long) {
      document.tokens.resize(most);
      document.learned.resize(most);
    }
    const auto learned = count_learned();
    if (learned == 0) {
      lose(counts_.unlearned, tokens);
      counts_.cut_off += given > 0 ? 1 : 0;
      return false;
    }
    if (is_long)
      lose(counts_.cut, tokens - sequence());
    counts_.tokens += document.tokens.size() - 1;
    counts_.learned += static_cast<std::size_t>(learned);
    return true;
  }

  void check(const Document& document, std::size_t number) const {
    if (document.learned.size() != document.tokens.size())
      throw DataError("DocumentDataset: document " + std::to_string(number) +
                      " must have a mark for each of its " + std::to_string(document.tokens.size()) +
                      " tokens, but has " + std::to_string(document.learned.size()));
    const auto bad = std::find_if(document.tokens.begin(), document.tokens.end(), [&](std::int32_t token) {
      return token < 0 || static_cast<std::size_t>(token) >= options_.vocabulary;
    });
    if (bad != document.tokens.end())
      throw DataError("DocumentDataset: every token must be below the vocabulary of " +
                      std::to_string(options_.vocabulary) + ", but document " + std::to_string(number) +
                      " has " + std::to_string(*bad) + " (use the tokenizer of this model)");
  }

  void copy_training(std::uint64_t step, std::size_t row, const Places& to) const override {
    copy(training_, training_sample(step, row), to);
  }
  void copy_validation(std::size_t sample, const Places& to) const override { copy(validation_, sample, to); }
  void copy(const Part& part, std::size_t sample, const Places& to) const {
    if (options_.pack && to.starts.empty())
      throw InvalidArgument(
          "DocumentDataset: rows that documents share must be read with the starts of these, but no span was given for them, and attention would mix the documents (read starts as well, and attend under documents(causal, starts))");
    PackedTokens row(sequence(), options_.padding);
    for (const std::size_t document : part.rows[sample])
      row.add(part.documents[document]);
    std::copy(row.ids().begin(), row.ids().end(), to.inputs.begin());
    std::copy(row.targets().begin(), row.targets().end(), to.targets.begin());
    if (!to.starts.empty())
      std::copy(row.starts().begin(), row.starts().end(), to.starts.begin());
  }

  /// The row at a place of an epoch: four Feistel rounds over the least even number of bits that holds
  /// all places, repeated until the result is a place.
  [[nodiscard]] std::size_t permuted(std::uint64_t epoch, std::uint64_t place) const noexcept {
    const auto half = static_cast<int>(std::bit_width(training_samples()) + 1) / 2;
    const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
    do {
      std::uint64_t left = place >> half, right = place & mask;
      for (std::uint64_t round = 0; round < 4; ++round) {
        const std::uint64_t drawn =
            random_words({options_.seed ^ 0x646f63756d656e74ULL, epoch}, round << 48 | right).word[0];
        left = std::exchange(right, left ^ (drawn & mask));
      }
      place = left << half | right;
    } while (place >= training_samples());
    return static_cast<std::size_t>(place);
  }

  DocumentDatasetOptions options_;
  DocumentCounts counts_;
  Part training_, validation_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
