// bowline finetune: trains a model on data of its task, with checkpoints.
#include <fmt/format.h>

#include "common/data_flags.h"
#include "common/flags.h"
#include "common/numbers.h"
#include "finetune/run.h"
#include "verb.h"

namespace bowline::command {
namespace {

// The group of flags that few runs need.
constexpr const char* kAdvanced = "Advanced";

void add_files(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("model", o.model, "Model file with the entry point 'loss' (tokens, labels)")
      ->required();
  add_data(verb, o);
  verb->add_option("--valid", o.valid,
                   "Held-out data [default: valid.jsonl, or a tenth of the data]");
  verb->add_option("--out", o.out,
                   "File for the tuned model; written only if it is no worse on held-out data");
  verb->add_flag("--force", o.force, "Replace existing files of other runs");
  verb->add_flag("--with-training-state", o.with_training_state,
                 "Keep optimizer state and position in --out, as in a checkpoint")
      ->group(kAdvanced);
  verb->add_option("--log", o.log,
                   "Write step, loss, gradient norm and learning rate, one line per step");
  verb->add_option("--tensorboard", o.tensorboard, "Folder for TensorBoard event files")
      ->group(kAdvanced);
  verb->add_option("--report", o.report,
                   "Write an HTML page with curves, memory, settings and hashes");
}

void add_training(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* steps = verb->add_option("--steps,--iters", o.steps, "Steps of the whole run")
                           ->check(whole_number(0, kMostSteps))
                           ->capture_default_str();
  verb->add_option("--epochs", o.epochs, "Passes over the data, instead of --steps")
      ->check(real_number(0, 1e6))
      ->excludes(steps);
  add_windows(verb, o);
  verb->add_flag("--in-order", o.in_order,
                 "Use the rows in the order of the file [default: shuffled by --seed]")
      ->group(kAdvanced);
  verb->add_option("--accumulate", o.accumulate,
                   "Micro-batches per optimizer step (gradient accumulation)")
      ->check(whole_number(1, 1 << 16))
      ->capture_default_str();
  verb->add_option("--on-nonfinite", o.on_nonfinite,
                   "Non-finite loss: skip the step, stop, or go back to the last checkpoint")
      ->check(CLI::IsMember(std::vector<std::string>(kOnNonFinite.begin(), kOnNonFinite.end())))
      ->capture_default_str()
      ->group(kAdvanced);
  verb->add_option("--seed", o.seed, "Seed of the order of the data and of dropout")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
}

void add_optimizer(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--learning-rate", o.learning_rate, "Peak learning rate")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  verb->add_option("--head-learning-rate", o.head_learning_rate,
                   "Peak learning rate of classifier.* [default: --learning-rate]")
      ->check(real_number(0, 1e6))
      ->group(kAdvanced);
  verb->add_option("--freeze", o.freeze,
                   "Pattern of parameters not to train, such as \"embeddings.*\"; several allowed")
      ->allow_extra_args(false);
  verb->add_option(
      "--class-weights", o.class_weights,
      "balanced, none, or a JSON file {label: weight} [default: weights of the model]");
  verb->add_option("--warmup", o.warmup, "Warmup steps")
      ->check(whole_number(0, kMostSteps))
      ->capture_default_str();
  verb->add_option("--schedule", o.schedule, "Learning rate after the warmup")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->capture_default_str();
  verb->add_option("--final-fraction", o.final_fraction,
                   "Learning rate of the last step, as a fraction of the peak")
      ->check(real_number(0, 1))
      ->capture_default_str()
      ->group(kAdvanced);
  verb->add_option("--optimizer", o.optimizer, "Optimizer")
      ->check(CLI::IsMember(
          std::vector<std::string>(optimizer_names().begin(), optimizer_names().end())))
      ->capture_default_str();
  verb->add_option("--weight-decay", o.weight_decay,
                   "Of matrices: decoupled with adamw, lion and adafactor, else L2")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  verb->add_option("--beta1", o.beta1, "Of adamw and lion (default: 0.9)")
      ->check(real_number_below(0, 1));
  verb->add_option("--beta2", o.beta2, "Of adamw (default: 0.999) and lion (0.99)")
      ->check(real_number_below(0, 1));
  verb->add_option("--eps", o.eps,
                   "Of adamw and rmsprop (default: 1e-8), adagrad (1e-10), adafactor (2^-23)")
      ->check(real_number(0, 1e6));
  verb->add_option("--momentum", o.momentum, "Of sgd and rmsprop")
      ->check(real_number_below(0, 1))
      ->capture_default_str();
  verb->add_option("--alpha", o.alpha,
                   "Of rmsprop: what stays of the mean of squares (default: 0.99)")
      ->check(real_number_below(0, 1));
  verb->add_flag("--centered", o.centered, "Of rmsprop: squares relative to the mean");
  verb->add_option("--learning-rate-decay", o.learning_rate_decay, "Of adagrad (default: 0)")
      ->check(real_number(0, 1e6));
  verb->add_option("--beta2-decay", o.beta2_decay,
                   "Of adafactor: power of the step that new squares weigh (default: -0.8)")
      ->check(real_number(-10, 0));
  verb->add_option("--eps2", o.eps2, "Of adafactor: least scale of a weight (default: 1e-3)")
      ->check(real_number(0, 1e6));
  verb->add_option("--update-clip", o.update_clip,
                   "Of adafactor: largest root mean square of an update (default: 1)")
      ->check(real_number(0, 1e6));
  verb->add_option("--clip", o.clip, "Largest gradient norm (global L2); 0 disables clipping")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  add_compute(verb, o.compute, "Dtype of the computation; weights and optimizer state keep theirs");
  verb->add_option("--loss-scale", o.loss_scale,
                   "Loss scale; 0: dynamic for f16, else 1 [default: 0]")
      ->check(real_number(0, 1e9))
      ->group(kAdvanced);
}

void add_lora(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* rank =
      verb->add_option("--lora-rank", o.lora_rank,
                       "Train a LoRA adapter of this rank; --out then holds only the adapter")
          ->check(whole_number(0, 1 << 16));
  CLI::Option* alpha =
      verb->add_option("--lora-alpha", o.lora_alpha, "Adapter scale is alpha / rank")
          ->check(real_number(0, 1e6))
          ->needs(rank)
          ->capture_default_str();
  verb->add_option("--lora-scale", o.lora_scale, "Adapter scale, instead of --lora-alpha")
      ->check(real_number(0, 1e6))
      ->needs(rank)
      ->excludes(alpha)
      ->group(kAdvanced);
  verb->add_option("--lora-dropout", o.lora_dropout, "Dropout of the adapter's input")
      ->check(real_number_below(0, 1))
      ->needs(rank)
      ->capture_default_str()
      ->group(kAdvanced);
  verb->add_option(
          "--lora-target", o.lora_target,
          "Pattern of matrices to adapt; after ! fully trained: \"{*.query.*,!classifier.*}\"")
      ->needs(rank)
      ->capture_default_str();
  add_quantize_flag(verb, o.encoding);
}

void add_evaluation(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--eval-every", o.eval_every,
                   "Steps between evaluations on held-out data [default: before and after only]")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--eval-batches", o.eval_batches,
                   "Most batches per evaluation [default: 0, all held-out data]")
      ->check(whole_number(0, kMostSteps))
      ->group(kAdvanced);
  verb->add_option("--eval-stride", o.eval_stride,
                   "Plain text: tokens from window to window in evaluations [default: --seq]")
      ->check(whole_number(0, 1 << 20))
      ->group(kAdvanced);
  verb->add_option("--keep", o.keep, "Which step --out holds: the last, or the best evaluated step")
      ->check(CLI::IsMember({"last", "best"}))
      ->capture_default_str();
  verb->add_option("--patience", o.patience, "Stop after this many evaluations without improvement")
      ->check(whole_number(1, kMostSteps));
}

