// The module bowline._bowline. The package bowline re-exports it.
#include "sessions.h"
#include "support.h"

namespace bowline::python {
namespace {

// bowline.Error, which the package defines. Its second argument is the name of the code.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Failure& failure) {
    const nb::object type =
        nb::module_::import_("bowline._error").attr(failure.is_export ? "ExportError" : "Error");
    const nb::object error =
        type(failure.status.message(), nb::cast(std::string(name_of(failure.status.code()))));
    PyErr_SetObject(type.ptr(), error.ptr());
  }
}

}  // namespace

NB_MODULE(_bowline, module) {
  module.doc() = "Runs and fine-tunes neural networks. Use it through the package bowline.";
  nb::register_exception_translator(translate);
  module.def(
      "version", [] { return std::string(version()); },
      "Returns the versions of the library and of its file format.");
  add_devices(module);
  add_buffers(module);
  add_models(module);
  add_graphs(module);
  add_imports(module);
  add_pending_runs(module);
  add_sessions(module);
  add_trainers(module);
  add_text(module);
}

}  // namespace bowline::python
