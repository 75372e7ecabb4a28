// The elements that a `for` goes through, one at a time: what its condition says is asked when an
// element is needed, as Jinja2 does, since the condition may read a namespace that the body
// changes.
#pragma once

#include "text/chat_template.h"

namespace bowline::text::chat {

struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop
  const std::vector<Value>* items = nullptr;
  size_t next = 0;             // of `items`, not looked at yet
  int64_t index0 = -1;         // of the iteration
  std::optional<Value> ahead;  // found already, for the iteration behind this one
  std::optional<int64_t> length;
  bool settled = false;  // the condition holds for what `items` still has
  Value before;
  Value current;
};

}  // namespace bowline::text::chat
