#include "device/choice.h"

#include "bowline.h"
#include "bowline/external.h"
#include "device/planning.h"

namespace bowline::detail::device {
namespace {

std::string device_name(const Backend& backend, size_t index) {
  return backend.single() ? std::string(backend.name()) : format("{}:{}", backend.name(), index);
}

struct Candidate {
  const Backend* backend;
  int index;
  DeviceInfo info;
};

void add_candidates(const Backend& backend, std::vector<Candidate>& out) {
  std::vector<DeviceInfo> infos = backend.enumerate();
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].name = device_name(backend, i);
    if (infos[i].unusable.empty() && backend.contract_version() != kContractVersion) {
      infos[i].unusable = format("It was built for version {} of the backend contract, not {}.",
                                 backend.contract_version(), kContractVersion);
    }
    out.push_back({&backend, static_cast<int>(i), std::move(infos[i])});
  }
}

std::vector<Candidate> all_candidates() {
  std::vector<Candidate> out;
  for (const Backend* backend : backends()) {
    add_candidates(*backend, out);
  }
  return out;
}

// The devices that may have this name. Asking a backend may load drivers. So only the named backend
// is asked.
std::vector<Candidate> candidates_for(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find(':'));
  for (const Backend* backend : backends()) {
    if (backend->name() == stem) {
      std::vector<Candidate> out;
      add_candidates(*backend, out);
      return out;
    }
  }
  return all_candidates();
}

int rank(const Candidate& c) { return c.info.software ? 0 : c.backend->rank(); }

// The best usable device of at least this rank, or null.
Candidate* best_of(std::vector<Candidate>& all, int least_rank) {
  Candidate* best = nullptr;
  for (Candidate& c : all) {
    if (c.info.unusable.empty() && !c.info.for_tests && rank(c) >= least_rank &&
        (!best || rank(c) > rank(*best))) {
      best = &c;
    }
  }
  return best;
}

// Lists all devices, each with the reason why it is not a usable GPU.
std::string why_no_gpu(const std::vector<Candidate>& all) {
  std::string out;
  for (const Candidate& c : all) {
    if (!c.info.for_tests) {
      out += format("\n- {} ({}): {}", c.info.name, c.info.description,
                    !c.info.unusable.empty() ? c.info.unusable
                    : c.info.software        ? "a software driver, not a GPU."
                                             : "the processor, not a GPU.");
    }
  }
  return out;
}

// The advice at the end of a message about a GPU: the device that needs no GPU.
std::string way_out(const std::vector<Candidate>& all) {
  const auto cpu = std::ranges::find_if(all, [](const Candidate& c) {
    return c.info.unusable.empty() && !c.info.for_tests && !c.info.software && rank(c) < kGpuRank;
  });
  return cpu == all.end() ? "" : format(" Device \"{}\" needs no GPU.", cpu->info.name);
}

// The error for an unknown device name.
Status unknown_device(std::string_view name) {
  const std::vector<Candidate> all = all_candidates();
  const std::string_view stem = name.substr(0, name.find(':'));
  const bool has_backend =
      std::ranges::any_of(all, [&](const Candidate& c) { return c.backend->name() == stem; });
  std::string names;
  for (const Candidate& c : all) {
    if (!c.info.for_tests || c.backend->name() == stem) {
      names += (names.empty() ? "" : ", ") + c.info.name;
    }
  }
  return Status(Code::bad_argument,
                format("There is no device \"{}\"{}. The devices are: {}.{}", name,
                       has_backend ? "" : format(": this build has no backend \"{}\"", stem), names,
                       way_out(all)));
}

void add_notice(DeviceInfo& info, std::string_view sentence) {
  info.notice += format("{}{}", info.notice.empty() ? "" : " ", sentence);
}

// Opens the device of a candidate, and tests it unless it only plans.
Result<std::shared_ptr<OpenDevice>> open_candidate(const Candidate& found, const Wanted& wanted,
                                                   const DeviceOptions& options) {
  std::unique_ptr<Device> device;
  DeviceInfo info = found.info;
  if (!wanted.model.empty()) {
    device = found.backend->open_to_plan(wanted.model, options);
    BOWLINE_REQUIRE(device != nullptr, "There is no device \"{}{}@{}\": {} cannot plan for \"{}\".",
                    kPlanning, wanted.name, wanted.model, found.backend->name(), wanted.model);
  } else {
    BOWLINE_REQUIRE_CODE(found.info.unusable.empty(), Code::unsupported,
                         "Device {} cannot be used: {}{}", found.info.name, found.info.unusable,
                         way_out(all_candidates()));
    BOWLINE_TRY_ASSIGN(device, found.backend->open(found.index, options));
  }
  return finish_opening(std::move(info), std::move(device), wanted.planning, options);
}

}  // namespace

