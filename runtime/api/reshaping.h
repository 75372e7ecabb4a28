// Checks that functions of Model make first, and wrappers for functions that change storages.
#pragma once

#include "base/boundary.h"
#include "bowline.h"
#include "graph/bind.h"
#include "graph/model_state.h"

namespace bowline {

// Fails between the micro-batches of a training step: the gradients of the unfinished step belong
// to the current ties, shapes and frozen flags.
inline Status require_no_accumulation(const graph::ModelState& model, std::string_view verb) {
  BOWLINE_REQUIRE(model.users.trainer() == nullptr || !model.users.trainer()->accumulates(),
                  "The model is busy: a step is unfinished, and {} would change the parameters of "
                  "its gradients. Finish the step, or call Trainer::restart_step().",
                  verb);
  return {};
}

// Fails if a Trainer exists: it cannot train quantized values.
inline Status require_no_trainer(const graph::ModelState& model, std::string_view verb) {
  BOWLINE_REQUIRE(model.users.trainer() == nullptr,
                  "The model is busy: {} would change parameters that a Trainer uses. Destroy the "
                  "Trainer first.",
                  verb);
  return {};
}

// Calls a function that may change shapes and dtypes of storages. It works on a copy of the table,
// with which all graphs are checked before the model changes.
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

// As guarded(), for a function that changes the bytes of storages. Afterwards, weight formats are
// applied to the changed storages again.
template <class Verb>
auto changing(const std::shared_ptr<graph::ModelState>& state, const Verb& verb) {
  return guarded(state, "model", [&](graph::ModelState& s) {
    auto result = verb(s);
    if (result.ok()) {
      // If there is no memory for a format, the storages stay as they are.
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
