// The run of an entry point, or the training step, that `profile` and `tune` measure.
#pragma once

#include <functional>

#include "common/flags.h"
#include "common/inputs.h"

namespace bowline::command {

struct SubjectOptions : ModelOptions {
  std::string entry;
  std::string compute = "f32";
  std::vector<std::string> inputs;
  std::vector<std::string> steps_given;
  DimFlags dims;
  bool train = false;
};
// Adds the flags of SubjectOptions, without the model and the format.
void add_subject(CLI::App* verb, SubjectOptions& options);

class Subject {
 public:
  // Reads the flags. `options` outlives the subject.
  // Errors  bad_argument: a flag is wrong.
  static Result<Subject> read(const SubjectOptions& options, Model model);
  // Moves the model to the device, with full caches. A skeleton gets random values.
  Status place(const Device& device);

  // A session or trainer.
  struct Calls {
    std::function<Status()> run;
    std::function<Result<std::vector<NodeTime>>()> profile;
  };
  // Makes the plans. They refer to the inputs of the subject.
  Result<Calls> calls();

  const std::string& entry() const { return entry_.name; }
  // "run of forward", "training step of loss".
  std::string title() const;

 private:
  Subject(const SubjectOptions& options, Model model)
      : options_(&options), model_(std::move(model)) {}
  Status fill_caches();
  Result<std::string> written_caches() const;

  const SubjectOptions* options_;
  Model model_;
  std::optional<Device> device_;
  EntryPointInfo entry_;
  Inputs inputs_;
  std::vector<StepScalar> steps_;
};

// Adds advice to the error of a run whose random inputs are out of range.
Status with_advice(Status status);

}  // namespace bowline::command
