#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/require.h"

namespace bowline::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// Rewrites a text by code points: change(out, c) keeps, drops or replaces c.
template <class F>
Status each(AlignedText& t, F&& change) {
  Rewriter out(t);
  for (size_t at = 0; at < t.text.size();) {
    change(out, next_of(t.text, at));
  }
  out.finish();
  return {};
}

template <bool (*dropped)(char32_t)>
Status filter(AlignedText& t) {
  return each(t, [](Rewriter& out, char32_t c) { dropped(c) ? out.drop() : out.keep(); });
}

// A code point with its change, for Rewriter::push().
struct Change {
  char32_t c = 0;
  int64_t change = 0;
  uint8_t rank = 0;  // canonical combining class
};

uint8_t combining_class(char32_t c) {
  return c < 0x300 || !is_normalized(c)
             ? uint8_t{0}
             : static_cast<uint8_t>(
                   utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
}

// Decomposes the text, in canonical order.
std::vector<Change> decomposed(std::string_view text, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<Change> out;
  out.reserve(text.size());
  size_t starter = 0;  // after the last code point of class 0
  const auto sort = [&] {
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(starter), out.end(),
                     [](const Change& a, const Change& b) { return a.rank < b.rank; });
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_of(text, at);
    std::array<utf8proc_int32_t, 32> parts{};
    utf8proc_ssize_t n = 1;
    parts[0] = static_cast<utf8proc_int32_t>(c);
    if (c >= 0x80 && is_normalized(c)) {
      int last = 0;
      n = utf8proc_decompose_char(parts[0], parts.data(), std::ssize(parts), options, &last);
    }
    for (utf8proc_ssize_t i = 0; i < std::min(n, std::ssize(parts)); ++i) {
      const auto part = static_cast<char32_t>(parts[static_cast<size_t>(i)]);
      const uint8_t rank = combining_class(part);
      if (rank == 0) {
        sort();
      }
      out.push_back({part, i == 0 ? 0 : 1, rank});
      if (rank == 0) {
        starter = out.size();
      }
    }
  }
  sort();
  return out;
}

// The composition of two code points, or 0.
char32_t composed(char32_t a, char32_t b) {
  if (b < 0x300) {
    return 0;
  }
  std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(a),
                                       static_cast<utf8proc_int32_t>(b)};
  const utf8proc_ssize_t n = utf8proc_normalize_utf32(
      pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto one = static_cast<char32_t>(pair[0]);
  return n == 1 && is_normalized(one) ? one : 0;
}

std::vector<Change> recomposed(const std::vector<Change>& in) {
  std::vector<Change> out;
  out.reserve(in.size());
  constexpr size_t kNone = SIZE_MAX;
  size_t base = kNone;  // index in `out` of the last code point of class 0
  int last = -1;        // class of the last kept code point after it; -1: none
  for (const Change& next : in) {
    if (base != kNone && last < next.rank) {
      if (const char32_t c = composed(out[base].c, next.c)) {
        out[base].c = c;
        out[base].change += next.change - 1;
        continue;
      }
    }
    if (next.rank == 0) {
      base = out.size();
      last = -1;
    } else if (base != kNone) {
      last = next.rank;
    }
    out.push_back(next);
  }
  return out;
}

Status too_long(const AlignedText& t) {
  return Status(Code::bad_file,
                format("A normalizer makes more than {} bytes out of {}.", t.most, t.text.size()));
}

Status rewrite(AlignedText& t, const std::vector<Change>& changes) {
  Rewriter out(t);
  for (const Change& c : changes) {
    out.push(c.c, c.change);
  }
  out.finish();
  return {};
}

template <bool compatible, bool composes>
Status normal_form(AlignedText& t) {
  if (is_ascii(t.text)) {
    return {};
  }
  const std::vector<Change> parts = decomposed(t.text, compatible);
  return rewrite(t, composes ? recomposed(parts) : parts);
}

void to_lower(Rewriter& out, char32_t c) {
  const Lower l = lower(c);
  if (l.first == c) {
    out.keep();
    return;
  }
  out.push(l.first, 0);
  if (l.second != 0) {
    out.push(l.second, 1);
  }
}

void clean(Rewriter& out, char32_t c) {
  if (c == 0 || c == kReplacement || is_control(c)) {
    out.drop();
  } else if (is_white_space(c)) {
    out.push(' ', 0);
  } else {
    out.keep();
  }
}

