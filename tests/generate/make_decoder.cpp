// Writes a decoder with random weights.
#include "generate/decoder_model.h"
#include "writer_main.h"

namespace {

using namespace bowline;
using namespace bowline::test;

DType dtype_of(const std::string& name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    if (name_of(t) == name) {
      return t;
    }
  }
  throw std::runtime_error("There is no weight dtype " + name);
}

void make(const std::string& path, const Options& options) {
  DecoderShape s;
  const auto set = [&](const std::string& name, auto& to) {
    if (const auto found = options.find(name); found != options.end()) {
      to = static_cast<std::remove_reference_t<decltype(to)>>(std::stod(found->second));
    }
  };
  set("layers", s.layers);
  set("width", s.width);
  set("heads", s.heads);
  set("kv_heads", s.kv_heads);
  set("ffn", s.ffn);
  set("vocabulary", s.vocabulary);
  set("context", s.context);
  set("deviation", s.deviation);
  set("int8_cache", s.int8_cache);
  if (const auto found = options.find("dtype"); found != options.end()) {
    s.dtype = dtype_of(found->second);
  }
  Model model = decoder_model(s);
  if (const auto found = options.find("tokenizer"); found != options.end()) {
    must(model.set_metadata("tokenizer", found->second));
  }
  if (const auto found = options.find("eos"); found != options.end()) {
    must(model.set_metadata("eos_token_ids", found->second));
  }
  if (const auto found = options.find("encoding"); found != options.end()) {
    must(quantize(model, found->second));
  }
  must(model.save(path));
}

}  // namespace

const char* const kArguments =
    "FILE [layers=N] [width=N] [heads=N] [kv_heads=N] [ffn=N] [vocabulary=N] [context=N] "
    "[deviation=X] [int8_cache=1] [dtype=bf16] [tokenizer=bytes] [eos=ID] [encoding=q8_0]";

Status write_model(const std::string& path, const Options& options) {
  try {
    make(path, options);
    return {};
  } catch (const std::exception& e) {
    return Status(Code::bad_argument, e.what());
  }
}
