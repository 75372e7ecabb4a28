// What verbs of a Model ask first, and the frame of those that change what graphs read.
#pragma once

#include "base/boundary.h"
#include "bowline.h"
#include "graph/bind.h"
#include "graph/model_state.h"

namespace bowline {

// The gradients of an unfinished step belong to the partition, shapes and flags that they were made
// with.
inline Status require_no_accumulation(const graph::ModelState& model, std::string_view verb) {
  BOWLINE_REQUIRE(model.users.trainer() == nullptr || !model.users.trainer()->accumulates(),
                  "The model is busy: an accumulation is open, and {} would change what its "
                  "gradients belong to. Finish the step, or call Trainer::restart_step().",
                  verb);
  return {};
}

// A Trainer has gradients and moments of plain values.
inline Status require_no_trainer(const graph::ModelState& model, std::string_view verb) {
  BOWLINE_REQUIRE(model.users.trainer() == nullptr,
                  "The model is busy: a Trainer lives, and {} would change what it trains.", verb);
  return {};
}

// A verb that may give storages other shapes and dtypes: the graphs are checked with them before
// anything changes.
template <class Verb>
auto reshaping(graph::ModelState& state, std::string_view name, std::optional<DType> inputs,
               const Verb& verb) -> decltype(verb(state.table)) {
  BOWLINE_TRY(require_no_accumulation(state, name));
  params::Table table = state.table;
  auto result = verb(table);
  if (!result.ok()) {
    return result;
  }
  BOWLINE_TRY_ASSIGN(std::vector<graph::GenericGraph> graphs,
                     graph::inferred(state, table, inputs));
  state.table = std::move(table);
  state.entry_points.graphs = std::move(graphs);
  return result;
}

// As guarded(), of a verb that gives storages other bytes: weight formats that were set follow
// them.
template <class Verb>
auto changing(const std::shared_ptr<graph::ModelState>& state, const Verb& verb) {
  return guarded(state, "model", [&](graph::ModelState& s) {
    auto result = verb(s);
    if (result.ok()) {
      // What has no memory for that keeps the storages as they are.
      (void)guarded([&] {
        const graph::Running held(s);  // the layout of a format may not change it
        params::keep_formats(s.table);
        return Status();
      });
    }
    return result;
  });
}

}  // namespace bowline
