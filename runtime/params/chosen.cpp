#include "params/chosen.h"

#include <map>

#include "base/pattern.h"
#include "bowline.h"

namespace bowline::detail::params {

Result<std::vector<Chosen>> chosen(const Table& table, std::string_view pattern) {
  BOWLINE_TRY_ASSIGN(const std::vector<std::string> patterns, alternatives(pattern));
  std::map<uint32_t, std::string_view> found;
  for (const ParameterRow& p : table.parameters) {
    if (matches_any(patterns, p.name)) {
      found.try_emplace(p.tie, p.name);
    }
  }
  BOWLINE_REQUIRE(!found.empty(), "The pattern \"{}\" matches none of the {} parameters.", pattern,
                  table.parameters.size());
  std::vector<Chosen> out;
  for (const auto& [tie, name] : found) {
    out.push_back({tie, name});
  }
  return out;
}

}  // namespace bowline::detail::params
