#include "common/shapes.h"

#include "base/status.h"
#include "common/flags.h"

#ifdef BOWLINE_IMPORT
#include "architectures/architecture.h"
#endif

namespace bowline::command {
namespace {

#ifdef BOWLINE_IMPORT
// Source  the sizes of GPT-2, Radford et al., "Language Models are Unsupervised Multitask
// Learners",
//         2019; the vocabulary is padded to a multiple of 128.
Result<Model> gpt2() {
  import::Source source;
  source.format = "Hugging Face";
  source.config = {{"model_type", "gpt2"}, {"n_layer", 12},       {"n_embd", 768},
                   {"n_head", 12},         {"n_positions", 1024}, {"vocab_size", 50304},
                   {"attn_pdrop", 0.0},    {"embd_pdrop", 0.0},   {"resid_pdrop", 0.0}};
  TextImportOptions options;
  options.dtype = DType::bf16;
  options.kv_dtype = DType::bf16;
  options.skeleton = true;
  BOWLINE_TRY_ASSIGN(import::Built built, import::build_model(source, options));
  return std::move(built.model);
}
#else
Result<Model> gpt2() {
  return Status(Code::unsupported, "This build has no built-in shapes (BOWLINE_IMPORT=OFF).");
}
#endif

}  // namespace

Result<Model> planned_model(const std::string& name) {
  return name == kGpt2Shape ? gpt2() : open_model(name);
}

}  // namespace bowline::command
