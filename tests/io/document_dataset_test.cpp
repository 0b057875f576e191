// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/document_dataset.hpp>

#include <cstdint>
#include <set>
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
      order.push_back(data.training_document(number / 4, number % 4));
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
      CHECK(data.training_document(step, row) == same.training_document(step, row));
      moved = moved || data.training_document(step, row) != differs.training_document(step, row);
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
  DocumentDatasetOptions options = small();
  options.held_out_every = 0;
  const DocumentDataset cut(documents, options);
  CHECK(cut.counts().given == 5);
  CHECK(cut.counts().cut == 1);
  CHECK(cut.counts().dropped == 0);
  CHECK(cut.counts().unlearned == 1);
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
  CHECK(sentence_of(documents, options) ==
        "3 documents of 6 tokens, 4 of them learned (a test); 2 longer than a row are left out");
}

TEST_CASE("document_dataset: documents that cannot be trained on are named") {
  const auto expects = [](const std::string& sentence, const std::string& part) {
    CHECK_THAT(sentence, ContainsSubstring(part));
  };
  expects(sentence_of({{{1, 2000}, {true, true}}}, small()),
          "below the vocabulary of 2000, but document 0 has 2000 (use the tokenizer of this model)");
  expects(sentence_of({{{1, 2}, {true}}}, small()), "document 0 must have a mark for each of its 2 tokens");
  expects(sentence_of({{{1, 2}, {true, false}}, {{}, {}}}, small()), "2 have no token to learn in it");
  expects(sentence_of({{{1, 2}, {true, true}}}, small()), "1 are held out");
  expects(sentence_of(numbered_documents(3), small(0)), "the batch must be at least 1 row");
  DocumentDatasetOptions none = small();
  none.sequence = 0;
  expects(sentence_of(numbered_documents(3), none), "the sequence must be at least 1 token");
}
