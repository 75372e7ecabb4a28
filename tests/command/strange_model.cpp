// Writes a small model whose names and metadata contain characters that must not reach a terminal
// or a browser unchanged.
#include "writer_main.h"

using namespace bowline;

const char* const kArguments = "FILE";

Status write_model(const std::string& path, const Options&) {
  Model model;
  const int64_t shape[] = {4, 4};
  const Result<Parameter> a = model.parameter("w\u009b31m\u202e", shape, Init::normal(1));
  if (!a.ok()) {
    return a.status();
  }
  if (const auto b = model.tied_parameter("b, c", a.value()); !b.ok()) {
    return b.status();
  }
  GraphBuilder graph(model, "en\u2066try");
  const Value x = graph.input("x\u200b", DType::f32, {"rows", 4});
  graph.output("y", graph.op("Linear", {x, graph.parameter(a.value())}));
  if (Status s = graph.finish(); !s.ok()) {
    return s;
  }
  if (Status s = model.set_metadata("tokenizer", "\x1b]0;title\x07\x1b[2J\nforged = line");
      !s.ok()) {
    return s;
  }
  // The name must not act in a browser.
  if (const auto c = model.parameter("<svg onload=\"alert('&amp;')\">", shape, Init::normal(1));
      !c.ok()) {
    return c.status();
  }
  if (Status s = model.set_metadata("<img src=x>", "</script><script>alert(1)</script><!--");
      !s.ok()) {
    return s;
  }
  if (Status s = model.materialize(1); !s.ok()) {
    return s;
  }
  return model.save(path);
}
