#include <algorithm>
#include <map>

#include "model/checksum.h"
#include "model/layout.h"
#include "params/adapter.h"
#include "params/home.h"
#include "params/view.h"

namespace bowline::detail::params {
namespace {

void add_text(model::StreamHash& hash, std::string_view text) {
  hash.add(std::as_bytes(std::span(text)));
}

void add_bytes(std::vector<uint8_t>& to, uint64_t word) {
  for (int i = 0; i < 8; ++i) {
    to.push_back(static_cast<uint8_t>(word >> (8 * i)));
  }
}

// Reads one run at a time to limit memory.
Result<uint64_t> checksum_of(const Storage& row, const Window& window) {
  model::StreamChecksum sum;
  std::vector<std::byte> scratch;
  for (uint64_t done = 0; done < window.count; done += model::kRunBytes) {
    const uint64_t count = std::min(model::kRunBytes, window.count - done);
    BOWLINE_TRY_ASSIGN(const Bytes bytes, read_run(row, window.first + done, count, scratch));
    sum.add(bytes);
  }
  return sum.value();
}

}  // namespace

Result<std::vector<uint8_t>> digest(const Table& table) {
  std::map<std::string_view, uint32_t> by_name;
  for (uint32_t i = 0; i < table.parameters.size(); ++i) {
    const ParameterRow& p = table.parameters[i];
    const Role role = table.storages[p.tie].role;
    if (p.target.empty() && (role == Role::weight || role == Role::constant)) {
      by_name.emplace(p.name, i);
    }
  }
  model::StreamHash hash;
  for (const auto& [name, index] : by_name) {
    const ParameterRow& p = table.parameters[index];
    const Storage& row = table.storages[p.tie];
    BOWLINE_TRY_ASSIGN(const Shape shape, view_shape(p.view, row.shape));
    BOWLINE_TRY_ASSIGN(const Window window, payload_of(p, row));
    uint64_t sum = 0;
    if (row.home.valid()) {
      BOWLINE_TRY_ASSIGN(sum, checksum_of(row, window));
    }
    add_text(hash, format("{} {}{} {} {} {}\n", name, row.dtype, shape, row.encoding,
                          p.view.transpose ? "transposed" : "", sum));
    if (!row.encoding.is_plain()) {  // the checksum covers the whole storage
      const ElementRun run = view_run(p.view, row.shape);
      add_text(hash, format("{} {}\n", run.first, run.count));
    }
  }
  const model::Hash128 value = hash.value();
  std::vector<uint8_t> out;
  add_bytes(out, value.low);
  add_bytes(out, value.high);
  return out;
}

}  // namespace bowline::detail::params
