// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/io/document_dataset.hpp>
#include <shardwright/io/packed_tokens.hpp>
#include <shardwright/layout/token_order.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

/// Documents of 2 to 7 tokens, the first of which is the document's number; every second token is learned.
std::vector<Document> numbered_documents(std::size_t count) {
  std::vector<Document> out;
  for (std::size_t n = 0; n < count; ++n) {
    Document document;
    for (std::size_t t = 0; t < 2 + n % 6; ++t) {
      document.tokens.push_back(static_cast<std::int32_t>(t == 0 ? n : 1000 + t));
      document.learned.push_back(t % 2 == 1);
    }
    out.push_back(std::move(document));
  }
  return out;
}

DocumentDatasetOptions small(std::size_t batch = 4) {
  return {.sequence = 6, .seed = 5, .batch = batch, .vocabulary = 2000, .padding = 9};
}

std::string sentence_of(std::vector<Document> documents, const DocumentDatasetOptions& options) {
  try {
    const DocumentDataset data(std::move(documents), options);
    return data.description();
  } catch (const Error& error) {
    return error.what();
  }
}

} // namespace

TEST_CASE("document_dataset: every epoch has each training document once, in an order of its own") {
  const std::size_t count =
      GENERATE(std::size_t{2}, std::size_t{3}, std::size_t{9}, std::size_t{100}, std::size_t{1000});
  const DocumentDataset data(numbered_documents(count), small());
  CHECK(data.validation_samples() == (count < 10 ? 1 : count / 10));
  CHECK(data.training_samples() + data.validation_samples() == count);
  std::vector<std::vector<std::size_t>> epochs;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < data.training_samples(); ++i) {
      const std::size_t number = epoch * data.training_samples() + i;
      order.push_back(data.training_sample(number / 4, number % 4));
    }
    CHECK(std::set<std::size_t>(order.begin(), order.end()).size() == data.training_samples());
    epochs.push_back(std::move(order));
  }
  if (count >= 100) {
    CHECK(epochs[0] != epochs[1]);
    CHECK(epochs[1] != epochs[2]);
  }
}

TEST_CASE("document_dataset: the order depends on the seed alone, and held-out documents are never trained") {
  const DocumentDataset data(numbered_documents(50), small()), same(numbered_documents(50), small());
  DocumentDatasetOptions other = small();
  other.seed = 6;
  const DocumentDataset differs(numbered_documents(50), other);
  bool moved = false;
  std::set<std::int32_t> trained;
  for (std::uint64_t step = 0; step < 30; ++step)
    for (std::size_t row = 0; row < 4; ++row) {
      CHECK(data.training_sample(step, row) == same.training_sample(step, row));
      moved = moved || data.training_sample(step, row) != differs.training_sample(step, row);
      std::vector<std::int32_t> inputs(6), targets(6);
      data.training(step, {row, row + 1}, inputs, targets);
      trained.insert(inputs.front());
    }
  CHECK(moved);
  CHECK(trained.size() == 45);
  for (std::size_t batch = 0; batch < 5; ++batch) {
    std::vector<std::int32_t> inputs(6), targets(6);
    data.validation(batch, 5, 1, {0, 1}, inputs, targets);
    CHECK(inputs.front() == static_cast<std::int32_t>(10 * batch + 9));
    CHECK_FALSE(trained.contains(inputs.front()));
  }
}

TEST_CASE("document_dataset: targets are the next tokens that are learned, and nothing after the end") {
  std::vector<Document> documents{{{10, 11, 12, 13}, {true, false, true, true}}, {{20, 21}, {true, true}}};
  const DocumentDataset data(documents, small(1));
  std::vector<std::int32_t> inputs(6), targets(6);
  data.training(0, {0, 1}, inputs, targets);
  CHECK(inputs == std::vector<std::int32_t>{10, 11, 12, 9, 9, 9}); // the last token is only a target
  CHECK(targets == std::vector<std::int32_t>{-1, 12, 13, -1, -1, -1});
  data.validation(0, 1, 1, {0, 1}, inputs, targets);
  CHECK(inputs == std::vector<std::int32_t>{20, 9, 9, 9, 9, 9});
  CHECK(targets == std::vector<std::int32_t>{21, -1, -1, -1, -1, -1});
  CHECK(data.counts().tokens == 4);
  CHECK(data.counts().learned == 3);

  std::vector<Document> changed = documents;
  changed[0].learned[3] = false;
  CHECK(DocumentDataset(documents, small()).hash() == data.hash());
  CHECK(DocumentDataset(changed, small()).hash() != data.hash());
}

