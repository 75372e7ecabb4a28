#include "peft/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/escape.h"
#include "base/pattern.h"
#include "base/status.h"
#include "source/finite.h"
#include "source/numbers.h"

namespace bowline::peft {

std::string_view type_name(DType t) {
  return t == DType::f32 ? "F32" : t == DType::f16 ? "F16" : "BF16";
}

std::vector<float> floats_of(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> out(bytes.size() / size_of(dtype));
  import::convert(bytes, dtype, std::as_writable_bytes(std::span(out)), DType::f32);
  return out;
}

Layout layout_of(const Model& model, std::string_view parameter) {
  const std::string_view module = module_of(parameter);
  const std::string_view last = module.substr(module.rfind('.') + 1);
  if (last.starts_with("c_") && model.metadata("architecture") == "gpt2") {
    return Layout::conv1d;
  }
  constexpr std::string_view kTables[] = {"embed_tokens", "embed_in", "embed_positions", "wte",
                                          "wpe"};
  const bool is_table =
      last.ends_with("_embeddings") || std::ranges::find(kTables, last) != std::end(kTables);
  return is_table ? Layout::embedding : Layout::linear;
}

std::string_view module_of(std::string_view parameter) {
  constexpr std::string_view kWeight = ".weight";
  return parameter.ends_with(kWeight) ? parameter.substr(0, parameter.size() - kWeight.size())
                                      : std::string_view();
}

Factor transposed(const Factor& factor) {
  const auto rows = static_cast<size_t>(factor.shape[0]);
  const auto columns = static_cast<size_t>(factor.shape[1]);
  const size_t size = size_of(factor.dtype);
  Factor out{factor.name, factor.dtype, {factor.shape[1], factor.shape[0]}, {}};
  out.bytes.resize(factor.bytes.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::memcpy(out.bytes.data() + (c * rows + r) * size,
                  factor.bytes.data() + (r * columns + c) * size, size);
    }
  }
  return out;
}

