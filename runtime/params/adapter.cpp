#include "params/adapter.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/pattern.h"
#include "bowline.h"
#include "core/rules.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
constexpr std::string_view kScale = ".lora_scale", kAlpha = ".lora_alpha", kZero = ".lora_zero";
constexpr std::string_view kDropout = ".lora_dropout";  // only if it is not 0
constexpr char kWhole = '!';                            // before a pattern
constexpr std::string_view kRank = ".lora_rank";        // if the changes have different ranks

// The name of the adapter that a parameter belongs to, or "".
std::string_view adapter_of(const ParameterRow& p) {
  std::string_view name = p.name;
  if (p.target.empty()) {
    return {};
  }
  for (const std::string_view end : {kA, kB}) {
    if (name.ends_with(end) && name.starts_with(p.target + ".") &&
        name.size() > p.target.size() + 1 + end.size()) {
      name.remove_prefix(p.target.size() + 1);
      return name.substr(0, name.size() - end.size());
    }
  }
  for (const std::string_view end : {kScale, kAlpha, kZero, kDropout, kRank}) {
    if (name.ends_with(end)) {
      return name.substr(0, name.size() - end.size());
    }
  }
  return {};
}

Result<uint32_t> part_of(const Table& table, std::string_view adapter, std::string_view end) {
  const std::optional<uint32_t> index = table.find(format("{}{}", adapter, end));
  BOWLINE_REQUIRE(index && adapter_of(table.parameters[*index]) == adapter,
                  "There is no adapter \"{}\".", adapter);
  return *index;
}

Result<float> number_of(const Table& table, std::string_view adapter, std::string_view end) {
  BOWLINE_TRY_ASSIGN(const uint32_t index, part_of(table, adapter, end));
  const Storage& row = table.storages[table.parameters[index].tie];
  BOWLINE_REQUIRE(row.shape == Shape{1} && is_float(row.dtype) && row.encoding.is_plain(),
                  "Parameter \"{}\" is {}{}, not a single float.", table.parameters[index].name,
                  row.dtype, row.shape);
  BOWLINE_TRY_ASSIGN(const std::vector<float> numbers, decoded(row));
  return numbers[0];
}

// The two factors of an adapter for one target: parameters a and b.
struct Factors {
  uint32_t a = 0;
  uint32_t b = 0;
};

std::optional<Factors> pair_of(const Table& table, uint32_t target, std::string_view adapter) {
  const std::string& name = table.parameters[target].name;
  const auto a = table.find(format("{}.{}{}", name, adapter, kA));
  const auto b = table.find(format("{}.{}{}", name, adapter, kB));
  if (!a || !b || table.parameters[*a].target != name || table.parameters[*b].target != name) {
    return std::nullopt;
  }
  return Factors{*a, *b};
}

std::shared_ptr<device::OpenDevice> device_of(const Storage& row) {
  return row.home.block ? row.home.block->device_handle() : nullptr;
}

// The shape as a matrix: a bias is a matrix of one row.
Shape matrix_shape(const Shape& shape) { return shape.rank() == 1 ? Shape{1, shape[0]} : shape; }

Status require_new_adapter(const Table& table, std::string_view name) {
  BOWLINE_TRY(check_name(name, "An adapter"));
  const std::vector<std::string> names = adapter_names(table);
  BOWLINE_REQUIRE(std::ranges::find(names, name) == names.end(),
                  "There is an adapter \"{}\" already.", name);
  return {};
}

// The targets of an adapter, by kind of change.
struct ChosenParameters {
  std::set<uint32_t> low_rank;
  std::set<uint32_t> whole;
};

// One change of a storage, and the parameters that it applies to.
struct Change {
  uint32_t base = 0;
  bool of_use = false;
  bool whole = false;
  std::vector<uint32_t> targets;
};

class Adding {
 public:
  Adding(Table& table, std::string_view name, const AdapterOptions& options,
         std::span<const Reading> readings)
      : table_(table), name_(name), options_(options), readings_(readings) {}

