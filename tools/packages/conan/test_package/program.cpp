// Lists the devices of the packaged library.
#include <bowline.h>

#include <cstdio>

int main() {
  for (const bowline::DeviceInfo& device : bowline::Device::list()) {
    std::printf("%s: %s\n", device.name.c_str(), device.description.c_str());
  }
  return bowline::Device::open("cpu").ok() ? 0 : 1;
}
