// Prints the devices that processes 0 to 3 of a machine take.
//
//   device_of_process WANTED DEVICE...      a device ends with `!`: not usable, `~`: software
#include "common/device_of_process.h"

#include <cstdio>
#include <string>
#include <vector>

int main(int count, char** arguments) {
  if (count < 2) {
    return 2;
  }
  std::vector<bowline::DeviceInfo> devices;
  for (int i = 2; i < count; ++i) {
    bowline::DeviceInfo& d = devices.emplace_back();
    d.name = arguments[i];
    d.unusable = d.name.ends_with('!') ? "no" : "";
    d.software = d.name.ends_with('~');
    d.name.erase(d.name.find_last_not_of("!~") + 1);
  }
  for (int rank = 0; rank < 4; ++rank) {
    std::printf("%s%s", rank == 0 ? "" : " ",
                bowline::command::device_of_process(arguments[1], devices, rank).c_str());
  }
  std::puts("");
}
