// A text that is cut into pieces step by step: by added tokens, normalizers and pre-tokenizers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned.h"
#include "text/normalizer.h"
#include "text/pattern.h"

namespace bowline::text {

struct Piece {
  size_t begin = 0;  // bytes of Pieces::text()
  size_t end = 0;
  int32_t id = -1;  // of an added token; -1: text for the model
};

class Pieces {
 public:
  // Starts with one piece: all of `source`, which may hold any bytes and must outlive this object.
  explicit Pieces(std::string_view source);

  std::string_view text() const { return aligned_ ? std::string_view(own_.text) : source_; }
  std::string_view text(const Piece& p) const { return text().substr(p.begin, p.end - p.begin); }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Returns the source bytes of the bytes [begin, end) of text().
  Offset source(size_t begin, size_t end) const;

  // Replaces each piece without an id by pieces. Empty pieces are dropped.
  using Split = std::function<Status(std::string_view text, std::vector<Piece>& out)>;
  Status split(const Split& split);
  // Rewrites each piece without an id.
  using Rewrite = std::function<Status(AlignedText& piece)>;
  Status rewrite(const Rewrite& rewrite);

 private:
  AlignedText copy(const Piece& p) const;

  std::string_view source_;
  size_t most_;           // growth limit in bytes
  bool aligned_ = false;  // the text is in own_; else it is the source
  AlignedText own_;
  std::vector<Piece> pieces_;
};

}  // namespace bowline::text
