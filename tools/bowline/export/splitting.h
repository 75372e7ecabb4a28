// How byte-level BPE normalizes text and cuts it into words: tokenizer.json has steps for it, GGUF
// a name.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace bowline::command {

struct Splitting {
  std::string_view name;       // tokenizer.ggml.pre
  std::string_view pattern;    // empty: that of ByteLevel
  bool digits = false;         // each stands alone
  bool ignore_merges = false;  // a word that is a piece is that piece
  bool adds_bos = false;       // unless the file says otherwise
  bool nfc = false;  // the text is brought into this form first, which llama.cpp leaves out
};

// Null: the name, or the steps, are not known.
const Splitting* find_splitting(std::string_view name);
const Splitting* splitting_of(const nlohmann::json& tokenizer);
// "normalizer" and "pre_tokenizer" of tokenizer.json.
nlohmann::json normalizer_of(const Splitting& splitting);
nlohmann::json pre_tokenizer_of(const Splitting& splitting);

// Steps of a Sequence, or the one step; `list`: the key of the former.
std::vector<nlohmann::json> steps_of(const nlohmann::json& part, const char* list);

}  // namespace bowline::command
