// Models: files, values, ties, devices and descriptions.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

bowline_model* new_model(Model model, std::shared_ptr<Family> family) {
  return make_handle<bowline_model>(std::make_shared<ModelObject>(ModelObject{std::move(model)}),
                                    std::move(family));
}

// Gives the model of a call that makes one to the caller. Its devices are those of `devices`.
Status put_model(Result<Model> model, bowline_model** out, std::shared_ptr<Family> family) {
  if (!model.ok()) {
    return std::move(model).status();
  }
  *out = new_model(std::move(model).value(), std::move(family));
  return {};
}

// A family of its own for a model on the same devices.
std::shared_ptr<Family> family_like(bowline_model* model) {
  auto family = std::make_shared<Family>();
  family->devices = handle_of(model)->family->devices;
  return family;
}

bowline_open_options open_defaults() {
  bowline_open_options out = {};
  out.memory_map = OpenOptions{}.memory_map ? 1 : 0;
  out.ignore_tie_metadata = OpenOptions{}.ignore_tie_metadata ? 1 : 0;
  return out;
}

Result<OpenOptions> open_options_of(const bowline_open_options* from) {
  BOWLINE_TRY_ASSIGN(const bowline_open_options o,
                     read(from, open_defaults(), "bowline_open_options"));
  OpenOptions out;
  out.memory_map = o.memory_map != 0;
  out.ignore_tie_metadata = o.ignore_tie_metadata != 0;
  if (o.budget != nullptr) {
    BOWLINE_TRY_ASSIGN(out.budget, budget_of(o.budget, {}));
  }
  return out;
}

// The callback of the program that reads a storage or a file.
ValueSource reader_of(bowline_value_source source, void* user) {
  return [source, user](uint64_t first, std::span<std::byte> out) {
    return call_back([&](bowline_error** failed) {
      return source(user, first, out.data(), out.size(), failed);
    });
  };
}

// Calls the hook of the program for a parameter.
Result<std::optional<LoadedValue>> loaded_by(const bowline_load_options& options,
                                             const LoadedParameter& of, const Tensor& value) {
  const std::string description = text_of(json_of(of));
  bowline_tensor tensor = {};
  tensor.size = sizeof(tensor);
  tensor.name = of.here.name.c_str();
  tensor.dtype = static_cast<bowline_dtype>(value.dtype);
  tensor.rank = static_cast<int32_t>(value.shape.size());
  tensor.shape = value.shape.begin();
  tensor.data = value.data;
  tensor.bytes = size_of(value.dtype);
  for (const int64_t size : value.shape) {
    tensor.bytes *= static_cast<uint64_t>(size);
  }
  const bowline_tensor* replacement = nullptr;
  BOWLINE_TRY(call_back([&](bowline_error** error) {
    return options.hook(options.user, description.c_str(), &tensor, &replacement, error);
  }));
  if (replacement == nullptr) {
    return std::optional<LoadedValue>();
  }
  BOWLINE_TRY_ASSIGN(const Tensor replaced, value_of(replacement));
  LoadedValue out;
  out.dtype = replaced.dtype;
  out.shape = replaced.shape;
  const auto* const bytes = static_cast<const std::byte*>(replaced.data);
  out.bytes.assign(bytes, bytes + replacement->bytes);
  return std::optional(std::move(out));
}

Result<LoadOptions> load_options_of(const bowline_load_options* from) {
  BOWLINE_TRY_ASSIGN(const bowline_load_options o,
                     read(from, bowline_load_options{}, "bowline_load_options"));
  LoadOptions out;
  BOWLINE_TRY_ASSIGN(out.mode, enum_of(o.mode, LoadMode::assign, "mode"));
  out.partial = o.partial != 0;
  BOWLINE_TRY_ASSIGN(
      out.aliases,
      read_list(
          o.aliases, o.alias_count, "bowline_alias",
          [](const bowline_alias& a) -> Result<std::pair<std::string, std::string>> {
            BOWLINE_TRY_ASSIGN(const std::string_view in_file, required(a.in_file, "in_file"));
            BOWLINE_TRY_ASSIGN(const std::string_view in_model, required(a.in_model, "in_model"));
            return std::pair(std::string(in_file), std::string(in_model));
          }));
  if (o.hook != nullptr) {
    out.hook = [o](const LoadedParameter& of, const Tensor& value) {
      return loaded_by(o, of, value);
    };
  }
  return out;
}

