// bowline import: converts models of other formats to model files.
#include <fmt/format.h>

#include <filesystem>

#include "base/escape.h"
#include "base/status.h"
#include "common/files.h"
#include "common/flags.h"
#include "common/help.h"
#include "gguf/read.h"
#include "huggingface/read.h"
#include "import/flags.h"
#include "verb.h"

namespace bowline::command {
namespace {

// What is imported.
enum Kind : unsigned { kFolder = 1, kSkeleton = 2, kGguf = 4, kOnnx = 8, kAdapter = 16 };
constexpr InputKind kKinds[] = {
    {kFolder, "a folder of Hugging Face"},
    {kSkeleton, "a skeleton"},
    {kGguf, "a GGUF file"},
    {kOnnx, "an ONNX file"},
    {kAdapter, "an adapter (--base)"},
};
constexpr unsigned kTextModels = kFolder | kGguf;

constexpr unsigned kAnyTask = kGenerates | kClassifies | kEmbeds;

Status import_text(const ImportFlags& o, bool is_folder) {
  BOWLINE_TRY_ASSIGN(const import::Source source, o.skeleton  ? huggingface::read_config(o.model)
                                                  : is_folder ? huggingface::read(o.model)
                                                              : gguf::read(o.model));
  return import_text_model(o, source);
}

Result<int> run(const ImportFlags& o) {
  BOWLINE_TRY_FLAGS(check_new(o.out, o.force));
  if (begins_with(o.model, "BOWLINE1")) {
    return fail(
        kBadFile,
        fmt::format(
            "\"{0}\" is already a Bowline model file. 'bowline inspect {0}' shows its content.",
            escaped(o.model)));
  }
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(o.model, error);
  if (o.skeleton && !is_folder) {
    return fail(kUsage,
                fmt::format("--skeleton reads config.json in a folder, but \"{}\" is not a folder.",
                            escaped(o.model)));
  }
  const Kind kind = !o.base.empty()                ? kAdapter
                    : o.skeleton                   ? kSkeleton
                    : is_folder                    ? kFolder
                    : begins_with(o.model, "GGUF") ? kGguf
                                                   : kOnnx;
  BOWLINE_TRY_FLAGS(o.uses.check(kind, kKinds));
  Status done = kind == kAdapter ? import_adapter(o)
                : kind == kOnnx  ? import_onnx(o)
                                 : import_text(o, is_folder);
  if (done.code() == Code::unsupported) {  // the file asks for what Bowline does not have
    done = std::move(done).as(Code::bad_file);
  }
  return done.ok() ? kOk : kind == kAdapter ? fail(done) : fail_flags(done);
}

// A flag that has an effect only on these kinds of input and these tasks.
CLI::Option* use(ImportFlags& o, CLI::Option* option, unsigned kinds, unsigned tasks = kAnyTask) {
  o.uses.add(option, kinds);
  o.task_uses.add(option, tasks);
  return option;
}

void add_onnx_flags(CLI::App* verb, ImportFlags& o) {
  use(o, verb->add_option("--entry", o.entry, "ONNX: name of the entry point")->type_name("NAME"),
      kOnnx)
      ->capture_default_str();
  use(o,
      verb->add_option("--dim", o.dims, "ONNX: size of a dynamic dimension")->type_name("NAME=N"),
      kOnnx);
  use(o,
      verb->add_option("--shape", o.shapes, "ONNX: shape of an input without named dimensions")
          ->type_name("NAME=N,N"),
      kOnnx);
  use(o,
      verb->add_option("--batch-dim", o.batch_dim, "ONNX: name for a batch size that stays dynamic")
          ->type_name("NAME"),
      kOnnx);
  use(o,
      verb->add_option("--given", o.given, "ONNX: replace an input by constant values")
          ->group(kAdvanced)
          ->type_name("NAME=VALUE"),
      kOnnx);
  use(o,
      verb->add_option("--trainable", o.trainable, "ONNX: train these constants, too")
          ->group(kAdvanced)
          ->type_name("PATTERN"),
      kOnnx);
  use(o,
      verb->add_option("--freeze", o.freeze, "ONNX: do not train these parameters")
          ->type_name("PATTERN"),
      kOnnx);
}

void add_text_flags(CLI::App* verb, ImportFlags& o) {
  use(o, verb->add_option("--task", o.task, "Task [the source's]"), kTextModels | kSkeleton)
      ->check(CLI::IsMember({"generate", "classify", "embed"}));
  use(o,
      verb->add_option("--labels", o.labels, "One label per line, in class order")
          ->type_name("FILE"),
      kTextModels, kClassifies);
  use(o, verb->add_option("--dtype", o.dtype, "Dtype of the weights [the source's]"),
      kTextModels | kSkeleton)
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  use(o, verb->add_option("--kv-dtype", o.kv_dtype, "Dtype of the KV cache")->group(kAdvanced),
      kTextModels | kSkeleton, kGenerates)
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  use(o,
      verb->add_option("--pooling", o.pooling, "Pooling of an encoder [the source's, or mean]")
          ->group(kAdvanced),
      kTextModels, kClassifies | kEmbeds)
      ->check(CLI::IsMember({"mean", "cls", "max"}));
  use(o,
      verb->add_option("--tie", o.ties, "Tie tensors A and B, whose values are equal")
          ->group(kAdvanced)
          ->type_name("A B"),
      kTextModels)
      ->type_size(2);
  use(o,
      verb->add_flag("--tie-equal", o.tie_equal, "Tie equal tensors; ONNX: also merge equal layers")
          ->group(kAdvanced),
      kTextModels | kOnnx);
  use(o, verb->add_flag("--multi-label", o.multi_label, "Allow several labels per text"),
      kTextModels, kClassifies);
  use(o,
      verb->add_option("--label-smoothing", o.label_smoothing, "Label smoothing of the loss [0]")
          ->group(kAdvanced),
      kTextModels, kClassifies)
      ->check(CLI::Range(0.0, 0.999));
  use(o,
      verb->add_flag("--dropout", o.dropout, "Train with the dropout rates of the config")
          ->group(kAdvanced),
      kTextModels | kSkeleton, kGenerates | kClassifies);
  use(o,
      verb->add_option("--seed", o.seed, "Random seed of weights that the source lacks [0]")
          ->group(kAdvanced),
      kTextModels, kClassifies);
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(app, "import", "Converts a model from Hugging Face, GGUF, ONNX or PEFT",
                            "# A language model\n"
                            "bowline import smollm2/ --out lm.bowline\n"
                            "bowline import model.gguf --out lm.bowline\n"
                            "# An encoder with a new classification head\n"
                            "bowline import minilm/ --task classify --labels labels.txt \\\n"
                            "    --out encoder.bowline\n"
                            "# A LoRA adapter from PEFT\n"
                            "bowline import peft/ --base lm.bowline --out adapter.bowline\n"
                            "# Only the shapes, to plan the memory of a training\n"
                            "bowline import llama-8b/ --skeleton --out shapes.bowline\n"
                            "# An ONNX graph with a fixed batch size, or with any batch size\n"
                            "bowline import model.onnx --dim batch=1 --out model.bowline\n"
                            "bowline import model.onnx --batch-dim batch --out model.bowline\n"
                            "# An ONNX graph whose dimensions have no names\n"
                            "bowline import ocr.onnx --shape x=1,3,48,192 --freeze 'stem.*' \\\n"
                            "    --out ocr.bowline");
  auto o = std::make_shared<ImportFlags>();
  verb->add_option("model", o->model, "Hugging Face folder, GGUF file or ONNX file")->required();
  verb->add_option("--out", o->out, "Model file to write")->type_name("FILE")->required();
  o->uses = o->task_uses = FlagUses(verb);
  add_onnx_flags(verb, *o);
  CLI::Option* base =
      verb->add_option("--base", o->base, "Import a LoRA adapter for this model file")
          ->type_name("FILE");
  o->name = "lora";
  use(*o,
      verb->add_option("--name", o->name, "Name of the adapter")
          ->group(kAdvanced)
          ->type_name("NAME"),
      kAdapter)
      ->needs(base)
      ->capture_default_str();
  add_text_flags(verb, *o);
  verb->add_flag("--skeleton", o->skeleton, "Import only the shapes, from config.json")
      ->excludes(base);
  verb->add_flag("--force", o->force, "Replace an existing file");
  add_format(verb, o->format);
  on_run(verb, context, [o] { return run(*o); });
}

}  // namespace bowline::command