Result<std::shared_ptr<OpenDevice>> finish_opening(DeviceInfo info, std::unique_ptr<Device> device,
                                                   bool planning, const DeviceOptions& options) {
  if (!planning) {
    BOWLINE_TRY_ASSIGN(info.switched_off, device->self_test());
  }
  const uint64_t staging = device->capabilities().staging_bytes;
  BOWLINE_REQUIRE_CODE(options.memory_budget == 0 || staging <= options.memory_budget,
                       Code::over_budget,
                       "Device {} needs {} bytes for staging buffers, but its memory budget is {}.",
                       info.name, staging, options.memory_budget);
  if (planning) {
    device = planning_device(std::move(device));
  }
  if (options.matmul_precision != device->capabilities().matmul_precision) {
    add_notice(info, format("Device {} has no TF32, so its products of f32 matrices are exact.",
                            info.name));
  }
  const bool has_cpu_options = !options.cores.empty() || options.nice != 0 ||
                               options.max_load != 1 || options.executor != nullptr ||
                               options.allocator.allocate != nullptr;
  const bool is_cpu = device->capabilities().host_memory && info.computes;
  if (has_cpu_options && !is_cpu) {
    add_notice(info, format("Device {} ignores the options cores, nice, max_load, executor and "
                            "allocator, which are for the CPU.",
                            info.name));
  }
  const TuningKey& key = device->capabilities().tuning;
  std::string path;
  Choices choices;
  if (!options.cache_folder.empty() && !key.model.empty()) {
    path = tuning_path(options.cache_folder, key);
    Result<Choices> read = read_tuning(path, key);
    if (read.ok()) {
      choices = std::move(read).value();
    } else {
      add_notice(info, format("{} It is ignored. 'bowline tune --device {}' measures again and "
                              "replaces it; --reset removes it.",
                              read.status().message(), info.name));
    }
  }
  auto open = std::make_shared<OpenDevice>(std::move(info), std::move(device),
                                           options.memory_budget, !planning);
  open->set_choices(std::move(choices));
  open->set_tuning_path(std::move(path));
  open->set_log(options.log);
  open->log(LogLevel::info,
            format("Opened device {}: {}.", open->info().name, open->info().description));
  for (const std::string& variant : open->info().switched_off) {
    open->log(LogLevel::warning, variant);
  }
  if (!open->info().notice.empty()) {
    open->log(LogLevel::warning, open->info().notice);
  }
  return open;
}

namespace {

// The reason why a device of `all` is unusable also holds for the same device of `tried`.
std::vector<Candidate> with_reasons(std::vector<Candidate> all,
                                    const std::vector<Candidate>& tried) {
  for (Candidate& c : all) {
    for (const Candidate& t : tried) {
      if (t.info.name == c.info.name) {
        c.info.unusable = t.info.unusable;
      }
    }
  }
  return all;
}

}  // namespace

Result<std::shared_ptr<OpenDevice>> open_best(std::span<const Backend* const> backends,
                                              const Wanted& wanted, const DeviceOptions& options) {
  std::vector<Candidate> all;
  for (const Backend* backend : backends) {
    if (backend->rank() < kGpuRank || backend->may_have_gpu()) {
      add_candidates(*backend, all);
    }
  }
  const bool is_gpu = wanted.name == "gpu";
  std::string notice;
  while (Candidate* const best = best_of(all, is_gpu ? kGpuRank : 0)) {
    best->info.notice = notice;
    auto opened = open_candidate(*best, wanted, options);
    if (opened.ok() || opened.status().code() == Code::over_budget) {
      return opened;
    }
    best->info.unusable = opened.status().message();
    notice += format("{}Device {} is not used. {}", notice.empty() ? "" : " ", best->info.name,
                     best->info.unusable);
  }
  if (!is_gpu) {
    return unknown_device(wanted.name);
  }
  return Status(Code::unsupported, format("No usable GPU was found.{}",
                                          why_no_gpu(with_reasons(all_candidates(), all))));
}

namespace {

template <class External>
Result<std::shared_ptr<OpenDevice>> adopt(const External& external, std::string_view kind,
                                          const DeviceOptions& options) {
  for (const Backend* backend : backends()) {
    if (backend->contract_version() == kContractVersion) {
      DeviceInfo info;
      BOWLINE_TRY_ASSIGN(std::unique_ptr<Device> device, backend->adopt(external, options, &info));
      if (device != nullptr) {
        return finish_opening(std::move(info), std::move(device), false, options);
      }
    }
  }
  return Status(Code::unsupported, format("This build cannot use a device of {}.", kind));
}

}  // namespace

Result<std::shared_ptr<OpenDevice>> adopt_device(const ExternalVulkan& external,
                                                 const DeviceOptions& options) {
  return adopt(external, "Vulkan", options);
}
Result<VulkanRequirements> vulkan_requirements(const ExternalVulkan& external) {
  for (const Backend* backend : backends()) {
    VulkanRequirements out;
    if (backend->contract_version() == kContractVersion) {
      BOWLINE_TRY_ASSIGN(const bool is_right, backend->require(external, &out));
      if (is_right) {
        return out;
      }
    }
  }
  return Status(Code::unsupported, "This build cannot use a device of Vulkan.");
}
Result<std::shared_ptr<OpenDevice>> adopt_device(const ExternalCuda& external,
                                                 const DeviceOptions& options) {
  return adopt(external, "CUDA", options);
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> out;
  for (Candidate& c : all_candidates()) {
    out.push_back(std::move(c.info));
  }
  return out;
}

Result<std::shared_ptr<OpenDevice>> open_device(std::string_view name,
                                                const DeviceOptions& options) {
  Wanted wanted{name, {}, name.starts_with(kPlanning)};
  wanted.name.remove_prefix(wanted.planning ? kPlanning.size() : 0);
  if (const size_t at = wanted.name.find('@'); wanted.planning && at != std::string_view::npos) {
    wanted.model = wanted.name.substr(at + 1);
    wanted.name = wanted.name.substr(0, at);
  }
  if (wanted.name == "best" || wanted.name == "gpu") {
    return open_best(backends(), wanted, options);
  }
  for (const Candidate& c : candidates_for(wanted.name)) {
    // "vulkan" means "vulkan:0".
    if (c.info.name == wanted.name || (c.index == 0 && c.backend->name() == wanted.name)) {
      return open_candidate(c, wanted, options);
    }
  }
  return unknown_device(wanted.name);
}

}  // namespace bowline::detail::device
