#include <cstring>

#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"
#include "params/view.h"

namespace bowline::detail::params {
namespace {

Status check_tensor(std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
  BOWLINE_TRY_ASSIGN(const Shape given, Shape::checked(tensor.shape));
  BOWLINE_REQUIRE(given == shape && tensor.dtype == dtype,
                  "Parameter \"{}\" is {}{}; the tensor is {}{}.", name, dtype, shape, tensor.dtype,
                  given);
  BOWLINE_REQUIRE(tensor.buffer == nullptr,
                  "The tensor for parameter \"{}\" is in a buffer of a device. Pass values in host "
                  "memory.",
                  name);
  BOWLINE_REQUIRE(tensor.data != nullptr || shape.elements() == 0,
                  "The tensor for parameter \"{}\" has no data.", name);
  return {};
}

// A copy of the bytes of a host or file storage with the run `window` replaced.
Result<Home> replaced(const Storage& storage, const Window& window, Bytes run) {
  BOWLINE_TRY(require_host_memory(storage.bytes()));
  std::vector<std::byte> bytes(storage.bytes());
  if (window.count < bytes.size()) {
    std::vector<std::byte> scratch;
    BOWLINE_TRY_ASSIGN(const Bytes old, read_all(storage, scratch));
    std::memcpy(bytes.data(), old.data(), old.size());
  }
  if (!run.empty()) {
    std::memcpy(bytes.data() + window.first, run.data(), run.size());
  }
  Home home;
  home.host = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return home;
}

}  // namespace

Status set_value(Table& table, std::string_view name, const Tensor& value, int busy) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "set_value()"));
  const ParameterRow& parameter = table.parameters[index];
  Storage& storage = stage.storage(parameter.tie);
  BOWLINE_TRY_ASSIGN(const Window window, window_of(parameter, storage));
  BOWLINE_TRY(check_tensor(name, value, window.shape, storage.dtype));
  Bytes run(static_cast<const std::byte*>(value.data), window.count);
  std::vector<std::byte> ordered;
  if (parameter.view.transpose) {
    ordered = to_storage_order(run, window.shape, size_of(storage.dtype));
    run = ordered;
  }
  if (storage.home.block) {
    // The last step that can fail. It changes nothing if it does.
    BOWLINE_TRY(storage.home.block->write(window.first, run));
    ++storage.version;
  } else if (!storage.home.shards.empty()) {
    // The write to a shard may fail after others succeeded. Then the old bytes are restored.
    std::vector<std::byte> old;
    BOWLINE_TRY(read_run(storage, window.first, window.count, old).status());
    if (Status written = write_run(storage.home, window.first, run); !written.ok()) {
      (void)write_run(storage.home, window.first, old);
      return written;
    }
    ++storage.version;
  } else if (!storage.home.valid() && table.device()) {
    BOWLINE_REQUIRE(window.count == storage.bytes(),
                    "Storage {} of \"{}\" has no values yet. Call materialize() or load() before "
                    "you write a part of it.",
                    parameter.tie, name);
    BOWLINE_TRY_ASSIGN(Home home, make_home(table.device(), run));
    install(storage, std::move(home));
  } else {
    const bool stays = storage.home.host != nullptr;
    BOWLINE_TRY_ASSIGN(storage.home, replaced(storage, window, run));
    ++storage.version;
    storage.generation += stays ? 0 : 1;
  }
  stage.commit();
  return {};
}

Status get_value(const Table& table, std::string_view name, const Tensor& out) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, table.require(name));
  const ParameterRow& parameter = table.parameters[index];
  return read_values(parameter, table.storages[parameter.tie], out);
}

namespace {

// Decodes the part of quantized values that the parameter views, to the dtype of the storage.
Status decode_values(const ParameterRow& parameter, const Storage& storage, const Tensor& out) {
  BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(parameter.view, storage.shape));
  BOWLINE_TRY(check_tensor(parameter.name, out, shape, storage.dtype));
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(const Bytes codes, read_all(storage, scratch));
  const auto elements = static_cast<uint64_t>(shape.elements());
  BOWLINE_TRY(require_host_memory(elements * (sizeof(float) + 2 * size_of(storage.dtype))));
  std::vector<float> numbers(elements);
  storage.encoding.decode(codes, storage.dtype, storage.shape,
                          view_run(parameter.view, storage.shape), numbers);
  std::vector<std::byte> values(elements * size_of(storage.dtype));
  Encoding().encode(numbers, storage.dtype, shape, values);
  if (parameter.view.transpose) {
    values = to_parameter_order(values, shape, size_of(storage.dtype));
  }
  if (!values.empty()) {
    std::memcpy(out.data, values.data(), values.size());
  }
  return {};
}

}  // namespace

Status read_values(const ParameterRow& parameter, const Storage& storage, const Tensor& out) {
  if (!storage.encoding.is_plain()) {
    return decode_values(parameter, storage, out)
        .at(format("While reading parameter \"{}\".", parameter.name));
  }
  BOWLINE_TRY_ASSIGN(const Window window, window_of(parameter, storage));
  BOWLINE_TRY(check_tensor(parameter.name, out, window.shape, storage.dtype));
  std::vector<std::byte> scratch;
  BOWLINE_TRY_ASSIGN(Bytes values,
                     in_context(read_run(storage, window.first, window.count, scratch),
                                format("While reading parameter \"{}\".", parameter.name)));
  std::vector<std::byte> ordered;
  if (parameter.view.transpose) {
    ordered = to_parameter_order(values, window.shape, size_of(storage.dtype));
    values = ordered;
  }
  if (!values.empty()) {
    std::memcpy(out.data, values.data(), values.size());
  }
  return {};
}

}  // namespace bowline::detail::params