bowline_parameter c_struct(const Parameter& from) { return {from.model, from.index}; }
Status put_parameter(Result<Parameter> parameter, bowline_parameter* out) {
  if (!parameter.ok()) {
    return std::move(parameter).status();
  }
  if (out != nullptr) {
    *out = c_struct(parameter.value());
  }
  return {};
}

// What declares parameters.
struct Declared {
  TensorShape shape;
  Init init;
  StorageRole role;
  DType dtype;
};
Result<Declared> declared_of(const int64_t* shape, int32_t rank, const bowline_init* init,
                             int32_t role, bowline_dtype dtype) {
  Declared out;
  BOWLINE_TRY_ASSIGN(out.shape, shape_of(shape, rank));
  BOWLINE_TRY_ASSIGN(out.init, init_of(init));
  BOWLINE_TRY_ASSIGN(out.role, enum_of(role, StorageRole::master, "role"));
  BOWLINE_TRY_ASSIGN(out.dtype, dtype_of(dtype));
  return out;
}

// The device that a model was moved to lives as long as the model.
Result<std::shared_ptr<const Device>> kept_device(bowline_model* model, bowline_device* device) {
  BOWLINE_TRY_ASSIGN(auto object, object_of(device));
  handle_of(model)->family->devices.insert(object);
  return object;
}

}  // namespace

namespace api {

bowline_code open_options_init(bowline_open_options* options, bowline_error** error) {
  return call(error, [&] { return write(open_defaults(), options, "bowline_open_options"); });
}
bowline_code load_options_init(bowline_load_options* options, bowline_error** error) {
  return call(error,
              [&] { return write(bowline_load_options{}, options, "bowline_load_options"); });
}

bowline_code model_create(bowline_model** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    *out = new_model(Model(), std::make_shared<Family>());
    return {};
  });
}

bowline_code model_close(bowline_model* model, bowline_error** error) {
  return close(model, error);
}

bowline_code model_open(const char* path, const bowline_open_options* options, bowline_model** out,
                        bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const OpenOptions o, open_options_of(options));
    return put_model(Model::open(std::string(from), o), out, std::make_shared<Family>());
  });
}

bowline_code model_open_memory(const void* bytes, size_t count, const bowline_open_options* options,
                               bowline_model** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY(given(bytes, "bytes"));
    BOWLINE_TRY_ASSIGN(const OpenOptions o, open_options_of(options));
    return put_model(Model::open_memory({static_cast<const std::byte*>(bytes), count}, o), out,
                     std::make_shared<Family>());
  });
}

bowline_code model_open_descriptor(int32_t descriptor, uint64_t offset, uint64_t count,
                                   const bowline_open_options* options, bowline_model** out,
                                   bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const OpenOptions o, open_options_of(options));
    return put_model(Model::open_descriptor(descriptor, offset, count, o), out,
                     std::make_shared<Family>());
  });
}

bowline_code model_open_reader(bowline_value_source read, void* user, uint64_t count,
                               const bowline_open_options* options, bowline_model** out,
                               bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_REQUIRE(read != nullptr, "\"read\" is NULL.");
    BOWLINE_TRY_ASSIGN(const OpenOptions o, open_options_of(options));
    return put_model(Model::open_reader({count, reader_of(read, user)}, o), out,
                     std::make_shared<Family>());
  });
}

bowline_code model_verify(const char* path, const bowline_open_options* options,
                          bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const OpenOptions o, open_options_of(options));
    return Model::verify(std::string(from), o);
  });
}

bowline_code model_save(bowline_model* model, const char* path, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    return m.model.save(std::string(to));
  });
}

bowline_code model_save_compacted(bowline_model* model, const char* path, bowline_buffer** report,
                                  bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    return put_json(m.model.save_compacted(std::string(to)), report);
  });
}

bowline_code model_load(bowline_model* model, const char* path, const bowline_load_options* options,
                        bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view from, required(path, "path"));
    BOWLINE_TRY_ASSIGN(const LoadOptions o, load_options_of(options));
    return put_json(m.model.load(std::string(from), o), report);
  });
}

bowline_code model_parameter(bowline_model* model, const char* name, const int64_t* shape,
                             int32_t rank, const bowline_init* init, int32_t role,
                             bowline_dtype dtype, bowline_parameter* out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Declared d, declared_of(shape, rank, init, role, dtype));
    return put_parameter(m.model.parameter(n, d.shape, d.init, d.role, d.dtype), out);
  });
}

bowline_code model_tied_parameter(bowline_model* model, const char* name, bowline_parameter other,
                                  const bowline_view* view, bowline_parameter* out,
                                  bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const std::optional<View> v, view_of(view));
    return put_parameter(m.model.tied_parameter(n, {other.index, other.model}, v), out);
  });
}

