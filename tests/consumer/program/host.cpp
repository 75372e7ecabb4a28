// Loads a plugin, calls it and unloads it, twice. Then neither its file nor any further file
// argument is mapped.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

static bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) {
      return true;
    }
  }
  return false;
}

int main(int, char** argv) {
  for (int turn = 0; turn < 2; ++turn) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    using Plugin = int (*)();
    const auto plugin = reinterpret_cast<Plugin>(dlsym(library, "plugin"));
    if (plugin == nullptr || plugin() != 0 || !is_mapped(argv[1])) {
      return 1;
    }
    dlclose(library);
    for (int i = 1; argv[i] != nullptr; ++i) {
      if (is_mapped(argv[i])) {
        std::fprintf(stderr, "%s stays mapped after dlclose().\n", argv[i]);
        return 1;
      }
    }
  }
}
