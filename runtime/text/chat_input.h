// Values of a chat template from JSON.
#pragma once

#include "text/chat_value.h"

namespace bowline::text::chat {

// As json.loads() of Python: of equal keys of an object, the last counts. `what`: for messages.
// Errors  bad_argument: the text is not JSON, or has an integer that does not fit into 64 bits.
Result<Value> value_of_json(Heap& heap, std::string_view text, std::string_view what);

}  // namespace bowline::text::chat
