// bowline import: converts models of other formats to model files.
#include <fmt/format.h>

#include "base/status.h"
#include "common/files.h"
#include "common/flags.h"
#include "common/help.h"
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

Kind kind_of(const ImportFlags& o, ImportFormat from) {
  return o.options.text.skeleton              ? kSkeleton
         : from == ImportFormat::hugging_face ? kFolder
         : from == ImportFormat::gguf         ? kGguf
                                              : kOnnx;
}

Result<int> run(const ImportFlags& o) {
  BOWLINE_TRY_FLAGS(check_new(o.out, o.force));
  Status done;
  if (!o.base.empty()) {
    BOWLINE_TRY_FLAGS(o.uses.check(kAdapter, kKinds));
    done = import_lora(o);
  } else {
    const Result<ImportFormat> from = import_format(o.model);
    if (!from.ok()) {
      return fail_flags(from.status());
    }
    BOWLINE_TRY_FLAGS(o.uses.check(kind_of(o, from.value()), kKinds));
    done = import_source(o, from.value());
  }
  if (done.code() == Code::unsupported) {  // the file needs an unsupported feature
    done = std::move(done).as(Code::bad_file);
  }
  return done.ok() ? kOk : o.base.empty() ? fail_flags(done) : fail(done);
}

void add_onnx_flags(CLI::App* verb, ImportFlags& o) {
  add_text(verb, "--entry", o.options.onnx.entry, "ONNX: name of the entry point", "NAME")
      ->capture_default_str();
  add_text(verb, "--dim", o.dims, "ONNX: size of a dynamic dimension", "NAME=N");
  add_text(verb, "--shape", o.shapes, "ONNX: shape of an input without named dimensions",
           "NAME=N,N");
  add_text(verb, "--batch-dim", o.options.onnx.batch_dim,
           "ONNX: keep the batch size dynamic; call it NAME", "NAME");
  add_text(verb, "--freeze", o.options.onnx.freeze, "ONNX: do not train these parameters",
           "PATTERN");
  const AdvancedFlags advanced(verb);
  add_text(verb, "--given", o.given, "ONNX: replace an input by constant values", "NAME=VALUE");
  add_text(verb, "--trainable", o.options.onnx.trainable,
           "ONNX: make these constants trainable parameters", "PATTERN");
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
      ->check(CLI::IsMember({"generate", "classify", "embed", "tag"}));
  add_text(verb, "--labels", o.labels, "One label per line, in class order", "FILE");
  add_choice(verb, "--dtype", o.dtype, "Dtype of the weights [the source's]",
             {"f32", "f16", "bf16"});
  verb->add_flag("--multi-label", o.options.text.multi_label, "Allow several labels per text");
  const AdvancedFlags advanced(verb);
  add_choice(verb, "--kv-dtype", o.kv_dtype, "Dtype of the KV cache",
             {"f32", "f16", "bf16", "int8"});
  add_choice(verb, "--pooling", o.options.text.pooling, "Pooling [the source's, else mean or last]",
             {"mean", "cls", "last", "max"});
  add_text(verb, "--tie", o.options.text.ties, "Tie tensors A and B; their values must be equal",
           "A B");
  verb->add_flag("--tie-equal", o.tie_equal, "Tie equal tensors; ONNX: loop over equal layers");
  verb->add_option("--label-smoothing", o.options.text.label_smoothing,
                   "Label smoothing of the loss [0]")
      ->check(CLI::Range(0.0, 0.999));
  verb->add_option("--matryoshka", o.options.text.matryoshka,
                   "Also train embeddings cut to N values")
      ->type_name("N,N")
      ->delimiter(',')
      ->check(whole_number(1, 1 << 24));
  verb->add_flag("--dropout", o.options.text.dropout,
                 "Keep the dropout rates of the config for training");
  verb->add_option("--seed", o.options.text.seed,
                   "Random seed of weights that the source lacks [0]");
  o.uses.add({"--labels", "--pooling", "--tie", "--multi-label", "--label-smoothing", "--seed",
              "--matryoshka"},
             kTextModels);
  o.uses.add({"--task", "--dtype", "--kv-dtype", "--dropout"}, kTextModels | kSkeleton);
  o.uses.add({"--tie-equal"}, kTextModels | kOnnx);
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<ImportFlags>(
      app, context, run, "import", "Converts a model from Hugging Face, GGUF, ONNX or PEFT",
      "# A language model\n"
      "bowline import smollm2/ --out lm.bowline\n"
      "bowline import model.gguf --out lm.bowline\n"
      "# An encoder (or decoder) with a new classification head\n"
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
  o->uses = FlagUses(verb);
  add_onnx_flags(verb, *o);
  CLI::Option* base = add_adapter_flags(verb, *o);
  add_text_flags(verb, *o);
  verb->add_flag("--skeleton", o->options.text.skeleton, "Import only the shapes, from config.json")
      ->excludes(base);
  verb->add_flag("--force", o->force, "Replace an existing file");
  add_format(verb, o->format, "Output format of the summary");
}

}  // namespace bowline::command
