// bowline devices: lists every device of every backend, with the reason if it cannot be used.

#include <nlohmann/json.hpp>

#include "common/flags.h"
#include "verb.h"

namespace bowline::command {
namespace {

std::string remarks(const DeviceInfo& info, const std::string& best) {
  std::string text = info.unusable.empty() ? "usable" : "unusable: " + info.unusable;
  text += info.software ? ", software" : "";
  text += info.for_tests ? ", for tests only" : "";
  text += info.name == best ? ", best" : "";
  return text;
}

struct DevicesOptions {
  std::string format = "text";
  bool all = false;
};

// Opening a device runs its self test.
Result<Device> open_tested(const std::string& name) {
  DeviceOptions options;
  options.cache_folder = prepare_cache_folder();
  return Device::open(name, options);
}

void add_self_test(DeviceInfo* info) {
  if (!info->unusable.empty()) {
    return;
  }
  const Result<Device> device = open_tested(info->name);
  if (device.ok()) {
    info->switched_off = device.value().info().switched_off;
  } else {
    info->unusable = device.status().message();
  }
}

Result<int> list(const DevicesOptions& o) {
  prepare_cache_folder();
  std::vector<DeviceInfo> devices = Device::list();
  if (!o.all) {
    std::erase_if(devices, [](const DeviceInfo& d) { return d.for_tests; });
  }
  std::ranges::for_each(devices, [](DeviceInfo& d) { add_self_test(&d); });
  const Result<Device> opened = open_tested("best");
  const std::string best = opened.ok() ? opened.value().info().name : "";
  if (o.format == "json") {
    nlohmann::json rows = nlohmann::json::array();
    for (const DeviceInfo& d : devices) {
      rows.push_back({{"name", d.name},
                      {"description", d.description},
                      {"usable", d.unusable.empty()},
                      {"reason", d.unusable},
                      {"software", d.software},
                      {"for_tests", d.for_tests},
                      {"computes", d.computes},
                      {"switched_off", d.switched_off},
                      {"best", d.name == best}});
    }
    print_json(rows);
    return kOk;
  }
  size_t width = 0;
  for (const DeviceInfo& d : devices) {
    width = std::max(width, d.name.size());
  }
  for (const DeviceInfo& d : devices) {
    print("{:<{}}  {}\n{:<{}}  {}\n", d.name, width, d.description, "", width, remarks(d, best));
    for (const std::string& variant : d.switched_off) {
      print("{:<{}}  switched off: {}\n", "", width, variant);
    }
  }
  return kOk;
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  const auto [verb, o] = add_verb<DevicesOptions>(app, context, list, "devices",
                                                  "Lists the devices, and why a device is unusable",
                                                  "bowline devices -o json");
  verb->add_flag("--all", o->all, "Also list devices that exist only for tests");
  add_format(verb, o->format);
}

}  // namespace bowline::command
