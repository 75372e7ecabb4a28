// What a model is trained and evaluated on: the seam between the data and a run. There is one task
// per kind of data: plain text (text_task), conversations (chat_task), texts with labels
// (classify_task).
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bowline.h"
#include "common/confusion.h"
#include "common/flag_uses.h"
#include "data/examples.h"

namespace bowline::command {

// Kinds of data.
enum DataKind : unsigned { kPlainText = 1, kConversations = 2, kExamples = 4 };

// The flags that say what the data is. What the library or the model has a default for is empty
// here.
struct DataOptions {
  std::string data;
  std::string valid;  // empty: a part of the data is held out
  int64_t batch = 8;
  int64_t seq = 256;          // of the windows of a text
  int64_t eval_stride = 0;    // between these; 0: seq
  uint64_t eval_batches = 0;  // of a longer text or more rows they are spread evenly; 0: no limit
  uint64_t seed = TrainOptions{}.seed;
  bool as_text = false;
  // Of rows.
  int64_t max_seq_length = 0;  // 0: what the model says
  bool in_order = false;
  bool pad_to_longest = false;
  bool mask_prompt = false;
  std::string chat_format;
  ExampleFields fields;
  std::string labels;
  std::string class_weights;  // "balanced", "none", or a file; empty: those of the model
  FlagUses uses;              // which flags are for which DataKind
};

// What an evaluation found.
struct Measure {
  double loss = 0;                                        // in the unit of the task
  std::optional<double> perplexity = {};                  // of what is predicted unit by unit
  std::vector<std::pair<std::string, double>> more = {};  // "accuracy", "macro_f1"
  std::optional<Confusion> confusion = {};
  std::vector<ConfusedExample> mistakes = {};  // the surest ones first
};

// "bits per byte" as "bits_per_byte".
std::string json_key(std::string unit);
// All but the confusion and the mistakes. `sizes`: of Task::sizes().
nlohmann::json json_of(const Measure& measure, const std::string& unit,
                       std::span<const std::pair<std::string, uint64_t>> sizes);

// Runs the entry point that the task evaluates by.
using Forward =
    std::function<Status(std::span<const Tensor> inputs, std::span<const Tensor> outputs)>;

class Task {
 public:
  virtual ~Task() = default;

  // The sets of dims that the batches have.
  virtual std::vector<std::vector<BoundDim>> dims() const = 0;
  // How long the windows of a text are; none where there are rows.
  virtual std::optional<int64_t> window() const { return {}; }

  // Training. Samples are counted since the run began; which ones they are follows from the seed.
  virtual uint64_t samples_per_epoch() const = 0;
  // The batch of the samples from `first` on, a multiple of the batch; it lives until the next
  // call.
  virtual std::span<const Tensor> batch(uint64_t first) = 0;
  // What the last batch has of what the speed counts: tokens, but for padding.
  virtual uint64_t tokens() const = 0;

  // Evaluation of what is held out. Errors  cancelled: a signal came; those of `forward`.
  virtual Result<Measure> evaluate(const Forward& forward) = 0;
  // The entry point that it runs: "loss", with the output "loss", or another one.
  virtual std::string evaluated() const { return "loss"; }

  // Of every loss that is shown: "bits per byte"; and one in nats in that unit.
  virtual std::string unit() const = 0;
  virtual double shown(double nats) const { return nats; }
  // "8 x 256 bytes": of so many rows.
  virtual std::string step_text(int64_t rows) const = 0;
  // What is said of the data: a name and a sentence each.
  virtual Settings describe() const = 0;
  // What is held out, as a sentence with its hash; and how much: {"bytes", 5120}.
  virtual std::string held_out() const = 0;
  virtual std::vector<std::pair<std::string, uint64_t>> sizes() const = 0;
  // What was chosen or left out while the data was read; lines for the user.
  virtual std::vector<std::string> notes() const { return {}; }

  // What must be the same for a run to go on: "81 bytes, XXH3 ..." of what is trained on, and flags
  // of this task alone.
  virtual std::string training_data() const = 0;
  virtual Settings settings() const { return {}; }
  // Of what an evaluation depends on besides the weights: equal keys make comparable losses.
  virtual std::string evaluation_key() const = 0;

  // Writes into the model what the data says of it, before it is trained, such as the names of the
  // classes.
  virtual Status prepare(Model&) const { return {}; }
};

enum class Purpose : uint8_t { training, evaluation };  // the latter: all of the data is held out

// Errors  bad_argument: a flag was given that has no effect on the kind of the data.
Status check_data_flags(const Model& model, const DataOptions& options);

// The task that `model`, of the file `path`, and the data ask for. Errors  bad_file: the model is
// of no such kind, or the data cannot
// be used; the place is named. bad_argument: a flag has no effect on the rows of the data.
Result<std::unique_ptr<Task>> make_task(const Model& model, const std::string& path,
                                        const DataOptions& options, Purpose purpose);

// How make_task() calls them.
Result<std::unique_ptr<Task>> make_text_task(const Model& model, const DataOptions& options,
                                             Purpose purpose);
Result<std::unique_ptr<Task>> make_chat_task(const Model& model, const DataOptions& options,
                                             Purpose purpose);
Result<std::unique_ptr<Task>> make_classify_task(const Model& model, const DataOptions& options,
                                                 Purpose purpose);

}  // namespace bowline::command