bowline_code model_declare_parameters(bowline_model* model, const char* name, int32_t count,
                                      const int64_t* shape, int32_t rank, const bowline_init* init,
                                      int32_t role, bowline_dtype dtype, bowline_parameter* out,
                                      bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Declared d, declared_of(shape, rank, init, role, dtype));
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const ParameterList list,
                       m.model.parameters(n, count, d.shape, d.init, d.role, d.dtype));
    std::ranges::transform(list.items, out, [](const Parameter& p) { return c_struct(p); });
    return {};
  });
}

bowline_code model_find(bowline_model* model, const char* name, bowline_parameter* out,
                        bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY(given(out, "out"));
    return put_parameter(m.model.find(n), out);
  });
}

bowline_code model_set_dim_limits(bowline_model* model, const char* name,
                                  const bowline_dim_limits* limits, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const bowline_dim_limits l, read(limits, "bowline_dim_limits"));
    return m.model.set_dim_limits(n, {.min = l.min, .max = l.max, .dynamic = l.dynamic != 0});
  });
}

bowline_code model_materialize(bowline_model* model, uint64_t seed, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) { return m.model.materialize(seed); });
}

bowline_code model_set_value(bowline_model* model, const char* name, const bowline_tensor* value,
                             bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Tensor tensor, value_of(value));
    return m.model.set_value(n, tensor);
  });
}

bowline_code model_get_value(bowline_model* model, const char* name, const bowline_tensor* out,
                             bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Tensor tensor, value_of(out));
    return m.model.get_value(n, tensor);
  });
}

bowline_code model_set_source(bowline_model* model, const char* name, bowline_value_source source,
                              void* user, const char* encoding, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_REQUIRE(source != nullptr, "\"source\" is NULL.");
    return m.model.set_source(n, reader_of(source, user), text_or(encoding, "plain"));
  });
}

bowline_code model_assign(bowline_model* model, const char* name, const bowline_tensor* value,
                          bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const Tensor tensor, value_of(value));
    return m.model.assign(n, tensor);
  });
}

bowline_code model_swap(bowline_model* model, const char* a, const char* b, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view first, required(a, "a"));
    BOWLINE_TRY_ASSIGN(const std::string_view second, required(b, "b"));
    return m.model.swap(first, second);
  });
}

bowline_code model_resize(bowline_model* model, const char* pattern, int64_t rows,
                          const bowline_init* init, uint64_t seed, bowline_buffer** report,
                          bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view p, required(pattern, "pattern"));
    BOWLINE_TRY_ASSIGN(const Init i, init_of(init));
    return put_json(m.model.resize(p, rows, i, seed), report);
  });
}

bowline_code model_cast(bowline_model* model, bowline_dtype to, const char* pattern,
                        bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const DType type, dtype_of(to));
    return put_json(m.model.cast(type, text_or(pattern, "*")), report);
  });
}

bowline_code model_tie(bowline_model* model, const char* a, const char* b, const bowline_view* view,
                       bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view first, required(a, "a"));
    BOWLINE_TRY_ASSIGN(const std::string_view second, required(b, "b"));
    BOWLINE_TRY_ASSIGN(const std::optional<View> v, view_of(view));
    return put_json(m.model.tie(first, second, v), report);
  });
}

bowline_code model_tie_layers(bowline_model* model, const char* pattern, bowline_buffer** report,
                              bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view p, required(pattern, "pattern"));
    return put_json(m.model.tie_layers(p), report);
  });
}

bowline_code model_untie(bowline_model* model, const char* name, uint64_t* bytes,
                         bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return put(m.model.untie(n), bytes);
  });
}

bowline_code model_untie_cost(bowline_model* model, const char* name, uint64_t* bytes,
                              bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY(given(bytes, "bytes"));
    return put(m.model.untie_cost(n), bytes);
  });
}

bowline_code model_same_storage(bowline_model* model, const char* a, const char* b, int32_t* out,
                                bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view first, required(a, "a"));
    BOWLINE_TRY_ASSIGN(const std::string_view second, required(b, "b"));
    BOWLINE_TRY(given(out, "out"));
    return put(m.model.same_storage(first, second), out);
  });
}

bowline_code model_freeze(bowline_model* model, const char* name, int32_t frozen,
                          bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return m.model.freeze(n, frozen != 0);
  });
}

bowline_code model_freeze_storage(bowline_model* model, const char* name, int32_t frozen,
                                  bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    return m.model.freeze_storage(n, frozen != 0);
  });
}

