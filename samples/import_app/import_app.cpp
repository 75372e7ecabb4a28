// Opens a model of another format, prints what the import did, and saves it as a model file. If the
// model is a language model with a tokenizer, it also continues a text.
//
// usage: import_app SOURCE OUT [TEXT [DEVICE]]
#include <bowline_import.h>
#include <bowline_text.h>

#include <cstdio>
#include <string>

using namespace bowline;

namespace {

void print(const ImportReport& report) {
  std::printf("%s", std::string(name_of(report.format)).c_str());
  if (report.task) {
    std::printf(", task %s", std::string(name_of(*report.task)).c_str());
  }
  std::printf("\n");
  for (const ImportedTensor& t : report.tensors) {
    if (t.use != ImportedTensor::Use::taken) {
      std::printf("  %s %s: %s\n", std::string(name_of(t.use)).c_str(), t.name.c_str(),
                  t.reason.c_str());
    }
  }
  for (const std::string& note : report.notes) {
    std::printf("  %s\n", note.c_str());
  }
}

// Prints the text and up to 20 tokens that the model adds.
Status continue_text(Model& model, const std::string& text, const char* device_name) {
  BOWLINE_TRY_ASSIGN(const Device device, Device::open(device_name));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::from(model));
  BOWLINE_TRY_ASSIGN(const text::Encoding encoding, tokenizer.encode(text));
  BOWLINE_TRY_ASSIGN(text::Generator generator, text::Generator::create(model, device));
  BOWLINE_TRY(generator.feed(encoding.ids));
  for (int i = 0; i < 20 && generator.has_room(); ++i) {
    BOWLINE_TRY_ASSIGN(const int32_t id, generator.next());
    if (generator.is_stop(id)) {
      break;
    }
  }
  BOWLINE_TRY_ASSIGN(const std::string all, tokenizer.decode(generator.tokens()));
  std::printf("%s\n", all.c_str());
  return {};
}

Status run(int count, char** words) {
  if (count < 3) {
    return {Code::bad_argument, "usage: import_app SOURCE OUT [TEXT [DEVICE]]"};
  }
  BOWLINE_TRY_ASSIGN(const ImportedModel imported, import_model(words[1]));
  print(imported.report);
  BOWLINE_TRY(imported.model.save_compacted(words[2]).status());
  for (const NotFiniteTensor& t : imported.not_finite()) {
    std::printf("  %s has %llu values that are NaN or infinite\n", t.tensor.c_str(),
                static_cast<unsigned long long>(t.values));
  }
  if (count < 4 || imported.report.task != ImportTask::generate) {
    return {};
  }
  // The saved file is faster to read than the source.
  BOWLINE_TRY_ASSIGN(Model model, Model::open(words[2]));
  return continue_text(model, words[3], count > 4 ? words[4] : "best");
}

}  // namespace

int main(int count, char** words) {
  const Status status = run(count, words);
  if (!status.ok()) {
    std::fprintf(stderr, "import_app: %s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
