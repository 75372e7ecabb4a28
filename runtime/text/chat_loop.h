// The elements of a `for` loop, one at a time. As in Jinja2, the condition of the loop is evaluated
// when an element is needed, because it may read a namespace that the body changes.
#pragma once

#include "text/chat_template.h"

namespace bowline::text::chat {

struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // enclosing scope
  const std::vector<Value>* items = nullptr;
  size_t next = 0;             // index into `items` of the next element to examine
  int64_t index0 = -1;         // of the current iteration
  std::optional<Value> ahead;  // already found element for the next iteration
  std::optional<int64_t> length;
  bool settled = false;  // all remaining `items` satisfy the condition
  Value before;
  Value current;
};

}  // namespace bowline::text::chat
