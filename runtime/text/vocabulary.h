// Maps ids to tokens and tokens to ids.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tables.h"

namespace bowline::text {

class Vocabulary {
 public:
  // Announces the number of tokens. Ids far above this number are rejected.
  void expect(size_t pieces) { most_ids_ = 2 * pieces + kMostGaps; }
  // Errors  bad_file: the id is negative, too large or taken; the token has an id or is too long.
  Status add(std::string_view piece, int64_t id);

  std::optional<int32_t> find(std::string_view piece) const { return ids_.find(piece); }
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < pieces_.size() &&
           pieces_[static_cast<size_t>(id)].there;
  }
  // Empty if the id is unknown.
  std::string_view piece(int32_t id) const {
    if (!has(id)) {
      return {};
    }
    const Place& p = pieces_[static_cast<size_t>(id)];
    return std::string_view(bytes_).substr(p.begin, p.length);
  }
  // The largest id plus 1.
  size_t size() const { return pieces_.size(); }

 private:
  static constexpr size_t kMostGaps = 1 << 16;  // ids without a token; real files have a few
  struct Place {
    size_t begin = 0;
    uint32_t length = 0;
    bool there = false;
  };
  std::string bytes_;
  std::vector<Place> pieces_;
  TextTable ids_;
  size_t most_ids_ = kMostGaps;
};

}  // namespace bowline::text
