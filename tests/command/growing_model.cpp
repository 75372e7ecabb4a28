// Writes a model with a dynamic dimension "rows" and a state: y = tanh(x) for x [rows, 2]. A run
// writes the rows of x into the state "kept".
#include "writer_main.h"

using namespace bowline;

const char* const kArguments = "FILE";

Status write_model(const std::string& path, const Options&) {
  Model model;
  if (Status s = model.set_dim_limits("rows", {.max = 8, .dynamic = true}); !s.ok()) {
    return s;
  }
  const Result<Parameter> state =
      model.parameter("state", {8, 2}, Init::zeros(), StorageRole::kv_cache);
  if (!state.ok()) {
    return state.status();
  }
  GraphBuilder graph(model, "forward");
  const Value x = graph.input("x", DType::f32, {"rows", 2});
  graph.output("y", graph.op("Tanh", {x}));
  graph.output("kept", graph.op("WriteRows", {graph.parameter(state.value()), x}));
  if (Status s = graph.finish(); !s.ok()) {
    return s;
  }
  if (Status s = model.materialize(1); !s.ok()) {
    return s;
  }
  return model.save(path);
}