void space_out_cjk(Rewriter& out, char32_t c) {
  const bool spaces = is_cjk(c);
  if (spaces) {
    out.push(' ', 1);
  }
  out.keep();
  if (spaces) {
    out.push(' ', 1);
  }
}

bool is_dropped_by_nmt(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}
bool is_space_of_nmt(char32_t c) {
  return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == kReplacement;
}

// The double array of SentencePiece: maps texts to offsets of replacement texts.
class CharsMap {
 public:
  static Result<std::shared_ptr<const CharsMap>> read(std::string_view bytes) {
    BOWLINE_REQUIRE_FILE(bytes.size() >= 4, "The character map has {} bytes.", bytes.size());
    uint32_t size = 0;
    std::memcpy(&size, bytes.data(), 4);
    BOWLINE_REQUIRE_FILE(size % 4 == 0 && size <= bytes.size() - 4,
                         "The trie of the character map has {} bytes, more than the map ({}).",
                         size, bytes.size());
    auto map = std::make_shared<CharsMap>();
    map->units_.resize(size / 4);
    if (size != 0) {  // an empty vector may have a null address
      std::memcpy(map->units_.data(), bytes.data() + 4, size);
    }
    map->texts_ = bytes.substr(4 + size_t{size});
    BOWLINE_REQUIRE_FILE(valid_utf8(map->texts_), "The texts of the character map are not UTF-8.");
    return std::shared_ptr<const CharsMap>(std::move(map));
  }

  // Returns the replacement of the shortest prefix of `key` in the map, as in the package
  // `tokenizers`.
  std::optional<std::string_view> find(std::string_view key) const {
    size_t node = 0;
    if (units_.empty()) {
      return std::nullopt;
    }
    node ^= offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<uint8_t>(c);
      node ^= byte;
      if (byte == 0 || node >= units_.size() || (units_[node] & 0x800000FF) != byte) {
        return std::nullopt;
      }
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if ((unit >> 8 & 1) != 0) {  // the leaf is child 0
        return node < units_.size() ? text_at(units_[node] & 0x7FFFFFFF) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  static size_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 1 << 9) >> 6); }
  std::optional<std::string_view> text_at(size_t begin) const {
    const std::string_view all = texts_;
    if (begin >= all.size() || continues(all[begin])) {
      return std::nullopt;
    }
    return all.substr(begin, all.find('\0', begin) - begin);
  }
  std::vector<uint32_t> units_;
  std::string texts_;
};

// Appends the changes that turn `old` code points into `text`.
void change(std::vector<Change>& out, size_t old, std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++n) {
    const char32_t c = next_of(text, at);
    out.push_back({c, n < old ? 0 : 1});
  }
  if (n < old && !out.empty()) {
    out.back().change -= static_cast<int64_t>(old - n);
  }
}

// End of the grapheme cluster at `at`.
size_t grapheme_end(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  char32_t before = next_of(text, at);
  while (at < text.size()) {
    size_t next = at;
    const char32_t c = next_of(text, next);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                         static_cast<utf8proc_int32_t>(c), &state)) {
      break;
    }
    before = c;
    at = next;
  }
  return at;
}

Status map_chars(AlignedText& t, const CharsMap& map) {
  std::vector<Change> changes;
  changes.reserve(t.text.size());
  const std::string_view text = t.text;
  for (size_t at = 0; at < text.size();) {
    if (changes.size() > t.most) {
      return too_long(t);
    }
    const size_t end = grapheme_end(text, at);
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() < 6 ? map.find(cluster) : std::nullopt;
    if (whole) {
      change(changes, count_of(cluster), *whole);
      at = end;
      continue;
    }
    while (at < end) {
      const size_t begin = at;
      const char32_t c = next_of(text, at);
      if (const auto one = map.find(text.substr(begin, at - begin))) {
        change(changes, 1, *one);
      } else {
        changes.push_back({c, 0});
      }
    }
  }
  return rewrite(t, changes);
}

// ---- one for each step

