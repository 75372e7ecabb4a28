// bowline finetune: trains a model on data of its task, with checkpoints.
#include <fmt/format.h>

#include "common/data_flags.h"
#include "common/flags.h"
#include "common/help.h"
#include "common/numbers.h"
#include "finetune/optimizer_flags.h"
#include "finetune/run.h"
#include "verb.h"

namespace bowline::command {
namespace {

void add_files(CLI::App* verb, FinetuneOptions& o) {
  verb->add_option("model", o.model, "Model file with the entry point 'loss'")->required();
  add_data(verb, o);
  add_text(verb, "--valid", o.valid, "Held-out data [a tenth of --data]", "FILE");
  add_text(verb, "--out", o.out, "Result; not written if held-out loss rose overall", "FILE");
  verb->add_flag("--force", o.force, "Replace existing --out, --log and --report files");
  add_text(verb, "--log", o.log, "Write loss, gradient norm, learning rate per step", "FILE");
  add_text(verb, "--report", o.report, "Write an HTML page with the progress of the run", "FILE");
  const AdvancedFlags advanced(verb);
  verb->add_flag("--with-training-state", o.with_training_state,
                 "Also write optimizer state and progress to --out");
  add_text(verb, "--tensorboard", o.tensorboard, "Write event files for TensorBoard", "FOLDER");
}

void add_training(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* steps = add_number(verb, "--steps,--iters", o.steps,
                                  "Total steps, including those before a resume", 0, kMostSteps);
  verb->add_option("--epochs", o.epochs, "Passes over the data, instead of --steps")
      ->check(real_number(0, 1e6))
      ->excludes(steps);
  add_windows(verb, o);
  o.train.accumulation = 0;
  verb->add_option("--accumulate", o.train.accumulation,
                   "Micro-batches per step of all processes [one each]")
      ->check(whole_number(1, 1 << 16));
  const AdvancedFlags advanced(verb);
  verb->add_flag("--fast-reduce", o.fast_reduce,
                 "Sum gradients in any order: it needs less memory");
  add_number(verb, "--process-timeout", o.process_timeout,
             "mpirun: end if a process is silent so long [s]", 1, 1e6);
  verb->add_flag("--in-order", o.in_order, "Do not shuffle the rows");
  add_choice(verb, "--on-nonfinite", o.on_nonfinite, "On NaN or infinity",
             std::vector<std::string>(kOnNonFinite.begin(), kOnNonFinite.end()))
      ->type_name("NAME");
  add_number(verb, "--seed", o.seed, "Random seed of data order, dropout and adapter", 0,
             UINT64_MAX);
}

void add_optimizer(CLI::App* verb, FinetuneOptions& o) {
  TrainOptions& train = o.train;
  add_number(verb, "--learning-rate", train.schedule.learning_rate, "Peak learning rate", 0, 1e6);
  add_text(verb, "--freeze", o.freeze, "Do not train these parameters; repeatable", "PATTERN");
  add_number(verb, "--warmup", train.schedule.warmup_steps,
             "Steps of linear warmup of the learning rate", 0, kMostSteps);
  add_choice(verb, "--schedule", o.schedule, "Learning rate", {"constant", "linear", "cosine"})
      ->type_name("NAME");
  add_optimizer_flags(verb, o);
  add_compute(verb, o.compute);
  const AdvancedFlags advanced(verb);
  add_number(verb, "--head-learning-rate", o.head_learning_rate,
             "Rate of the classification head [--learning-rate]", 0, 1e6);
  verb->add_option("--class-weights", o.class_weights,
                   "Class weights: balanced, none, FILE [the model's]");
  add_number(verb, "--final-fraction", train.schedule.final_fraction,
             "Final learning rate, relative to the peak", 0, 1);
  add_number(verb, "--weight-decay", train.optimizer.settings["weight_decay"],
             "Weight decay of matrices; vectors have none", 0, 1e6);
  add_number(verb, "--clip", train.clip_norm, "Maximum gradient norm; 0: no clipping", 0, 1e6);
  add_number(verb, "--loss-scale", train.precision.loss_scale,
             "Loss scale for mixed precision [automatic]", 0, 1e9);
}

void add_lora(CLI::App* verb, FinetuneOptions& o) {
  CLI::Option* rank = add_number(verb, "--lora-rank", o.lora.rank,
                                 "Train a LoRA adapter of this rank [no adapter]", 0, 1 << 16);
  add_quantize_flag(verb, o.encoding);
  const AdvancedFlags advanced(verb);
  CLI::Option* alpha = add_number(verb, "--lora-alpha", o.lora.alpha,
                                  "LoRA alpha: the scale is alpha / rank", 0, 1e6)
                           ->needs(rank);
  verb->add_option("--lora-scale", o.lora_scale, "Scale of the adapter, instead of --lora-alpha")
      ->check(real_number(0, 1e6))
      ->needs(rank)
      ->excludes(alpha);
  verb->add_option("--lora-dropout", o.lora.dropout, "Dropout probability of the adapter input")
      ->check(real_number_below(0, 1))
      ->needs(rank)
      ->capture_default_str();
  add_text(verb, "--lora-target", o.lora.target, "Weight matrices that get an adapter", "PATTERN")
      ->needs(rank)
      ->capture_default_str();
}

void add_evaluation(CLI::App* verb, FinetuneOptions& o) {
  add_number(verb, "--eval-every", o.eval_every, "Steps between evaluations [start and end only]",
             0, kMostSteps);
  add_choice(verb, "--keep", o.keep, "Written weights; best: lowest held-out loss",
             {"last", "best"});
  verb->add_option("--patience", o.patience, "Stop after N evaluations without improvement")
      ->check(whole_number(1, kMostSteps));
  const AdvancedFlags advanced(verb);
  add_number(verb, "--eval-batches", o.eval_batches,
             "Maximum number of batches per evaluation [all]", 0, kMostSteps);
  add_number(verb, "--eval-stride", o.eval_stride, "Stride of held-out windows, in tokens [--seq]",
             0, 1 << 20);
}

void add_checkpoints(CLI::App* verb, FinetuneOptions& o) {
  add_text(verb, "--checkpoint", o.checkpoint, "Write checkpoints here and keep the last two",
           "FOLDER");
  add_number(verb, "--save-every", o.save_every, "Steps between checkpoints [end of the run only]",
             0, kMostSteps);
  add_text(verb, "--resume", o.resume, "Continue a run; auto: the newest checkpoint",
           "auto|none|FILE")
      ->capture_default_str();
  const AdvancedFlags advanced(verb);
  verb->add_option("--save-every-batches", o.save_every_batches,
                   "Micro-batches between checkpoints")
      ->check(whole_number(0, kMostSteps));
  verb->add_flag("--extend", o.extend, "Resume with a different number of --steps");
}

void add_rest(CLI::App* verb, FinetuneOptions& o) {
  add_device(verb, o.device);
  verb->add_flag("--dry-run", o.dry_run, "Print the plan and its memory; do not train");
  add_format(verb, o.format, "Output format of the summary");
}

// Declares the kinds of data on which a flag has an effect.
void add_uses(FinetuneOptions& o) {
  o.uses.add({"--in-order"}, kConversations | kExamples | kTextGroups | kTaggedWords);
  o.uses.add({"--class-weights"}, kExamples);
  o.uses.add({"--eval-stride"}, kPlainText);
}

}  // namespace

void add_finetune(CLI::App& app, Context& context) {
  const auto [verb, options] = add_verb<FinetuneOptions>(
      app, context, finetune, "finetune",
      "Fine-tunes a model on text, chats, labelled texts, or pairs of texts",
      "# Text. After an interruption, the same command continues.\n"
      "bowline finetune base.bowline --data notes.txt --steps 300 \\\n"
      "    --checkpoint run --save-every 50 --resume auto --out tuned.bowline\n"
      "# A LoRA adapter for a chat model\n"
      "bowline finetune lm.bowline --data chats.jsonl --train-on all-answers \\\n"
      "    --lora-rank 16 --learning-rate 1e-4 --epochs 2 --out adapter.bowline\n"
      "# A classifier, on a table with the columns \"text\" and \"label\"\n"
      "bowline finetune encoder.bowline --data train.csv --epochs 3 \\\n"
      "    --learning-rate 5e-5 --out classifier.bowline\n"
      "# Embeddings, on a table with the columns \"anchor\" and \"positive\"\n"
      "bowline finetune minilm.bowline --data pairs.csv --batch 32 \\\n"
      "    --learning-rate 2e-5 --out embedder.bowline\n"
      "# Print the memory that the training needs, without training\n"
      "bowline finetune lm.bowline --data notes.txt --lora-rank 8 --dry-run");
  add_files(verb, *options);
  add_training(verb, *options);
  add_optimizer(verb, *options);
  add_lora(verb, *options);
  add_evaluation(verb, *options);
  add_checkpoints(verb, *options);
  add_rest(verb, *options);
  add_uses(*options);
}

}  // namespace bowline::command
