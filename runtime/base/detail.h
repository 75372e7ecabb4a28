// The library's own namespaces lie below bowline::detail, so that a program may say `using
// namespace bowline` and still call something of its own `graph`, `device` or `train`. The library
// names them without `detail`.
#pragma once

namespace bowline {

namespace detail {}
using namespace detail;

}  // namespace bowline
