// Entries of the metadata that say what is tied, as other programs write them.
//
//   "tied_to.<parameter>" = "<parameter>"     the two show one storage
//   "tie_word_embeddings" = "true", "false"   some storage is the table of an Embedding and the
//       matrix of a product too; or none is
//
// What is tied stands in the table of a model, and nowhere else: an entry that says something else
// is a mistake of its writer.
#pragma once

#include "graph/model_state.h"

namespace bowline::detail::graph {

// Errors  bad_file: an entry contradicts the table, with the parameters and what to do.
Status check_tie_metadata(const ModelState& model);

// The metadata, with such entries as the table has them.
Settings true_metadata(const ModelState& model);

}  // namespace bowline::detail::graph
