// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Windows of bytes or tokens from text files for a language model, with a held-out part, the same on
/// every mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/io/text_files.hpp>
#include <shardwright/io/token_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The files that a ByteDataset reads, and how it cuts them into samples.
struct ByteDatasetOptions {
  std::vector<std::filesystem::path> paths; ///< Files and directories, in this order.
  std::size_t sequence = 256;               ///< Tokens of one sample.
  std::uint64_t seed = 0;                   ///< Chooses the training windows.
  std::size_t vocabulary = 256;             ///< Bytes or tokens of at least this value are an error.
  std::size_t least_samples = 1; ///< Separate training windows that must exist, such as the data ranks.
  bool separate_files = false;   ///< Each file is a document: it does not predict the next one.
};

/// @brief Text as bytes, or as tokens that a tokenizer has made from it: a sample is `sequence` inputs, and
/// as targets the same text shifted by one.
///
/// The files form one run of bytes, cut into blocks; every tenth block is held out. No training window
/// touches a held-out byte, neither as input nor as target. Training windows are drawn at random, with
/// replacement, keyed by (seed, step, row of the step's batch): the batch of a step is the same on
/// every mesh, and each data rank fills its own rows only. Validation windows are fixed and do not overlap.
///
/// Immutable once built; any number of threads may read it. Holds all bytes in memory.
class ByteDataset final : public TokenRows {
public:
  /// @brief Blocks from the first of which one is held out.
  static constexpr std::size_t held_out_every = 10;
  /// @brief Longest block in bytes; short data is cut finer, so that a tenth of it is still held out.
  static constexpr std::size_t longest_block = 8192;

  /// @brief Reads and splits the files.
  /// @throws DataError naming file and offset: missing, empty, short or unreadable data, a byte outside the
  /// vocabulary, fewer samples than requested. @throws InvalidArgument for a sequence of zero.
  explicit ByteDataset(ByteDatasetOptions options) : ByteDataset(read_text_files(options.paths), options) {}

  /// @brief The same over bytes already read; `options.paths` is not used.
  ByteDataset(TextFiles text, const ByteDatasetOptions& options)
      : TokenRows(options.sequence), text_(std::move(text)), seed_(options.seed),
        separate_files_(options.separate_files) {
    check_vocabulary(options.vocabulary);
    split();
    if (training_.samples < options.least_samples)
      throw DataError("ByteDataset: the training part must hold at least " +
                      std::to_string(options.least_samples) + " separate windows of " +
                      std::to_string(window()) + " bytes, one for each data rank, but " + "it holds " +
                      std::to_string(training_.samples) + "; the data ends in " +
                      text_.locate(text_.bytes.size()) + " (give more data or a shorter sequence)");
  }

  /// @brief The same over tokens; `options.paths` is not used.
  /// @param files where each file begins in the tokens
  ByteDataset(std::vector<std::int32_t> tokens, const ByteDatasetOptions& options,
              std::vector<TextFiles::File> files = {})
      : ByteDataset({std::string(tokens.size(), '\0'), std::move(files)}, options) {
    const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t token) {
      return token < 0 || static_cast<std::size_t>(token) >= options.vocabulary;
    });
    if (bad != tokens.end())
      throw DataError("ByteDataset: every token must be below the vocabulary of " +
                      std::to_string(options.vocabulary) + ", but one is " + std::to_string(*bad) +
                      " (use the tokenizer of this model)");
    tokens_ = std::move(tokens);
    text_.bytes = {};
  }

  /// @brief All bytes, or tokens.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return tokens_.empty() ? text_.bytes.size() : tokens_.size();
  }
  [[nodiscard]] const TextFiles& text() const noexcept { return text_; } ///< Files and their bytes.
  /// @brief Windows of the held-out part.
  [[nodiscard]] std::size_t validation_samples() const noexcept override { return validation_.samples; }
  /// @brief Bytes of the held-out part.
  [[nodiscard]] std::size_t validation_bytes() const noexcept { return validation_.bytes; }
  [[nodiscard]] std::uint64_t hash() const noexcept override {
    const std::string_view tokens(reinterpret_cast<const char*>(tokens_.data()),
                                  tokens_.size() * sizeof(std::int32_t));
    return detail::Fnv1a().add(tokens_.empty() ? std::string_view(text_.bytes) : tokens).value();
  }
  [[nodiscard]] std::string description() const override {
    return std::to_string(bytes()) + (tokens_.empty() ? " bytes of text" : " tokens of text");
  }

  /// @brief Returns whether the byte at `position` is held out, for a program that learns something else from
  /// the files, such as a tokenizer, and must not look at them there.
  [[nodiscard]] bool held_out(std::size_t position) const noexcept {
    const auto after =
        std::upper_bound(validation_.segments.begin(), validation_.segments.end(), position,
                         [](std::size_t p, const Segment& segment) { return p < segment.begin; });
    return after != validation_.segments.begin() && position < (after - 1)->end;
  }

  /// @brief Position of the first input byte of row `row` of the training batch of `step`.
  [[nodiscard]] std::size_t training_position(std::uint64_t step, std::uint64_t row) const noexcept {
    const std::uint64_t draw = random_bits(step, row) % training_.starts;
    const auto after =
        std::upper_bound(training_.segments.begin(), training_.segments.end(), draw,
                         [](std::uint64_t d, const Segment& segment) { return d < segment.first_start; });
    const Segment& segment = *(after - 1);
    return segment.begin + static_cast<std::size_t>(draw - segment.first_start);
  }

  /// @brief Position of the first input byte of the held-out window `sample`, below validation_samples().
  [[nodiscard]] std::size_t validation_position(std::size_t sample) const noexcept {
    const auto after =
        std::upper_bound(validation_.segments.begin(), validation_.segments.end(), sample,
                         [](std::size_t s, const Segment& segment) { return s < segment.first_sample; });
    const Segment& segment = *(after - 1);
    return segment.begin + (sample - segment.first_sample) * window();
  }

