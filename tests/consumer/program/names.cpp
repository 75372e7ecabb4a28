// A consumer whose names equal those of library layers, after `using namespace bowline`.
#include <bowline.h>

#include <cstdio>

using namespace bowline;

namespace params {
constexpr int kMost = 3;
}

static int train(int steps) { return steps + 1; }
static int exec(int entry) { return 2 * entry; }
static int plan(int size) { return size - 1; }
static int api(int x) { return x; }
static const int graph = 5;
static const int device = 7;
static const int model = 11;
static const int core = 13;
static const int cpu = 17, vulkan = 19, cuda = 23, ops = 29, file = 31;

int main() {
  const Result<Device> opened = Device::open("cpu");
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().message().c_str());
    return 1;
  }
  const Device copy = opened.value();
  const int sum = train(1) + exec(2) + plan(3) + api(4) + graph + device + model + core + cpu +
                  vulkan + cuda + ops + file + params::kMost;
  std::printf("%s %d\n", copy.info().name.c_str(), sum);
  return sum == 170 && copy.info().name == "cpu" ? 0 : 1;
}