  Result<AdapterReport> add() {
    BOWLINE_TRY(check());
    BOWLINE_TRY_ASSIGN(const ChosenParameters chosen, choose());
    std::vector<Change> changes;
    std::set<uint32_t> changed;  // storages
    BOWLINE_TRY(add_changes(chosen.whole, true, changed, changes));
    BOWLINE_TRY(add_changes(chosen.low_rank, false, changed, changes));
    for (const Change& change : changes) {
      BOWLINE_TRY(add(change).at(format("While adding adapter \"{}\" to \"{}\".", name_,
                                        table_.parameters[change.targets[0]].name)));
    }
    const auto device = device_of(table_.storages[changes[0].base]);
    const std::string target = table_.parameters[changes[0].targets[0]].name;
    const float scale = options_.alpha / static_cast<float>(options_.rank);
    for (const auto& [end, value] :
         {std::pair(kScale, scale), std::pair(kAlpha, options_.alpha), std::pair(kZero, 0.0f)}) {
      BOWLINE_TRY(add_number(end, value, target, device));
    }
    if (!chosen.whole.empty()) {
      BOWLINE_TRY(add_number(kRank, static_cast<float>(options_.rank), target, device));
    }
    if (options_.dropout > 0) {
      BOWLINE_TRY(add_number(kDropout, options_.dropout, target, device));
    }
    if (options_.freeze_others) {
      freeze_others();
    }
    return std::move(report_);
  }

 private:
  Status check() const {
    BOWLINE_TRY(require_new_adapter(table_, name_));
    BOWLINE_REQUIRE(options_.rank >= 1, "Adapter \"{}\" has a rank of {}.", name_, options_.rank);
    BOWLINE_REQUIRE(std::isfinite(options_.alpha), "Adapter \"{}\" has an alpha of {}.", name_,
                    options_.alpha);
    BOWLINE_REQUIRE(options_.dropout >= 0 && options_.dropout < 1,
                    "Adapter \"{}\" has a dropout of {}, outside of [0, 1).", name_,
                    options_.dropout);
    return {};
  }

  bool is_matrix(uint32_t index) const {
    const ParameterRow& p = table_.parameters[index];
    const Storage& row = table_.storages[p.tie];
    return row.role == Role::weight && is_float(row.dtype) && row.shape.rank() == 2 &&
           p.view.shape.empty() && p.target.empty() && readings_[index] == Reading::matrix;
  }

  bool is_bias(uint32_t index) const {
    const ParameterRow& p = table_.parameters[index];
    const Storage& row = table_.storages[p.tie];
    return row.role == Role::weight && is_float(row.dtype) && row.encoding.is_plain() &&
           row.shape.rank() == 1 && p.view == View() && p.target.empty() &&
           readings_[index] == Reading::bias;
  }

  Result<ChosenParameters> matching() const {
    BOWLINE_TRY_ASSIGN(const std::vector<std::string> patterns, alternatives(options_.target));
    ChosenParameters out;
    for (uint32_t i = 0; i < table_.parameters.size(); ++i) {
      const ParameterRow& p = table_.parameters[i];
      for (const std::string_view pattern : patterns) {
        const bool whole = pattern.starts_with(kWhole);
        if (p.target.empty() && matches(pattern.substr(whole ? 1 : 0), p.name)) {
          (whole ? out.whole : out.low_rank).insert(i);
        }
      }
    }
    BOWLINE_REQUIRE(!out.whole.empty() || !out.low_rank.empty(),
                    "The pattern \"{}\" matches none of the {} parameters.", options_.target,
                    table_.parameters.size());
    return out;
  }

  Result<ChosenParameters> choose() const {
    BOWLINE_TRY_ASSIGN(ChosenParameters out, matching());
    for (const uint32_t index : out.whole) {
      BOWLINE_REQUIRE(is_matrix(index) || is_bias(index),
                      "\"{}\" cannot be changed with full rank by adapter \"{}\": it is not read "
                      "only as a matrix or only as a bias.",
                      table_.parameters[index].name, name_);
    }
    const size_t matched = out.low_rank.size();
    std::erase_if(out.low_rank,
                  [&](uint32_t index) { return !is_matrix(index) || out.whole.contains(index); });
    BOWLINE_REQUIRE(!out.low_rank.empty() || !out.whole.empty(),
                    "None of the {} parameters that match the pattern \"{}\" is a weight of rank 2 "
                    "that is read only as the matrix of Linear, Embedding or MatMul.",
                    matched, options_.target);
    return out;
  }

