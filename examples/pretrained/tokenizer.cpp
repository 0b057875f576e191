// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Byte-pair tokens from a tokenizer.json, as Hugging Face's tokenizers writes it.

#include "tokenizer.hpp"
#include "byte_pairs.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>

#include <nlohmann/json.hpp>

#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pretrained {
namespace {

namespace sw = shardwright;
using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& subject, const std::string& field, const std::string& must) {
  throw sw::DataError(subject + ": field " + sw::detail::quoted_text(field) + " must be " + must +
                      " (this program reads no other)");
}

const Json& field_of(const Json& object, const char* name) {
  static const Json null;
  if (!object.is_object())
    return null;
  const auto at = object.find(name);
  return at == object.end() ? null : *at;
}

std::string type_of(const Json& object) {
  const Json& type = field_of(object, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

/// The number of bytes of the UTF-8 character that begins with `lead`.
std::size_t character_bytes(char lead) {
  const auto code = static_cast<unsigned char>(lead);
  return code < 0x80 ? 1 : code < 0xe0 ? 2 : code < 0xf0 ? 3 : 4;
}

std::string utf8(char32_t code) {
  std::string out;
  icu::UnicodeString(static_cast<UChar32>(code)).toUTF8String(out);
  return out;
}

/// The character that represents each byte: the byte itself if it is printable, else a character from 256 on
/// (Radford et al., 2019).
std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> out;
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    out[byte] = utf8(printable ? byte : next++);
  }
  return out;
}

/// A step that transforms the text before it is split.
struct Normalization {
  const icu::Normalizer2* form = nullptr; // or
  std::string from, to;                   // replacement; if `from` is empty, `to` is prepended
};

/// Whitespace as defined by Unicode; ICU's own class omits two characters.
std::string with_unicode_spaces(const std::string& pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    out += escaped == 's'   ? "\\p{White_Space}"
           : escaped == 'S' ? "\\P{White_Space}"
                            : std::string("\\") + escaped;
  }
  return out;
}

/// A step that splits text into words.
struct Split {
  std::unique_ptr<icu::RegexPattern> pattern; // null if there is none
  bool adds_space = false;                    // in front, unless there is one
};

/// A token that is matched by its text anywhere.
struct Added {
  std::string text;
  std::int32_t id;
};
using AddedByLead = std::map<char, std::vector<Added>>; // the longest first

class BytePairTokenizer final : public Tokenizer {
public:
  BytePairTokenizer(const Json& json, std::string subject) : subject_(std::move(subject)) {
    for (const char* name : {"normalizer", "pre_tokenizer", "post_processor"})
      require_shallow(field_of(json, name), name, 0);
    for (const char* name : {"truncation", "padding"})
      if (!field_of(json, name).is_null())
        refuse(subject_, name, "null");
    read_normalizer(field_of(json, "normalizer"));
    read_splits(field_of(json, "pre_tokenizer"));
    read_model(field_of(json, "model"));
    read_added(field_of(json, "added_tokens"));
    read_template(field_of(json, "post_processor"));
    read_decoder(field_of(json, "decoder"));
  }

  std::vector<std::int32_t> encode(std::string_view text, bool adds_special) const override {
    require_utf8(text);
    std::vector<std::int32_t> out;
    if (adds_special)
      out = before_;
    for_each_part(text, raw_, out, [&](std::string_view part) {
      const std::string normal = normalized(std::string(part));
      for_each_part(normal, normal_, out,
                    [&](std::string_view words) { encode_words(std::string(words), out); });
    });
    if (adds_special)
      out.insert(out.end(), after_.begin(), after_.end());
    return out;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (const std::int32_t id : ids)
      if (const auto found = bytes_.find(id); found != bytes_.end() && !special_.contains(id))
        out += found->second;
    return out;
  }

private:
  void require_shallow(const Json& json, const char* field, int depth) const {
    constexpr int most = 32;
    if (depth > most)
      refuse(subject_, field, "nested at most 32 deep");
    if (json.is_structured())
      for (const Json& each : json)
        require_shallow(each, field, depth + 1);
  }

