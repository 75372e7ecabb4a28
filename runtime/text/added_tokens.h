// Tokens beside the model's pieces, which are found in the text before anything else: special ones,
// and those that were added.
#pragma once

#include <array>

#include "text/pieces.h"
#include "text/tables.h"
#include "text/vocabulary.h"

namespace bowline::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = false;   // is found in the normalized text, as it is normalized itself
};

class AddedTokens {
 public:
  // Tokens of the same content are one. Errors  bad_file: there are too many.
  static Result<AddedTokens> create(std::vector<AddedToken> tokens,
                                    const std::vector<Normalizer>& normalizers);

  // Cuts the text at those that are not normalized, or at those that are. `special`: at special
  // ones, too.
  Status split(Pieces& pieces, bool normalized, bool special) const;
  // None: no added token has this id.
  const AddedToken* find(int32_t id) const;
  bool is_special(int32_t id) const {
    const AddedToken* token = find(id);
    return token != nullptr && token->special;
  }
  bool any(bool normalized) const { return normalized ? any_normalized_ : any_plain_; }

 private:
  struct Places {
    ByteTrie trie;
    std::array<bool, 256> begins{};
  };
  Status split(std::string_view text, const Places& places, bool special,
               std::vector<Piece>& out) const;

  std::vector<AddedToken> tokens_;  // by id
  Places plain_;
  Places normalized_;
  bool any_plain_ = false;
  bool any_normalized_ = false;
};

}  // namespace bowline::text
