// Metadata entries about ties, as other programs write them.
//
//   "tied_to.<parameter>" = "<parameter>"   the two parameters are tied
//   "tie_word_embeddings" = "true"          an Embedding and a matrix product share a storage
//   "tie_word_embeddings" = "false"         there is no such storage
//
// Only the storage table decides which parameters are tied. An entry that contradicts it is an
// error of the program that wrote the file.
#pragma once

#include "graph/model_state.h"

namespace bowline::detail::graph {

// Checks the entries against the table.
// Errors  bad_file: an entry contradicts the table. The message says which, and what to do.
Status check_tie_metadata(const ModelState& model);

// Returns the metadata. Entries about ties are corrected to match the table.
Settings true_metadata(const ModelState& model);

}  // namespace bowline::detail::graph
