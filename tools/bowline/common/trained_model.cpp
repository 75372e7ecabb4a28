#include "common/trained_model.h"

#include <algorithm>

#include "base/status.h"
#include "common/array.h"
#include "common/find.h"
#include "common/flags.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct Need {
  const char* name;
  DType dtype;  // f32 also allows shorter floats
  size_t rank;
  const char* shape;
};

constexpr std::string_view kTrained =
    "The command trains and evaluates text models that 'bowline import' converted from Hugging "
    "Face or GGUF. Other models can be trained in C++ with bowline::Trainer.";

Status check_entry(const ModelInfo& info, const std::string& path, const std::string& name,
                   std::span<const Need> needs) {
  const EntryPointInfo* entry = find_named(info.entry_points, name);
  BOWLINE_REQUIRE_CODE(entry != nullptr, Code::bad_file,
                       "Model \"{}\" has no entry point \"{}\". {}", path, name, kTrained);
  for (const Need& need : needs) {
    const bool found = std::ranges::any_of(entry->inputs, [&](const InputInfo& input) {
      const bool fits =
          need.dtype == DType::f32 ? is_float(input.dtype) : input.dtype == need.dtype;
      return input.name == need.name && fits && input.dims.size() == need.rank;
    });
    BOWLINE_REQUIRE_CODE(found, Code::bad_file,
                         "Entry point \"{}\" of model \"{}\" has no input \"{}\" of dtype {} "
                         "and shape {}. {}",
                         name, path, need.name, name_of(need.dtype), need.shape, kTrained);
  }
  return {};
}

Status check(const Model& model, const std::string& path) {
  const std::string tokenizer = model.metadata("tokenizer");
  BOWLINE_REQUIRE_CODE(
      tokenizer.empty() || tokenizer == "bytes", Code::bad_file,
      "Model \"{}\" has tokenizer \"{}\", which is not known. Tokenizers other than "
      "\"bytes\" are assets.",
      path, tokenizer);
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const Need tokens = {"tokens", DType::i32, 2, "[batch, seq]"};
  const Need lengths = {"lengths", DType::i32, 1, "[batch]"};
  const std::string task = model.metadata("task");
  if (task == "embed") {
    const Need trained[] = {tokens, lengths, {"second_tokens", DType::i32, 2, "[batch, seq]"}};
    BOWLINE_TRY(check_entry(info, path, "loss", trained));
    return check_entry(info, path, "embed", std::span(trained).first(2));
  }
  if (task == "tag") {
    BOWLINE_TRY(check_entry(info, path, "tag", {&tokens, 1}));
  }
  if (task != "classify") {
    const Need needs[] = {tokens, {"labels", DType::i32, 2, "[batch, seq]"}};
    return check_entry(info, path, "loss", needs);
  }
  const Need labels = model.metadata("multi_label") == "true"
                          ? Need{"targets", DType::f32, 2, "[batch, classes]"}
                          : Need{"labels", DType::i32, 1, "[batch]"};
  const Need trained[] = {tokens, lengths, labels};
  BOWLINE_TRY(check_entry(info, path, "loss", trained));
  return check_entry(info, path, "classify", std::span(trained).first(2));
}

}  // namespace

Result<Model> open_trained_model(const std::string& path) {
  BOWLINE_TRY_ASSIGN(Model model, open_model(path));
  BOWLINE_TRY(check(model, path));
  return model;
}

Result<Device> open_computing_device(const DeviceFlags& flags) {
  BOWLINE_TRY_ASSIGN(Device device, open_device(flags));
  BOWLINE_REQUIRE_CODE(
      device.info().computes, Code::unsupported,
      "Device {} computes nothing, so its results have no meaning. 'bowline devices' lists others.",
      device.info().name);
  return device;
}

}  // namespace bowline::command