  void read_normalizer(const Json& json) {
    const std::string type = type_of(json);
    UErrorCode code = U_ZERO_ERROR;
    if (json.is_null())
      return;
    if (type == "Sequence") {
      for (const Json& each : field_of(json, "normalizers"))
        read_normalizer(each);
    } else if (type == "NFC") {
      normalizations_.push_back({icu::Normalizer2::getNFCInstance(code), {}, {}});
    } else if (type == "NFKC") {
      normalizations_.push_back({icu::Normalizer2::getNFKCInstance(code), {}, {}});
    } else if (type == "Prepend" && field_of(json, "prepend").is_string()) {
      normalizations_.push_back({nullptr, {}, field_of(json, "prepend").get<std::string>()});
    } else if (const Json& from = field_of(field_of(json, "pattern"), "String");
               type == "Replace" && from.is_string() && from != "" && field_of(json, "content").is_string()) {
      normalizations_.push_back(
          {nullptr, from.get<std::string>(), field_of(json, "content").get<std::string>()});
    } else {
      refuse(subject_, "normalizer", "null, NFC, NFKC, Prepend, Replace of a text, or a Sequence of them");
    }
    if (U_FAILURE(code) != 0)
      throw sw::DataError(subject_ + ": ICU has no tables for its normalizer (install ICU's data)");
  }

  void read_splits(const Json& json) {
    const std::string type = type_of(json);
    if (json.is_null())
      return;
    if (type == "Sequence") {
      for (const Json& each : field_of(json, "pretokenizers"))
        read_splits(each);
    } else if (type == "ByteLevel") {
      byte_level_ = true;
      Split split{nullptr, field_of(json, "add_prefix_space") == true};
      if (field_of(json, "use_regex") != false)
        split.pattern =
            compiled("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
      splits_.push_back(std::move(split));
    } else if (const Json& pattern = field_of(field_of(json, "pattern"), "Regex");
               type == "Split" && pattern.is_string() && field_of(json, "behavior") == "Isolated" &&
               field_of(json, "invert") != true) {
      splits_.push_back({compiled(pattern.get<std::string>()), false});
    } else {
      refuse(subject_, "pre_tokenizer", "null, ByteLevel, Split by an isolated Regex, or a Sequence of them");
    }
  }

  std::unique_ptr<icu::RegexPattern> compiled(const std::string& pattern) const {
    UErrorCode code = U_ZERO_ERROR;
    UParseError place;
    std::unique_ptr<icu::RegexPattern> out(
        icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(with_unicode_spaces(pattern)), place, code));
    if (U_FAILURE(code) != 0)
      refuse(subject_, "pre_tokenizer.pattern",
             "a pattern that ICU knows, not " + sw::detail::quoted_text(pattern));
    return out;
  }

