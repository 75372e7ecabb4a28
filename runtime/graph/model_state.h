// What a Model owns: the table, the entry points, the weight formats, who uses it, and what its
// file carries besides.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
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

// The Sessions and the Trainer of a model, and how many runs read its storages now.
class Users {
 public:
  void add(User& user) { users_.push_back(&user); }
  void remove(User& user) {
    std::erase(users_, &user);
    trainer_ = trainer_ == &user ? nullptr : trainer_;
  }
  // Makes one of the users the owner of the training state, of which there is at most one.
  void set_trainer(User& user) { trainer_ = &user; }
  const User* trainer() const { return trainer_; }
  void leave_device() const {
    for (User* user : users_) {
      user->leave_device();
    }
  }
  // Verbs that would change the storages refuse unless it is 0.
  int busy() const { return busy_; }

 private:
  friend class Running;

  std::vector<User*> users_;
  User* trainer_ = nullptr;
  std::atomic<int> busy_ = 0;
};

// The graphs of a model and the dims that they name.
struct EntryPoints {
  std::vector<GenericGraph> graphs;  // Repeat bodies hang on their nodes
  std::vector<NamedDim> dims;

  const GenericGraph* find(std::string_view name) const {
    const auto at = std::ranges::find(graphs, name, &GenericGraph::name);
    return at == graphs.end() ? nullptr : &*at;
  }
  const NamedDim* find_dim(std::string_view name) const {
    const auto at = std::ranges::find(dims, name, &NamedDim::name);
    return at == dims.end() ? nullptr : &*at;
  }
  // Values that stand for the dims while a generic graph is checked: small primes, one per dim,
  // inside its limits.
  std::vector<BoundDim> probes() const;
};

// The weight formats that a model knows, by unique names.
class WeightFormats {
 public:
  std::span<const std::shared_ptr<const WeightFormat>> all() const { return formats_; }
  // Null: there is none of this name.
  std::shared_ptr<const WeightFormat> find(std::string_view name) const {
    const auto at = std::ranges::find(formats_, name, [](const auto& f) { return f->name; });
    return at == formats_.end() ? nullptr : *at;
  }
  // Errors  bad_argument: the name is taken.
  Status add(WeightFormat format) {
    BOWLINE_REQUIRE(find(format.name) == nullptr, "There is a weight format \"{}\" already.",
                    format.name);
    formats_.push_back(std::make_shared<const WeightFormat>(std::move(format)));
    return {};
  }

 private:
  std::vector<std::shared_ptr<const WeightFormat>> formats_ = {
      std::make_shared<const WeightFormat>(params::flat_format())};
};

// What is kept as it is from load to save. The bytes of assets and self-tests stay in their file. A
// model without them whose storages have left its file gives it back.
struct FileExtras {
  std::vector<model::Asset> assets;
  std::optional<BaseInfo> base;
  Settings metadata;
  std::vector<model::SelfTest> self_tests;
  std::optional<model::TrainingState> training;  // of a checkpoint, until a Trainer begins
};

struct ModelState {
  params::Table table;
  EntryPoints entry_points;
  WeightFormats formats;
  Users users;
  FileExtras extras;

  Parameter handle_of(uint32_t parameter) const { return {parameter, id_}; }
  // Errors  bad_argument: the handle is of another model, or of none.
  Result<uint32_t> number_of(Parameter p) const {
    BOWLINE_REQUIRE(p.model == id_ && p.index < table.parameters.size(),
                    p.model == 0 ? "The handle names no parameter."
                                 : "The parameter belongs to another model.");
    return p.index;
  }
  // The numbers of parameters change: handles are not valid any more.
  void renumbered() { id_ = next_id(); }

 private:
  static uint64_t next_id() {
    static std::atomic<uint64_t> next = 1;
    return next++;
  }

  uint64_t id_ = next_id();  // of the handles
};

// A run of a Session or Trainer: while it lives, verbs that would change what it reads return
// bad_argument.
class Running {
 public:
  explicit Running(ModelState& model) : users_(model.users) { ++users_.busy_; }
  ~Running() { --users_.busy_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Users& users_;
};

}  // namespace bowline::detail::graph
