// The adapters of a model: bowline/adapters.h.
#include "bowline/adapters.h"

#include "api/internals.h"
#include "api/reshaping.h"
#include "base/boundary.h"
#include "bowline.h"
#include "graph/adapters.h"
#include "graph/load.h"
#include "graph/save.h"
#include "params/adapter.h"
#include "params/file.h"

namespace bowline {

using graph::ModelState;

namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t b : bytes) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

// Metadata key of an adapter file: the argument of quantize() that made the encoded base.
constexpr std::string_view kBaseEncoding = "base_encoding";

// The argument of quantize() that made all encoded weights, or nothing if one call did not.
std::optional<std::string> encoding_of_base(const params::Table& table) {
  std::optional<Encoding> found;
  for (const params::ParameterRow& p : table.parameters) {
    const params::Storage& row = table.storages[p.tie];
    if (row.encoding.is_plain() || !p.target.empty() || row.role == params::Role::kv_cache) {
      continue;
    }
    Encoding one = row.encoding;
    const bool is_row = row.shape.rank() > 0 && std::cmp_equal(one.block, row.shape.back());
    if (found && found->block == kWholeRow && is_row) {
      one.block = kWholeRow;
    } else if (found && *found != one && is_row) {
      one.block = found->block = kWholeRow;
    }
    if (found && *found != one) {
      return std::nullopt;
    }
    found = one;
  }
  return found ? std::optional(format("{}", *found)) : std::nullopt;
}

// From here on nothing can fail.
Status remove_adapter(ModelState& state, std::string_view name, const params::Table& from) {
  std::vector<uint32_t> numbers;
  BOWLINE_TRY_ASSIGN(params::Table table,
                     params::without_adapter(from, name, state.users.busy(), numbers));
  std::vector<graph::GenericGraph> graphs;
  for (const graph::GenericGraph& g : state.entry_points.graphs) {
    graphs.push_back(graph::deep_copy(g));
    graph::renumber_parameters(graphs.back(), numbers);
  }
  state.table = std::move(table);
  state.entry_points.graphs = std::move(graphs);
  state.renumbered();
  return {};
}

}  // namespace

Result<AdapterReport> add_adapter(Model& model, std::string_view name,
                                  const AdapterOptions& options) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) {
    return reshaping(s, "add_adapter()", {}, [&](params::Table& table) {
      return params::add_adapter(table, name, options,
                                 graph::readings(s.entry_points.graphs, table), s.users.busy());
    });
  });
}

std::vector<std::string> adapters(const Model& model) {
  return guarded(Internals::state(model), "model",
                 [](const ModelState& s) { return params::adapter_names(s.table); });
}

Status set_adapter_weight(Model& model, std::string_view name, float weight) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) {
    return params::set_adapter_weight(s.table, name, weight, s.users.busy());
  });
}

Result<float> adapter_weight(const Model& model, std::string_view name) {
  return guarded(Internals::state(model), "model",
                 [&](const ModelState& s) { return params::adapter_weight(s.table, name); });
}

Status remove_adapter(Model& model, std::string_view name) {
  return changing(Internals::state(model), [&](ModelState& s) -> Status {
    BOWLINE_TRY(require_no_accumulation(s, "remove_adapter()"));
    return remove_adapter(s, name, s.table);
  });
}

Status merge_adapter(Model& model, std::string_view name) {
  return changing(Internals::state(model), [&](ModelState& s) -> Status {
    BOWLINE_TRY(require_no_accumulation(s, "merge_adapter()"));
    params::Table table = s.table;
    BOWLINE_TRY(params::merge_adapter(table, name, s.users.busy()));
    return remove_adapter(s, name, table);
  });
}

Status save_adapter(const Model& model, std::string_view name, const std::string& path) {
  return guarded(Internals::state(model), "model", [&](const ModelState& s) -> Status {
    ModelState alone;
    BOWLINE_TRY_ASSIGN(alone.table, params::adapter_alone(s.table, name));
    BOWLINE_TRY_ASSIGN(std::vector<uint8_t> digest, params::digest(s.table));
    const auto named =
        std::ranges::find(s.extras.metadata, "name", [](const auto& m) { return m.first; });
    alone.extras.base =
        BaseInfo{std::move(digest), named == s.extras.metadata.end() ? "base" : named->second};
    if (std::optional<std::string> encoding = encoding_of_base(s.table)) {
      alone.extras.metadata.emplace_back(kBaseEncoding, std::move(*encoding));
    }
    return graph::save_model(alone, path, nullptr);
  });
}

Result<std::string> load_adapter(Model& model, const std::string& path, std::string_view name) {
  return guarded(Internals::state(model), "model", [&](ModelState& s) -> Result<std::string> {
    BOWLINE_TRY_ASSIGN(const auto file, model::VerifiedFile::open(path));
    const model::Tables tables(*file);
    const std::optional<BaseInfo> base = tables.base();
    BOWLINE_REQUIRE(base.has_value(), "\"{}\" is not an adapter file: it names no base model.",
                    path);
    BOWLINE_TRY_ASSIGN(const std::vector<uint8_t> digest, params::digest(s.table));
    if (base->digest != digest) {
      Status refused(Code::bad_argument,
                     format("The adapter \"{}\" was trained on the base \"{}\" with the digest {}, "
                            "but the digest of this model is {}.",
                            path, base->name, hex(base->digest), hex(digest)));
      const Settings metadata = tables.metadata();
      const auto encoding =
          std::ranges::find(metadata, kBaseEncoding, &Settings::value_type::first);
      return encoding == metadata.end()
                 ? std::move(refused)
                 : std::move(refused).at(format("It was trained on weights in {}. Quantize the "
                                                "model to this encoding first.",
                                                encoding->second));
    }
    const params::Table source = params::read_table(tables);
    return reshaping(s, "load_adapter()", {}, [&](params::Table& table) {
      return params::install_adapter(table, source, name, s.users.busy());
    });
  });
}

}  // namespace bowline
