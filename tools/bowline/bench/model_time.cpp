// `bowline bench model-time`: the time of a training step and of a generated token on a class of
// devices, computed without the device.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "bench/modelled.h"
#include "bench/verbs.h"
#include "common/find.h"
#include "common/flags.h"
#include "common/shapes.h"
#include "common/strings.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct ModelTimeOptions {
  std::string model = std::string(kGpt2Shape);
  std::string device_class;
  std::string library = "cublaslt";
  std::string encoding;
  std::string compute = "bf16";
  std::string format = "text";
  int64_t batch = 32;
  int64_t seq = 1024;
  int64_t context = 256;
  bool records = false;
};

// A step or a token.
struct Modelled {
  std::string title;
  ModelledTime time;
  double tokens = 1;
  std::string refusal;  // why the device cannot run it; empty: it can
};

// The class has cuBLASLt if the name of its device ends with "+cublaslt".
std::string planning_name(const ModelTimeOptions& o, const DeviceClass& device) {
  return std::string(o.library == "none" ? device.planning.substr(0, device.planning.find('+'))
                                         : device.planning);
}

Result<Modelled> modelled_step(const ModelTimeOptions& o, const DeviceClass& device) {
  BOWLINE_TRY_ASSIGN(Model model, planned_model(o.model));
  BOWLINE_TRY_ASSIGN(const Device planning, open_device(planning_name(o, device)));
  BOWLINE_TRY(model.to(planning));
  TrainOptions options;
  options.dims = {{"batch", o.batch}, {"seq", o.seq}};
  options.precision.compute_dtype = compute_of(o.compute);
  Modelled m;
  m.title = fmt::format("step of {}, batch {} x {}, in {}", o.model, o.batch, o.seq, o.compute);
  m.tokens = static_cast<double>(o.batch * o.seq);
  const Result<Trainer> trainer = Trainer::create(model, planning, options);
  if (!trainer.ok() && trainer.status().code() == Code::out_of_memory) {
    m.refusal = trainer.status().message();
    return m;
  }
  BOWLINE_TRY(trainer.status());
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, trainer.value().describe());
  for (const SegmentInfo& segment : plan.segments) {
    if (segment.name == "accumulate" || segment.name == "update") {
      add_segment(segment, device, m.time);
    }
  }
  return m;
}

Result<Modelled> modelled_token(const ModelTimeOptions& o, const DeviceClass& device) {
  BOWLINE_TRY_ASSIGN(Model model, planned_model(o.model));
  BOWLINE_TRY(quantize_all(model, o.encoding));
  BOWLINE_TRY_ASSIGN(const Device planning, open_device(planning_name(o, device)));
  BOWLINE_TRY(model.resize("cache.*", o.context).status());
  BOWLINE_TRY(model.to(planning));
  const BoundDim length = {"kv_length", o.context};
  BOWLINE_TRY_ASSIGN(const Session session,
                     Session::create(model, planning, "decode", {&length, 1}));
  BOWLINE_TRY_ASSIGN(const PlanInfo plan, session.describe());
  Modelled m;
  m.title = fmt::format("token of {}, context {}, {}", o.model, o.context,
                        o.encoding.empty() ? "weights as they are" : o.encoding);
  for (const SegmentInfo& segment : plan.segments) {
    if (segment.name == "forward") {
      add_segment(segment, device, m.time);
    }
  }
  return m;
}

nlohmann::json json_of(const Modelled& m) {
  if (!m.refusal.empty()) {
    return {{"refusal", m.refusal}};
  }
  nlohmann::json parts;
  for (const Part part : kParts) {
    const PartTime& p = m.time.parts[static_cast<size_t>(part)];
    parts[std::string(name_of(part))] = {{"ms", 1e3 * p.seconds},
                                         {"flops", p.flops},
                                         {"bytes", p.bytes},
                                         {"count", p.records},
                                         {"early", p.early}};
  }
  return {{"ms", 1e3 * m.time.seconds()}, {"parts", parts}, {"unknown_kernels", m.time.unknown}};
}

void print_records(const ModelledTime& time) {
  for (const ModelledRecord& r : time.records) {
    print("modelled   {:9.2f} us x {:<3} {:9.3f} GFLOP {:9.3f} MB  {} {} [{}]\n", 1e6 * r.seconds,
          r.runs, r.flops / 1e9, r.bytes / 1e6, name_of(r.part), r.op, r.kernels);
  }
}

void print_time(const Modelled& m, bool records) {
  const double seconds = m.time.seconds();
  print("modelled {}\n", m.title);
  if (!m.refusal.empty()) {
    print("modelled   refused   {} A smaller --batch or --seq may fit.\n", m.refusal);
    return;
  }
  print("modelled   total     {:9.3f} ms, {:.0f} tokens/s\n", 1e3 * seconds, m.tokens / seconds);
  for (const Part part : kParts) {
    const PartTime& p = m.time.parts[static_cast<size_t>(part)];
    const std::string early = p.early == 0 ? "" : fmt::format(", of which {} start early", p.early);
    const std::string work = part == Part::launches
                                 ? fmt::format("{} launches{}", p.records, early)
                                 : fmt::format("{:.3f} TFLOP, {:.3f} GB, {} records",
                                               p.flops / 1e12, p.bytes / 1e9, p.records);
    print("modelled   {:9} {:9.3f} ms, {}\n", name_of(part), 1e3 * p.seconds, work);
  }
  if (!m.time.unknown.empty()) {
    const auto quoted = [](const std::string& name) { return fmt::format("\"{}\"", name); };
    print("modelled   assumed   no rate is known of the kernels {}\n",
          joined(m.time.unknown, quoted));
  }
  if (records) {
    print_records(m.time);
  }
}

