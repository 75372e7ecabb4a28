#include <algorithm>

#include "base/escape.h"
#include "bowline_text.h"
#include "text/byte_level.h"
#include "text/require.h"
#include "text/tokenizer_data.h"

namespace bowline::text {
namespace {

constexpr size_t kLongestText = size_t{1} << 30;

// An entry of an Encoding under construction.
struct Entry {
  int32_t id = 0;
  Offset at;
  bool special = false;
  // For an added token: its text, which may include white space.
  std::string_view text = {};
};

struct Spaces {
  size_t leading = 0;
  size_t trailing = 0;
};

// Counts the white space around a token, including its byte-level spelling.
Spaces spaces_of(std::string_view piece) {
  const auto is_space = [](char32_t c) { return c == U'\u0120' || is_white_space(c); };
  Spaces out;
  for (size_t at = 0; at < piece.size() && is_space(next_of(piece, at));) {
    ++out.leading;
  }
  for (size_t at = piece.size(); at > 0 && is_space(previous_of(piece, at));) {
    ++out.trailing;
  }
  return out;
}

// Removes white space from the offsets of tokens.
void trim(const steps::ByteLevel& rule, const TokenizerData& data, std::string_view source,
          std::vector<Entry>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& e = entries[i];
    Spaces s = spaces_of(e.text.empty() ? data.vocabulary.piece(e.id) : e.text);
    const bool first = i == 0 || e.at.begin == 0;
    if (first && rule.add_prefix_space && s.leading == 1) {
      s.leading = 0;
    }
    bool valid = false;
    for (size_t n = 0; n < s.leading && e.at.begin < e.at.end; ++n) {
      e.at.begin += static_cast<uint32_t>(step_over(source.substr(e.at.begin), valid));
    }
    e.at.begin = std::min(e.at.begin, e.at.end);
    // To find the ends of code points, walks through the token from its start.
    size_t inside = 0;
    for (size_t at = e.at.begin; at < e.at.end && s.trailing > 0; ++inside) {
      at += step_over(source.substr(at), valid);
    }
    if (s.trailing > 0) {
      size_t at = e.at.begin;
      for (size_t n = 0; n + s.trailing < inside; ++n) {
        at += step_over(source.substr(at), valid);
      }
      e.at.end = static_cast<uint32_t>(at);
    }
  }
}

Status post_process(const TokenizerData& data, std::string_view source,
                    const EncodeOptions& options, std::vector<Entry>& entries) {
  size_t added = 0;
  for (const steps::PostProcessor& p : data.post_processors) {
    if (const auto* around = std::get_if<steps::Surround>(&p)) {
      added += options.special_tokens ? around->before.size() + around->behind.size() : 0;
    }
  }
  if (options.max_tokens > 0) {
    BOWLINE_REQUIRE(added <= options.max_tokens,
                    "max_tokens is {}, but the tokenizer adds {} special tokens.",
                    options.max_tokens, added);
    entries.resize(std::min(entries.size(), options.max_tokens - added));
  }
  for (const steps::PostProcessor& p : data.post_processors) {
    if (const auto* rule = std::get_if<steps::ByteLevel>(&p); rule && rule->trim_offsets) {
      trim(*rule, data, source, entries);
    }
    const auto* around = std::get_if<steps::Surround>(&p);
    if (around == nullptr || !options.special_tokens) {
      continue;
    }
    const auto special = [](int32_t id) { return Entry{id, {}, true}; };
    std::vector<Entry> all;
    all.reserve(entries.size() + added);
    std::ranges::transform(around->before, std::back_inserter(all), special);
    all.insert(all.end(), entries.begin(), entries.end());
    std::ranges::transform(around->behind, std::back_inserter(all), special);
    entries = std::move(all);
  }
  return {};
}

Status normalize(const TokenizerData& data, AlignedText& t) {
  for (const Normalizer& n : data.normalizers) {
    BOWLINE_TRY(n(t));
    BOWLINE_REQUIRE_FILE(t.text.size() <= t.most,
                         "The normalizers turn a part of the text into more than {} bytes.",
                         t.most);
  }
  return {};
}

Status cut(const TokenizerData& data, Pieces& pieces, const EncodeOptions& options) {
  BOWLINE_TRY(data.added.split(pieces, false, options.parse_special));
  if (!data.normalizers.empty()) {
    BOWLINE_TRY(pieces.rewrite([&](AlignedText& t) { return normalize(data, t); }));
  }
  BOWLINE_TRY(data.added.split(pieces, true, options.parse_special));
  for (const PreTokenizer& p : data.pre_tokenizers) {
    BOWLINE_TRY(p(pieces));
  }
  return {};
}

Status tokenize(const TokenizerData& data, const Pieces& pieces, std::vector<Entry>& out) {
  Scratch scratch;
  std::vector<Token> tokens;
  for (const Piece& p : pieces.pieces()) {
    if (p.id >= 0) {
      out.push_back({p.id, pieces.source(p.begin, p.end), false, pieces.text(p)});
      continue;
    }
    BOWLINE_REQUIRE(p.end - p.begin < kLongestText, "A word of the text has {} bytes.",
                    p.end - p.begin);
    tokens.clear();
    BOWLINE_TRY(data.model(pieces.text(p), scratch, tokens));
    for (const Token& t : tokens) {
      out.push_back({t.id, pieces.source(p.begin + t.begin, p.begin + t.end)});
    }
  }
  return {};
}

Encoding encoding_of(const std::vector<Entry>& entries) {
  Encoding out;
  out.ids.reserve(entries.size());
  out.offsets.reserve(entries.size());
  out.special.reserve(entries.size());
  for (const Entry& e : entries) {
    out.ids.push_back(e.id);
    out.offsets.push_back(e.at);
    out.special.push_back(e.special ? 1 : 0);
  }
  out.mask.assign(entries.size(), 1);
  return out;
}

Result<Encoding> encode_text(const TokenizerData& data, std::string_view text,
                             const EncodeOptions& options) {
  BOWLINE_REQUIRE(text.size() < kLongestText, "The text has {} bytes, more than {}.", text.size(),
                  kLongestText - 1);
  std::vector<Entry> entries;
  if (!data.model) {  // accepts any bytes and has no other steps
    for (size_t i = 0; i < text.size(); ++i) {
      const auto at = static_cast<uint32_t>(i);
      entries.push_back({static_cast<uint8_t>(text[i]), {at, at + 1}});
    }
    BOWLINE_TRY(post_process(data, text, options, entries));
    return encoding_of(entries);
  }
  Pieces pieces(text);
  BOWLINE_TRY(cut(data, pieces, options));
  BOWLINE_TRY(tokenize(data, pieces, entries));
  BOWLINE_TRY(post_process(data, text, options, entries));
  return encoding_of(entries);
}

SharedData bytes_data() {
  auto data = std::make_shared<TokenizerData>();
  data->kind = "bytes";
  for (int byte = 0; byte < 256; ++byte) {
    // Byte-level letters, so that each token is text.
    std::string letter;
    append(letter, kByteLetters[static_cast<size_t>(byte)]);
    (void)data->vocabulary.add(letter, byte);
  }
  data->decoders = {decode_bytes()};
  return data;
}

}  // namespace

