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

// The kind of the source.
enum Kind : unsigned { kFolder = 1, kSkeleton = 2, kGguf = 4, kOnnx = 8, kAdapter = 16 };
constexpr InputKind kKinds[] = {
    {kFolder, "a folder of Hugging Face"},
    {kSkeleton, "a skeleton"},
    {kGguf, "a GGUF file"},
    {kOnnx, "an ONNX file"},
    {kAdapter, "an adapter (--base)"},
};
constexpr unsigned kTextModels = kFolder | kGguf;

Status import_text(const ImportFlags& o, bool is_folder) {
  BOWLINE_TRY_ASSIGN(const import::Source source, o.build.skeleton
                                                      ? huggingface::read_config(o.model)
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
  if (o.build.skeleton && !is_folder) {
    return fail(kUsage,
                fmt::format("--skeleton reads config.json in a folder, but \"{}\" is not a folder.",
                            escaped(o.model)));
  }
  const bool is_gguf = begins_with(o.model, "GGUF") || o.model.ends_with(".gguf");
  const Kind kind = !o.base.empty()    ? kAdapter
                    : o.build.skeleton ? kSkeleton
                    : is_folder        ? kFolder
                    : is_gguf          ? kGguf
                                       : kOnnx;
  BOWLINE_TRY_FLAGS(o.uses.check(kind, kKinds));
  Status done = kind == kAdapter ? import_adapter(o)
                : kind == kOnnx  ? import_onnx(o)
                                 : import_text(o, is_folder);
  if (done.code() == Code::unsupported) {  // the file needs an unsupported feature
    done = std::move(done).as(Code::bad_file);
  }
  return done.ok() ? kOk : kind == kAdapter ? fail(done) : fail_flags(done);
}

void add_onnx_flags(CLI::App* verb, ImportFlags& o) {
  add_text(verb, "--entry", o.onnx.entry_point, "ONNX: name of the entry point", "NAME")
      ->capture_default_str();
  add_text(verb, "--dim", o.dims, "ONNX: size of a dynamic dimension", "NAME=N");
  add_text(verb, "--shape", o.shapes, "ONNX: shape of an input without named dimensions",
           "NAME=N,N");
  add_text(verb, "--batch-dim", o.onnx.batch_dim, "ONNX: keep the batch size dynamic; call it NAME",
           "NAME");
  add_text(verb, "--freeze", o.freeze, "ONNX: do not train these parameters", "PATTERN");
  const AdvancedFlags advanced(verb);
  add_text(verb, "--given", o.given, "ONNX: replace an input by constant values", "NAME=VALUE");
  add_text(verb, "--trainable", o.trainable, "ONNX: make these constants trainable parameters",
           "PATTERN");
  o.uses.add({"--entry", "--dim", "--shape", "--batch-dim", "--given", "--trainable", "--freeze"},
             kOnnx);
}

CLI::Option* add_adapter_flags(CLI::App* verb, ImportFlags& o) {
  CLI::Option* base =
      add_text(verb, "--base", o.base, "Import a LoRA adapter for this model file", "FILE");
  const AdvancedFlags advanced(verb);
  add_text(verb, "--name", o.name, "Name of the adapter", "NAME")
      ->needs(base)
      ->capture_default_str();
  o.uses.add({"--name"}, kAdapter);
  return base;
}

void add_text_flags(CLI::App* verb, ImportFlags& o) {
  verb->add_option("--task", o.task, "Task [the source's]")
      ->check(CLI::IsMember({"generate", "classify", "embed"}));
  add_text(verb, "--labels", o.labels, "One label per line, in class order", "FILE");
  add_choice(verb, "--dtype", o.dtype, "Dtype of the weights [the source's]",
             {"f32", "f16", "bf16"});
  verb->add_flag("--multi-label", o.build.multi_label, "Allow several labels per text");
  const AdvancedFlags advanced(verb);
  add_choice(verb, "--kv-dtype", o.kv_dtype, "Dtype of the KV cache",
             {"f32", "f16", "bf16", "int8"});
  add_choice(verb, "--pooling", o.build.pooling, "Pooling of an encoder [the source's, or mean]",
             {"mean", "cls", "max"});
  add_text(verb, "--tie", o.build.ties, "Tie tensors A and B; their values must be equal", "A B");
  verb->add_flag("--tie-equal", o.build.tie_equal,
                 "Tie equal tensors; ONNX: loop over equal layers");
  verb->add_option("--label-smoothing", o.build.label_smoothing, "Label smoothing of the loss [0]")
      ->check(CLI::Range(0.0, 0.999));
  verb->add_flag("--dropout", o.build.dropout, "Keep the dropout rates of the config for training");
  verb->add_option("--seed", o.build.seed, "Random seed of weights that the source lacks [0]");
  o.uses.add({"--labels", "--pooling", "--tie", "--multi-label", "--label-smoothing", "--seed"},
             kTextModels);
  o.uses.add({"--task", "--dtype", "--kv-dtype", "--dropout"}, kTextModels | kSkeleton);
  o.uses.add({"--tie-equal"}, kTextModels | kOnnx);
  o.task_uses.add({"--kv-dtype"}, kGenerates);
  o.task_uses.add({"--labels", "--multi-label", "--label-smoothing", "--seed"}, kClassifies);
  o.task_uses.add({"--pooling"}, kClassifies | kEmbeds);
  o.task_uses.add({"--dropout"}, kGenerates | kClassifies);
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<ImportFlags>(
      app, context, run, "import", "Converts a model from Hugging Face, GGUF, ONNX or PEFT",
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
  verb->add_option("model", o->model, "Hugging Face or PEFT folder, GGUF or ONNX file")->required();
  add_text(verb, "--out", o->out, "Model file to write", "FILE")->required();
  o->uses = o->task_uses = FlagUses(verb);
  add_onnx_flags(verb, *o);
  CLI::Option* base = add_adapter_flags(verb, *o);
  add_text_flags(verb, *o);
  verb->add_flag("--skeleton", o->build.skeleton, "Import only the shapes, from config.json")
      ->excludes(base);
  verb->add_flag("--force", o->force, "Replace an existing file");
  add_format(verb, o->format, "Output format of the summary");
}

}  // namespace bowline::command
