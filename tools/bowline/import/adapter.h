// bowline import --base: an adapter of peft or of llama.cpp as one of Bowline.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

struct AdapterImport {
  std::string from;  // a folder of peft, or a GGUF file
  std::string base;  // the model that it is for
  std::string out;
  std::string name;
};
// Writes the file of the adapter. Errors  as peft::read_adapter(), peft::read_gguf_adapter() and
// save_adapter().
Result<AdapterReport> import_adapter(const AdapterImport& o);

}  // namespace bowline::command