struct DecoderState {
  SharedData data;
  bool skip_special;
  DecodeChain chain;

  Status push(int32_t id, std::string& out) {
    const bool shown = data->vocabulary.has(id) && !(skip_special && data->added.is_special(id));
    return shown ? chain.push(data->vocabulary.piece(id), out) : Status();
  }
};

Result<Tokenizer> Tokenizer::from(const Model& model) {
  return guarded([&]() -> Result<Tokenizer> {
    if (model.metadata("tokenizer") == "bytes") {
      return of_bytes();
    }
    BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
    const auto asset = std::ranges::find(info.assets, "tokenizer", &AssetInfo::name);
    BOWLINE_REQUIRE(asset != info.assets.end(),
                    "The model has no tokenizer: neither an asset \"tokenizer\" nor the "
                    "metadata tokenizer = bytes.");
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, model.asset("tokenizer"));
    return from_bytes(asset->media_type, bytes);
  });
}

Result<Tokenizer> Tokenizer::from_bytes(std::string_view media_type,
                                        std::span<const std::byte> bytes) {
  return guarded([&]() -> Result<Tokenizer> {
    const bool is_json = media_type == "application/vnd.huggingface.tokenizer+json";
    BOWLINE_REQUIRE_CODE(is_json || media_type == "application/vnd.gguf.tokenizer",
                         Code::unsupported, "A tokenizer of media type \"{}\" is not supported.",
                         escaped(media_type));
    BOWLINE_TRY_ASSIGN(const Description description,
                       is_json ? describe_json(bytes) : describe_gguf(bytes));
    BOWLINE_TRY_ASSIGN(SharedData data, build(description));
    return Tokenizer(std::move(data));
  });
}

Tokenizer Tokenizer::of_bytes() { return Tokenizer(bytes_data()); }

Result<Encoding> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return guarded([&] { return encode_text(*data_, text, options); });
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return guarded([&]() -> Result<std::string> {
    DecoderState state{data_, skip_special, DecodeChain(data_->decoders, true)};
    std::string out;
    for (const int32_t id : ids) {
      BOWLINE_TRY(state.push(id, out));
    }
    BOWLINE_TRY(state.chain.finish(out));
    return out;
  });
}

Decoder Tokenizer::stream(bool skip_special) const {
  return Decoder(std::unique_ptr<DecoderState>(
      new DecoderState{data_, skip_special, DecodeChain(data_->decoders, false)}));
}

Decoder::Decoder(std::unique_ptr<DecoderState> state) : state_(std::move(state)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Result<std::string> Decoder::next(int32_t id) {
  return guarded([&]() -> Result<std::string> {
    BOWLINE_REQUIRE(state_ != nullptr, "The decoder is empty: it was moved from.");
    std::string out;
    BOWLINE_TRY(state_->push(id, out));
    return out;
  });
}

std::string Decoder::flush() {
  return guarded([&]() -> std::string {
    std::string out;
    if (state_ != nullptr) {
      (void)state_->chain.finish(out);
      state_->chain = DecodeChain(state_->data->decoders, false);
    }
    return out;
  });
}

size_t Tokenizer::size() const { return data_->vocabulary.size(); }
std::optional<int32_t> Tokenizer::token_to_id(std::string_view piece) const {
  return data_->vocabulary.find(piece);
}
std::string Tokenizer::id_to_token(int32_t id) const {
  return guarded([&] { return std::string(data_->vocabulary.piece(id)); });
}
bool Tokenizer::is_special(int32_t id) const { return data_->added.is_special(id); }
std::string_view Tokenizer::kind() const { return data_->kind; }

}  // namespace bowline::text
