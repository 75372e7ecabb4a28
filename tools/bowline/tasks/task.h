// The interface between the data and a training or evaluation run. There is one task per kind of
// data: plain text (text_task), conversations (chat_task), texts with labels (classify_task),
// groups of texts (embed_task), words with tags (tag_task).
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
enum DataKind : unsigned {
  kPlainText = 1,
  kConversations = 2,
  kExamples = 4,
  kTextGroups = 8,
  kTaggedWords = 16
};

// The flags for the data. An empty value means the default of the library or the model.
struct DataOptions {
  std::string data;
  std::string valid;  // empty: a part of the data is held out
  int64_t batch = 8;
  int64_t seq = 256;          // length of the windows of a text
  int64_t eval_stride = 0;    // distance of windows in an evaluation; 0: seq
  uint64_t eval_batches = 0;  // limit for an evaluation; the batches are spread evenly; 0: no limit
  uint64_t seed = TrainOptions{}.seed;
  bool as_text = false;
  // For all kinds but plain text.
  int64_t max_seq_length = 0;  // 0: see length_limit()
  bool in_order = false;
  bool pad_to_longest = false;
  std::string train_on = "all";  // "all-answers" or "last-answer" of conversations
  std::string chat_format;
  ExampleFields fields;
  std::string labels;
  std::string class_weights;  // "balanced", "none" or a file; empty: the weights of the model
  // For groups of texts. Below 0: the number of the model.
  std::string embed_loss = "in-batch";  // or "triplet"
  float similarity_scale = -1;
  float triplet_margin = -1;
  FlagUses uses;  // which flags are for which DataKind
};

// The result of an evaluation.
struct Measure {
  double loss = 0;                                        // in the unit of the task
  std::optional<double> perplexity = {};                  // if the task predicts tokens or bytes
  std::vector<std::pair<std::string, double>> more = {};  // "accuracy", "macro_f1"
  std::optional<Confusion> confusion = {};
  std::vector<ConfusedExample> mistakes = {};  // the most probable predictions first
};

// "bits_per_byte" for "bits per byte".
std::string json_key(std::string unit);
// Returns all fields except the confusion matrix and the mistakes. `sizes`: TaskInfo::sizes.
nlohmann::json json_of(const Measure& measure, const std::string& unit,
                       std::span<const std::pair<std::string, uint64_t>> sizes);

// Appends a setting if it is given.
inline void append_if(bool given, Settings& to, std::string key, std::string value) {
  if (given) {
    to.emplace_back(std::move(key), std::move(value));
  }
}

// Runs the entry point TaskInfo::evaluated.
using Forward =
    std::function<Status(std::span<const Tensor> inputs, std::span<const Tensor> outputs)>;

// Describes a task and its data.
struct TaskInfo {
  std::vector<std::vector<BoundDim>> dims;  // all sets of dims that batches can have
  std::optional<int64_t> window;            // length of the windows of a text
  uint64_t samples_per_epoch = 0;
  std::string trained = "loss";    // the entry point that a training runs
  std::string evaluated = "loss";  // the entry point that evaluate() runs
  std::string unit;                // of all shown losses: "bits per byte"
  double nats_per_unit = 1;
  std::string step;      // what a step has: "x 256 bytes", after the number of rows
  Settings data;         // pairs of a name and a sentence
  std::string held_out;  // the held-out data, with its hash
  std::vector<std::pair<std::string, uint64_t>> sizes;  // of the held-out data: {"bytes", 5120}
  std::vector<std::string> notes;  // for the user, about data that was cut or left out
  // A resumed run requires equal values of both: the identity of the training data ("81 bytes, XXH3
  // ..."), and the flags of this task.
  std::string training_data;
  Settings settings;
  // Identifies everything except the weights that an evaluation depends on. Losses with equal keys
  // are comparable.
  std::string evaluation_key;
};

class Task {
 public:
  virtual ~Task() = default;

  const TaskInfo& info() const { return info_; }
  // Converts nats to the unit of shown losses.
  double shown(double nats) const { return nats / info_.nats_per_unit; }

  // Returns the batch that starts at sample `first`, a multiple of the batch size. Samples are
  // numbered from the start of the run. The seed determines their order. The batch is valid until
  // the next call.
  virtual std::span<const Tensor> batch(uint64_t first) = 0;
  // Number of tokens in the last batch, without padding, for the speed.
  virtual uint64_t tokens() const = 0;

  // Evaluates the held-out data. Errors  cancelled: a signal arrived; those of `forward`.
  virtual Result<Measure> evaluate(const Forward& forward) = 0;

  // Called before training. Writes values that follow from the data into the model, such as the
  // names of the classes.
  virtual Status prepare(Model&) const { return {}; }

 protected:
  TaskInfo info_;
};

enum class Purpose : uint8_t { training, evaluation };  // evaluation: all data is held out

// Errors  bad_argument: a flag was given that has no effect on the kind of the data.
Status check_data_flags(const Model& model, const DataOptions& options);

// Creates the task for a model and its data. `path`: the file of the model, for messages.
// Errors  bad_file: no task supports the model, or the data is invalid; the message names the
//         place. bad_argument: a flag has no effect on the data.
Result<std::unique_ptr<Task>> make_task(const Model& model, const std::string& path,
                                        const DataOptions& options, Purpose purpose);

// Called by make_task().
Result<std::unique_ptr<Task>> make_text_task(const Model& model, const DataOptions& options,
                                             Purpose purpose);
Result<std::unique_ptr<Task>> make_chat_task(const Model& model, const DataOptions& options,
                                             Purpose purpose);
Result<std::unique_ptr<Task>> make_classify_task(const Model& model, const DataOptions& options,
                                                 Purpose purpose);
Result<std::unique_ptr<Task>> make_embed_task(const Model& model, const DataOptions& options,
                                              Purpose purpose);
Result<std::unique_ptr<Task>> make_tag_task(const Model& model, const DataOptions& options,
                                            Purpose purpose);

}  // namespace bowline::command
