#include "common/subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"
#include "common/find.h"
#include "common/help.h"

namespace bowline::command {
void add_subject(CLI::App* verb, SubjectOptions& o) {
  add_entry(verb, o.entry);
  CLI::Option* const train =
      verb->add_flag("--train", o.train, "Measure a training step with AdamW");
  add_text(verb, "--input", o.inputs, std::string(kInputHelp) + " [random]", "NAME=VALUE");
  add_text(verb, "--step", o.steps_given, kStepHelp, "NAME=N")->group(kAdvanced)->excludes(train);
  add_dims(verb, o.dims);
  add_compute(verb, o.compute);
  add_device(verb, o.device.name);
  add_memory_budget(verb, o.device.memory_budget);
  add_matmul_precision(verb, o.device.matmul_precision);
}

Result<Subject> Subject::read(const SubjectOptions& o, Model model) {
  Subject s(o, std::move(model));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, s.model_.describe());
  BOWLINE_TRY_ASSIGN(s.entry_, entry_point(info, o.train && o.entry.empty() ? "loss" : o.entry));
  BOWLINE_TRY_ASSIGN(std::vector<BoundDim> dims, dims_of(o.dims, info, &s.entry_));
  BOWLINE_TRY_ASSIGN(s.steps_, steps_of(o.steps_given));
  BOWLINE_TRY_ASSIGN(s.inputs_, make_inputs(s.entry_, o.inputs, std::move(dims), "random:1"));
  return s;
}

Status Subject::place(const Device& device) {
  BOWLINE_TRY(model_.materialize(1));
  BOWLINE_TRY(fill_caches());
  BOWLINE_TRY(model_.to(device));
  device_ = device;
  return {};
}

// Prepares the caches of a generating entry point as if they were full. They get "kv_length" rows,
// and the run writes the last "rows" rows, or one row. The names are those of text::Generator.
Status Subject::fill_caches() {
  const auto length = [&](std::string_view dim, int64_t otherwise) {
    const BoundDim* const found = find_named(inputs_.lengths, dim);
    return found == nullptr ? otherwise : found->value;
  };
  BOWLINE_TRY_ASSIGN(const std::string caches, written_caches());
  const int64_t context = length("kv_length", 0);
  if (caches.empty() || context == 0) {
    return {};
  }
  BOWLINE_TRY(model_.resize(caches, context).status());
  if (find_named(steps_, "position") == nullptr) {
    steps_.emplace_back("position", context - std::min(context, length("rows", 1)));
  }
  return {};
}

// Returns a pattern for the caches that the entry point writes.
Result<std::string> Subject::written_caches() const {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model_.describe());
  std::vector<std::string> names;
  for (const ParameterInfo& p : info.parameters) {
    const bool written = std::ranges::find(entry_.updates, p.tie) != entry_.updates.end();
    if (written && info.storages[p.tie].role == StorageRole::kv_cache) {
      names.push_back(p.name);
    }
  }
  return names.empty() ? std::string() : fmt::format("{{{}}}", fmt::join(names, ","));
}

Result<Subject::Calls> Subject::calls() {
  const std::vector<Tensor> tensors = inputs_.tensors();
  if (options_->train) {
    TrainOptions options;
    options.entry_point = entry_.name;
    options.dims = inputs_.dims;
    options.precision.compute_dtype = compute_of(options_->compute);
    BOWLINE_TRY_ASSIGN(Trainer made, Trainer::create(model_, *device_, options));
    const auto trainer = std::make_shared<Trainer>(std::move(made));
    return Calls{[=] { return trainer->micro_step(tensors).status(); },
                 [=] { return trainer->profile(tensors); }};
  }
  const BoundEntryPoint entry{entry_.name, inputs_.dims, compute_of(options_->compute)};
  BOWLINE_TRY_ASSIGN(Session made, Session::create(model_, *device_, std::span(&entry, 1)));
  const auto session = std::make_shared<Session>(std::move(made));
  return Calls{[=, steps = steps_] { return session->run(tensors, {}, steps); },
               [=, steps = steps_] { return session->profile(tensors, steps); }};
}

Status with_advice(Status status) {
  if (status.code() != Code::index_out_of_range) {
    return status;
  }
  return std::move(status).at(
      "Integer inputs that are not given are random from 0 to 127; --input NAME=zeros is always in "
      "range.");
}

std::string Subject::title() const {
  return fmt::format("{} of {}", options_->train ? "training step" : "run",
                     listed_name(entry_.name));
}

}  // namespace bowline::command
