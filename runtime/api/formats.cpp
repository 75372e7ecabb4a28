// Weight formats of a model: bowline/formats.h.
#include "bowline/formats.h"

#include "api/internals.h"
#include "base/boundary.h"
#include "bowline.h"
#include "core/rules.h"
#include "graph/readers.h"
#include "params/chosen.h"
#include "params/weight_format.h"

namespace bowline {
namespace {

using graph::ModelState;

std::string listed(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) {
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

std::string known(const graph::WeightFormats& formats) {
  std::string out;
  for (const auto& f : formats.all()) {
    out += format("{}\"{}\"", out.empty() ? "" : ", ", f->name);
  }
  return out;
}

}  // namespace

Result<FormatReport> set_weight_format(Model& model, std::string_view name,
                                       std::string_view pattern) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) -> Result<FormatReport> {
    const std::shared_ptr<const WeightFormat> kind = s.formats.find(name);
    BOWLINE_REQUIRE(kind != nullptr, "There is no weight format \"{}\". Known formats: {}.", name,
                    known(s.formats));
    const std::vector<std::string>& ops = kind->ops;
    BOWLINE_TRY_ASSIGN(const std::vector<params::Chosen> storages,
                       params::chosen(s.table, pattern));
    std::vector<uint32_t> ties;
    std::ranges::transform(storages, std::back_inserter(ties), &params::Chosen::tie);
    const bool fits = ops.empty() ||
                      std::ranges::any_of(s.entry_points.graphs, [&](const graph::GenericGraph& g) {
                        return graph::reads(s.table, g, ops, ties);
                      });
    BOWLINE_REQUIRE(
        fits,
        "The weight format \"{}\" is for {}, but no such operator reads a parameter that "
        "matches \"{}\".",
        name, listed(ops), pattern);
    const int busy = s.users.busy();
    const graph::Running held(s);  // a layout function may not change the model
    return params::set_format(s.table, kind, pattern, busy);
  });
}

Result<uint32_t> restore_weight_format(Model& model, std::string_view pattern) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) {
    return params::restore_format(s.table, pattern, s.users.busy());
  });
}

Status register_weight_format(Model& model, WeightFormat kind) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(check_name(kind.name, "A weight format"));
    BOWLINE_REQUIRE(kind.layout != nullptr, "The weight format \"{}\" has no layout function.",
                    kind.name);
    return s.formats.add(std::move(kind));
  });
}

std::vector<FormatInfo> weight_formats(const Model& model) {
  return guarded(Internals::state(model), "model", [](const ModelState& s) {
    std::vector<FormatInfo> out;
    for (const auto& f : s.formats.all()) {
      out.push_back({f->name, f->ops, f->device, f->about});
    }
    return out;
  });
}

}  // namespace bowline
