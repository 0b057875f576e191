// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/scratch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/new_file.hpp>

#include <filesystem>
#include <string>

using shardwright::DataError;
using shardwright_test::failure_of;

TEST_CASE("a directory that cannot be made is named in a sentence, like a file that cannot be written") {
  const shardwright_test::Scratch scratch;
  const std::filesystem::path file = scratch.write("model", "a file");
  const std::string sentence =
      (file / "part").string() + " must be writable, but Not a directory (give a path";
  CHECK(failure_of<DataError>([&] {
          shardwright::detail::make_directories(file / "part");
        }).starts_with(sentence));
  CHECK(failure_of<DataError>([&] { shardwright::checkpoint::Writer(file / "part"); }).starts_with(sentence));

  const std::filesystem::path made = scratch.root() / "one" / "two";
  CHECK(shardwright::detail::make_directories(made));
  CHECK_FALSE(shardwright::detail::make_directories(made)); // it is there
  CHECK(std::filesystem::is_directory(made));
}