TEST_CASE("document_dataset: longer documents are cut or left out, and counted") {
  std::vector<Document> documents = numbered_documents(3);
  Document longer;
  longer.tokens.assign(10, 7);
  longer.learned.assign(10, true);
  Document late = longer; // its learned tokens are cut off
  late.learned.assign(10, false);
  late.learned.back() = true;
  documents.push_back(longer);
  documents.push_back(late);
  documents.push_back({{1, 2}, {true, false}}); // learns nothing, and is not cut
  DocumentDatasetOptions options = small();
  options.held_out_every = 0;
  const DocumentDataset cut(documents, options);
  CHECK(cut.counts().given == 6);
  CHECK(cut.counts().cut.documents == 1);
  CHECK(cut.counts().cut.tokens == 9 - 6);
  CHECK(cut.counts().dropped.documents == 0);
  CHECK(cut.counts().unlearned.documents == 2);
  CHECK(cut.counts().unlearned.tokens == 9 + 1);
  CHECK(cut.counts().cut_off == 1);
  CHECK_THAT(
      cut.description(),
      ContainsSubstring("; 2 without a token to learn are left out, of 10 tokens, 1 of them cut before "
                        "the first"));
  CHECK(cut.training_samples() == 4);
  std::vector<std::int32_t> inputs(6), targets(6);
  for (std::size_t row = 0; row < 4; ++row) {
    cut.training(0, {row, row + 1}, inputs, targets);
    if (inputs.front() == 7)
      CHECK(targets.back() == 7); // the seventh token is the last target
  }
  CHECK_THROWS_AS(cut.validation(0, 1, 1, {0, 1}, inputs, targets), InvalidArgument);
  options.longer = LongDocument::drop;
  options.origin = "a test";
  CHECK(
      sentence_of(documents, options) ==
      "3 documents of 6 tokens, 4 of them learned (a test); 2 longer than a row are left out, of 18 tokens; "
      "1 without a token to learn are left out, of 1 tokens");
}

TEST_CASE("document_dataset: documents that cannot be trained on are named") {
  const auto expects = [](const std::string& sentence, const std::string& part) {
    CHECK_THAT(sentence, ContainsSubstring(part));
  };
  expects(sentence_of({{{1, 2000}, {true, true}}}, small()),
          "below the vocabulary of 2000, but document 0 has 2000 (use the tokenizer of this model)");
  expects(sentence_of({{{1, 2}, {true}}}, small()), "document 0 must have a mark for each of its 2 tokens");
  expects(sentence_of({{{1, 2}, {true, false}}, {{}, {}}}, small()), "2 have no token to learn in it, and");
  Document late{std::vector<std::int32_t>(20, 1), std::vector<bool>(20, false)};
  late.learned.back() = true;
  expects(sentence_of({late, {{}, {}}}, small()),
          "2 have no token to learn in it, 1 of them cut before the first");
  expects(sentence_of({{{1, 2}, {true, true}}}, small()), "1 are held out");
  expects(sentence_of(numbered_documents(3), small(0)), "the batch must be at least 1 row");
  DocumentDatasetOptions none = small();
  none.sequence = 0;
  expects(sentence_of(numbered_documents(3), none), "the sequence must be at least 1 token");
}

namespace {

/// What a rank of a ring has of a row.
std::vector<std::int32_t> part_of(std::span<const std::int32_t> row, int ranks, int rank) {
  const TokenRuns runs = ZigZagOrder::runs(static_cast<std::int64_t>(row.size()), ranks, rank);
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < runs.rows; ++i)
    out.push_back(row[runs.position(i)]);
  return out;
}
std::vector<std::int32_t> numbers_up_to(std::int32_t end) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(end));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

} // namespace

