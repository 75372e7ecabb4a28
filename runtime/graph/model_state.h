// What a Model owns: the table, the graphs, and what the file carries besides.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "model/description.h"
#include "params/table.h"
#include "params/weight_format.h"

namespace bowline::detail::graph {

using NamedDim = DimInfo;
static_assert(DimLimits{}.max == kMaxDim);

// A Session or Trainer that is made from a model.
class User {
 public:
  // The model has left the device: frees what lies there.
  virtual void leave_device() = 0;
  // A Trainer whose gradients belong to the table as it is.
  virtual bool accumulates() const { return false; }

 protected:
  ~User() = default;
};

struct ModelState {
  uint64_t id = next_id();  // of the handles of its parameters
  params::Table table;
  std::vector<GenericGraph> graphs;  // entry points; Repeat bodies hang on their nodes
  std::vector<NamedDim> dims;

  std::vector<std::shared_ptr<const WeightFormat>> formats = {
      std::make_shared<const WeightFormat>(params::flat_format())};

  std::atomic<int> busy = 0;  // who reads the storages now; verbs that would change them refuse
  std::vector<User*> users;
  User* trainer = nullptr;  // at most one of them owns the training state

  // Kept as they are from load to save; the bytes of assets and self-tests stay in their file. A
  // model without them whose storages have left its file gives it back.
  std::vector<model::Asset> assets;
  std::optional<BaseInfo> base;
  Settings metadata;
  std::vector<model::SelfTest> self_tests;
  std::optional<model::TrainingState> training;  // of a checkpoint, until a Trainer begins

  // Errors  bad_argument: the handle is of another model, or of none.
  Result<uint32_t> number_of(Parameter p) const {
    BOWLINE_REQUIRE(p.model == id && p.index < table.parameters.size(),
                    p.model == 0 ? "The handle names no parameter."
                                 : "The parameter belongs to another model.");
    return p.index;
  }

  // The numbers of parameters change: handles are not valid any more.
  void renumbered() { id = next_id(); }

  const GenericGraph* find_graph(std::string_view name) const {
    for (const GenericGraph& g : graphs) {
      if (g.name == name) {
        return &g;
      }
    }
    return nullptr;
  }

 private:
  static uint64_t next_id() {
    static std::atomic<uint64_t> next = 1;
    return next++;
  }
};

// A run of a Session or Trainer: while it lives, verbs that would change what it reads return
// bad_argument.
class Running {
 public:
  explicit Running(ModelState& model) : model_(model) { ++model_.busy; }
  ~Running() { --model_.busy; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  ModelState& model_;
};

// Values that stand for the named dims while a generic graph is checked: small primes, one per dim,
// inside its limits.
std::vector<BoundDim> probe_dims(const std::vector<NamedDim>& dims);

}  // namespace bowline::detail::graph
