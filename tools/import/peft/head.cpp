#include "peft/head.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/status.h"

namespace bowline::peft {
namespace {

constexpr std::string_view kClassifier = "classifier.";
// The classification layer of RoBERTa in transformers.
constexpr std::string_view kOutProj = "classifier.out_proj.";
// Decoders whose token classification head has another name than "score".
constexpr std::string_view kTaggers[] = {"falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox"};

bool is_roberta(const Model& model) {
  const std::string architecture = model.metadata("architecture");
  return architecture == "roberta" || architecture == "xlm-roberta";
}

std::string name_in_transformers(const Model& model, const std::string& parameter) {
  if (parameter != "classifier.weight" && parameter != "classifier.bias") {
    return parameter;
  }
  const std::string part = parameter.substr(kClassifier.size());
  return is_roberta(model) && model.metadata("task") == "classify"
             ? std::string(kOutProj) + part
             : std::string(head_module(model)) + "." + part;
}

Factor factor_of(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), DType::f32, std::move(shape), {bytes.begin(), bytes.end()}};
}

Result<std::vector<float>> values_of(const Model& model, const ParameterInfo& p) {
  size_t elements = 1;
  for (const int64_t dim : p.shape) {
    elements *= static_cast<size_t>(dim);
  }
  std::vector<std::byte> bytes(elements * size_of(p.dtype));
  BOWLINE_TRY(model.get_value(p.name, {"", p.dtype, p.shape, bytes.data()}));
  return floats_of(p.dtype, bytes);
}

// values += scaling * B A
void add(const Change& change, double scaling, std::vector<float>& values) {
  const std::vector<float> a = floats_of(change.a.dtype, change.a.bytes);
  const std::vector<float> b = floats_of(change.b.dtype, change.b.bytes);
  const auto rank = static_cast<size_t>(change.a.shape[0]);
  const auto columns = static_cast<size_t>(change.a.shape[1]);
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (size_t r = 0; r < rank; ++r) {
      sum += double{b[i / columns * rank + r]} * double{a[r * columns + i % columns]};
    }
    values[i] = static_cast<float>(double{values[i]} + scaling * sum);
  }
}

// Finds B and A with scaling * B A = difference: one factor is difference / scaling, the other is
// the identity.
Change change_of(const std::string& parameter, const std::string& name,
                 const std::vector<float>& difference, int64_t rows, double scaling) {
  const auto columns = static_cast<int64_t>(difference.size()) / rows;
  const int64_t rank = std::min(rows, columns);
  std::vector<float> identity(static_cast<size_t>(rank * rank), 0), scaled = difference;
  for (int64_t i = 0; i < rank; ++i) {
    identity[static_cast<size_t>(i * rank + i)] = 1;
  }
  for (float& x : scaled) {
    x = static_cast<float>(double{x} / scaling);
  }
  const bool wide = rank == rows;
  return {parameter, Layout::linear, factor_of(name, {rank, columns}, wide ? scaled : identity),
          factor_of(name, {rows, rank}, wide ? identity : scaled), true};
}

}  // namespace

std::string_view head_module(const Model& model) {
  const bool is_tagger =
      model.metadata("task") == "tag" &&
      std::ranges::find(kTaggers, model.metadata("architecture")) != std::end(kTaggers);
  return model.metadata("causal") == "true" && !is_tagger ? "score" : "classifier";
}

bool has_class_head(const Model& model) {
  const std::string task = model.metadata("task");
  return task == "classify" || task == "tag";
}

bool in_head(const Model& model, std::string_view parameter) {
  constexpr std::string_view kParts[] = {kClassifier, "pre_classifier.", "score."};
  return has_class_head(model) &&
         std::ranges::any_of(kParts, [&](auto part) { return parameter.starts_with(part); });
}

Result<std::vector<Factor>> head_of(const Model& model, const LowRank& from) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  std::vector<Factor> out;
  for (const ParameterInfo& p : info.parameters) {
    if (!p.target.empty() || !in_head(model, p.name)) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(std::vector<float> values, values_of(model, p));
    const auto change = std::ranges::find(from.changes, p.name, &Change::parameter);
    if (change != from.changes.end()) {
      add(*change, from.scaling, values);
    }
    out.push_back(
        factor_of(name_in_transformers(model, p.name), {p.shape.begin(), p.shape.end()}, values));
  }
  return out;
}

Result<std::optional<Change>> head_change(const Model& model, const import::SourceTensor& tensor,
                                          const LowRank& from) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  const auto p = std::ranges::find_if(info.parameters, [&](const ParameterInfo& parameter) {
    return parameter.target.empty() && in_head(model, parameter.name) &&
           name_in_transformers(model, parameter.name) == tensor.name;
  });
  BOWLINE_REQUIRE_CODE(p != info.parameters.end() && TensorShape(tensor.shape) == p->shape,
                       Code::bad_file,
                       "The model has no head with a {} [{}]: the adapter is for another model.",
                       listed_name(tensor.name), fmt::format("{}", fmt::join(tensor.shape, ", ")));
  const DType t = tensor.dtype;
  BOWLINE_REQUIRE_CODE(t == DType::f32 || t == DType::f16 || t == DType::bf16, Code::unsupported,
                       "The tensor {} is {}, not a float dtype.", listed_name(tensor.name),
                       name_of(t));
  std::vector<std::byte> bytes(tensor.bytes);
  BOWLINE_TRY(tensor.read(0, bytes));
  std::vector<float> difference = floats_of(t, bytes);
  BOWLINE_TRY_ASSIGN(const std::vector<float> ours, values_of(model, *p));
  std::ranges::transform(difference, ours, difference.begin(), std::minus<>());
  if (std::ranges::all_of(difference, [](float x) { return x == 0; })) {
    return std::optional<Change>();
  }
  BOWLINE_REQUIRE_CODE(
      from.scaling != 0, Code::unsupported,
      "The adapter has a changed \"{}\", but its scale is 0, so the change cannot be "
      "stored.",
      p->name);
  const int64_t rows = p->shape.size() == 1 ? 1 : p->shape[0];
  return std::optional(change_of(p->name, tensor.name, difference, rows, from.scaling));
}

}  // namespace bowline::peft