namespace {

// The two factors of an adapter for a parameter W [m, n]: W += left right, with left [m, rank] and
// right [rank, n].
struct Names {
  std::string left;
  std::string right;
};

Names names_of(const ParameterInfo& target, std::string_view adapter) {
  Names out{fmt::format("{}.{}.lora_b", target.name, adapter),
            fmt::format("{}.{}.lora_a", target.name, adapter)};
  if (target.view.transpose) {
    std::swap(out.left, out.right);
  }
  return out;
}

Result<const ParameterInfo*> parameter_of(const ModelInfo& info, std::string_view name) {
  const auto found = std::ranges::find(info.parameters, name, &ParameterInfo::name);
  BOWLINE_REQUIRE(found != info.parameters.end(), "The model has no parameter \"{}\".", name);
  return &*found;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The matrix that a change adds to. A bias [n] counts as [1, n].
TensorShape matrix_shape(const TensorShape& shape) {
  return shape.size() == 1 ? TensorShape{1, shape[0]} : shape;
}

Status check_shapes(const Change& c, const ParameterInfo& target, int64_t low_rank) {
  BOWLINE_REQUIRE_CODE(target.shape.size() == 2 || c.whole, Code::bad_file,
                       "\"{}\" is not a matrix.", target.name);
  const TensorShape shape = matrix_shape(target.shape);
  const int64_t rank = c.whole ? std::min(shape[0], shape[1]) : low_rank;
  const bool in_first = c.layout != Layout::linear;
  const int64_t in = shape[in_first ? 0 : 1], out = shape[in_first ? 1 : 0];
  for (const auto& [factor, wanted] :
       {std::pair(&c.a, std::vector{rank, in}), std::pair(&c.b, std::vector{out, rank})}) {
    BOWLINE_REQUIRE_CODE(factor->shape == wanted, Code::bad_file,
                         "The tensor {} is {}, but rank {} and \"{}\" [{}, {}] require {}.",
                         listed_name(factor->name), shape_text(factor->shape), rank, target.name,
                         shape[0], shape[1], shape_text(wanted));
  }
  return {};
}

Status check_dtype(const Factor& factor, const Factor& first) {
  const DType t = factor.dtype;
  BOWLINE_REQUIRE_CODE(
      import::is_float(t) && t == first.dtype, Code::unsupported,
      "The tensor {} is {}, but {} is {}. All factors of an adapter must have the same "
      "float dtype.",
      listed_name(factor.name), name_of(t), listed_name(first.name), name_of(first.dtype));
  return {};
}

// Non-finite factors would make every output NaN.
Status check_finite(const std::vector<Change>& changes) {
  std::vector<NotFiniteTensor> found;
  for (const Change& c : changes) {
    for (const Factor* factor : {&c.a, &c.b}) {
      const std::vector<float> values = floats_of(factor->dtype, factor->bytes);
      const auto count = std::ranges::count_if(values, [](float x) { return !std::isfinite(x); });
      if (count > 0) {
        found.push_back({factor->name, static_cast<uint64_t>(count), values.size()});
      }
    }
  }
  BOWLINE_REQUIRE_CODE(
      found.empty(), Code::bad_file,
      "The adapter has non-finite values (NaN or infinity): {}. Its training diverged, or "
      "the file is damaged. Use an earlier checkpoint.",
      import::list_of(found));
  return {};
}

Status check(const ModelInfo& info, const LowRank& from) {
  std::set<std::string_view> seen;
  for (const Change& c : from.changes) {
    BOWLINE_TRY_ASSIGN(const ParameterInfo* target, parameter_of(info, c.parameter));
    BOWLINE_REQUIRE_CODE(seen.insert(c.parameter).second, Code::bad_file,
                         "Two modules map to the parameter \"{}\" of the model.", c.parameter);
    BOWLINE_TRY(check_shapes(c, *target, from.rank));
    BOWLINE_TRY(check_dtype(c.a, from.changes[0].a));
    BOWLINE_TRY(check_dtype(c.b, from.changes[0].a));
  }
  return check_finite(from.changes);
}

// "model.layers.*.q_proj.weight": a star for the first number.
std::string starred(const std::string& name) {
  const auto is_digit = [](char d) { return d >= '0' && d <= '9'; };
  const auto begin = std::ranges::find_if(name, is_digit);
  const auto end = std::find_if_not(begin, name.end(), is_digit);
  return begin == name.end()
             ? name
             : std::string(name.begin(), begin) + "*" + std::string(end, name.end());
}

// Patterns such as "model.layers.*.self_attn.q_proj.weight" for the changes that are (not)
// full-rank. If the patterns also match other parameters, returns the names instead.
std::set<std::string> patterns_of(const ModelInfo& info, const std::vector<Change>& changes,
                                  bool whole) {
  std::set<std::string> patterns, names;
  for (const Change& c : changes) {
    if (c.whole == whole) {
      names.insert(c.parameter);
      patterns.insert(starred(c.parameter));
    }
  }
  const bool exact = std::ranges::all_of(info.parameters, [&](const ParameterInfo& p) {
    return !p.target.empty() ||
           names.contains(p.name) == std::ranges::any_of(patterns, [&](const auto& star) {
             return matches(star, p.name);
           });
  });
  return exact ? patterns : names;
}

// "{model.layers.*.self_attn.q_proj.weight,!classifier.weight}"
std::string target_of(const ModelInfo& info, const std::vector<Change>& changes) {
  std::vector<std::string> out;
  for (const bool whole : {false, true}) {
    for (const std::string& pattern : patterns_of(info, changes, whole)) {
      out.push_back((whole ? "!" : "") + pattern);
    }
  }
  return fmt::format("{{{}}}", fmt::join(out, ","));
}

Status set_factor(Model& model, const std::string& parameter, const Factor& factor) {
  Factor copy = factor;
  return model.set_value(parameter, {"", copy.dtype, TensorShape(copy.shape), copy.bytes.data()});
}

Status set_factors(Model& model, const ModelInfo& info, const Change& c, std::string_view adapter) {
  BOWLINE_TRY_ASSIGN(const ParameterInfo* target, parameter_of(info, c.parameter));
  const Names names = names_of(*target, adapter);
  if (c.layout == Layout::linear) {
    BOWLINE_TRY(set_factor(model, names.right, c.a));
    return set_factor(model, names.left, c.b);
  }
  BOWLINE_TRY(set_factor(model, names.left, transposed(c.a)));
  return set_factor(model, names.right, transposed(c.b));
}

Status fill(Model& model, const ModelInfo& info, std::string_view name, const LowRank& from) {
  BOWLINE_TRY(model.cast(from.changes[0].a.dtype, fmt::format("*.{}.lora_?", name)).status());
  for (const Change& c : from.changes) {
    BOWLINE_TRY(set_factors(model, info, c, name));
  }
  return {};
}

}  // namespace

Result<AdapterReport> add_changes(Model& model, std::string_view name, const LowRank& from) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  BOWLINE_REQUIRE_CODE(!from.changes.empty(), Code::bad_file, "The adapter has no changes.");
  BOWLINE_TRY(check(info, from));
  AdapterOptions options;
  options.rank = from.rank;
  options.alpha = static_cast<float>(from.scaling * static_cast<double>(from.rank));
  options.dropout = static_cast<float>(from.dropout);
  options.target = target_of(info, from.changes);
  // Other tools change a module, not all modules that share its weight.
  options.per_parameter = true;
  options.freeze_others = false;
  BOWLINE_TRY_ASSIGN(AdapterReport report, add_adapter(model, name, options));
  Status filled =
      report.targets.size() == from.changes.size()
          ? fill(model, info, name, from)
          : Status(Code::bad_file,
                   fmt::format("The adapter changes {} parameters, but only {} of them are "
                               "matrices that an adapter can change.",
                               from.changes.size(), report.targets.size()));
  if (!filled.ok()) {
    BOWLINE_TRY(remove_adapter(model, name));
    return filled;
  }
  return report;
}