Result<int> run(const ModelTimeOptions& o) {
  const DeviceClass& device =
      *std::ranges::find(device_classes(), o.device_class, &DeviceClass::name);
  BOWLINE_TRY_ASSIGN(const Model model, planned_model(o.model));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  std::vector<std::pair<const char*, Modelled>> times;
  if (find_named(info.entry_points, "loss") != nullptr) {
    BOWLINE_TRY_ASSIGN(Modelled step, modelled_step(o, device));
    times.emplace_back("step", std::move(step));
  }
  if (find_named(info.entry_points, "decode") != nullptr) {
    BOWLINE_TRY_ASSIGN(Modelled token, modelled_token(o, device));
    times.emplace_back("token", std::move(token));
  }
  BOWLINE_REQUIRE(!times.empty(), "Model {} has neither an entry point 'loss' nor 'decode'.",
                  o.model);
  if (o.format == "json") {
    nlohmann::json all = {{"modelled", true},
                          {"device_class", device.name},
                          {"planning", planning_name(o, device)},
                          {"f32_flops", device.f32},
                          {"matrix_flops", device.matrix},
                          {"bandwidth", device.bandwidth},
                          {"bandwidth_share", kBandwidthShare},
                          {"launch_gap_us", 1e6 * device.launch_gap},
                          {"early_gap_us", 1e6 * device.early_gap},
                          {"source", device.source}};
    for (const auto& [name, time] : times) {
      all[name] = json_of(time);
    }
    for (const KernelRate& r : kernel_rates()) {
      all["kernel_rates"].push_back({{"kernel", r.kernel},
                                     {"unit", r.unit == Unit::f32 ? "f32" : "matrix"},
                                     {"share", r.share},
                                     {"needed", r.needed},
                                     {"budget", r.budget}});
    }
    print_json(all);
    return kOk;
  }
  print(
      "modelled on {}: {:.1f} TFLOP/s f32, {:.1f} TFLOP/s matrix, {:.0f} GB/s, {:.1f} us per "
      "launch\n",
      device.description, device.f32 / 1e12, device.matrix / 1e12, device.bandwidth / 1e9,
      1e6 * device.launch_gap);
  if (device.early_gap > 0) {
    print("modelled with launches that start early, {:.1f} us each, as measured on an H200\n",
          1e6 * device.early_gap);
  }
  print("modelled rates from: {}\n", device.source);
  if (planning_name(o, device).find('+') != std::string::npos) {
    const KernelRate& rate =
        *std::ranges::find(kernel_rates(), "cublasLtMatmul", &KernelRate::kernel);
    print(
        "modelled with cuBLASLt (--library), at {:.0f} percent of the matrix rate, as measured on "
        "an "
        "H100\n",
        100 * rate.share);
  }
  for (const auto& [name, time] : times) {
    print_time(time, o.records);
  }
  return kOk;
}

}  // namespace

void add_bench_model_time(CLI::App& bench, Context& context) {
  const auto [verb, o] = add_verb<ModelTimeOptions>(
      bench, context, run, "model-time",
      "Computes the time of a training step and of a token on a GPU that need not exist",
      "# GPT-2 124M on an H200, at two sizes\n"
      "bowline bench model-time --device-class h200\n"
      "bowline bench model-time --device-class h200 --batch 1 --seq 256\n"
      "# A model file, with 4-bit weights for generation\n"
      "bowline bench model-time lm.bowline --device-class rtx4070 --quantize q4_0");
  verb->add_option("model", o->model, "Model file, or the shape gpt2-124m")->capture_default_str();
  std::vector<std::string> names;
  for (const DeviceClass& c : device_classes()) {
    names.emplace_back(c.name);
  }
  verb->add_option("--device-class", o->device_class, "GPU to compute the time for")
      ->check(CLI::IsMember(names))
      ->required();
  add_choice(verb, "--library", o->library, "Library of matrix products on CUDA",
             {"cublaslt", "none"});
  add_number(verb, "--batch", o->batch, "Rows of a training batch", 1, 1 << 20);
  add_number(verb, "--seq", o->seq, "Tokens per row", 1, 1 << 20);
  add_number(verb, "--context", o->context, "Tokens in the KV cache at a token", 1, 1 << 20);
  add_compute(verb, o->compute);
  add_quantize_flag(verb, o->encoding);
  verb->add_flag("--records", o->records, "Also print each record of the plans");
  add_format(verb, o->format);
}

}  // namespace bowline::command