  std::int32_t number(const Json& id, const char* field) const {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max())
      refuse(subject_, field, "the number of a token");
    return id.get<std::int32_t>();
  }

  void read_model(const Json& json) {
    if (type_of(json) != "BPE")
      refuse(subject_, "model.type", "BPE");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& value = field_of(json, name); !value.is_null() && value != "")
        refuse(subject_, std::string("model.") + name, "null or empty");
    if (const Json& dropout = field_of(json, "dropout"); !dropout.is_null() && dropout != 0)
      refuse(subject_, "model.dropout", "null");
    const bool falls_back = field_of(json, "byte_fallback") == true;
    if (falls_back == byte_level_)
      refuse(subject_, "model.byte_fallback", "false with a ByteLevel pre_tokenizer, and true without");
    whole_words_ = field_of(json, "ignore_merges") == true;
    const Json& vocabulary = field_of(json, "vocab");
    if (!vocabulary.is_object())
      refuse(subject_, "model.vocab", "an object");
    for (const auto& [token, id] : vocabulary.items())
      ids_.emplace(token, number(id, "model.vocab"));
    read_bytes();
    const Json& merges = field_of(json, "merges");
    if (!merges.is_array())
      refuse(subject_, "model.merges", "a list");
    for (const Json& merge : merges)
      read_merge(merge);
  }

  void read_merge(const Json& merge) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      const std::size_t space = both.find(' ');
      left = both.substr(0, space);
      right = space == both.npos ? std::string() : both.substr(space + 1);
    }
    const auto a = ids_.find(left), b = ids_.find(right), c = ids_.find(left + right);
    if (a == ids_.end() || b == ids_.end() || c == ids_.end())
      refuse(subject_, "model.merges",
             "pairs of tokens whose union is a token, not " +
                 sw::detail::quoted_text(merge.dump(-1, ' ', true, Json::error_handler_t::replace)));
    pairs_.add(a->second, b->second, c->second);
  }

  /// The token of each byte, and the bytes of each token.
  void read_bytes() {
    std::map<std::string, char> byte_of;
    const auto alphabet = byte_alphabet();
    for (unsigned byte = 0; byte < 256; ++byte) {
      char fallback[8];
      std::snprintf(fallback, sizeof fallback, "<0x%02X>", byte);
      const std::string& name = byte_level_ ? alphabet[byte] : fallback;
      byte_of.emplace(name, static_cast<char>(byte));
      if (const auto found = ids_.find(name); found != ids_.end())
        byte_ids_[byte] = found->second;
      else
        refuse(subject_, "model.vocab",
               "a vocabulary with all bytes, but " + sw::detail::quoted_text(name) + " is missing");
    }
    for (const auto& [token, id] : ids_) {
      std::string bytes;
      if (!byte_level_) {
        const auto byte = byte_of.find(token);
        bytes = byte != byte_of.end() ? std::string(1, byte->second) : replaced(token, "\u2581", " ");
      } else {
        for (std::size_t i = 0; i < token.size(); i += character_bytes(token[i])) {
          const auto byte = byte_of.find(token.substr(i, character_bytes(token[i])));
          if (byte == byte_of.end()) {
            bytes = token; // a text token, not a byte
            break;
          }
          bytes += byte->second;
        }
      }
      bytes_.emplace(id, std::move(bytes));
    }
  }

  void read_added(const Json& json) {
    if (!json.is_null() && !json.is_array())
      refuse(subject_, "added_tokens", "a list");
    for (const Json& token : json) {
      const Json& content = field_of(token, "content");
      if (!content.is_string() || content == "")
        refuse(subject_, "added_tokens.content", "a text");
      for (const char* name : {"single_word", "lstrip", "rstrip"})
        if (field_of(token, name) == true)
          refuse(subject_, std::string("added_tokens.") + name, "false");
      const std::int32_t id = number(field_of(token, "id"), "added_tokens.id");
      const bool normal = field_of(token, "normalized") == true;
      const std::string text = content.get<std::string>();
      const std::string shown = normal ? normalized(text) : text;
      if (shown.empty())
        refuse(subject_, "added_tokens.content", "a text that its normalizer leaves there");
      (normal ? normal_ : raw_)[shown.front()].push_back({shown, id});
      bytes_[id] = text;
      if (field_of(token, "special") == true)
        special_.insert(id);
    }
    for (AddedByLead* tokens : {&raw_, &normal_})
      for (auto& [lead, list] : *tokens)
        std::stable_sort(list.begin(), list.end(),
                         [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
  }

  void read_template(const Json& json) {
    const std::string type = type_of(json);
    if (json.is_null() || type == "ByteLevel")
      return;
    if (type == "Sequence") {
      for (const Json& each : field_of(json, "processors"))
        read_template(each);
      return;
    }
    if (type != "TemplateProcessing")
      refuse(subject_, "post_processor", "null, ByteLevel, TemplateProcessing, or a Sequence of them");
    bool text_seen = false;
    for (const Json& piece : field_of(json, "single")) {
      if (field_of(piece, "Sequence").is_object()) {
        text_seen = true;
        continue;
      }
      const Json& name = field_of(field_of(piece, "SpecialToken"), "id");
      const Json& ids = field_of(field_of(field_of(json, "special_tokens"),
                                          name.is_string() ? name.get_ref<const std::string&>().c_str() : ""),
                                 "ids");
      if (!ids.is_array())
        refuse(subject_, "post_processor.single", "texts and special tokens with their ids");
      for (const Json& id : ids)
        (text_seen ? after_ : before_).push_back(number(id, "post_processor.special_tokens"));
    }
  }

  void read_decoder(const Json& json) const {
    const std::string type = type_of(json);
    const bool fits = byte_level_ ? type == "ByteLevel" : type == "Sequence";
    if (!fits)
      refuse(subject_, "decoder.type", byte_level_ ? "ByteLevel" : "Sequence, of bytes and spaces");
  }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  }

  static void require_utf8(std::string_view text) {
    UErrorCode code = U_ZERO_ERROR;
    std::int32_t length = 0;
    u_strFromUTF8(nullptr, 0, &length, text.data(), static_cast<std::int32_t>(text.size()), &code);
    if (text.size() > (std::size_t{1} << 30) || (U_FAILURE(code) != 0 && code != U_BUFFER_OVERFLOW_ERROR))
      throw sw::InvalidArgument(
          "Tokenizer: the text must be UTF-8 of at most 2^30 bytes (convert or split it)");
  }

  std::string normalized(std::string text) const {
    for (const Normalization& step : normalizations_) {
      if (text.empty())
        break;
      if (step.form != nullptr) {
        UErrorCode code = U_ZERO_ERROR;
        const icu::UnicodeString normal = step.form->normalize(icu::UnicodeString::fromUTF8(text), code);
        text.clear();
        normal.toUTF8String(text);
      } else if (step.from.empty()) {
        text.insert(0, step.to);
      } else {
        text = replaced(std::move(text), step.from, step.to);
      }
    }
    return text;
  }

  /// Appends the added tokens in a text, and calls `visit` with the text between them.
  template <class Visit>
  static void for_each_part(std::string_view text, const AddedByLead& tokens, std::vector<std::int32_t>& out,
                            const Visit& visit) {
    std::size_t begin = 0;
    const auto flush = [&](std::size_t end) {
      if (end > begin)
        visit(text.substr(begin, end - begin));
    };
    for (std::size_t at = 0; at < text.size();) {
      const auto list = tokens.find(text[at]);
      const Added* found = nullptr;
      if (list != tokens.end())
        for (const Added& each : list->second)
          if (found == nullptr && text.substr(at).starts_with(each.text))
            found = &each;
      if (found == nullptr) {
        ++at;
        continue;
      }
      flush(at);
      out.push_back(found->id);
      begin = at += found->text.size();
    }
    flush(text.size());
  }

  void encode_words(const std::string& text, std::vector<std::int32_t>& out) const {
    std::vector<icu::UnicodeString> words{icu::UnicodeString::fromUTF8(text)};
    for (const Split& split : splits_)
      words = split_all(split, words);
    std::string word;
    for (const icu::UnicodeString& each : words) {
      word.clear();
      each.toUTF8String(word);
      encode_word(word, out);
    }
  }

  /// Each match is a word, and so is the text between matches.
  std::vector<icu::UnicodeString> split_all(const Split& split,
                                            std::vector<icu::UnicodeString>& words) const {
    std::vector<icu::UnicodeString> out;
    for (icu::UnicodeString& word : words) {
      if (split.adds_space && !word.startsWith(u" ", 1))
        word.insert(0, u' ');
      if (!split.pattern) {
        out.push_back(word);
        continue;
      }
      UErrorCode code = U_ZERO_ERROR;
      const std::unique_ptr<icu::RegexMatcher> matcher(split.pattern->matcher(word, code));
      std::int32_t done = 0;
      const auto add = [&](std::int32_t end) {
        if (end > done)
          out.emplace_back(word, done, end - done);
        done = end;
      };
      while (U_SUCCESS(code) != 0 && matcher->find(code) != 0) {
        add(matcher->start(code));
        add(matcher->end(code));
      }
      if (U_FAILURE(code) != 0)
        throw sw::DataError(subject_ +
                            ": its pattern must split the text within ICU's limits (split the text before)");
      add(word.length());
    }
    return out;
  }

  void encode_word(const std::string& word, std::vector<std::int32_t>& out) const {
    std::vector<std::int32_t> symbols;
    if (byte_level_) {
      if (whole_words_)
        if (const auto found = ids_.find(spelled(word)); found != ids_.end())
          return out.push_back(found->second);
      for (const char byte : word)
        symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else {
      for (std::size_t i = 0; i < word.size(); i += character_bytes(word[i])) {
        const std::string character = word.substr(i, character_bytes(word[i]));
        if (const auto found = ids_.find(character); found != ids_.end())
          symbols.push_back(found->second);
        else
          for (const char byte : character)
            symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      }
    }
    pairs_.merge(std::move(symbols), out);
  }

  /// A word in the characters of the vocabulary.
  static std::string spelled(const std::string& word) {
    static const std::array<std::string, 256> alphabet = byte_alphabet();
    std::string out;
    for (const char byte : word)
      out += alphabet[static_cast<unsigned char>(byte)];
    return out;
  }

  std::string subject_;
  std::vector<Normalization> normalizations_;
  std::vector<Split> splits_;
  bool byte_level_ = false, whole_words_ = false;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::string> bytes_;
  std::array<std::int32_t, 256> byte_ids_{};
  BytePairs pairs_;
  AddedByLead raw_, normal_;
  std::set<std::int32_t> special_;
  std::vector<std::int32_t> before_, after_;
};

} // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 28;
  const std::string text = sw::read_text(path, most_bytes);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    throw sw::DataError(path.string() + ": it must be a JSON object (fetch it again)");
  return std::make_unique<BytePairTokenizer>(json, path.string());
}
bool has_tokenizer() noexcept { return true; }

} // namespace pretrained
