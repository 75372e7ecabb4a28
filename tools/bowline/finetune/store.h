// The files of a run: its checkpoints and --out.
#pragma once

#include <optional>

#include "common/checkpoints.h"
#include "finetune/options.h"

namespace bowline::command {

class Store {
 public:
  explicit Store(const FinetuneOptions& options) : o_(options) {}

  // Locks the folder of --checkpoint, if it is given.
  Status open();
  // Checks that the files of the run can be written. `step` and `saved`: step and config of the
  // checkpoint that the run resumes.
  Status probe(const Model& model, const Config& saved, uint64_t step);
  // Adds the hash of an --out file to the config if an earlier part of the run wrote this file. A
  // resumed run may then replace it.
  void append_to(Config& config) const;
  // Lets save() prune the checkpoints of this run in --checkpoint up to `resumed`.
  // Errors  bad_file: the folder has a checkpoint of another run, which must not be overwritten.
  Status adopt(const std::string& resumed, const Config& config);

  // Returns the first trained f32 parameter with a non-finite value or moment. Empty: all are
  // finite.
  static Result<std::string> find_not_finite(const Model& model);

  // Writes a checkpoint to --checkpoint, or to a new folder beside --out. Keeps only the last two
  // checkpoints of this run.
  Status save(const Trainer& trainer, const Progress& progress);
  Status save_best(const Trainer& trainer, const Progress& progress);
  // True if the state after `samples` samples is saved.
  bool saved(uint64_t samples) const { return samples_ == samples; }
  void set_saved(uint64_t samples, std::string path);
  const std::string& last() const { return last_; }
  std::string best() const { return best_checkpoint(folder()); }
  std::string folder() const { return lock_ ? folder_ : o_.checkpoint; }

  // Errors  bad_argument: --out exists and may not be replaced. Another process may have created it
  //         during the run.
  Status check_out() const;
  // Called after a successful run. Removes the folder beside --out that save() made without
  // --checkpoint.
  void finish();

 private:
  Status lock_folder();
  bool is_ours(const std::string& weights, const Config& saved) const;

  const FinetuneOptions& o_;
  std::optional<FolderLock> lock_;
  std::string folder_;             // that is locked
  std::vector<std::string> mine_;  // checkpoints of this run, the oldest first
  std::optional<uint64_t> samples_;
  std::string last_;
  bool replace_out_ = false;
  std::string replaced_;  // weights_hash of an --out that an earlier part of this run wrote
};

}  // namespace bowline::command
