// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <pretrained/adapter_settings.hpp>
#include <pretrained/settings.hpp>
#include <pretrained/tokenizer.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <stdlib.h>
#include <unistd.h>

namespace {

/// A file of the process, removed when it ends.
class Place {
public:
  Place() : path_((std::filesystem::temp_directory_path() / "shardwright_fuzz_XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    fuzz::require(file >= 0, "there is a scratch file");
    ::close(file);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  std::string path_;
};

/// Settings that were accepted are read again from what they are written as.
void read_settings(const std::string& text) {
  std::optional<pretrained::Settings> settings;
  if (!fuzz::accepted([&] { settings = pretrained::parse_settings(text, "config.json"); }))
    return;
  const std::string again = pretrained::settings_text(*settings);
  fuzz::require(pretrained::settings_text(pretrained::parse_settings(again, "again")) == again,
                "settings are read as they were written");
}

void read_adapters(const std::string& text) {
  pretrained::AdapterSettings settings;
  if (!fuzz::accepted([&] { settings = pretrained::parse_adapter_settings(text, "adapter_config.json"); }))
    return;
  fuzz::require(settings.rank >= 1 && settings.rank <= pretrained::AdapterSettings::most_rank,
                "a rank allows matrices");
  fuzz::require(settings.factor() >= 0, "a factor is a number");
  fuzz::require(settings.dropout >= 0 && settings.dropout < 1, "dropout leaves something");
}

void read_tokenizer(const std::string& text) {
  static const Place place;
  std::ofstream(place.path(), std::ios::binary) << text;
  std::unique_ptr<pretrained::Tokenizer> tokenizer;
  if (!fuzz::accepted([&] { tokenizer = pretrained::read_tokenizer(place.path()); }))
    return;
  for (const std::string& words :
       {std::string(), std::string("It's  12 <s>\n \xc3\xa9\xf0\x9f\x98\x80"), std::string(300, 'a') + "b"}) {
    std::vector<std::int32_t> ids;
    if (!fuzz::accepted([&] { ids = tokenizer->encode(words); }))
      continue;
    fuzz::require(std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; }),
                  "a token has a number");
    (void)tokenizer->decode(ids);
  }
}

} // namespace

/// The text of a config.json, after a byte 't' that of a tokenizer.json, or after 'a' of an
/// adapter_config.json.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('t'))
    read_tokenizer(text.substr(1));
  else if (text.starts_with('a'))
    read_adapters(text.substr(1));
  else
    read_settings(text);
  return 0;
}
