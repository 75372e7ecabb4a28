#include "finetune/checks.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/status.h"
#include "common/files.h"
#include "finetune/optimizer_flags.h"

namespace bowline::command {
namespace {

// The folder of an output file must exist before the work begins.
Status check_folder(const char* flag, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  BOWLINE_REQUIRE(path.empty() || folder.empty() || std::filesystem::is_directory(folder, error),
                  "The folder of {} \"{}\" does not exist. Create it first.", flag, path);
  return {};
}

// Output paths must differ from all other paths, with two exceptions: --out may be the model with
// --force, and --tensorboard may be the folder of --checkpoint.
Status check_places(const FinetuneOptions& o) {
  const std::string resume = o.resume == "none" || o.resume == "auto" ? "" : o.resume;
  const std::vector<std::pair<const char*, std::string>> read = {
      {"the model", o.model}, {"--data", o.data}, {"--valid", o.valid}, {"--resume", resume}};
  const std::vector<std::pair<const char*, std::string>> written = {
      {"--out", o.out},
      {"--log", o.log},
      {"--checkpoint", o.checkpoint},
      {"--tensorboard", o.tensorboard},
      {"--report", o.report}};
  for (size_t i = 0; i < written.size(); ++i) {
    const auto& [flag, path] = written[i];
    for (const auto& [other, place] : read) {
      const bool in_place = i == 0 && other == read[0].first && o.force;
      BOWLINE_REQUIRE(in_place || !same_place(path, place), "{} and {} are the same file, \"{}\".",
                      flag, other, path);
    }
    for (size_t j = 0; j < i; ++j) {
      const bool folders = i == 3 && j == 2;
      BOWLINE_REQUIRE(folders || !same_place(path, written[j].second),
                      "{} and {} are the same file, \"{}\".", flag, written[j].first, path);
    }
  }
  return {};
}

// Rejects flags that have no effect because of other flags.
Status check_uses(const FinetuneOptions& o) {
  BOWLINE_TRY(check_optimizer_flags(o));
  BOWLINE_TRY(o.uses.check("--final-fraction", o.schedule != "constant",
                           "with --schedule constant the rate never falls"));
  for (const char* flag : {"--lora-alpha", "--lora-scale", "--lora-dropout", "--lora-target"}) {
    BOWLINE_TRY(o.uses.check(flag, o.lora.rank != 0, "--lora-rank is 0"));
  }
  BOWLINE_TRY(o.uses.check("--freeze", o.lora.rank == 0,
                           "--lora-rank trains an adapter and freezes all weights. --lora-target "
                           "chooses what the adapter changes"));
  return o.uses.check("--force", !o.out.empty() || !o.log.empty() || !o.report.empty(),
                      "it replaces --out, --log and --report, and none of them is given");
}

}  // namespace

Status check_options(const FinetuneOptions& o) {
  BOWLINE_REQUIRE(!o.out.empty() || o.dry_run || o.steps == 0 || !o.checkpoint.empty(),
                  "The run would write no weights. Give --out FILE or --checkpoint FOLDER.");
  BOWLINE_REQUIRE(o.resume != "auto" || !o.checkpoint.empty(),
                  "--resume auto looks in --checkpoint, which is not given.");
  BOWLINE_REQUIRE((o.save_every == 0 && o.save_every_batches == 0) || !o.checkpoint.empty(),
                  "--save-every writes to --checkpoint, which is not given.");
  BOWLINE_REQUIRE(o.on_nonfinite != "rollback" || o.save_every != 0 || o.save_every_batches != 0,
                  "--on-nonfinite rollback goes back to the last checkpoint: give --save-every.");
  BOWLINE_REQUIRE(!o.extend || o.resume != "none", "--extend continues a run: give --resume.");
  BOWLINE_REQUIRE((o.keep == "last" && o.patience == 0) || o.eval_every != 0,
                  "--keep best and --patience compare evaluations: give --eval-every.");
  BOWLINE_REQUIRE(!o.with_training_state || !o.out.empty(),
                  "--with-training-state belongs to --out, which is not given.");
  BOWLINE_REQUIRE(o.lora.rank == 0 || !o.with_training_state,
                  "--with-training-state writes a whole model, --lora-rank an adapter alone.");
  BOWLINE_REQUIRE(o.encoding.empty() || o.lora.rank != 0,
                  "--quantize freezes the weights, so only an adapter can be trained. Add "
                  "--lora-rank, such as --lora-rank 8.");
  BOWLINE_TRY(check_uses(o));
  BOWLINE_REQUIRE(o.eval_stride <= o.seq, "--eval-stride {} is above --seq {}.", o.eval_stride,
                  o.seq);
  BOWLINE_TRY(check_folder("--out", o.out));
  BOWLINE_TRY(check_folder("--log", o.log));
  BOWLINE_TRY(check_folder("--report", o.report));
  return check_places(o);
}

}  // namespace bowline::command
