// Models and adapters of other formats.
#include <exception>

#include "support.h"

#ifdef BOWLINE_PYTHON_IMPORT
#include "bowline_import.h"
#endif

namespace bowline::python {

using namespace nb::literals;

#ifdef BOWLINE_PYTHON_IMPORT

namespace {

// What Python gets of an ImportedModel. Its model is shared with the caller.
struct PyImported {
  nb::object model;
  nb::dict report;
  std::function<std::vector<NotFiniteTensor>()> not_finite;
};

std::optional<ImportTask> task_named(const std::optional<std::string>& name) {
  if (!name) {
    return std::nullopt;
  }
  for (const ImportTask task : kImportTasks) {
    if (name_of(task) == *name) {
      return task;
    }
  }
  throw Failure{Status(Code::bad_argument, "There is no task \"" + *name +
                                               "\". Use generate, classify, embed or tag.")};
}

nb::dict import_report(const ImportReport& from) {
  nb::list tensors;
  for (const ImportedTensor& t : from.tensors) {
    nb::dict row;
    row["name"] = t.name;
    row["stored"] = t.stored;
    row["shape"] = t.shape;
    row["use"] = std::string(name_of(t.use));
    row["parameter"] = t.parameter;
    row["reason"] = t.reason;
    tensors.append(row);
  }
  nb::dict out;
  out["format"] = std::string(name_of(from.format));
  out["task"] = from.task ? nb::cast(std::string(name_of(*from.task))) : nb::none();
  out["tensors"] = tensors;
  out["notes"] = from.notes;
  return out;
}

nb::list not_finite(const PyImported& imported) {
  nb::list out;
  for (const NotFiniteTensor& t : imported.not_finite()) {
    nb::dict row;
    row["tensor"] = t.tensor;
    row["values"] = t.values;
    row["elements"] = t.elements;
    out.append(row);
  }
  return out;
}

PyImported import(const std::string& path, ImportOptions& options, const nb::object& progress) {
  std::exception_ptr thrown;
  options.progress = [&](const ImportProgress& at) {
    const nb::gil_scoped_acquire locked;
    try {
      check_signals();
      return progress.is_none() ||
             !progress(nb::str(std::string(name_of(at.part)).c_str()), at.done, at.total)
                  .is(nb::bool_(false));
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  };
  Result<ImportedModel> result = unlocked([&] { return import_model(path, options); });
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  ImportedModel made = take(std::move(result));
  return {nb::cast(std::make_unique<PyModel>(PyModel{{}, std::move(made.model)})),
          import_report(made.report), std::move(made.not_finite)};
}

}  // namespace

void add_imports(nb::module_& module) {
  nb::class_<PyImported>(module, "ImportedModel", "The result of import_model().")
      .def_prop_ro(
          "model", [](const PyImported& i) { return i.model; }, "The Model.")
      .def_prop_ro(
          "report", [](const PyImported& i) { return i.report; },
          "A dict with format, task, tensors (a list of dicts) and notes (a list of sentences).")
      .def("not_finite", &not_finite,
           "Returns the weights with values that are NaN or infinite, among those that were read.");
  module.def(
      "import_model",
      [](const std::string& path, const std::optional<std::string>& task,
         const std::vector<std::string>& labels, const std::optional<std::string>& dtype,
         const std::string& kv_dtype, const std::string& pooling, bool multi_label,
         double label_smoothing, const std::vector<int64_t>& matryoshka,
         const std::vector<std::pair<std::string, std::string>>& ties, bool tie_equal, bool dropout,
         uint64_t seed, bool skeleton, const std::string& entry,
         const std::map<std::string, int64_t>& dims,
         const std::map<std::string, std::vector<int64_t>>& shapes, const std::string& batch_dim,
         const std::map<std::string, std::vector<double>>& given,
         const std::vector<std::string>& trainable, const std::vector<std::string>& freeze,
         const nb::object& progress) {
        const bool is_onnx = take(import_format(path)) == ImportFormat::onnx;
        ImportOptions options;
        options.text = {.task = task_named(task),
                        .labels = labels,
                        .dtype = optional_dtype(dtype),
                        .kv_dtype = dtype_named(kv_dtype),
                        .pooling = pooling,
                        .multi_label = multi_label,
                        .label_smoothing = label_smoothing,
                        .matryoshka = matryoshka,
                        .ties = ties,
                        .tie_equal = tie_equal && !is_onnx,
                        .dropout = dropout,
                        .seed = seed,
                        .skeleton = skeleton};
        options.onnx = {.entry = entry,
                        .dims = bound_dims(dims),
                        .shapes = shapes,
                        .batch_dim = batch_dim,
                        .given = given,
                        .trainable = trainable,
                        .freeze = freeze,
                        .tie_equal = tie_equal && is_onnx};
        return import(path, options, progress);
      },
      "path"_a, nb::kw_only(), "task"_a = nb::none(), "labels"_a = std::vector<std::string>{},
      "dtype"_a = nb::none(), "kv_dtype"_a = "f32", "pooling"_a = "", "multi_label"_a = false,
      "label_smoothing"_a = 0.0, "matryoshka"_a = std::vector<int64_t>{},
      "ties"_a = std::vector<std::pair<std::string, std::string>>{}, "tie_equal"_a = false,
      "dropout"_a = false, "seed"_a = 0, "skeleton"_a = false, "entry"_a = "forward",
      "dims"_a = std::map<std::string, int64_t>{},
      "shapes"_a = std::map<std::string, std::vector<int64_t>>{}, "batch_dim"_a = "",
      "given"_a = std::map<std::string, std::vector<double>>{},
      "trainable"_a = std::vector<std::string>{}, "freeze"_a = std::vector<std::string>{},
      "progress"_a = nb::none(),
      "Reads a Hugging Face folder, a GGUF file or an ONNX file. The options are the flags of "
      "`bowline import`. An option that has no effect raises an Error.\n\nprogress: is called as "
      "progress(part, done, total), where part is \"files\", \"bytes\", \"tensors\" or "
      "\"nodes\". If it returns False, the import stops with an Error whose code is "
      "\"cancelled\". Its exceptions stop the import, too. Ctrl-C raises KeyboardInterrupt. The "
      "import writes no files.");
  module.def(
      "import_adapter",
      [](PyModel& model, const std::string& path, const std::string& name) {
        return report_of(take(unlocked([&] { return import_adapter(model.model, path, name); })));
      },
      "model"_a, "path"_a, "name"_a = "lora",
      "Adds a LoRA adapter, a PEFT folder or a GGUF file, to a model.");
}

#else

void add_imports(nb::module_& module) {
  const auto absent = [](const nb::args&, const nb::kwargs&) {
    throw Failure{Status(Code::unsupported, "This package was built with BOWLINE_IMPORT=OFF.")};
  };
  module.def("import_model", absent, "Not in this package.");
  module.def("import_adapter", absent, "Not in this package.");
}

#endif

}  // namespace bowline::python
