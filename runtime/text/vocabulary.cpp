#include "text/vocabulary.h"

#include "base/escape.h"
#include "text/require.h"

namespace bowline::text {
namespace {

constexpr int64_t kMostIds = 1 << 24;
constexpr size_t kLongestPiece = 1 << 16;

}  // namespace

Status Vocabulary::add(std::string_view piece, int64_t id) {
  const std::string name = escaped(piece.substr(0, 100));
  BOWLINE_REQUIRE_FILE(id >= 0 && id < kMostIds,
                       "Token \"{}\" has id {}, which is outside of 0 to {}.", name, id,
                       kMostIds - 1);
  BOWLINE_REQUIRE_FILE(piece.size() <= kLongestPiece, "Token \"{}...\" has {} bytes, more than {}.",
                       name, piece.size(), kLongestPiece);
  const auto number = static_cast<size_t>(id);
  BOWLINE_REQUIRE_FILE(number < most_ids_,
                       "Token \"{}\" has id {}, far beyond the number of tokens.", name, id);
  if (number >= pieces_.size()) {
    pieces_.resize(number + 1);
  }
  BOWLINE_REQUIRE_FILE(!pieces_[number].there, "Id {} belongs to two tokens: \"{}\" and \"{}\".",
                       id, escaped(this->piece(static_cast<int32_t>(id)).substr(0, 100)), name);
  if (const auto other = ids_.insert(piece, static_cast<int32_t>(id))) {
    BOWLINE_REQUIRE_FILE(*other >= 0,
                         "The tokens of the vocabulary have too many hash collisions.");
    return Status(Code::bad_file, format("Token \"{}\" has two ids, {} and {}.", name, *other, id));
  }
  pieces_[number] = {bytes_.size(), static_cast<uint32_t>(piece.size()), true};
  bytes_ += piece;
  return {};
}

}  // namespace bowline::text