Result<Normalizer> normalizer_of(const steps::NFC&) { return Normalizer(normal_form<false, true>); }
Result<Normalizer> normalizer_of(const steps::NFD&) {
  return Normalizer(normal_form<false, false>);
}
Result<Normalizer> normalizer_of(const steps::NFKC&) { return Normalizer(normal_form<true, true>); }
Result<Normalizer> normalizer_of(const steps::NFKD&) {
  return Normalizer(normal_form<true, false>);
}
Result<Normalizer> normalizer_of(const steps::Lowercase&) {
  return Normalizer([](AlignedText& t) { return each(t, to_lower); });
}
Result<Normalizer> normalizer_of(const steps::StripAccents&) { return Normalizer(filter<is_mark>); }
Result<Normalizer> normalizer_of(const steps::ByteLevel&) { return map_bytes(); }
Result<Normalizer> normalizer_of(const steps::Prepend& step) { return prepend(step.prepend); }
Result<Normalizer> normalizer_of(const steps::Replace& step) {
  BOWLINE_TRY_ASSIGN(Pattern pattern, Pattern::of(step.pattern));
  return replace(std::move(pattern), step.content);
}
Result<Normalizer> normalizer_of(const steps::Precompiled& step) {
  BOWLINE_TRY_ASSIGN(const auto map, CharsMap::read(step.precompiled_charsmap.bytes));
  return Normalizer([map](AlignedText& t) { return map_chars(t, *map); });
}

Result<Normalizer> normalizer_of(const steps::Strip& step) {
  return Normalizer([left = step.strip_left, right = step.strip_right](AlignedText& t) -> Status {
    size_t begin = 0;
    size_t end = t.text.size();
    for (size_t at = begin; left && at < end && is_white_space(next_of(t.text, at));) {
      begin = at;
    }
    for (size_t at = end; right && at > begin && is_white_space(previous_of(t.text, at));) {
      end = at;
    }
    AlignedText out{.most = t.most};
    out.append(t, begin, end);
    t = std::move(out);
    return {};
  });
}

Result<Normalizer> normalizer_of(const steps::Nmt&) {
  return Normalizer([](AlignedText& t) {
    return each(t, [](Rewriter& out, char32_t c) {
      if (is_dropped_by_nmt(c)) {
        out.drop();
      } else if (is_space_of_nmt(c)) {
        out.push(' ', 0);
      } else {
        out.keep();
      }
    });
  });
}

Result<Normalizer> normalizer_of(const steps::BertNormalizer& rules) {
  return Normalizer([rules](AlignedText& t) -> Status {
    if (rules.clean_text) {
      BOWLINE_TRY(each(t, clean));
    }
    if (rules.handle_chinese_chars) {  // adds spaces around ideographs
      BOWLINE_TRY(each(t, space_out_cjk));
    }
    if (rules.strip_accents.value_or(rules.lowercase)) {
      BOWLINE_TRY((normal_form<false, false>(t)));
      BOWLINE_TRY(filter<is_nonspacing_mark>(t));
    }
    return rules.lowercase ? each(t, to_lower) : Status();
  });
}

}  // namespace

Result<Normalizer> make_normalizer(const steps::Normalizer& step) {
  return std::visit([](const auto& s) { return normalizer_of(s); }, step);
}

Normalizer prepend(std::string text) {
  return [text = std::move(text)](AlignedText& t) -> Status {
    if (text.size() > t.most - std::min(t.most, t.text.size())) {
      return too_long(t);
    }
    if (!t.text.empty()) {
      const Offset first = t.at[0];
      t.text.insert(0, text);
      t.at.insert(t.at.begin(), text.size(), first);
    }
    return {};
  };
}

Normalizer replace(Pattern pattern, std::string content) {
  return [pattern = std::move(pattern), content = std::move(content)](AlignedText& t) -> Status {
    std::vector<Range> ranges;
    BOWLINE_TRY(pattern.find(t.text, ranges));
    AlignedText out{.most = t.most};
    for (const Range& r : ranges) {
      if (r.match && content.size() > t.most - std::min(t.most, out.text.size())) {
        return too_long(t);
      }
      if (r.match) {
        out.text += content;
        // Text inserted at the start belongs to the first byte.
        out.at.resize(out.text.size(), t.at[r.end == 0 ? 0 : r.end - 1]);
      } else {
        out.append(t, r.begin, r.end);
      }
    }
    t = std::move(out);
    return {};
  };
}

Normalizer map_bytes() {
  return [](AlignedText& t) -> Status {
    AlignedText out{.most = t.most};
    for (size_t i = 0; i < t.text.size(); ++i) {
      out.append(kByteLetters[static_cast<uint8_t>(t.text[i])], t.at[i]);
    }
    t = std::move(out);
    return {};
  };
}

}  // namespace bowline::text
