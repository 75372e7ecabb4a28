// bowline eval: how well a model predicts a text.
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/build.h"
#include "common/flags.h"
#include "common/hash.h"
#include "common/memory_curve.h"
#include "common/numbers.h"
#include "common/page.h"
#include "common/print.h"
#include "common/require.h"
#include "common/sha256.h"
#include "common/text.h"
#include "common/text_model.h"
#include "eval/page.h"
#include "verb.h"

namespace bowline::command {
namespace {

struct EvalOptions {
  std::string model;
  std::string data;
  std::string device = "best";
  std::string format = "text";
  Evaluation how;
  int threads = 0;
  uint64_t memory_budget = 0;
  bool as_text = false;
  bool force = false;
  std::string report;
  Changes changes;
};

// Of --report what the model and its run say.
Status describe(const EvalOptions& o, const Model& model, const Session& session,
                const Device& device, std::string_view text, EvaluatedText& page) {
  BOWLINE_ASSIGN(const PlanInfo plan, session.describe());
  BOWLINE_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_ASSIGN(const std::string sha256, sha256_of_file(o.model));
  page.model = o.model;
  page.bytes = text.size();
  page.sources = {
      {"Model", o.model},
      {"SHA-256 of the model file", sha256},
      {"Data", fmt::format("{}: {} bytes, XXH3 {}", o.data, text.size(), hash_text(text))},
      {"Windows",
       fmt::format(
           "{} of {} bytes per batch, {} bytes apart{}", o.how.batch, o.how.seq, o.how.stride,
           o.how.max_batches == 0 ? "" : fmt::format(", at most {} batches", o.how.max_batches))}};
  for (const std::string& adapter : o.changes.adapters) {
    page.sources.emplace_back("Adapter", adapter);
  }
  if (!o.changes.encoding.empty()) {
    page.sources.emplace_back("Quantized as", o.changes.encoding);
  }
  page.sources.emplace_back("Device",
                            fmt::format("{}, {}", device.info().name, device.info().description));
  page.sources.emplace_back("Built as", build_text());
  page.memory = memory_html("activations", "one batch", session.memory(), info,
                            memory_curve(plan, {plan.segments[0].name}));
  return {};
}

// `page` is that of --report, if there is one.
Result<double> evaluate(const EvalOptions& o, const Device& device, std::string_view text,
                        EvaluatedText* page) {
  BOWLINE_ASSIGN(Model model, open_text_model(o.model));
  BOWLINE_TRY(change(model, o.changes));
  BOWLINE_TRY(model.to(device));
  const std::vector<BoundDim> dims = {{"batch", o.how.batch}, {"seq", o.how.seq}};
  BOWLINE_ASSIGN(Session session, Session::create(model, device, "loss", dims));
  uint64_t batches = 0;
  const BatchLoss loss = [&](std::span<const Tensor> batch) -> Result<float> {
    float value = 0;
    const Tensor output{"loss", DType::f32, {}, &value};
    BOWLINE_TRY(session.run(batch, {&output, 1}));
    if (page != nullptr) {
      page->losses.add(++batches, bits_of_nats(static_cast<double>(value)));
    }
    return value;
  };
  if (page != nullptr) {
    BOWLINE_TRY(describe(o, model, session, device, text, *page));
  }
  return bits_per_byte(loss, text, o.how);
}

Result<int> run(const EvalOptions& o) {
  EvaluatedText page;
  if (!o.report.empty()) {
    BOWLINE_TRY(check_page("--report", o.report, o.force));
  }
  BOWLINE_ASSIGN(const std::string text, read_text(o.data, o.as_text));
  BOWLINE_REQUIRE_CODE(text.size() >= 2, Code::bad_file, "Text \"{}\" has {} bytes.", o.data,
                       text.size());
  BOWLINE_ASSIGN(const Device device, open_computing_device(o.device, o.threads, o.memory_budget));
  BOWLINE_ASSIGN(const double bits, evaluate(o, device, text, o.report.empty() ? nullptr : &page));
  const double perplexity = std::exp2(bits);
  if (!o.report.empty()) {
    page.bits_per_byte = bits;
    page.perplexity = perplexity;
    BOWLINE_TRY(write_page(o.report, eval_page(page)));
  }
  if (o.format == "json") {
    print_json({{"device", device.info().name},
                {"bytes", text.size()},
                {"bits_per_byte", bits},
                {"perplexity", perplexity}});
  } else {
    print("loss        {:.4f} bits per byte\nperplexity  {:.4f} per byte\n", bits, perplexity);
  }
  BOWLINE_REQUIRE_CODE(std::isfinite(bits), Code::non_finite,
                       "The loss of model \"{}\" on text \"{}\" is not finite.", o.model, o.data);
  return static_cast<int>(kOk);
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  CLI::App* verb = add_verb(app, "eval", "Tells how well a model predicts a text",
                            "bowline eval tuned.bowline --data notes.txt");
  auto o = std::make_shared<EvalOptions>();
  verb->add_option("model", o->model, "Model file with the entry point 'loss' (tokens, labels)")
      ->required();
  verb->add_option("--data", o->data, "Text: plain UTF-8, at most 4 GiB")->required();
  verb->add_flag("--as-text", o->as_text, "Take JSON lines as they are, byte by byte");
  verb->add_option("--batch", o->how.batch, "Windows per batch")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--seq", o->how.seq, "Bytes per window")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  o->how.stride = 0;
  verb->add_option("--stride", o->how.stride,
                   "Bytes between windows (default: 0, --seq); less gives more context")
      ->check(whole_number(0, 1 << 20));
  verb->add_option("--batches", o->how.max_batches, "Most batches (default: 0, the whole text)")
      ->check(whole_number(0, kMostSteps));
  verb->add_option("--report", o->report,
                   "Page of HTML with the loss along the text, the memory, settings and hashes");
  verb->add_flag("--force", o->force, "Replace a --report that is there");
  add_changes(verb, o->changes);
  add_device(verb, o->device);
  verb->add_option("--threads", o->threads, "CPU threads (default: one per core)")
      ->check(whole_number(0, 1024));
  add_memory_budget(verb, o->memory_budget);
  add_format(verb, o->format);
  on_run(verb, context, [o]() -> Result<int> {
    o->how.stride = o->how.stride == 0 ? o->how.seq : o->how.stride;
    if (o->how.stride > o->how.seq) {
      return fail(kUsage, fmt::format("--stride {} is above --seq {}.", o->how.stride, o->how.seq));
    }
    return run(*o);
  });
}

}  // namespace bowline::command
