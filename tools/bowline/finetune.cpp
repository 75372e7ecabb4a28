// bowline finetune: trains a model on data of its task, with checkpoints.
#include <fmt/format.h>

#include "common/data_flags.h"
#include "common/flags.h"
#include "common/numbers.h"
#include "finetune/run.h"
#include "verb.h"

namespace bowline::command {
namespace {

void add_files(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("model", o.model, "Model file with the entry point 'loss' (tokens, labels)")
      ->required();
  add_data(verb, o);
  verb->add_option(
      "--valid", o.valid,
      "Held-out data (default: valid.jsonl of a folder; of a text the last 10 percent, "
      "of rows every tenth)");
  verb->add_option("--out", o.out,
                   "Where the tuned model is written, if it predicts the held-out data no worse "
                   "than the model did before");
  verb->add_flag("--force", o.force,
                 "Replace --out, or a --log or --report of another run, that is there");
  verb->add_flag("--with-training-state", o.with_training_state,
                 "--out holds moments and the position of the run too, as a checkpoint does");
  verb->add_option("--log", o.log,
                   "Loss log: a line per step with step, loss, gradient norm, learning rate");
  verb->add_option("--tensorboard", o.tensorboard, "Folder for event files of TensorBoard");
  verb->add_option("--report", o.report,
                   "Page of HTML with the curves of the run, its memory, settings and hashes; a "
                   "browser that shows it follows the run. --resume goes on with it");
}

void add_training(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* steps =
      verb->add_option("--steps,--iters", o.steps, "Training steps of the whole run")
          ->check(whole_number(0, kMostSteps))
          ->capture_default_str();
  verb->add_option("--epochs", o.epochs, "How often the data is shown, instead of --steps")
      ->check(real_number(0, 1e6))
      ->excludes(steps);
  add_windows(verb, o);
  verb->add_flag("--in-order", o.in_order,
                 "Rows are shown as they stand, not in an order by --seed");
  verb->add_option("--accumulate", o.accumulate,
                   "Micro-batches per step (gradient accumulation): the gradient is the mean over "
                   "the labels of all of them")
      ->check(whole_number(1, 1 << 16))
      ->capture_default_str();
  verb->add_option(
          "--on-nonfinite", o.on_nonfinite,
          fmt::format("What happens when a loss or gradient is not finite: skip leaves the "
                      "update out; stop ends the run and names the first bad node and "
                      "parameter; rollback goes back to the last checkpoint, which it "
                      "holds in memory too, and on with the next windows; {} such steps "
                      "in a row end every run",
                      TrainOptions{}.max_nonfinite_in_row))
      ->check(CLI::IsMember(std::vector<std::string>(kOnNonFinite.begin(), kOnNonFinite.end())))
      ->capture_default_str();
  verb->add_option("--seed", o.seed, "Of the order of the data and of dropout")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
}

void add_optimizer(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--learning-rate", o.learning_rate, "Largest learning rate")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  verb->add_option("--head-learning-rate", o.head_learning_rate,
                   "Of the parameters classifier.* (default: the learning rate)")
      ->check(real_number(0, 1e6));
  verb->add_option("--freeze", o.freeze,
                   "Pattern over parameters that are not trained, such as \"embeddings.*\"; may be "
                   "given several times")
      ->allow_extra_args(false);
  verb->add_option(
      "--class-weights", o.class_weights,
      "What the loss of a text is multiplied with: balanced, so that every label counts "
      "alike; none; or a file, a JSON object of labels and numbers (default: those of "
      "the model)");
  verb->add_option("--warmup", o.warmup, "Steps over which the rate rises from 0")
      ->check(whole_number(0, kMostSteps))
      ->capture_default_str();
  verb->add_option("--schedule", o.schedule, "How the rate falls after that")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->capture_default_str();
  verb->add_option("--final-fraction", o.final_fraction, "Of the learning rate, at the last step")
      ->check(real_number(0, 1))
      ->capture_default_str();
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
  verb->add_option("--clip", o.clip, "Largest global gradient norm; 0: not clipped")
      ->check(real_number(0, 1e6))
      ->capture_default_str();
  add_compute(verb, o.compute,
              "What activations and the copies of the weights that operators read are in; the "
              "weights, their gradients and moments stay as they are");
  verb->add_option("--loss-scale", o.loss_scale,
                   "What the loss is multiplied with while gradients are computed (default: 0; for "
                   "f16 from 32768 on as large as the gradients stay finite, else 1)")
      ->check(real_number(0, 1e9));
}

void add_lora(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* rank =
      verb->add_option("--lora-rank", o.lora_rank,
                       "Train an adapter of this rank, not the weights: --out holds it alone, for "
                       "--adapter of 'bowline eval' and 'bowline run' (default: 0, no adapter)")
          ->check(whole_number(0, 1 << 16));
  CLI::Option* alpha =
      verb->add_option("--lora-alpha", o.lora_alpha,
                       "What the adapter adds is multiplied by this number over the rank")
          ->check(real_number(0, 1e6))
          ->needs(rank)
          ->capture_default_str();
  verb->add_option("--lora-scale", o.lora_scale,
                   "What the adapter adds is multiplied by this number, instead of --lora-alpha")
      ->check(real_number(0, 1e6))
      ->needs(rank)
      ->excludes(alpha);
  verb->add_option("--lora-dropout", o.lora_dropout,
                   "Share of what the adapter is applied to that is left out while training")
      ->check(real_number_below(0, 1))
      ->needs(rank)
      ->capture_default_str();
  verb->add_option("--lora-target", o.lora_target,
                   "Pattern over parameters, as 'bowline inspect' lists them: the matrices that "
                   "the adapter changes, such as \"blocks.*.{query,value}.weight\". Behind \"!\" "
                   "by as high a rank as their values have, and biases too: "
                   "\"{*.query.weight,!classifier.*}\"")
      ->needs(rank)
      ->capture_default_str();
  add_quantize_flag(verb, o.encoding);
}

void add_evaluation(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option(
          "--eval-every", o.eval_every,
          "Steps between held-out evaluations; the best is kept as best.bowline beside the "
          "checkpoints (default: before and after only)")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--eval-batches", o.eval_batches,
                   "Most batches of an evaluation (default: 0, all that is held out)")
      ->check(whole_number(0, kMostSteps));
  verb->add_option(
          "--eval-stride", o.eval_stride,
          "Of a text: bytes or tokens between held-out windows (default: 0, --seq); less gives "
          "more context")
      ->check(whole_number(0, 1 << 20));
  verb->add_option("--keep", o.keep, "Which step --out holds: the last, or the best evaluated one")
      ->check(CLI::IsMember({"last", "best"}))
      ->capture_default_str();
  verb->add_option("--patience", o.patience,
                   "Stop after so many evaluations in a row that are no better than the best")
      ->check(whole_number(1, kMostSteps));
}

void add_checkpoints(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--checkpoint", o.checkpoint,
                   "Folder for checkpoints, of this run alone; its last two are kept");
  verb->add_option("--save-every", o.save_every,
                   "Steps between checkpoints (default: whenever the run ends, however it ends)")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--save-every-batches", o.save_every_batches,
                   "Batches between checkpoints, within a step too")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--resume", o.resume,
                   "auto: the newest checkpoint that is whole; none; or a checkpoint file")
      ->capture_default_str();
  verb->add_flag("--extend", o.extend, "Go on with a run to another number of --steps");
}

void add_rest(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("--device", o.device, "Device, as 'bowline devices' lists it, or best")
      ->capture_default_str();
  add_threads(verb, o.threads);
  add_memory_budget(verb, o.memory_budget);
  verb->add_flag("--dry-run", o.dry_run,
                 "Print what would be done, and the memory that it takes; none is taken, and the "
                 "model may be a skeleton");
  add_format(verb, o.output, "json: a summary on stdout, progress on stderr");
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
      app, "finetune", "Trains a model on a text, on conversations, or to tell texts apart",
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