bowline_code model_drop_training_state(bowline_model* model, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) { return m.model.drop_training_state(); });
}

bowline_code model_to(bowline_model* model, bowline_device* device, const char* pattern,
                      bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const auto d, kept_device(model, device));
    return pattern == nullptr ? m.model.to(*d) : m.model.to(*d, pattern);
  });
}

bowline_code model_clone(bowline_model* model, bowline_model** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_model(m.model.clone(), out, family_like(model));
  });
}

bowline_code model_skeleton(bowline_model* model, bowline_model** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_model(m.model.skeleton(), out, family_like(model));
  });
}

bowline_code model_share(bowline_model* model, bowline_model** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_model(m.model.share(), out, handle_of(model)->family);
  });
}

bowline_code model_offload(bowline_model* model, const char* pattern, bowline_error** error) {
  return with(model, error,
              [&](ModelObject& m) { return bowline::offload(m.model, text_or(pattern, "*")); });
}

bowline_code model_replicate(bowline_model* model, bowline_device* device, const char* pattern,
                             bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const auto d, kept_device(model, device));
    return put_json(bowline::replicate(m.model, *d, text_or(pattern, "*")), report);
  });
}

bowline_code model_shard(bowline_model* model, bowline_device* const* devices, size_t count,
                         const char* pattern, bowline_buffer** report, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    std::vector<Device> list;
    for (size_t i = 0; i < count; ++i) {
      BOWLINE_TRY(given(devices, "devices"));
      BOWLINE_TRY_ASSIGN(const auto d, kept_device(model, devices[i]));
      list.push_back(*d);
    }
    return put_json(bowline::shard(m.model, list, text_or(pattern, "*")), report);
  });
}

bowline_code model_set_metadata(bowline_model* model, const char* key, const char* value,
                                bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view k, required(key, "key"));
    return m.model.set_metadata(k, text_or(value, ""));
  });
}

bowline_code model_metadata(bowline_model* model, const char* key, bowline_buffer** out,
                            bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view k, required(key, "key"));
    return put_bytes(m.model.metadata(k), out);
  });
}

bowline_code model_set_asset(bowline_model* model, const char* name, const char* media_type,
                             const void* bytes, size_t count, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const std::string_view type, required(media_type, "media_type"));
    BOWLINE_REQUIRE(bytes != nullptr || count == 0, "\"bytes\" is NULL.");
    return m.model.set_asset(n, type, {static_cast<const std::byte*>(bytes), count});
  });
}

bowline_code model_asset(bowline_model* model, const char* name, bowline_buffer** out,
                         bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view n, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, m.model.asset(n));
    return put_bytes(bytes, out);
  });
}

bowline_code model_self_test(bowline_model* model, size_t number, int32_t is_output, size_t tensor,
                             bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const SelfTestValues values, m.model.self_test(number));
    const auto& list = is_output != 0 ? values.outputs : values.inputs;
    BOWLINE_REQUIRE(tensor < list.size(), "Self-test {} has {} {}, so none has the number {}.",
                    number, list.size(), is_output != 0 ? "outputs" : "inputs", tensor);
    return put_bytes(list[tensor], out);
  });
}

bowline_code model_describe(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(m.model.describe(), out);
  });
}

bowline_code model_storage_bytes(bowline_model* model, uint32_t tie, bowline_buffer** out,
                                 bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, m.model.storage_bytes(tie));
    return put_bytes(bytes, out);
  });
}

bowline_code model_parameters(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(m.model.parameters(), out);
  });
}

bowline_code model_storages(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(m.model.storages(), out);
  });
}

bowline_code model_ties(bowline_model* model, bowline_buffer** out, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_bytes(m.model.ties(), out);
  });
}

bowline_code model_counters(bowline_model* model, bowline_model_counters* out,
                            bowline_error** error) {
  return with(model, error, [&](ModelObject& m) {
    const ModelCounters c = m.model.counters();
    return write({.size = sizeof(*out),
                  .casts = c.casts,
                  .quantized = c.quantized,
                  .dequantized = c.dequantized,
                  .packs = c.packs,
                  .repacks = c.repacks,
                  .fallbacks = c.fallbacks},
                 out, "bowline_model_counters");
  });
}

bowline_code model_reset_counters(bowline_model* model, bowline_error** error) {
  return with(model, error, [&](ModelObject& m) {
    m.model.reset_counters();
    return Status();
  });
}

}  // namespace api
}  // namespace bowline::c