  Status add_changes(const std::set<uint32_t>& chosen, bool whole, std::set<uint32_t>& changed,
                     std::vector<Change>& out) const {
    for (const uint32_t index : chosen) {
      const uint32_t tie = table_.parameters[index].tie;
      if (options_.per_parameter) {
        out.push_back({tie, true, whole, {index}});
      } else if (changed.insert(tie).second) {
        out.push_back({tie, false, whole, sorted(table_.users(tie))});
        BOWLINE_TRY(check_users(index, out.back().targets));
      }
    }
    return {};
  }

  Status check_users(uint32_t chosen, const std::vector<uint32_t>& users) const {
    for (const uint32_t user : users) {
      const ParameterRow& p = table_.parameters[user];
      const bool same = readings_[user] == Reading::none || readings_[user] == readings_[chosen];
      BOWLINE_REQUIRE(p.view.shape.empty() && same,
                      "Adapter \"{}\" would change \"{}\", which shares the storage of \"{}\" and "
                      "is not read only as the matrix of Linear, Embedding or MatMul. "
                      "AdapterOptions::per_parameter changes only \"{}\".",
                      name_, p.name, table_.parameters[chosen].name,
                      table_.parameters[chosen].name);
    }
    return {};
  }

  Status add(const Change& change) {
    const Storage base = table_.storages[change.base];
    const View all = {};
    BOWLINE_TRY_ASSIGN(
        const Shape shown,
        view_shape(change.of_use ? rows_of(change.targets[0], false) : all, base.shape));
    const Shape shape = matrix_shape(shown);
    const int64_t rank = change.whole ? std::min(shape[0], shape[1]) : options_.rank;
    const float bound = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(shape[1], 1)));
    BOWLINE_TRY_ASSIGN(const uint32_t a,
                       add_storage(base, Role::adapter_a, {rank, shape[1]}, Init::uniform(bound)));
    BOWLINE_TRY_ASSIGN(const uint32_t b,
                       add_storage(base, Role::adapter_b, {shape[0], rank}, Init::zeros()));
    for (const uint32_t target : change.targets) {
      const bool transpose = table_.parameters[target].view.transpose;
      View of_a;
      of_a.transpose = transpose;
      BOWLINE_TRY(add_parameter(target, kA, a, of_a));
      BOWLINE_TRY(add_parameter(target, kB, b, change.of_use ? of_a : rows_of(target, transpose)));
      report_.targets.push_back(table_.parameters[target].name);
    }
    return {};
  }

  View rows_of(uint32_t target, bool transpose) const {
    View view = table_.parameters[target].view;
    view.transpose = transpose;
    return view;
  }

  Result<uint32_t> add_storage(const Storage& base, Role role, std::initializer_list<int64_t> dims,
                               const Init& init) {
    Storage row;
    row.role = role;
    row.dtype = base.dtype;
    row.init = init;
    BOWLINE_TRY_ASSIGN(row.shape, Shape::checked(std::vector<int64_t>(dims)));
    if (base.home.valid()) {
      const auto tie = static_cast<uint32_t>(table_.storages.size());
      BOWLINE_TRY_ASSIGN(const auto bytes, initial_bytes(row, options_.seed, tie));
      BOWLINE_TRY_ASSIGN(Home home, make_home(device_of(base), bytes));
      bowline::detail::params::install(row, std::move(home));
    }
    report_.bytes += row.bytes();
    return table_.add(std::move(row));
  }

  Status add_parameter(uint32_t target, std::string_view end, uint32_t tie, View view) {
    const std::string& of = table_.parameters[target].name;
    return enter({format("{}.{}{}", of, name_, end), tie, std::move(view), of});
  }

  Status add_number(std::string_view end, float value, const std::string& target,
                    const std::shared_ptr<device::OpenDevice>& device) {
    Storage row;
    row.role = Role::constant;
    row.trainable = false;
    row.shape = {1};
    BOWLINE_TRY_ASSIGN(Home home, make_home(device, std::as_bytes(std::span(&value, 1))));
    bowline::detail::params::install(row, std::move(home));
    report_.bytes += row.bytes();
    const uint32_t tie = table_.add(std::move(row));
    return enter({format("{}{}", name_, end), tie, {}, target});
  }

  Status enter(ParameterRow row) {
    BOWLINE_TRY(check_name(row.name, "A parameter"));
    BOWLINE_REQUIRE(!table_.find(row.name), "There is a parameter \"{}\" already.", row.name);
    table_.add(std::move(row));
    return {};
  }

  void freeze_others() {
    for (uint32_t tie = 0; tie < table_.storages.size(); ++tie) {
      if (table_.storages[tie].role == Role::weight && table_.storages[tie].trainable) {
        Storage row = table_.storages[tie];
        row.trainable = false;
        ++row.generation;
        table_.put(tie, std::move(row));
      }
    }
  }

  Table& table_;
  std::string_view name_;
  const AdapterOptions& options_;
  std::span<const Reading> readings_;
  AdapterReport report_;
};

