// Writes a decoder with random weights: make_decoder FILE [name=number ...] [dtype=bf16] [encoding=q8_0].
#include <cstdlib>
#include <iostream>
#include <map>

#include "generate/decoder_model.h"

namespace {

using namespace bowline;
using namespace bowline::test;

DType dtype_of(const std::string& name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    if (name_of(t) == name) {
      return t;
    }
  }
  throw std::runtime_error("No dtype of weights is called " + name);
}

void make(const std::string& path, const std::map<std::string, std::string>& options) {
  DecoderShape s;
  std::string encoding;
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
    must(model.quantize(found->second));
  }
  must(model.save(path));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::map<std::string, std::string> options;
    for (int i = 2; i < count; ++i) {
      const std::string text = arguments[i];
      const size_t equals = text.find('=');
      require(equals != std::string::npos, "What follows the file is name=value.");
      options[text.substr(0, equals)] = text.substr(equals + 1);
    }
    require(count >= 2, "No file is named.");
    make(arguments[1], options);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
