// The text model in a model of texts and images.
#pragma once

#include "source/source.h"

namespace bowline::huggingface {

// If the config describes a model of texts and images, replaces it by the config of its text model.
// Otherwise changes nothing. Call it before the tensors are read.
// Errors  bad_file: a value is malformed.
//         unsupported: a key is unknown, or the kind of the text model is.
Status take_text_config(import::Source& source);

// Gives the tensors of the text model the names that they have in a model of texts alone. The
// others are of `source.other_parts`. For a source whose config was not replaced, changes nothing.
void name_text_tensors(import::Source& source);

}  // namespace bowline::huggingface