TEST_CASE("packed_tokens: targets are shifted before a row is split, and the last token counts") {
  PackedTokens whole(8);
  whole.add(numbers_up_to(8));
  CHECK(part_of(whole.ids(), 2, 0) == std::vector<std::int32_t>{0, 1, 6, 7});
  CHECK(part_of(whole.targets(), 2, 0) == std::vector<std::int32_t>{1, 2, 7, -1});
  CHECK(part_of(whole.targets(), 2, 1) == std::vector<std::int32_t>{3, 4, 5, 6});

  PackedTokens seven(8); // 7 tokens to learn from, which 2 x 2 chunks do not divide
  seven.add(Document{numbers_up_to(8), std::vector<bool>(8, true)});
  std::vector<std::int32_t> learned = part_of(seven.targets(), 2, 0);
  for (const std::int32_t target : part_of(seven.targets(), 2, 1))
    learned.push_back(target);
  std::sort(learned.begin(), learned.end());
  CHECK(learned == std::vector<std::int32_t>{-1, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("packed_tokens: N documents of T tokens have T - N targets, none of them across a boundary") {
  const std::vector<std::int32_t> tokens = numbers_up_to(100);
  PackedTokens row(24, 99);
  std::size_t at = 0;
  for (const std::size_t length : {3u, 1u, 7u, 2u, 9u}) {
    row.add(std::span(tokens).subspan(at, length));
    at += length;
  }
  CHECK(row.room() == 2);
  const auto counted =
      std::count_if(row.targets().begin(), row.targets().end(), [](auto t) { return t >= 0; });
  CHECK(counted == 22 - 5);
  for (std::size_t i = 0; i < 24; ++i) {
    INFO(i);
    const bool ends = i + 1 >= 22 || row.starts()[i + 1] != row.starts()[i];
    CHECK(row.targets()[i] == (ends ? -1 : static_cast<std::int32_t>(i + 1)));
    CHECK(row.ids()[i] == (i < 22 ? static_cast<std::int32_t>(i) : 99));
  }
  CHECK(std::vector<std::int32_t>(row.starts().begin(), row.starts().end()) ==
        std::vector<std::int32_t>{0,  0,  0,  3,  4,  4,  4,  4,  4,  4,  4,  11,
                                  11, 13, 13, 13, 13, 13, 13, 13, 13, 13, 22, 23});
  const auto sentence = [&](const auto& document) {
    try {
      row.add(document);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(
      sentence(std::span<const std::int32_t>(tokens).first(3)) ==
      "PackedTokens: a document must fit in what is left of the row, 2 of 24 places, but it takes 3 (cut it, or "
      "begin another row)");
  CHECK_THAT(sentence(Document{{1, 2}, {true}}), ContainsSubstring("it has 2 tokens and 1 marks"));
  CHECK_THAT(sentence(Document{}), ContainsSubstring("it has 0 tokens and 0 marks"));
  CHECK_THROWS_AS(PackedTokens(0), InvalidArgument);
}

TEST_CASE("packed_tokens: rows are packed tightly, each document in one of them") {
  CHECK(pack_rows(std::vector<std::size_t>{2, 6, 3, 5, 4}, 8) ==
        std::vector<std::vector<std::size_t>>{{1, 0}, {3, 2}, {4}}); // 6 + 2, 5 + 3, 4
  CHECK(pack_rows(std::vector<std::size_t>{8, 8, 8}, 8) ==
        std::vector<std::vector<std::size_t>>{{0}, {1}, {2}});
  std::vector<std::size_t> lengths(500);
  std::size_t total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    total += lengths[i] = 1 + random_words({1, 2}, i).word[0] % 64;
  const auto rows = pack_rows(lengths, 64);
  std::multiset<std::size_t> seen;
  for (const std::vector<std::size_t>& row : rows) {
    std::size_t filled = 0;
    for (const std::size_t document : row) {
      filled += lengths[document];
      seen.insert(document);
    }
    CHECK(filled <= 64);
  }
  CHECK(seen.size() == 500);
  CHECK(std::set<std::size_t>(seen.begin(), seen.end()).size() == 500);
  CHECK(rows.size() <= 1 + total * 102 / (100 * 64)); // of a wasted fiftieth at most
}

TEST_CASE("document_dataset: packed, an epoch has each document once, with the targets that it has alone") {
  DocumentDatasetOptions options = small(2);
  options.sequence = 12;
  options.held_out_every = 7;
  options.pack = true;
  std::vector<Document> documents = numbered_documents(40);
  documents.push_back({std::vector<std::int32_t>(20, 40), std::vector<bool>(20, true)}); // cut
  const DocumentDataset data(documents, options);
  std::map<std::int32_t, int> seen;
  std::vector<std::int32_t> inputs(12), targets(12), starts(12);
  for (std::size_t number = 0; number < data.training_samples(); ++number) {
    data.training(number / 2, {number % 2, number % 2 + 1}, inputs, targets, starts);
    for (std::size_t i = 0; i < 12; ++i) {
      const auto place = static_cast<std::size_t>(starts[i]);
      if (inputs[place] == 9 && targets[place] < 0) // padding
        continue;
      const auto id = static_cast<std::size_t>(inputs[place]);
      seen[inputs[place]] += place == i ? 1 : 0;
      CHECK(inputs[i] == documents[id].tokens[i - place]);
      CHECK(targets[i] == (documents[id].learned[i - place + 1] ? documents[id].tokens[i - place + 1] : -1));
    }
  }
  CHECK(seen.size() == 41 - 5);
  CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& each) { return each.second == 1; }));
  CHECK(data.counts().cut.documents == 1);
  CHECK_THAT(data.description(),
             ContainsSubstring("packed into " +
                               std::to_string(data.training_samples() + data.validation_samples()) +
                               " rows of 12; 1 longer than a row are cut, by 7 tokens"));
  CHECK_THROWS_WITH(data.training(0, {0, 1}, inputs, targets),
                    ContainsSubstring("must be read with the starts of these"));
  options.pack = false;
  DocumentDataset(documents, options).training(0, {0, 1}, inputs, targets); // one document in each row
  CHECK(DocumentDataset(documents, options).training_samples() == 36);
  CHECK(data.training_samples() < 18);
  CHECK(data.hash() == DocumentDataset(documents, options).hash());
}
