// Saves and opens a model under a name that is not ASCII, and replaces a model that is open.
#include <bowline.h>

#include <cstring>

using namespace bowline;

static Status run(const char* path, const std::string& folder) {
  const std::string name = folder + "/\xc3\xb6 \xe6\x96\x87.bowline";  // an umlaut, a space, a Han
  BOWLINE_TRY_ASSIGN(Model model, Model::open(path));
  BOWLINE_TRY(model.save(name));
  BOWLINE_TRY(model.save(name));  // replaces a file that nobody has open
  OpenOptions options;
  options.memory_map = false;
  BOWLINE_TRY_ASSIGN(Model unmapped, Model::open(name, options));
  BOWLINE_TRY(unmapped.save(name));
  BOWLINE_TRY_ASSIGN(const Model mapped, Model::open(name));
  if (const Status status = mapped.save(name); !status.ok()) {
    std::printf("%s\n", status.message().c_str());
    if (status.code() != Code::io_error) {
      return status;
    }
  }
  const Status missing = Model::open(folder + "/none").status();
  if (missing.code() != Code::io_error ||
      std::strstr(missing.message().c_str(), "No such file") == nullptr) {
    return Status(Code::internal, "A missing file gives: " + missing.message());
  }
  BOWLINE_TRY_ASSIGN(const Model again, Model::open(name));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, again.describe());
  std::printf("%zu parameters\n", info.parameters.size());
  return {};
}

int main(int argc, char** argv) {
  const Status status =
      argc == 3 ? run(argv[1], argv[2]) : Status(Code::bad_argument, "usage: paths MODEL FOLDER");
  if (!status.ok()) {
    std::fprintf(stderr, "paths: %s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
