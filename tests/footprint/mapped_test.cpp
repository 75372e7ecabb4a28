// The mapping of a model file keeps nothing resident once its bytes are on a device.
#include <fstream>

#include "model/tied_model.h"
#include "ties/models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr int64_t kRows = 6000;  // of 4 KiB: more than a chunk in which files are read

// Resident bytes of all mappings of the file.
uint64_t resident_of(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  uint64_t bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uint64_t kib = 0;
    if (line.find('-') < line.find(' ')) {
      inside = line.ends_with(path);
    } else if (inside && std::sscanf(line.c_str(), "Rss: %lu kB", &kib) == 1) {
      bytes += kib << 10;
    }
  }
  return bytes;
}

class Mapped : public OnDevice {};

TEST_P(Mapped, KeepsNoPagesBesideTheDevice) {
  const Folder folder;
  const std::string path = folder / "model";
  const int64_t shape[] = {kRows, 1024};
  Model made;
  must(made.parameter("w", shape, Init::normal(1)));
  must(made.materialize(1));
  must(made.save(path));
  Model model = must(Model::open(path));
  const std::vector<float> before = values(model, "w");
  EXPECT_GT(resident_of(path), uint64_t{kRows} * 4000);
  must(model.to(device_));
  EXPECT_LT(resident_of(path), uint64_t{256} << 10);
  EXPECT_EQ(values(model, "w"), before);
}

BOWLINE_ON_ALL_DEVICES(Mapped);

}  // namespace
}  // namespace bowline::test
