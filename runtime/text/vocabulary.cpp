#include "text/vocabulary.h"

namespace bowline::text {
namespace {

constexpr int64_t kMostIds = 1 << 24;
constexpr size_t kLongestPiece = 1 << 16;

}  // namespace

Status Vocabulary::add(std::string_view piece, int64_t id) {
  const std::string name = escaped(piece.substr(0, 100));
  BOWLINE_TEXT_REQUIRE(id >= 0 && id < kMostIds, Code::bad_file,
                       "Piece \"{}\" has id {}, which is not 0 to {}.", name, id, kMostIds - 1);
  BOWLINE_TEXT_REQUIRE(piece.size() <= kLongestPiece, Code::bad_file,
                       "Piece \"{}...\" has {} bytes, above {}.", name, piece.size(),
                       kLongestPiece);
  const auto number = static_cast<size_t>(id);
  BOWLINE_TEXT_REQUIRE(number < most_ids_, Code::bad_file,
                       "Piece \"{}\" has id {}, far beyond the number of pieces.", name, id);
  if (number >= pieces_.size()) {
    pieces_.resize(number + 1);
  }
  BOWLINE_TEXT_REQUIRE(!pieces_[number].there, Code::bad_file,
                       "Id {} belongs to \"{}\" and to \"{}\".", id,
                       escaped(this->piece(static_cast<int32_t>(id)).substr(0, 100)), name);
  if (const auto other = ids_.insert(piece, static_cast<int32_t>(id))) {
    BOWLINE_TEXT_REQUIRE(*other >= 0, Code::bad_file,
                         "The pieces of the vocabulary collide in its table, as no others do.");
    return Status(Code::bad_file,
                  sentence("Piece \"{}\" has two ids, {} and {}.", name, *other, id));
  }
  pieces_[number] = {bytes_.size(), static_cast<uint32_t>(piece.size()), true};
  bytes_ += piece;
  return {};
}

}  // namespace bowline::text