// Checks that the adapter changes all parameters of the storage, with the same factors, and that
// their shapes fit.
Result<Factors> change_of(const Table& table, uint32_t base, std::string_view adapter,
                          uint32_t target) {
  const Factors pair = *pair_of(table, target, adapter);
  const ParameterRow& adapted = table.parameters[target];
  for (const uint32_t user : sorted(table.users(base))) {
    const ParameterRow& p = table.parameters[user];
    const auto other = pair_of(table, user, adapter);
    const bool same = other && table.parameters[other->a].tie == table.parameters[pair.a].tie &&
                      table.parameters[other->b].tie == table.parameters[pair.b].tie;
    if (!same) {
      BOWLINE_TRY_ASSIGN(const uint64_t cost, untie_cost(table, adapted.name));
      return Status(Code::bad_argument,
                    format("Adapter \"{}\" changes \"{}\", but merging would also change \"{}\", "
                           "which shares its storage. Call untie(\"{}\") first; it costs {} bytes.",
                           adapter, adapted.name, p.name, adapted.name, cost));
    }
  }
  const Storage& a = table.storages[table.parameters[pair.a].tie];
  const Storage& b = table.storages[table.parameters[pair.b].tie];
  const Shape whole = matrix_shape(table.storages[base].shape);
  const bool fits = a.shape.rank() == 2 && b.shape.rank() == 2 && whole.rank() == 2 &&
                    a.shape[0] == b.shape[1] && b.shape[0] == whole[0] && a.shape[1] == whole[1];
  BOWLINE_REQUIRE(fits,
                  "Adapter \"{}\" of \"{}\" is {} times {}, which does not fit its storage {}.",
                  adapter, adapted.name, b.shape, a.shape, whole);
  return pair;
}

Result<std::vector<float>> floats_of(const Storage& row) {
  BOWLINE_REQUIRE(is_float(row.dtype), "It is {}, not a float type.", row.dtype);
  BOWLINE_REQUIRE(row.encoding.is_plain(),
                  "It is stored as {}. Call dequantize() first, or keep the adapter unmerged.",
                  row.encoding);
  BOWLINE_TRY(require_host_memory(2 * static_cast<size_t>(row.shape.elements()) * sizeof(float)));
  return decoded(row);
}

// base + scale b a, rounded once to the dtype of the storage.
Status merge(Table& table, uint32_t base, const Factors& pair, float scale) {
  Storage row = table.storages[base];
  const Storage& a = table.storages[table.parameters[pair.a].tie];
  const Storage& b = table.storages[table.parameters[pair.b].tie];
  BOWLINE_TRY_ASSIGN(std::vector<float> sum, floats_of(row));
  BOWLINE_TRY_ASSIGN(const std::vector<float> right, floats_of(a));
  BOWLINE_TRY_ASSIGN(const std::vector<float> left, floats_of(b));
  const auto width = static_cast<size_t>(a.shape[1]), rank = static_cast<size_t>(a.shape[0]);
  for (size_t at = 0; at < sum.size(); ++at) {
    float delta = 0;
    for (size_t k = 0; k < rank; ++k) {
      delta += left[at / width * rank + k] * right[k * width + at % width];
    }
    sum[at] += scale * delta;
  }
  std::vector<std::byte> bytes(row.bytes());
  convert_floats(std::as_bytes(std::span(sum)), DType::f32, bytes, row.dtype);
  BOWLINE_TRY_ASSIGN(Home home, make_home(device_of(row), bytes));
  install(row, std::move(home));
  table.put(base, std::move(row));
  return {};
}