private:
  /// Neighbouring bytes of one part, with the numbers of its first window start and its first separate
  /// window.
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t first_start = 0;
    std::size_t first_sample = 0;
  };

  struct Part {
    std::vector<Segment> segments;
    std::uint64_t starts = 0;
    std::size_t samples = 0;
    std::size_t bytes = 0;

    void add(std::size_t begin, std::size_t end, std::size_t window) {
      if (end - begin < window)
        return;
      segments.push_back({begin, end, starts, samples});
      starts += end - begin - window + 1;
      samples += (end - begin) / window;
      bytes += end - begin;
    }
  };

  void check_vocabulary(std::size_t vocabulary) const {
    const auto bad = std::find_if(text_.bytes.begin(), text_.bytes.end(), [vocabulary](char c) {
      return static_cast<unsigned char>(c) >= vocabulary;
    });
    if (bad == text_.bytes.end())
      return;
    throw DataError("ByteDataset: every byte must be below the vocabulary of " + std::to_string(vocabulary) +
                    ", but byte " + std::to_string(static_cast<unsigned char>(*bad)) + " is in " +
                    text_.locate(static_cast<std::size_t>(bad - text_.bytes.begin())) +
                    " (a vocabulary of 256 holds every byte)");
  }

  void split() {
    const std::size_t total = text_.bytes.size();
    const std::size_t window = this->window();
    if (total / 2 < window)
      throw DataError("ByteDataset: the data must hold at least two windows of " + std::to_string(window) +
                      " bytes, one to train on and one held out, but it ends in " + text_.locate(total) +
                      " after " + std::to_string(total) +
                      " bytes in all (give more data or a shorter sequence)");
    const std::size_t block = std::max(window, std::min(longest_block, total / held_out_every));
    std::size_t begin = 0;
    for (; total - begin >= held_out_every * block; begin += held_out_every * block) {
      const std::size_t held = begin + (held_out_every - 1) * block;
      training_.add(begin, held, window);
      validation_.add(held, held + block, window);
    }
    std::size_t end = total;
    if (validation_.samples == 0) {
      end = total - window;
      validation_.add(end, total, window);
    }
    training_.add(begin, end, window);
  }

  void copy_training(std::uint64_t step, std::size_t row, const Places& to) const override {
    copy_files(training_position(step, row), to);
  }
  void copy_validation(std::size_t sample, const Places& to) const override {
    copy_files(validation_position(sample), to);
  }
  /// A window; where another file begins, with `separate_files` another document does.
  void copy_files(std::size_t position, const Places& to) const noexcept {
    copy_window(position, to.inputs, to.targets);
    std::fill(to.starts.begin(), to.starts.end(), 0);
    if (!separate_files_)
      return;
    auto file = std::upper_bound(text_.files.begin(), text_.files.end(), position,
                                 [](std::size_t p, const TextFiles::File& f) { return p < f.begin; });
    for (; file != text_.files.end() && file->begin <= position + to.inputs.size(); ++file) {
      const std::size_t place = file->begin - position;
      to.targets[place - 1] = -1;
      if (!to.starts.empty())
        std::fill(to.starts.begin() + static_cast<std::ptrdiff_t>(place), to.starts.end(),
                  static_cast<std::int32_t>(place));
    }
  }
  void copy_window(std::size_t position, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) const noexcept {
    if (!tokens_.empty()) {
      std::copy_n(tokens_.data() + position, inputs.size(), inputs.data());
      std::copy_n(tokens_.data() + position + 1, targets.size(), targets.data());
      return;
    }
    const char* const bytes = text_.bytes.data() + position;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<unsigned char>(bytes[i]);
      targets[i] = static_cast<unsigned char>(bytes[i + 1]);
    }
  }

  /// The inputs of a row and its last target.
  [[nodiscard]] std::size_t window() const noexcept { return sequence() + 1; }
  [[nodiscard]] std::uint64_t random_bits(std::uint64_t step, std::uint64_t row) const noexcept {
    // The mask keeps windows independent of weights, which are drawn under the bare seed.
    const PhiloxWords words = random_words({seed_ ^ 0x646174615f736574ULL, step}, row);
    return std::uint64_t{words.word[1]} << 32 | words.word[0];
  }

  TextFiles text_;
  std::vector<std::int32_t> tokens_; // in place of the bytes
  std::uint64_t seed_;
  bool separate_files_;
  Part training_;
  Part validation_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
