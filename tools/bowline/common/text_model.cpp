#include "common/text_model.h"

#include <algorithm>

#include "common/flags.h"
#include "common/require.h"
#include "verb.h"

namespace bowline::command {
namespace {

Status check(const Model& model, const std::string& path) {
  const std::string tokenizer = model.metadata("tokenizer");
  BOWLINE_REQUIRE_CODE(tokenizer.empty() || tokenizer == "bytes", Code::bad_file,
                       "Model \"{}\" has tokenizer \"{}\"; text is read as bytes.", path,
                       tokenizer);
  BOWLINE_ASSIGN(const ModelInfo info, model.describe());
  const EntryPointInfo* loss = find_entry_point(info, "loss");
  BOWLINE_REQUIRE_CODE(loss != nullptr, Code::bad_file, "Model \"{}\" has no entry point \"loss\".",
                       path);
  for (const char* name : {"tokens", "labels"}) {
    const bool found = std::ranges::any_of(loss->inputs, [&](const InputInfo& input) {
      return input.name == name && input.dtype == DType::i32 && input.dims.size() == 2;
    });
    BOWLINE_REQUIRE_CODE(found, Code::bad_file,
                         "Entry point \"loss\" of model \"{}\" has no input \"{}\" of dtype i32 "
                         "and shape [batch, seq].",
                         path, name);
  }
  return {};
}

}  // namespace

Result<Model> open_text_model(const std::string& path) {
  Result<Model> model = Model::open(path);
  if (!model.ok()) {
    return std::move(model).status().as(Code::bad_file);
  }
  BOWLINE_TRY(check(model.value(), path));
  return model;
}

Result<Device> open_computing_device(const std::string& name, int threads, uint64_t memory_budget) {
  BOWLINE_ASSIGN(Device device, open_device(name, threads, memory_budget));
  BOWLINE_REQUIRE_CODE(device.info().computes, Code::unsupported,
                       "Device {} computes nothing: its numbers mean nothing.", device.info().name);
  if (device.info().for_tests) {
    print(stderr, "bowline: Device {} is for tests: it computes, but slowly.\n",
          device.info().name);
  }
  return device;
}

}  // namespace bowline::command