bool belongs_to(const ParameterRow& p, std::string_view adapter) {
  return !p.target.empty() && adapter_of(p) == adapter;
}

}  // namespace

std::vector<std::string> adapter_names(const Table& table) {
  std::vector<std::string> out;
  for (const ParameterRow& p : table.parameters) {
    if (!p.target.empty() && std::string_view(p.name).ends_with(kScale)) {
      out.emplace_back(adapter_of(p));
    }
  }
  return out;
}

std::optional<LowRank> low_rank(const Table& table, uint32_t target, std::string_view adapter) {
  const std::optional<Factors> pair = pair_of(table, target, adapter);
  if (!pair) {
    return std::nullopt;
  }
  return table.parameters[target].view.transpose ? LowRank{pair->a, pair->b}
                                                 : LowRank{pair->b, pair->a};
}

Result<uint32_t> scale_of(const Table& table, std::string_view adapter) {
  return part_of(table, adapter, kScale);
}
Result<uint32_t> zero_of(const Table& table, std::string_view adapter) {
  return part_of(table, adapter, kZero);
}
Result<float> dropout_of(const Table& table, std::string_view adapter) {
  if (!table.find(format("{}{}", adapter, kDropout))) {
    return 0.0f;
  }
  BOWLINE_TRY_ASSIGN(const uint32_t index, part_of(table, adapter, kDropout));
  const auto device = device_of(table.storages[table.parameters[index].tie]);
  // Plans do not depend on the rate.
  constexpr float kAnyRate = 0.5f;
  return device != nullptr && !device->has_memory() ? kAnyRate
                                                    : number_of(table, adapter, kDropout);
}

Result<AdapterReport> add_adapter(Table& table, std::string_view name,
                                  const AdapterOptions& options, std::span<const Reading> readings,
                                  int busy) {
  BOWLINE_TRY(require_idle(busy, "add_adapter()"));
  return Adding(table, name, options, readings).add();
}

namespace {

// alpha / rank.
Result<float> unit_of(const Table& table, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const float alpha, number_of(table, name, kAlpha));
  if (table.find(format("{}{}", name, kRank))) {
    BOWLINE_TRY_ASSIGN(const float rank, number_of(table, name, kRank));
    return alpha / rank;
  }
  for (const ParameterRow& p : table.parameters) {
    const Shape& a = table.storages[p.tie].shape;
    const bool is_a = belongs_to(p, name) && table.storages[p.tie].role == Role::adapter_a;
    if (is_a && a.rank() == 2 && a[0] > 0) {
      return alpha / static_cast<float>(a[0]);
    }
  }
  return Status(Code::bad_argument, format("Adapter \"{}\" changes nothing.", name));
}

}  // namespace

Status set_adapter_weight(Table& table, std::string_view name, float weight, int busy) {
  BOWLINE_REQUIRE(std::isfinite(weight), "The weight of adapter \"{}\" is {}, which is not finite.",
                  name, weight);
  BOWLINE_TRY_ASSIGN(const float unit, unit_of(table, name));
  BOWLINE_TRY(number_of(table, name, kScale).status());
  BOWLINE_TRY_ASSIGN(const uint32_t index, scale_of(table, name));
  const Storage& row = table.storages[table.parameters[index].tie];
  const float scale = weight * unit;
  std::byte bytes[sizeof(float)] = {};
  convert_floats(std::as_bytes(std::span(&scale, 1)), DType::f32,
                 std::span(bytes).first(size_of(row.dtype)), row.dtype);
  const int64_t one[] = {1};
  return set_value(table, table.parameters[index].name, Tensor{"", row.dtype, one, bytes}, busy);
}

Result<float> adapter_weight(const Table& table, std::string_view name) {
  BOWLINE_TRY_ASSIGN(const float unit, unit_of(table, name));
  BOWLINE_TRY_ASSIGN(const float scale, number_of(table, name, kScale));
  return unit == 0 ? scale : scale / unit;
}

