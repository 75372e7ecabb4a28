// A consumer of bowline::text outside of the tree, with its own tokenizer file.
#include <bowline_text.h>

#include <cstdio>
#include <string_view>

using namespace bowline;

int main() {
  constexpr std::string_view file =
      R"({"model": {"type": "WordLevel", "vocab": {"knot": 0, "rope": 1, "<unk>": 2}, "unk_token": "<unk>"},)"
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed"}})";
  const auto tokenizer = text::Tokenizer::from_bytes("application/vnd.huggingface.tokenizer+json",
                                                     std::as_bytes(std::span(file)));
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  const auto made = tokenizer.value().encode("rope  knot");
  const bool right = made.ok() && made.value().ids == std::vector<int32_t>{1, 0} &&
                     tokenizer.value().decode(made.value().ids).value() == "rope knot";
  std::printf("%s\n", right ? "rope knot" : "The ids are wrong.");
  return right ? 0 : 1;
}
