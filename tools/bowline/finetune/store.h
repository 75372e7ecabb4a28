// Where the work of a run is kept: its checkpoints, and the file of --out.
#pragma once

#include <optional>

#include "common/checkpoints.h"
#include "finetune/options.h"

namespace bowline::command {

class Store {
 public:
  explicit Store(const FinetuneOptions& options) : o_(options) {}

  // Takes --checkpoint, if it is given.
  Status open();
  // Checks that the files of the run can be written, which goes on from `step`. `saved`: what the
  // checkpoint there says.
  Status probe(const Model& model, const Config& saved, uint64_t step);
  // Notes in a checkpoint which older output of its own the run is going to replace.
  void append_to(Config& config) const;
  // Of this run in --checkpoint, not after `resumed`: these are pruned as its own. Errors
  // bad_file: there is one of
  // another run, which must not be overwritten.
  Status adopt(const std::string& resumed, const Config& config);

  // The first trained parameter whose values or moments are not all finite; empty: there is none.
  static Result<std::string> find_not_finite(const Model& model);

  // Goes to --checkpoint, else to a new folder beside --out.
  Status save(const Trainer& trainer, const Progress& progress);
  Status save_best(const Trainer& trainer, const Progress& progress);
  // Not yet saved since the run began or went on from `samples`.
  bool saved(uint64_t samples) const { return samples_ == samples; }
  void set_saved(uint64_t samples, std::string path);
  const std::string& last() const { return last_; }
  std::string best() const { return best_checkpoint(folder()); }
  std::string folder() const { return folder_ ? folder_->path() : o_.checkpoint; }

  // Another process may have made the file meanwhile.
  Status check_out() const;
  // The run has ended well: what a folder that nobody asked for holds is no longer needed.
  void finish();

 private:
  Status take_folder();
  bool is_ours(const std::string& weights, const Config& saved) const;

  const FinetuneOptions& o_;
  std::optional<CheckpointFolder> folder_;
  std::optional<uint64_t> samples_;
  std::string last_;
  bool replace_out_ = false;
  std::string replaced_;  // weights_hash of an --out that an earlier part of this run wrote
};

}  // namespace bowline::command
