// Tiny imported models, for adapter files of other tools. They are the models in the corpus of
// safetensors_fuzz.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "api/internals.h"
#include "architectures/architecture.h"
#include "fuzz/files.h"
#include "graph/model_state.h"
#include "huggingface/safetensors.h"
#include "source/json.h"

namespace bowline::test {

inline bool accepted(const Status& status) {
  if (status.code() == Code::internal) {
    __builtin_trap();
  }
  return status.ok();
}

// f32, so that the values of any adapter fit.
inline Model imported_model(const std::string& name) {
  std::ifstream file(BOWLINE_FUZZ_CORPUS "/safetensors/" + name, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const size_t length = static_cast<uint8_t>(bytes[0]) + 256u * static_cast<uint8_t>(bytes[1]);
  const std::string config = bytes.substr(2, length);
  const MemoryFile tensors;
  if (!tensors.write(std::as_bytes(std::span(bytes).subspan(2 + length)))) {
    __builtin_trap();
  }
  import::Source source;
  source.config = import::parse_json("config.json", config).value();
  source.tensors = huggingface::read_safetensors(tensors.path()).value().tensors;
  const auto text = std::as_bytes(std::span(config));
  source.assets = {{"config.json", "application/json", {text.begin(), text.end()}}};
  TextImportOptions options;
  options.dtype = DType::f32;
  return std::move(import::build_model(source, options).value().model);
}

inline std::string parameters(const Model& model) {
  return Internals::state(model)->table.list_parameters();
}

// True if the tables are equal in their listings and their bytes are at the same addresses. Formats
// no text, because this check runs for most inputs.
inline bool same_rows(const params::Table& a, const params::Table& b) {
  const auto same_storage = [](const params::Storage& s, const params::Storage& t) {
    return s.dtype == t.dtype && s.shape == t.shape && s.encoding == t.encoding &&
           s.role == t.role && s.owner == t.owner && s.slot == t.slot &&
           s.trainable == t.trainable && s.empty == t.empty && s.version == t.version &&
           s.generation == t.generation && s.home.host == t.home.host;
  };
  const auto same_parameter = [](const params::ParameterRow& p, const params::ParameterRow& q) {
    return p.name == q.name && p.tie == q.tie && p.view == q.view && p.target == q.target;
  };
  return std::ranges::equal(a.storages, b.storages, same_storage) &&
         std::ranges::equal(a.parameters, b.parameters, same_parameter);
}

inline const params::Table& table_of(const Model& model) { return Internals::state(model)->table; }

// A model that can have adapters, and a copy into which inputs are read. A rejected input leaves
// the copy unchanged for the next input.
struct Base {
  Model model;
  Model copy;
  explicit Base(const std::string& name)
      : model(imported_model(name)), copy(model.clone().value()) {}
};

// Runs a decoder; other models are not run.
inline bool runs(Model& model) {
  if (model.metadata("task") != "generate") {
    return true;
  }
  static const Device device = [] {
    DeviceOptions options;
    options.threads = 1;
    return Device::open("cpu", options).value();
  }();
  int32_t tokens[] = {0, 2, 1};
  float logits[9];
  const BoundDim dims[] = {{"batch", 1}, {"seq", 3}};
  const Tensor inputs[] = {{"tokens", DType::i32, {1, 3}, tokens}};
  const Tensor outputs[] = {{"logits", DType::f32, {1, 3, 3}, logits}};
  if (!accepted(model.to(device))) {
    return false;
  }
  bool ran = false;
  if (auto session = Session::create(model, device, "forward", dims); accepted(session.status())) {
    ran = accepted(session.value().run(inputs, outputs));
  }
  return accepted(offload(model)) && ran;
}

// Calls `read` for the copy of a base. If `read` rejects the input, the model must be unchanged.
// Otherwise the model has the new adapter "ad". The adapter then runs, `write_and_read` copies it
// to another model, and it is removed. Returns true if every step succeeds.
template <class Read, class WriteAndRead>
bool takes_adapter(Base& base, bool is_run, Read read, WriteAndRead write_and_read) {
  if (!accepted(read(base.copy))) {
    if (!same_rows(table_of(base.copy), table_of(base.model))) {
      __builtin_trap();
    }
    return false;
  }
  Model model = std::exchange(base.copy, base.model.clone().value());
  const bool ran = is_run && runs(model);
  Model again = base.model.clone().value();
  const bool is_read = accepted(write_and_read(model, again));
  const bool is_removed =
      accepted(remove_adapter(model, "ad")) && parameters(model) == parameters(base.model);
  return ran && is_read && is_removed;
}

}  // namespace bowline::test
