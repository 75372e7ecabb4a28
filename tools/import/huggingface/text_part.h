// The text model in a model of texts and images.
#pragma once

#include "source/source.h"

namespace bowline::huggingface {

// If the config is of Gemma 3 or Mistral 3 with images, replaces it by that of the text model, and
// sets `source.other_parts`. Otherwise changes nothing.
// Errors  bad_file: a value is malformed.
//         unsupported: a key is unknown, or the text model is of an unsupported kind.
Status take_text_config(import::Source& source);

// Removes "language_model." from the names of tensors. Other names stay. Call it after the tensors
// are read. Changes nothing if take_text_config() replaced no config.
void name_text_tensors(import::Source& source);

}  // namespace bowline::huggingface
