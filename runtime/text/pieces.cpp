#include "text/pieces.h"

#include <simdjson.h>

#include "text/require.h"

namespace bowline::text {
namespace {

// The largest growth by a real normalizer is 11 times, in a compatibility decomposition.
constexpr size_t kMostGrowth = 16;
constexpr size_t kMostAdded = size_t{1} << 20;

Offset at(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

}  // namespace

Pieces::Pieces(std::string_view source)
    : source_(source), most_(kMostGrowth * source.size() + kMostAdded) {
  if (!simdjson::validate_utf8(source.data(), source.size())) {
    aligned_ = true;
    for (size_t i = 0; i < source.size();) {
      bool valid = false;
      const size_t n = step_over(source.substr(i), valid);
      if (valid) {
        own_.text += source.substr(i, n);
        own_.at.resize(own_.text.size(), at(i, i + n));
      } else {
        own_.append(kReplacement, at(i, i + n));
      }
      i += n;
    }
  }
  if (!text().empty()) {
    pieces_.push_back({0, text().size()});
  }
}

Offset Pieces::source(size_t begin, size_t end) const {
  if (begin >= end) {
    return {};
  }
  if (aligned_) {
    return {own_.at[begin].begin, own_.at[end - 1].end};
  }
  while (continues(source_[begin])) {
    --begin;
  }
  while (end < source_.size() && continues(source_[end])) {
    ++end;
  }
  return at(begin, end);
}

Status Pieces::split(const Split& split) {
  std::vector<Piece> out;
  out.reserve(pieces_.size());
  std::vector<Piece> parts;
  for (const Piece& p : pieces_) {
    if (p.id >= 0) {
      out.push_back(p);
      continue;
    }
    parts.clear();
    BOWLINE_TRY(split(text(p), parts));
    for (const Piece& part : parts) {
      if (part.begin < part.end) {
        out.push_back({p.begin + part.begin, p.begin + part.end, part.id});
      }
    }
  }
  pieces_ = std::move(out);
  return {};
}

AlignedText Pieces::copy(const Piece& p) const {
  AlignedText out{.most = most_};
  if (aligned_) {
    out.append(own_, p.begin, p.end);
    return out;
  }
  out.text = text(p);
  out.at.reserve(out.text.size());
  for (size_t i = p.begin; i < p.end;) {
    const size_t n = length_of(source_[i]);
    out.at.resize(out.at.size() + n, at(i, i + n));
    i += n;
  }
  return out;
}

Status Pieces::rewrite(const Rewrite& rewrite) {
  AlignedText all;
  std::vector<Piece> pieces;
  pieces.reserve(pieces_.size());
  for (const Piece& p : pieces_) {
    AlignedText part = copy(p);
    if (p.id < 0) {
      BOWLINE_TRY(rewrite(part));
    }
    if (part.text.empty()) {
      continue;
    }
    BOWLINE_REQUIRE_FILE(all.text.size() + part.text.size() <= most_,
                         "The tokenizer makes more than {} bytes out of a text of {}.", most_,
                         source_.size());
    const size_t begin = all.text.size();
    all.append(part, 0, part.text.size());
    pieces.push_back({begin, all.text.size(), p.id});
  }
  own_ = std::move(all);
  pieces_ = std::move(pieces);
  aligned_ = true;
  return {};
}

}  // namespace bowline::text
