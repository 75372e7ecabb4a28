// Runs entry points of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/model.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

namespace bowline::detail::exec {
class SessionState;
}

#pragma GCC visibility push(default)

namespace bowline {

struct MemoryReport {
  uint64_t storage_bytes = 0;      // weights, moments, gradients
  uint64_t copy_bytes = 0;         // copies of storages in other dtypes
  uint64_t arena_bytes = 0;        // activations, temporaries, hoisted values (SegmentInfo::name)
  uint64_t io_bytes = 0;           // inputs, outputs, step words
  uint64_t backend_bytes = 0;      // tables of the backend
  uint64_t staging_bytes = 0;      // of the device, for copies to memory that the host does not see
  uint64_t predicted_bytes = 0;    // the sum: the peak on the device, known before the first launch
  uint64_t lower_bound_bytes = 0;  // of the arena: the largest sum of live values
};

struct Counters {
  uint64_t plan_builds = 0;
  uint64_t recordings = 0;
  uint64_t submits = 0;
  // Copies of storages in other dtypes that were made again, since the storage was written: once
  // per version, in front of the submission that reads the copy. In a Session, each time the
  // hoisted values of an entry point are computed adds 1.
  uint64_t refreshes = 0;
  uint64_t transfers =
      0;  // of replicas and shards, made in the same way before a run that reads them
  uint64_t hook_fires = 0;  // calls of a GradientHook
  // What the device is given to run for one training step (accumulation counted), or for one run:
  // kernels, library calls, copies and fills on the device. 0: it is given nothing one by one.
  uint64_t launches = 0;
};

// The time that one node of a plan took on the device.
struct NodeTime {
  // "forward"; of a training step "accumulate" (forward and backward) or "update"; "refresh": a
  // copy of a storage is made again; "hoisted": values that depend only on parameters are computed
  // again
  std::string part;
  std::string name;    // as messages have it: node 17 "ln_f" (LayerNorm)
  std::string op;      // "LayerNorm"
  uint64_t count = 0;  // executions: the iterations of its Repeat
  double ns = 0;       // of all of them, nanoseconds
};

// Runs entry points of a Model on one Device, each with fixed dims. Its plans share one arena, as
// one of them runs at a time. Move-only.
class Session {
 public:
  // What an entry point reads must lie on `device` (Model::to). Errors  bad_argument: an unknown
  // entry point, a dim that is
  // not bound; storages that lie elsewhere, named with the places. unsupported: a node that the
  // device cannot run, or that cannot take a counted dim. out_of_memory: with the bytes.
  // over_budget: a plan costs more than `budget`, or all of them more memory than the device's
  // budget has left.
  static Result<Session> create(const Model& model, const Device& device,
                                std::string_view entry_point, std::span<const BoundDim> dims,
                                const Budget& budget = Budget::of_plan());
  // Several entry points, each with one or several sets of dims. Errors  as above; bad_argument:
  // two plans of one entry point
  // take inputs of the same shapes.
  static Result<Session> create(const Model& model, const Device& device,
                                std::span<const BoundEntryPoint> entry_points,
                                const Budget& budget = Budget::of_plan());
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // `inputs` by name, in any order; `outputs` are written. On an axis with a counted dim tensors
  // have as many elements as the dim has in this run: a number from its minimum to the capacity
  // that create() got, the same one in all inputs; their elements lie together, whatever the
  // capacity. Of several plans of the entry point that one runs whose inputs have the given shapes,
  // with counted dims the smallest that holds them. A changed model (generation) is planned again:
  // the old plans go first, and where the new ones do not fit there are none until a run() that
  // they fit in.
  //
  // Steps    numbers for step words of this one run. Those that are not given have their defaults:
  //          Dropout is the identity, as its `training` is 0; with `training` 1 the elements follow
  //          from `seed` and `counter`. WriteRows needs a `position`. A counted dim that no input
  //          has is given by its name; its default is the capacity.
  // Overrides  values that parameters have in this one run, by name, of their dtype and shape:
  //            every use of the tie sees them, and the
  //          model is left as it is. Their storages are copied and the plan is recorded anew, so
  //              this is for the odd run.
  // Errors   index_out_of_range: an id or label is outside its range, rows end behind a state; the
  //          node is named. bad_argument: an input or a step word is unknown, missing or of another
  //          kind, a counted dim lies outside its limits, no plan takes inputs of these shapes, the
  //          session has several entry points and none is named; an override is of an unknown
  //          parameter, of values that another one has too, or of a storage that the entry point
  //          writes; nothing ran. As create() where it plans.
  Status run(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<const StepScalar> scalars = {}, std::span<const Tensor> overrides = {});
  Status run(std::string_view entry_point, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const StepScalar> scalars = {},
             std::span<const Tensor> overrides = {});

  // A run with the device's clock around every node, in the order of execution. Nodes do not
  // overlap then, so it takes
  // longer than run(). Errors  unsupported: the device has no clock. bad_argument: another profile
  // runs on it.
  Result<std::vector<NodeTime>> profile(std::span<const Tensor> inputs,
                                        std::span<const StepScalar> scalars = {});
  Result<std::vector<NodeTime>> profile(std::string_view entry_point,
                                        std::span<const Tensor> inputs,
                                        std::span<const StepScalar> scalars = {});

  // Arena, io and backend are 0 while there is no plan: after planning failed, until run() plans
  // again.
  MemoryReport memory() const;
  Counters counters() const;
  // The plan as data. Errors  bad_argument: there is none.
  Result<PlanInfo> describe() const;
  // Numbered lines of "build", "forward"; with `columns` names of nodes too, and in "build"
  // launches and every record with its level and the offsets of its operands.
  Result<std::string> listing(std::string_view part, bool columns = false) const;

 private:
  explicit Session(std::unique_ptr<detail::exec::SessionState> state);
  std::unique_ptr<detail::exec::SessionState> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