void add_checkpoints(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--checkpoint", o.checkpoint,
                   "Folder for the checkpoints of this run; the last two are kept");
  verb->add_option("--save-every", o.save_every,
                   "Steps between checkpoints [default: only when the run ends]")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--save-every-batches", o.save_every_batches,
                   "Batches between checkpoints, also within a step")
      ->check(whole_number(0, kMostSteps))
      ->group(kAdvanced);
  verb->add_option("--resume", o.resume,
                   "auto (newest intact checkpoint), none, or a checkpoint file")
      ->capture_default_str();
  verb->add_flag("--extend", o.extend, "Continue a finished run up to a larger --steps")
      ->group(kAdvanced);
}

void add_rest(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--device", o.device, "Device of 'bowline devices', or gpu, or best")
      ->capture_default_str();
  add_threads(verb, o.threads);
  add_memory_budget(verb, o.memory_budget);
  verb->add_flag("--dry-run", o.dry_run,
                 "Print the plan and the memory it needs, without allocating it");
  add_format(verb, o.output, "Output format; json: summary on stdout, progress on stderr");
}

// Which kinds of data, and which optimizers, a flag has an effect on.
void add_uses(const CLI::App* verb, FinetuneOptions& o) {
  o.uses.add({"--in-order"}, kConversations | kExamples);
  o.uses.add({"--class-weights"}, kExamples);
  o.uses.add({"--eval-stride"}, kPlainText);
  using Kind = Optimizer::Kind;
  const auto of = [](auto... kinds) { return (optimizer_bit(kinds) | ...); };
  o.optimizer_uses = FlagUses(verb);
  o.optimizer_uses.add({"--beta1", "--beta2"}, of(Kind::adamw, Kind::lion));
  o.optimizer_uses.add({"--eps"}, of(Kind::adamw, Kind::rmsprop, Kind::adagrad, Kind::adafactor));
  o.optimizer_uses.add({"--momentum"}, of(Kind::sgd, Kind::rmsprop));
  o.optimizer_uses.add({"--alpha", "--centered"}, of(Kind::rmsprop));
  o.optimizer_uses.add({"--learning-rate-decay"}, of(Kind::adagrad));
  o.optimizer_uses.add({"--beta2-decay", "--eps2", "--update-clip"}, of(Kind::adafactor));
}

}  // namespace

void add_finetune(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(
      app, "finetune", "Fine-tunes a model on text, on chats, or on labelled texts",
      "bowline finetune base.bowline --data notes.txt --steps 300 --checkpoint run --save-every 50 "
      "--resume auto --out tuned.bowline");
  auto options = std::make_shared<FinetuneOptions>();
  add_files(verb, *options);
  add_training(verb, *options);
  add_optimizer(verb, *options);
  add_lora(verb, *options);
  add_evaluation(verb, *options);
  add_checkpoints(verb, *options);
  add_rest(verb, *options);
  add_uses(verb, *options);
  on_run(verb, context, [options] { return finetune(*options); });
}

}  // namespace bowline::command
