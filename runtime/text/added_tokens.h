// Added tokens: special tokens and other tokens beside the model's vocabulary. They are found in
// the text before anything else.
#pragma once

#include <array>

#include "text/description.h"
#include "text/pieces.h"
#include "text/tables.h"
#include "text/vocabulary.h"

namespace bowline::text {

class AddedTokens {
 public:
  // Merges tokens with equal content. Errors  bad_file: there are too many tokens.
  static Result<AddedTokens> create(std::vector<AddedToken> tokens,
                                    const std::vector<Normalizer>& normalizers);

  // Cuts the text at the tokens with this value of `normalized`. `special`: also at special tokens.
  Status split(Pieces& pieces, bool normalized, bool special) const;
  // Null if no added token has this id.
  const AddedToken* find(int32_t id) const;
  bool is_special(int32_t id) const {
    const AddedToken* token = find(id);
    return token != nullptr && token->special;
  }

 private:
  struct Places {
    bool any = false;
    ByteTrie trie;
    std::array<bool, 256> begins{};
  };
  Status split(std::string_view text, const Places& places, bool special,
               std::vector<Piece>& out) const;

  std::vector<AddedToken> tokens_;  // by id
  std::array<Places, 2> places_;    // of plain tokens and of normalized tokens
};

}  // namespace bowline::text
