// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Byte-pair tokens from a tokenizer.json, as Hugging Face's tokenizers writes it.

#include "tokenizer.hpp"
#include "byte_pairs.hpp"
#include "word_splits.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>

#include <nlohmann/json.hpp>

#include <unicode/normalizer2.h>
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

/// A token that is matched by its text anywhere.
struct Added {
  std::string text;
  std::int32_t id;
};
using AddedByLead = std::map<char, std::vector<Added>>; // the longest first

class BytePairTokenizer final : public Tokenizer {
public:
  BytePairTokenizer(const Json& json, const std::string& subject) : subject_(subject), splits_(subject) {
    for (const char* name : {"truncation", "padding"})
      if (const Json& found = field_of(json, name); !found.is_null())
        refuse(name, "null", found);
    read_normalizer(field_of(json, "normalizer"));
    splits_.read(field_of(json, "pre_tokenizer"));
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
      for_each_part(normal, normal_, out, [&](std::string_view words) {
        encode_words(std::string(words), part.data() == text.data() && words.data() == normal.data(), out);
      });
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

  std::string bytes(std::int32_t id) const override {
    const auto found = bytes_.find(id);
    return found == bytes_.end() ? std::string() : found->second;
  }

private:
  [[noreturn]] void refuse(const std::string& field, const std::string& must, const Json& found) const {
    refuse_field(subject_, field, must, found);
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
      refuse("normalizer", "null, NFC, NFKC, Prepend, Replace of a text, or a Sequence of them", json);
    }
    if (U_FAILURE(code) != 0)
      throw sw::DataError(subject_ + ": ICU has no tables for its normalizer (install ICU's data)");
  }

