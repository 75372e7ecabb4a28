// Models: files, values, ties, quantization and adapters.
#include <map>

#include "support.h"

namespace bowline::python {
namespace {

using namespace nb::literals;

Init init_of(const std::string& kind, float scale) {
  const std::map<std::string, Init> kinds = {{"zeros", Init::zeros()},
                                             {"ones", Init::ones()},
                                             {"normal", Init::normal(scale)},
                                             {"uniform", Init::uniform(scale)}};
  const auto found = kinds.find(kind);
  if (found == kinds.end()) {
    throw Failure{Status(Code::bad_argument, "There is no initialization \"" + kind +
                                                 "\". Use zeros, ones, normal or uniform.")};
  }
  return found->second;
}

StorageRole role_named(const std::string& name) {
  for (const StorageRole role : {StorageRole::weight, StorageRole::constant, StorageRole::kv_cache,
                                 StorageRole::running_statistic}) {
    if (name_of(role) == name) {
      return role;
    }
  }
  throw Failure{Status(
      Code::bad_argument,
      "There is no role \"" + name + "\". Use weight, constant, kv_cache or running_statistic.")};
}

// A new array with the values of a parameter. Python has no bf16, so it gets f32.
nb::object value_of(PyModel& m, const std::string& name) {
  const ModelInfo info = take(m.model.describe());
  for (const ParameterInfo& p : info.parameters) {
    if (p.name != name) {
      continue;
    }
    NewArray array(p.dtype, p.shape);
    const Tensor out = {name, p.dtype, p.shape, array.data()};
    check(unlocked([&] { return m.model.get_value(name, out); }));
    array.finish();
    return array.array();
  }
  throw Failure{Status(Code::bad_argument, "The model has no parameter \"" + name + "\".")};
}

void set_value(PyModel& m, const std::string& name, nb::handle array) {
  Arrays arrays;
  arrays.add(name, array);
  check(unlocked([&] { return m.model.set_value(name, arrays.tensors()[0]); }));
}

nb::object load(PyModel& m, const std::string& path, bool assign, bool partial,
                const std::map<std::string, std::string>& aliases) {
  LoadOptions options;
  options.mode = assign ? LoadMode::assign : LoadMode::copy;
  options.partial = partial;
  options.aliases.assign(aliases.begin(), aliases.end());
  return report_of(take(unlocked([&] { return m.model.load(path, options); })));
}

std::unique_ptr<PyModel> open(const std::string& path, bool memory_map) {
  OpenOptions options;
  options.memory_map = memory_map;
  return std::make_unique<PyModel>(
      PyModel{{}, take(unlocked([&] { return Model::open(path, options); }))});
}

Parameter tied_parameter(PyModel& m, const std::string& name, Parameter other, bool transpose,
                         int64_t row_start, int64_t rows, const std::vector<int64_t>& shape) {
  const View view = {row_start, rows, shape, transpose};
  return take(
      m.model.tied_parameter(name, other, view == View() ? std::nullopt : std::optional(view)));
}

void add_ties(nb::class_<PyModel>& model) {
  model
      .def(
          "tie",
          [](PyModel& m, const std::string& a, const std::string& b) {
            return report_of(take(m.model.tie(a, b)));
          },
          "a"_a, "b"_a, "Ties b to a: b uses the storage of a from now on.")
      .def(
          "tie_layers",
          [](PyModel& m, const std::string& pattern) {
            return report_of(take(m.model.tie_layers(pattern)));
          },
          "pattern"_a,
          "Ties parameters whose names differ only in one number, which is {} in the pattern.")
      .def(
          "untie", [](PyModel& m, const std::string& name) { return take(m.model.untie(name)); },
          "name"_a, "Gives a tied parameter its own storage. Returns the bytes of the storage.")
      .def(
          "untie_cost",
          [](PyModel& m, const std::string& name) { return take(m.model.untie_cost(name)); },
          "name"_a, "Returns the bytes that untie() would need.")
      .def(
          "same_storage",
          [](PyModel& m, const std::string& a, const std::string& b) {
            return take(m.model.same_storage(a, b));
          },
          "a"_a, "b"_a, "Returns True if two parameters are tied.")
      .def_prop_ro(
          "ties",
          [](PyModel& m) {
            const ModelInfo info = take(m.model.describe());
            nb::dict out;
            for (const TieInfo& tie : info.ties) {
              nb::list names;
              for (const uint32_t p : tie.parameters) {
                names.append(nb::cast(info.parameters[p].name));
              }
              out[nb::cast(tie.tie)] = names;
            }
            return out;
          },
          "The tied storages: tie index and names of their parameters.");
}

void add_verbs(nb::class_<PyModel>& model) {
  model
      .def(
          "cast",
          [](PyModel& m, const std::string& to, const std::string& pattern) {
            const DType type = dtype_named(to);
            return report_of(take(unlocked([&] { return m.model.cast(type, pattern); })));
          },
          "to"_a, "pattern"_a = "*", "Converts the matching storages to f32, f16 or bf16.")
      .def(
          "quantize",
          [](PyModel& m, const std::string& encoding, const std::string& pattern) {
            return report_of(take(unlocked([&] { return quantize(m.model, encoding, pattern); })));
          },
          "encoding"_a, "pattern"_a = "*",
          "Quantizes the storages of all matching parameters, for example to \"q4_k\" or \"int8\".")
      .def(
          "dequantize",
          [](PyModel& m, const std::string& pattern, const std::string& to) {
            const DType type = dtype_named(to);
            return report_of(take(unlocked([&] { return dequantize(m.model, pattern, type); })));
          },
          "pattern"_a = "*", "to"_a = "f32", "Dequantizes the storages of all matching parameters.")
      .def(
          "freeze",
          [](PyModel& m, const std::string& name, bool frozen) {
            check(m.model.freeze_storage(name, frozen));
          },
          "name"_a, "frozen"_a = true, "Freezes the storage of a parameter, or thaws it.")
      .def(
          "resize",
          [](PyModel& m, const std::string& pattern, int64_t rows, const std::string& init,
             float scale, uint64_t seed) {
            const Init values = init_of(init, scale);
            return report_of(take(m.model.resize(pattern, rows, values, seed)));
          },
          "pattern"_a, "rows"_a, "init"_a = "zeros", "scale"_a = 0.0f, "seed"_a = 0,
          "Changes the number of rows of the matching storages.")
      .def(
          "materialize", [](PyModel& m, uint64_t seed) { check(m.model.materialize(seed)); },
          "seed"_a = 0, "Gives every storage without values its initial values.")
      .def(
          "copy_values_from",
          [](PyModel& m, const PyModel& other) {
            check(unlocked([&] { return m.model.copy_values_from(other.model); }));
          },
          "other"_a,
          "Copies all values of another model. It waits until no session or trainer of the two "
          "models runs, so one model can serve while the other trains.")
      .def(
          "to",
          [](PyModel& m, const Device& device, const std::optional<std::string>& pattern) {
            m.devices.push_back(device);
            check(unlocked([&] {
              return pattern.has_value() ? m.model.to(device, *pattern) : m.model.to(device);
            }));
          },
          "device"_a, "pattern"_a = nb::none(), "Moves storages to a device.");
}

void add_adapters(nb::class_<PyModel>& model) {
  model
      .def(
          "add_adapter",
          [](PyModel& m, const std::string& name, int64_t rank, float alpha,
             const std::string& target, bool per_parameter, bool freeze_others, uint64_t seed,
             float dropout) {
            const AdapterOptions options = {rank,          alpha, target, per_parameter,
                                            freeze_others, seed,  dropout};
            return report_of(take(add_adapter(m.model, name, options)));
          },
          "name"_a, nb::kw_only(), "rank"_a = 8, "alpha"_a = 16.0f, "target"_a = "*",
          "per_parameter"_a = false, "freeze_others"_a = true, "seed"_a = 0, "dropout"_a = 0.0f,
          "Adds a LoRA adapter to the parameters that match target.")
      .def(
          "load_adapter",
          [](PyModel& m, const std::string& path, const std::string& name) {
            return take(load_adapter(m.model, path, name));
          },
          "path"_a, "name"_a = "", "Adds an adapter from a file, and returns its name.")
      .def(
          "save_adapter",
          [](PyModel& m, const std::string& name, const std::string& path) {
            check(save_adapter(m.model, name, path));
          },
          "name"_a, "path"_a, "Saves an adapter without the model.")
      .def(
          "merge_adapter",
          [](PyModel& m, const std::string& name) { check(merge_adapter(m.model, name)); },
          "name"_a, "Adds an adapter to the values of its targets, and removes it.")
      .def(
          "remove_adapter",
          [](PyModel& m, const std::string& name) { check(remove_adapter(m.model, name)); },
          "name"_a, "Removes an adapter.")
      .def(
          "set_adapter_weight",
          [](PyModel& m, const std::string& name, float weight) {
            check(set_adapter_weight(m.model, name, weight));
          },
          "name"_a, "weight"_a, "Sets the weight of an adapter. 0 disables it.")
      .def_prop_ro(
          "adapters", [](PyModel& m) { return adapters(m.model); }, "Names of all adapters.");
}

void add_values(nb::class_<PyModel>& model) {
  model
      .def("__getitem__", &value_of, "name"_a,
           "Copies the values of a parameter to a new NumPy array. Values in bf16 become float32.")
      .def("__setitem__", &set_value, "name"_a, "array"_a,
           "Writes the values of a parameter. All tied parameters see them.")
      .def(
          "set_metadata",
          [](PyModel& m, const std::string& key, const std::string& value) {
            check(m.model.set_metadata(key, value));
          },
          "key"_a, "value"_a, "Sets a metadata entry. An empty value removes it.")
      .def(
          "set_asset",
          [](PyModel& m, const std::string& name, const std::string& media_type, nb::bytes bytes) {
            check(m.model.set_asset(
                name, media_type,
                {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()}));
          },
          "name"_a, "media_type"_a, "bytes"_a, "Stores bytes in the model.")
      .def(
          "asset",
          [](PyModel& m, const std::string& name) {
            const std::vector<std::byte> bytes = take(m.model.asset(name));
            return nb::bytes(bytes.data(), bytes.size());
          },
          "name"_a, "Returns the bytes of an asset.");
}

}  // namespace

void add_models(nb::module_& module) {
  nb::class_<Parameter>(module, "Parameter", "A handle of a parameter of a model.");
  nb::class_<PyModel> model(module, "Model", "A neural network: storages, parameters and graphs.");
  model
      .def(
          "__init__",
          [](PyModel* self) {
            new (self) PyModel{{}, Model()};
          },
          "An empty model.")
      .def_static("open", &open, "path"_a, nb::kw_only(), "memory_map"_a = true,
                  "Opens a .bowline file.")
      .def(
          "save",
          [](PyModel& m, const std::string& path) {
            check(unlocked([&] { return m.model.save(path); }));
          },
          "path"_a, "Saves the model without training state.")
      .def("load", &load, "path"_a, nb::kw_only(), "assign"_a = false, "partial"_a = false,
           "aliases"_a = std::map<std::string, std::string>{},
           "Loads values from another file by parameter name.")
      .def(
          "parameter",
          [](PyModel& m, const std::string& name, const std::vector<int64_t>& shape,
             const std::string& init, float scale, const std::string& role,
             const std::string& dtype) {
            return take(m.model.parameter(name, shape, init_of(init, scale), role_named(role),
                                          dtype_named(dtype)));
          },
          "name"_a, "shape"_a, nb::kw_only(), "init"_a = "zeros", "scale"_a = 0.0f,
          "role"_a = "weight", "dtype"_a = "f32", "Declares a parameter with its own storage.")
      .def(
          "tied_parameter", &tied_parameter, "name"_a, "other"_a, nb::kw_only(),
          "transpose"_a = false, "row_start"_a = 0, "rows"_a = -1,
          "shape"_a = std::vector<int64_t>{},
          "Declares a parameter that shares the storage of another one.\n\nIt uses `rows` rows of "
          "the storage from row_start on (-1: all others), reshaped to `shape`, then with the last "
          "two axes exchanged if transpose is True.")
      .def(
          "find", [](PyModel& m, const std::string& name) { return take(m.model.find(name)); },
          "name"_a, "Returns the handle of a parameter.")
      .def(
          "set_dim_limits",
          [](PyModel& m, const std::string& name, int64_t min, int64_t max, bool dynamic) {
            check(m.model.set_dim_limits(name, {min, max, dynamic}));
          },
          "name"_a, nb::kw_only(), "min"_a = DimLimits{}.min, "max"_a = DimLimits{}.max,
          "dynamic"_a = false, "Sets the limits of a named dimension.")
      .def(
          "clone",
          [](PyModel& m) {
            return std::make_unique<PyModel>(
                PyModel{m.devices, take(unlocked([&] { return m.model.clone(); }))});
          },
          "Returns a copy of the model without training state.")
      .def(
          "describe", [](PyModel& m) { return report_of(take(m.model.describe())); },
          "Returns the contents of the model: parameters, storages, ties, graphs, metadata.")
      .def_prop_ro(
          "parameters",
          [](PyModel& m) {
            nb::dict out;
            for (const ParameterInfo& p : take(m.model.describe()).parameters) {
              out[nb::cast(p.name)] = report_of(p);
            }
            return out;
          },
          "The parameters by name: tie index, dtype, shape, view.")
      .def_prop_ro(
          "metadata", [](PyModel& m) { return report_of(take(m.model.describe()).metadata); },
          "All metadata entries.");
  add_values(model);
  add_ties(model);
  add_verbs(model);
  add_adapters(model);
}

}  // namespace bowline::python