Result<Table> without_adapter(const Table& table, std::string_view name, int busy,
                              std::vector<uint32_t>& numbers) {
  BOWLINE_TRY(require_idle(busy, "remove_adapter()"));
  BOWLINE_TRY(scale_of(table, name).status());
  Table out(std::vector<Storage>(table.storages.begin(), table.storages.end()));
  out.set_device(table.device());
  out.set_formats(table.formats());
  out.set_counters(table.counters());
  for (const ParameterRow& p : table.parameters) {
    numbers.push_back(belongs_to(p, name) ? UINT32_MAX : out.add(ParameterRow(p)));
  }
  for (const ParameterRow& p : table.parameters) {
    if (belongs_to(p, name) && out.users(p.tie).begin() == out.users(p.tie).end()) {
      for (const uint32_t row : sorted(out.owned(p.tie))) {
        out.make_empty(row);
      }
      out.make_empty(p.tie);
    }
  }
  return out;
}

Status merge_adapter(Table& table, std::string_view name, int busy) {
  BOWLINE_TRY(require_idle(busy, "merge_adapter()"));
  BOWLINE_TRY_ASSIGN(const float scale, number_of(table, name, kScale));
  std::map<uint32_t, Factors> changes;  // by storage
  for (uint32_t i = 0; i < table.parameters.size(); ++i) {
    const uint32_t tie = table.parameters[i].tie;
    if (pair_of(table, i, name) && !changes.contains(tie)) {
      BOWLINE_TRY_ASSIGN(changes[tie], change_of(table, tie, name, i));
    }
  }
  for (const auto& [tie, pair] : changes) {
    BOWLINE_TRY(merge(table, tie, pair, scale)
                    .at(format("While merging adapter \"{}\" into storage {}.", name, tie)));
  }
  return {};
}

Result<Table> adapter_alone(const Table& table, std::string_view name) {
  BOWLINE_TRY(scale_of(table, name).status());
  Table out;
  std::map<uint32_t, uint32_t> ties;
  for (const ParameterRow& p : table.parameters) {
    if (!belongs_to(p, name)) {
      continue;
    }
    const auto [at, is_new] = ties.try_emplace(p.tie, 0);
    if (is_new) {
      at->second = out.add(Storage(table.storages[p.tie]));
    }
    out.add({p.name, at->second, p.view, p.target});
  }
  return out;
}

Result<std::string> install_adapter(Table& table, const Table& adapter, std::string_view name,
                                    int busy) {
  BOWLINE_TRY(require_idle(busy, "load_adapter()"));
  const std::vector<std::string> names = adapter_names(adapter);
  BOWLINE_REQUIRE(names.size() == 1, "The file holds {} adapters, not one.", names.size());
  const std::string new_name(name.empty() ? names[0] : name);
  BOWLINE_TRY(require_new_adapter(table, new_name));
  std::map<uint32_t, uint32_t> ties;
  for (ParameterRow p : adapter.parameters) {
    BOWLINE_REQUIRE(belongs_to(p, names[0]), "Parameter \"{}\" does not belong to adapter \"{}\".",
                    p.name, names[0]);
    p.name.replace(static_cast<size_t>(adapter_of(p).data() - p.name.data()), names[0].size(),
                   new_name);
    BOWLINE_REQUIRE(!table.find(p.name), "There is a parameter \"{}\" already.", p.name);
    BOWLINE_TRY_ASSIGN(const uint32_t target, table.require(p.target));
    const auto [at, is_new] = ties.try_emplace(p.tie, 0);
    if (is_new) {
      Storage row = adapter.storages[p.tie];
      BOWLINE_REQUIRE(row.owner == kNoOwner && !is_training(row.role) && row.home.valid(),
                      "Parameter \"{}\" is a {} without values of its own.", p.name,
                      name_of(row.role));
      const auto device = device_of(table.storages[table.parameters[target].tie]);
      if (device != nullptr && row.home.valid()) {
        std::vector<std::byte> scratch;
        BOWLINE_TRY_ASSIGN(const Bytes bytes, read_all(row, scratch));
        BOWLINE_TRY_ASSIGN(row.home, make_home(device, bytes));
      }
      at->second = table.add(std::move(row));
    }
    p.tie = at->second;
    table.add(std::move(p));
  }
  return new_name;
}

}  // namespace bowline::detail::params