  std::int32_t number(const Json& id, const char* field) const {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max())
      refuse(field, "the number of a token", id);
    return id.get<std::int32_t>();
  }

  void read_model(const Json& json) {
    if (type_of(json) != "BPE")
      refuse("model.type", "BPE", field_of(json, "type"));
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& value = field_of(json, name); !value.is_null() && value != "")
        refuse(std::string("model.") + name, "null or empty", value);
    if (const Json& dropout = field_of(json, "dropout"); !dropout.is_null() && dropout != 0)
      refuse("model.dropout", "null", dropout);
    const bool falls_back = field_of(json, "byte_fallback") == true;
    if (falls_back && splits_.byte_level())
      refuse("model.byte_fallback", "false with a ByteLevel pre_tokenizer", field_of(json, "byte_fallback"));
    whole_words_ = field_of(json, "ignore_merges") == true;
    fuses_unknown_ = field_of(json, "fuse_unk") == true;
    const Json& vocabulary = field_of(json, "vocab");
    if (!vocabulary.is_object())
      refuse("model.vocab", "an object", vocabulary);
    for (const auto& [token, id] : vocabulary.items())
      ids_.emplace(token, number(id, "model.vocab"));
    if (const Json& unknown = field_of(json, "unk_token"); unknown.is_string())
      if (const auto found = ids_.find(unknown.get<std::string>()); found != ids_.end())
        unknown_ = found->second;
    if (splits_.byte_level() || falls_back)
      read_bytes();
    read_spellings();
    const Json& merges = field_of(json, "merges");
    if (!merges.is_array())
      refuse("model.merges", "a list", merges);
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
      refuse("model.merges", "pairs of tokens whose union is a token", merge);
    pairs_.add(a->second, b->second, c->second);
  }

  /// The token of each byte that has one.
  void read_bytes() {
    const auto alphabet = byte_alphabet();
    for (unsigned byte = 0; byte < 256; ++byte) {
      char fallback[8];
      std::snprintf(fallback, sizeof fallback, "<0x%02X>", byte);
      const std::string& name = splits_.byte_level() ? alphabet[byte] : fallback;
      byte_of_.emplace(name, static_cast<char>(byte));
      if (const auto found = ids_.find(name); found != ids_.end())
        byte_ids_[byte] = found->second;
    }
  }

  /// The bytes of each token.
  void read_spellings() {
    for (const auto& [token, id] : ids_) {
      std::string bytes;
      if (!splits_.byte_level()) {
        const auto byte = byte_of_.find(token);
        bytes = byte != byte_of_.end() ? std::string(1, byte->second) : replaced(token, "\u2581", " ");
      } else {
        for (std::size_t i = 0; i < token.size(); i += character_bytes(token[i])) {
          const auto byte = byte_of_.find(token.substr(i, character_bytes(token[i])));
          if (byte == byte_of_.end()) {
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
      refuse("added_tokens", "a list", json);
    for (const Json& token : json) {
      const Json& content = field_of(token, "content");
      if (!content.is_string() || content == "")
        refuse("added_tokens.content", "a text", content);
      for (const char* name : {"single_word", "lstrip", "rstrip"})
        if (const Json& found = field_of(token, name); found == true)
          refuse(std::string("added_tokens.") + name, "false", found);
      const std::int32_t id = number(field_of(token, "id"), "added_tokens.id");
      const bool normal = field_of(token, "normalized") == true;
      const std::string text = content.get<std::string>();
      const std::string shown = normal ? normalized(text) : text;
      if (shown.empty())
        refuse("added_tokens.content", "a text that its normalizer leaves there", content);
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
      refuse("post_processor", "null, ByteLevel, TemplateProcessing, or a Sequence of them", json);
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
        refuse("post_processor.single", "texts and special tokens with their ids", piece);
      for (const Json& id : ids)
        (text_seen ? after_ : before_).push_back(number(id, "post_processor.special_tokens"));
    }
  }

  void read_decoder(const Json& json) const {
    const std::string type = type_of(json);
    const bool fits = splits_.byte_level() ? type == "ByteLevel" : type == "Sequence" || type == "Metaspace";
    if (!fits)
      refuse("decoder.type",
             splits_.byte_level() ? "ByteLevel" : "Metaspace, or a Sequence of bytes and spaces",
             field_of(json, "type"));
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

  void encode_words(const std::string& text, bool first, std::vector<std::int32_t>& out) const {
    std::string word;
    for (const icu::UnicodeString& each : splits_(text, first)) {
      word.clear();
      each.toUTF8String(word);
      encode_word(word, out);
    }
  }

  void encode_word(const std::string& word, std::vector<std::int32_t>& out) const {
    if (whole_words_ && splits_.byte_level())
      if (const auto found = ids_.find(spelled(word)); found != ids_.end())
        return out.push_back(found->second);
    std::vector<std::int32_t> symbols;
    bool unknown = false; // the symbol before
    const auto has_token = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] >= 0; };
    const auto add = [&](std::int32_t id) {
      symbols.push_back(id);
      unknown = false;
    };
    const auto add_unknown = [&](std::string_view bytes) {
      if (!unknown_)
        refuse_unknown(bytes, word);
      if (!unknown || !fuses_unknown_)
        symbols.push_back(*unknown_);
      unknown = true;
    };
    for (std::size_t i = 0, size = 1; i < word.size(); i += size) {
      size = splits_.byte_level() ? 1 : character_bytes(word[i]);
      const std::string_view character = std::string_view(word).substr(i, size);
      const auto found = splits_.byte_level() ? ids_.end() : ids_.find(std::string(character));
      if (found != ids_.end())
        add(found->second);
      else if (std::all_of(character.begin(), character.end(), has_token))
        for (const char byte : character)
          add(byte_ids_[static_cast<unsigned char>(byte)]);
      else
        add_unknown(character);
    }
    pairs_.merge(std::move(symbols), out);
  }

  [[noreturn]] void refuse_unknown(std::string_view bytes, const std::string& word) const {
    std::string shown_bytes;
    for (const char byte : bytes) {
      char text[8];
      std::snprintf(text, sizeof text, " 0x%02X", static_cast<unsigned char>(byte));
      shown_bytes += text;
    }
    throw sw::InvalidArgument(
        subject_ + ": the text must be of bytes that have tokens, as there is no unknown token, but" +
        shown_bytes + " in " + sw::detail::quoted_text(word) + " has none (take it out of the text)");
  }

  /// A word in the characters of the vocabulary.
  static std::string spelled(const std::string& word) {
    static const std::array<std::string, 256> alphabet = byte_alphabet();
    std::string out;
    for (const char byte : word)
      out += alphabet[static_cast<unsigned char>(byte)];
    return out;
  }

  static std::array<std::int32_t, 256> without_tokens() {
    std::array<std::int32_t, 256> out{};
    out.fill(-1);
    return out;
  }

  std::string subject_;
  std::vector<Normalization> normalizations_;
  WordSplits splits_;
  bool whole_words_ = false, fuses_unknown_ = false;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::int32_t, std::string> bytes_;
  std::unordered_map<std::string, char> byte_of_;
  std::array<std::int32_t, 256> byte_ids_ = without_tokens();
  std::optional<std::int32_t> unknown_;
  BytePairs pairs_;
  AddedByLead raw_, normal_;
  std::set<std::int32_t> special_;
  std::vector<std::int32_t> before_, after_;
};

} // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 28;
  const std::string text = sw::read_text(path, most_bytes);
  const auto json = parse_object(text, path.string());
  return std::make_unique<BytePairTokenizer>(json, path.string());
}
bool has_tokenizer() noexcept { return true; }

} // namespace pretrained
