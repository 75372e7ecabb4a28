// Arbitrary bytes as training data: rejected with a message, or rows. The first byte selects the
// format. Never a crash.
#include <string_view>

#include "data/chats.h"
#include "data/examples.h"
#include "data/tagged_words.h"
#include "data/text_groups.h"

namespace {

using namespace bowline;
using namespace bowline::command;

bool reached_the_end = false;

template <class T>
bool succeeded(const Result<T>& result) {
  if (!result.ok() &&
      (result.status().code() != Code::bad_file || result.status().message().empty())) {
    __builtin_trap();
  }
  return result.ok();
}

void read_examples_as(std::string_view bytes, const char* name, bool several) {
  const auto rows = read_examples(bytes, name, {.several = several});
  if (!succeeded(rows)) {
    return;
  }
  const std::vector<std::string> labels = labels_of(rows.value());
  const auto classes = classes_of(rows.value(), labels, name);
  // The labels of the data are known, and there are rows.
  if (!succeeded(classes) || classes.value().empty()) {
    __builtin_trap();
  }
  reached_the_end = true;
}

void read_groups_as(std::string_view bytes, const char* name) {
  const auto groups = read_text_groups(bytes, name, "", "");
  if (!succeeded(groups)) {
    return;
  }
  // Each row has a text for each field, and a score of a cosine.
  for (const TextGroup& row : groups.value().rows) {
    if (row.texts.size() != groups.value().fields.size() || !(row.score >= -1 && row.score <= 1)) {
      __builtin_trap();
    }
  }
  reached_the_end = true;
}

void read_words_as(std::string_view bytes, const char* name) {
  const auto rows = read_tagged_words(bytes, name, "", "");
  if (!succeeded(rows)) {
    return;
  }
  for (const TaggedWords& row : rows.value()) {
    if (row.words.empty() || row.words.size() != row.tags.size()) {
      __builtin_trap();
    }
    (void)succeeded(scheme_of(row.tags));
  }
  reached_the_end = true;
}

}  // namespace

extern "C" bool fuzz_reached_the_end() { return reached_the_end; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 't':
      read_examples_as(bytes, "f.tsv", false);
      break;
    case 'j':
    case 'J':
      read_examples_as(bytes, "f.jsonl", data[0] == 'J');
      break;
    case 'm':
      reached_the_end |= succeeded(read_conversations(bytes, "f.jsonl"));
      break;
    case 'g':
      read_groups_as(bytes, "f.csv");
      break;
    case 'G':
      read_groups_as(bytes, "f.jsonl");
      break;
    case 'w':
      read_words_as(bytes, "f.conll");
      break;
    case 'W':
      read_words_as(bytes, "f.jsonl");
      break;
    case 'l':
      reached_the_end |= succeeded(read_labels(bytes, "f.txt"));
      break;
    default:
      read_examples_as(bytes, "f.csv", data[0] == 'C');
  }
  return 0;
}
