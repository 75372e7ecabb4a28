// bowline finetune: trains a model on a text, with checkpoints.
#include "finetune/run.h"
#include "verb.h"

namespace bowline::command {
namespace {

void add_data(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("model", o.model, "Model file with the entry point 'loss' (tokens, labels)")
      ->required();
  verb->add_option("--data", o.data, "Text to train on: plain UTF-8")->required();
  verb->add_option("--valid", o.valid, "Held-out text (default: the last 10 percent of the data)");
  verb->add_option("--out", o.out, "Where the tuned model is written");
  verb->add_option("--log", o.log,
                   "Loss log: a line per step with step, loss, gradient norm, learning rate");
}

void add_training(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--steps", o.steps, "Training steps of the whole run")->capture_default_str();
  verb->add_option("--batch", o.batch, "Windows per batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--seq", o.seq, "Bytes per window")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--accumulate", o.accumulate, "Batches per step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  verb->add_option("--learning-rate", o.learning_rate, "Largest learning rate")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--warmup", o.warmup, "Steps over which the rate rises from 0")
      ->capture_default_str();
  verb->add_option("--schedule", o.schedule, "How the rate falls after that")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->capture_default_str();
  verb->add_option("--final-fraction", o.final_fraction, "Of the learning rate, at the last step")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--optimizer", o.optimizer, "Optimizer")
      ->check(CLI::IsMember({"adamw", "sgd"}))
      ->capture_default_str();
  verb->add_option("--weight-decay", o.weight_decay, "Of matrices")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--beta2", o.beta2, "Of AdamW")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--momentum", o.momentum, "Of SGD")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--clip", o.clip, "Largest global gradient norm; 0: not clipped")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--seed", o.seed, "Of the order of the data and of dropout")
      ->capture_default_str();
}

void add_rest(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--eval-every", o.eval_every,
                   "Steps between held-out evaluations (default: before and after only)");
  verb->add_option("--eval-batches", o.eval_batches,
                   "Most batches of an evaluation (default: the whole text)");
  verb->add_option("--eval-stride", o.eval_stride,
                   "Bytes between held-out windows (default: --seq); less gives more context");
  verb->add_option("--checkpoint", o.checkpoint, "Folder for checkpoints; the last two are kept");
  verb->add_option("--save-every", o.save_every,
                   "Steps between checkpoints (default: at the end and at Ctrl-C only)");
  verb->add_option("--save-every-batches", o.save_every_batches,
                   "Batches between checkpoints, within a step too");
  verb->add_option("--resume", o.resume,
                   "auto: the newest checkpoint that is whole; none; or a checkpoint file")
      ->capture_default_str();
  verb->add_option("--device", o.device, "Device, as 'bowline devices' lists it, or best")
      ->capture_default_str();
  verb->add_option("--threads", o.threads, "CPU threads (default: one per core)")
      ->check(CLI::Range(0, 1024));
  verb->add_flag("--dry-run", o.dry_run, "Print what would be done, and the memory that it takes");
  verb->add_option("-o,--output", o.output, "json: a summary on stdout, progress on stderr")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void add_finetune(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(
      app, "finetune", "Trains a model on a text",
      "bowline finetune base.bowline --data notes.txt --steps 300 --checkpoint run --save-every 50 "
      "--resume auto --out tuned.bowline");
  auto options = std::make_shared<FinetuneOptions>();
  add_data(verb, *options);
  add_training(verb, *options);
  add_rest(verb, *options);
  on_run(verb, context, [options] { return finetune(*options); });
}

}  // namespace bowline::command
