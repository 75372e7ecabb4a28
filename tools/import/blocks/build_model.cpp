#include <algorithm>

#include "architectures/architecture.h"
#include "common/require.h"
#include "source/json.h"

namespace bowline::import {
namespace {

// "2,32000" of a number or a list of them. Empty: there is none.
Result<std::string> ids_text(const nlohmann::json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) {
    return std::string();
  }
  const nlohmann::json ids = at->is_array() ? *at : nlohmann::json::array({*at});
  std::string text;
  for (const nlohmann::json& id : ids) {
    const bool is_id =
        id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() <= INT32_MAX);
    BOWLINE_REQUIRE_CODE(is_id, Code::bad_file, "The config: \"{}\" is {}, not a token id.", key,
                         shown(*at));
    if (id.get<int64_t>() >= 0) {  // -1 stands for none
      text += fmt::format("{}{}", text.empty() ? "" : ",", id.get<int64_t>());
    }
  }
  return text;
}

Status add_metadata(const Source& source, std::string_view type, Built& built) {
  Model& model = built.model;
  BOWLINE_TRY(model.set_metadata("task", name_of(built.task)));
  BOWLINE_TRY(model.set_metadata("architecture", type));
  for (const auto& [key, from] : {std::pair("bos_token_id", "bos_token_id"),
                                  {"eos_token_ids", "eos_token_id"},
                                  {"pad_token_id", "pad_token_id"}}) {
    BOWLINE_ASSIGN(const std::string ids, ids_text(source.config, from));
    if (!ids.empty()) {
      BOWLINE_TRY(model.set_metadata(key, ids));
    }
  }
  for (const auto& [key, value] : source.metadata) {
    if (model.metadata(key).empty()) {  // the architecture has set what it knows better
      BOWLINE_TRY(model.set_metadata(key, value));
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(Task task) {
  constexpr std::string_view names[] = {"generate", "classify", "embed"};
  return names[static_cast<size_t>(task)];
}

std::string_view name_of(TensorReport::Use use) {
  constexpr std::string_view names[] = {"unexpected", "taken", "tied", "dropped"};
  return names[static_cast<size_t>(use)];
}

Result<Built> build_model(const Source& source, const BuildOptions& options) {
  Fields config("The config", source.config);
  const std::string type = config.text("model_type");
  BOWLINE_TRY(Status(config.status()));
  const std::vector<Architecture> known = architectures();
  const auto found = std::ranges::find(known, type, &Architecture::type);
  if (found == known.end()) {
    std::vector<std::string_view> names;
    for (const Architecture& a : known) {
      names.push_back(a.type);
    }
    return Status(Code::unsupported,
                  fmt::format("The architecture \"{}\" is not known. Known are {}.", escaped(type),
                              fmt::join(names, ", ")));
  }
  BOWLINE_ASSIGN(Built built, found->build(source, options));
  built.notes.insert(built.notes.begin(), source.notes.begin(), source.notes.end());
  BOWLINE_TRY(add_metadata(source, type, built));
  for (const SourceAsset& a : source.assets) {
    BOWLINE_TRY(built.model.set_asset(a.name, a.media_type, a.bytes));
  }
  return built;
}

}  // namespace bowline::import
