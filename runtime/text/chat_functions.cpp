// Calls of functions, and the global functions.
#include "text/chat_functions.h"

#include "base/escape.h"

namespace bowline::text::chat {
namespace {

Result<Value> range(Renderer& r, const Value&, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const int64_t first, a.integer(0, "", 0));
  const bool from_zero = a.positional.size() < 2;
  BOWLINE_TRY_ASSIGN(const int64_t stop, a.integer(1, "", first));
  BOWLINE_TRY_ASSIGN(const int64_t step, a.integer(2, "", 1));
  const int64_t start = from_zero ? 0 : first;
  constexpr int64_t kMost = 100'000;  // the limit of Jinja2's sandbox
  BOWLINE_REQUIRE_FILE(!a.positional.empty() && step != 0, "A range has no end, or a step of 0.");
  std::vector<Value> out;
  for (int64_t n = start; step > 0 ? n < stop : n > stop;) {
    BOWLINE_REQUIRE_FILE(static_cast<int64_t>(out.size()) != kMost,
                         "A range has more than {} elements.", kMost);
    out.push_back(Value::of(n));
    if (__builtin_add_overflow(n, step, &n)) {
      break;
    }
  }
  return r.heap().list(std::move(out), Kind::list, "range");
}

// namespace() and dict(), from named arguments or from a dict.
template <Kind kind>
Result<Value> dict(Renderer& r, const Value&, Arguments& a) {
  std::vector<Pair> pairs;
  if (const Value* from = a.take(0, "")) {
    BOWLINE_REQUIRE_FILE(from->kind == Kind::dict, "A dict made of {} is not supported.",
                         described(from->kind));
    pairs = *from->dict;
  }
  BOWLINE_TRY_ASSIGN(const Value out, r.heap().dict(std::move(pairs), kind));
  for (const auto& [name, value] : a.named) {
    a.take(SIZE_MAX, name);
    BOWLINE_TRY_ASSIGN(const Value* known, find(r.heap(), out, Value::of(name)));
    BOWLINE_REQUIRE_FILE(known == nullptr && (kind != Kind::name_space || !name.starts_with('_')),
                         "The name {} of a dict occurs twice.", quoted(name));
    out.dict->emplace_back(Value::of(name), value);
  }
  return out;
}

Result<Value> formatted_now(Renderer& r, const Value&, Arguments& a) {
  BOWLINE_TRY_ASSIGN(const auto layout, a.text(0, "format"));
  BOWLINE_TRY(a.require_taken());
  BOWLINE_REQUIRE_FILE(layout, "\"strftime_now\" lacks a layout.");
  BOWLINE_TRY_ASSIGN(std::string text, time_text(r.heap(), *layout, r.now().value_or(0)));
  return r.heap().text(std::move(text));
}

Result<Value> raise_exception(Renderer& r, const Value&, Arguments& a) {
  std::string_view text;
  if (const Value* message = a.take(0, "message")) {
    BOWLINE_TRY_ASSIGN(text, printed(r.heap(), *message));
  }
  return Status(Code::bad_argument, "The chat template rejects the conversation: " + escaped(text));
}

constexpr NamedFunction kGlobals[] = {{"range", range},
                                      {"namespace", dict<Kind::name_space>},
                                      {"dict", dict<Kind::dict>},
                                      {"strftime_now", formatted_now},
                                      {"raise_exception", raise_exception}};

}  // namespace

Function global_of(std::string_view name) { return function_of(kGlobals, name); }

Result<Value> Renderer::call(Function function, const Value& of, Arguments& arguments) {
  BOWLINE_TRY(heap_.step());
  BOWLINE_TRY_ASSIGN(const Value out, function(*this, of, arguments));
  BOWLINE_TRY(arguments.require_taken());
  return out;
}

}  // namespace bowline::text::chat
