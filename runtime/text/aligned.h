// Rewritten text with the source position of every byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bowline_text.h"
#include "text/unicode.h"

namespace bowline::text {

struct AlignedText {
  std::string text = {};
  std::vector<Offset> at = {};  // per byte: the source bytes of its code point
  size_t most = SIZE_MAX;       // limit for the growth by normalizers, in bytes

  void append(char32_t c, Offset from) {
    text::append(text, c);
    at.resize(text.size(), from);
  }
  void append(const AlignedText& from, size_t begin, size_t end) {
    text.append(from.text, begin, end - begin);
    at.insert(at.end(), from.at.begin() + static_cast<std::ptrdiff_t>(begin),
              from.at.begin() + static_cast<std::ptrdiff_t>(end));
  }
};

// Rewrites an AlignedText from start to end. The caller states whether a code point is new. The
// source of a code point is computed as in the package `tokenizers`, so that offsets are the same
// even where accents move.
class Rewriter {
 public:
  explicit Rewriter(AlignedText& text) : target_(text) {
    out_.text.reserve(text.text.size());
    out_.at.reserve(text.at.size());
  }
  // change > 0: adds a code point with the source of the previous one. change <= 0: replaces the
  // next code point of the source, and drops -change more.
  void push(char32_t c, int64_t change) {
    if (change > 0) {
      out_.append(c, next_ == 0 ? Offset{} : target_.at[next_ - 1]);
      return;
    }
    const Offset from = next_ < target_.at.size() ? target_.at[next_]
                        : target_.at.empty()      ? Offset{}
                                                  : target_.at.back();
    out_.append(c, from);
    for (int64_t left = 1 - change; left > 0 && next_ < target_.text.size(); --left) {
      next_ += length_of(target_.text[next_]);
    }
  }
  // Copies the next code point.
  void keep() {
    const size_t end = next_ + length_of(target_.text[next_]);
    out_.text.append(target_.text, next_, end - next_);
    out_.at.resize(out_.text.size(), target_.at[next_]);
    next_ = end;
  }
  // Drops the next code point.
  void drop() { next_ += length_of(target_.text[next_]); }
  void finish() {
    target_.text = std::move(out_.text);
    target_.at = std::move(out_.at);
  }

 private:
  AlignedText& target_;
  AlignedText out_;
  size_t next_ = 0;
};

}  // namespace bowline::text