namespace {

Result<double> number_of(const Model& model, const ModelInfo& info, const std::string& name) {
  BOWLINE_TRY_ASSIGN(const ParameterInfo* p, parameter_of(info, name));
  BOWLINE_REQUIRE(p->dtype == DType::f32, "\"{}\" is {}, not f32.", name, name_of(p->dtype));
  float out = 0;
  BOWLINE_TRY(model.get_value(name, {"", DType::f32, p->shape, &out}));
  return out;
}

bool has(const ModelInfo& info, const std::string& name) {
  return std::ranges::count(info.parameters, name, &ParameterInfo::name) != 0;
}

// Returns the rank of the changes that are not full-rank, if there are any.
Result<std::optional<int64_t>> rank_of(const Model& model, const ModelInfo& info,
                                       std::string_view adapter) {
  const std::string name = fmt::format("{}.lora_rank", adapter);
  if (!has(info, name)) {
    return std::optional<int64_t>();
  }
  BOWLINE_TRY_ASSIGN(const double rank, number_of(model, info, name));
  return std::optional(static_cast<int64_t>(rank));
}

Result<Factor> factor_of(const Model& model, const ModelInfo& info, const std::string& name) {
  BOWLINE_TRY_ASSIGN(const ParameterInfo* p, parameter_of(info, name));
  Factor out{name, p->dtype, {p->shape.begin(), p->shape.end()}, {}};
  out.bytes.resize(static_cast<size_t>(p->shape[0] * p->shape[1]) * size_of(p->dtype));
  BOWLINE_TRY(model.get_value(name, {"", p->dtype, p->shape, out.bytes.data()}));
  return out;
}

}  // namespace

Result<LowRank> changes_of(const Model& model, std::string_view adapter) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  std::set<std::string_view> targets;
  for (const ParameterInfo& p : info.parameters) {
    if (!p.target.empty() && p.name == fmt::format("{}.{}.lora_a", p.target, adapter)) {
      targets.insert(p.target);
    }
  }
  BOWLINE_REQUIRE(!targets.empty(), "The model has no adapter \"{}\".", adapter);
  LowRank out;
  BOWLINE_TRY_ASSIGN(const std::optional<int64_t> rank, rank_of(model, info, adapter));
  for (const ParameterInfo& p : info.parameters) {
    if (!targets.contains(p.name)) {
      continue;
    }
    const Names names = names_of(p, adapter);
    Change c{p.name, layout_of(model, p.name), {}, {}};
    BOWLINE_TRY_ASSIGN(Factor left, factor_of(model, info, names.left));
    BOWLINE_TRY_ASSIGN(Factor right, factor_of(model, info, names.right));
    c.whole = rank && right.shape[0] != *rank;
    out.rank = rank.value_or(right.shape[0]);
    const bool is_linear = c.layout == Layout::linear;
    c.a = is_linear ? std::move(right) : transposed(left);
    c.b = is_linear ? std::move(left) : transposed(right);
    out.changes.push_back(std::move(c));
  }
  BOWLINE_TRY_ASSIGN(out.scaling, number_of(model, info, fmt::format("{}.lora_scale", adapter)));
  const std::string dropout = fmt::format("{}.lora_dropout", adapter);
  if (has(info, dropout)) {
    BOWLINE_TRY_ASSIGN(out.dropout, number_of(model, info, dropout));
  }
  return out;
}

Status require_low_rank(const LowRank& changes) {
  for (const Change& c : changes.changes) {
    BOWLINE_REQUIRE(!module_of(c.parameter).empty(),
                    "The adapter changes \"{}\", which is not a weight of a module.", c.parameter);
    BOWLINE_REQUIRE(!c.whole, "The adapter changes \"{}\" with full rank, not with rank {}.",
                    c.parameter, changes.rank);
  }
  return {};
}

}  // namespace bowline::peft
