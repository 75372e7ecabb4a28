// The contents of a Model: storage table, entry points, weight formats, the Sessions and Trainer
// that use it, and metadata and assets of its file.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/threads.h"
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
  // Called when the model has left its device: frees the memory on that device.
  virtual void leave_device() = 0;
  // Whether a Trainer holds gradients of an unfinished step, so that the table must not change.
  virtual bool accumulates() const { return false; }
  // Whether a failure of a Trainer left the weights partly written.
  virtual bool is_damaged() const { return false; }

 protected:
  ~User() = default;
};

// The Sessions and the Trainer of a model, and the number of runs that use its storages now.
class Users {
 public:
  void add(User& user) { users_.push_back(&user); }
  void remove(User& user) {
    std::erase(users_, &user);
    trainer_ = trainer_ == &user ? nullptr : trainer_;
  }
  // Makes a user the Trainer of the model. A model has at most one.
  void set_trainer(User& user) { trainer_ = &user; }
  const User* trainer() const { return trainer_; }
  void leave_device() const {
    for (User* user : users_) {
      user->leave_device();
    }
  }
  // The number of active and pending runs. Verbs that change storages fail unless it is 0.
  int busy() const { return busy_ + pending_; }
  int active() const { return busy_; }
  // A submitted run is pending from begin_pending() to end_pending().
  void begin_pending() { ++pending_; }
  void end_pending() { --pending_; }

 private:
  friend class Running;
  friend class Quiet;

  std::vector<User*> users_;
  User* trainer_ = nullptr;
  std::atomic<int> busy_ = 0;
  std::atomic<int> pending_ = 0;
  // The runs and Model::copy_values_from() take turns.
  device::Turns turns_;
  std::atomic<ThreadId> inside_{};  // the thread that has the turn
  uint32_t forks_ = device::forks();
};

// The graphs of a model and their named dimensions.
struct EntryPoints {
  std::vector<GenericGraph> graphs;  // entry points; a Repeat node owns its body
  std::vector<NamedDim> dims;

  const GenericGraph* find(std::string_view name) const {
    const auto at = std::ranges::find(graphs, name, &GenericGraph::name);
    return at == graphs.end() ? nullptr : &*at;
  }
  const NamedDim* find_dim(std::string_view name) const {
    const auto at = std::ranges::find(dims, name, &NamedDim::name);
    return at == dims.end() ? nullptr : &*at;
  }
  // Returns example sizes of the dims, with which generic graphs are checked: a small prime per
  // dim, inside its limits.
  std::vector<BoundDim> probes() const;
};

// The weight formats of a model. Their names are unique.
class WeightFormats {
 public:
  std::span<const std::shared_ptr<const WeightFormat>> all() const { return formats_; }
  // Returns null if there is no format of this name.
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

// Contents of the file that load and save do not change. The bytes of assets and self-tests stay in
// the file. The file is closed when neither they nor a storage need it.
struct FileExtras {
  std::vector<model::Asset> assets;
  std::optional<BaseInfo> base;
  Settings metadata;
  std::vector<model::SelfTest> self_tests;
  std::optional<model::TrainingState> training;  // of a checkpoint, until a Trainer takes it
};

struct ModelState {
  params::Table table;
  EntryPoints entry_points;
  WeightFormats formats;
  Users users;
  FileExtras extras;

  Parameter handle_of(uint32_t parameter) const { return {parameter, id_}; }
  // Returns the number of a parameter.
  // Errors  bad_argument: the handle belongs to another model or to no model.
  Result<uint32_t> number_of(Parameter p) const {
    BOWLINE_REQUIRE(p.model == id_ && p.index < table.parameters.size(),
                    p.model == 0 ? "The handle names no parameter."
                                 : "The parameter belongs to another model.");
    return p.index;
  }
  // Invalidates all handles, because the numbers of parameters have changed.
  void renumbered() { id_ = next_id(); }

 private:
  static uint64_t next_id() {
    static std::atomic<uint64_t> next = 1;
    return next++;
  }

  uint64_t id_ = next_id();  // handles contain it
};

// While the object lives, no other thread runs a Session or Trainer of the model.
class Quiet {
 public:
  explicit Quiet(ModelState& model)
      : users_(model.users),
        // After a fork, the thread that had the turn does not exist in this process.
        takes_turn_(users_.inside_ != this_thread() && users_.forks_ == device::forks()) {
    if (takes_turn_) {
      users_.turns_.lock();
      users_.inside_ = this_thread();
    }
  }
  ~Quiet() {
    if (takes_turn_) {
      users_.inside_ = ThreadId();
      users_.turns_.unlock();
    }
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  Users& users_;
  bool takes_turn_;
};

// Marks a run of a Session or Trainer. While the object lives, verbs that would change storages
// return bad_argument.
class Running {
 public:
  explicit Running(ModelState& model) : quiet_(model), users_(model.users) { ++users_.busy_; }
  ~Running() { --users_.busy_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Quiet quiet_;
  Users& users_;
};

}  // namespace bowline::detail::graph
