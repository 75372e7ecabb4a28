#include "blocks/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/escape.h"
#include "base/pattern.h"
#include "base/status.h"
#include "source/json.h"
#include "source/numbers.h"

namespace bowline::import {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20;  // bytes of each tensor that are compared at a time

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

uint64_t elements_of(const SourceTensor& tensor) {
  uint64_t n = 1;
  for (const int64_t d : tensor.shape) {
    n *= static_cast<uint64_t>(d);
  }
  return n;
}

std::string numbered(std::string name, int64_t i) {
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(i));
}

// Where Weights is in its list of tensors.
struct Place {
  const Progress& progress;
  uint64_t done = 0;
  uint64_t total = 0;

  Status tell() const { return progress.at(ImportProgress::Part::tensors, done, total); }
};

Result<bool> equal_tensors(const SourceTensor& a, const SourceTensor& b, const Place& place) {
  if (a.shape != b.shape || a.dtype != b.dtype || a.encoding != b.encoding || a.bytes != b.bytes) {
    return false;
  }
  if (!a.place.empty() && a.place == b.place) {
    return true;
  }
  std::vector<std::byte> left(std::min(a.bytes, kPiece)), right(left.size());
  for (uint64_t at = 0; at < a.bytes; at += left.size()) {
    const size_t n = std::min<uint64_t>(left.size(), a.bytes - at);
    BOWLINE_TRY(place.tell());
    BOWLINE_TRY(a.read(at, std::span(left).first(n)));
    BOWLINE_TRY(b.read(at, std::span(right).first(n)));
    if (std::memcmp(left.data(), right.data(), n) != 0) {
      return false;
    }
  }
  return true;
}

// The initial values of a weight of a skeleton, as its authors draw them: matrices from a normal
// distribution, norms 1, biases 0. Source: Radford et al., "Language Models are Unsupervised
// Multitask Learners", 2019, and the code of transformers.
Init initial_values(std::string_view name, std::span<const int64_t> shape) {
  return shape.size() > 1           ? Init::normal(0.02f)
         : name.ends_with("weight") ? Init::ones()
                                    : Init::zeros();
}

// Reads the first bytes of a tensor.
Status begin_of(const SourceTensor& tensor, std::string& out) {
  out.resize(std::min<uint64_t>(tensor.bytes, 4096));
  return tensor.read(0, std::as_writable_bytes(std::span(out)));
}

// True if all values are equal, as far as `begin` shows.
bool is_constant(const SourceTensor& tensor, std::string_view begin) {
  const size_t element = size_of(tensor.dtype);
  return tensor.encoding == "plain" &&
         std::memcmp(begin.data(), begin.data() + element, begin.size() - element) == 0;
}

// Splits "model.layers.3" and ".mlp.up_proj.weight". Both are empty if the tensor is not in a
// layer.
struct LayerName {
  std::string layer, part;
};
LayerName layer_name(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (end != std::string::npos && end > dot + 1 && name[end] == '.') {
      return {name.substr(0, end), name.substr(end)};
    }
  }
  return {};
}

// The float dtype with the most elements.
DType most_common(const Source& source) {
  std::array<uint64_t, kDTypes> elements{};
  for (const SourceTensor& t : source.tensors) {
    elements[static_cast<size_t>(t.dtype)] += is_float(t.dtype) ? elements_of(t) : 0;
  }
  return static_cast<DType>(std::ranges::max_element(elements) - elements.begin());
}

// The dtype that the config states. Empty: the config has a dtype that is not a float.
std::optional<DType> stated_dtype(const nlohmann::json& config) {
  Fields fields("The config", config);
  const std::string name = fields.text_or("dtype", fields.text_or("torch_dtype", "float32"));
  constexpr std::pair<std::string_view, DType> known[] = {
      {"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16}};
  const auto found = std::ranges::find(known, name, &std::pair<std::string_view, DType>::first);
  return found == std::end(known) || !fields.status().ok() ? std::nullopt
                                                           : std::optional(found->second);
}

}  // namespace

Weights::Weights(const Source& source, const TextImportOptions& options, Model& model,
                 bool generates)
    : options_(options),
      progress_(source.progress),
      model_(model),
      dtype_(options.dtype.value_or(most_common(source))),
      generates_(generates) {
  if (options.skeleton && !options.dtype) {
    const std::optional<DType> stated = stated_dtype(source.config);
    dtype_ = stated.value_or(dtype_);
    if (!stated) {
      fail(Code::bad_file,
           "The \"dtype\" of the config is not a float dtype. Choose a dtype with --dtype.");
    }
  }
  tensors_.reserve(source.tensors.size());
  for (const SourceTensor& t : source.tensors) {
    Tensor& made = tensors_.emplace_back();
    made.source = &t;
    made.name = t.name;
    made.report.name = t.name;
    made.report.stored = t.stored;
    made.report.shape = t.shape;
  }
  for (const std::string& part : source.other_parts) {
    drop(part, "it is not of the text model");
  }
  index_names();
}

void Weights::fail(Status status) {
  if (status_.ok()) {
    status_ = std::move(status);
  }
}

void Weights::index_names() {
  by_name_.clear();
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [at, is_new] = by_name_.emplace(tensors_[i].name, i);
    if (!is_new) {
      fail(Code::bad_file, "The tensors {} and {} have the same parameter name.",
           listed_name(tensors_[at->second].report.name), listed_name(tensors_[i].report.name));
    }
  }
}

void Weights::add_prefix(std::string_view prefix, std::initializer_list<std::string_view> except) {
  for (Tensor& t : tensors_) {
    const bool is_excepted =
        std::ranges::any_of(except, [&](auto begin) { return t.name.starts_with(begin); });
    if (!t.name.starts_with(prefix) && !is_excepted) {
      t.name.insert(0, prefix);
    }
  }
  index_names();
}

void Weights::strip_prefix(std::string_view prefix) {
  for (Tensor& t : tensors_) {
    if (t.name.starts_with(prefix)) {
      t.name.erase(0, prefix.size());
    }
  }
  index_names();
}

void Weights::rename(std::string_view from, std::string_view to) {
  for (Tensor& t : tensors_) {
    if (t.name == from) {
      t.name = to;
    }
  }
  index_names();
}

const Weights::Tensor* Weights::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}
Weights::Tensor* Weights::find(std::string_view name) {
  return const_cast<Tensor*>(std::as_const(*this).find(name));
}

int64_t Weights::rows_of(std::string_view name) const {
  const Tensor* t = find(name);
  return t == nullptr || t->source->shape.empty() ? 0 : t->source->shape[0];
}

DType Weights::parameter_dtype(const Tensor& tensor) const {
  return tensor.source->encoding == "plain" ? options_.dtype.value_or(tensor.source->dtype)
                                            : dtype_;
}

Weights::Tensor* Weights::take(const std::string& name, const std::vector<int64_t>& shape) {
  Tensor* t = find(name);
  if (t == nullptr) {
    fail(Code::bad_file, "The source has no tensor {}, which the config requires.",
         listed_name(name));
    return nullptr;
  }
  if (t->source->shape != shape) {
    fail(Code::bad_file, "Tensor {} has the shape {}, but the config requires {}.",
         listed_name(t->report.name), shape_text(t->source->shape), shape_text(shape));
    return nullptr;
  }
  if (!is_float(t->source->dtype)) {
    fail(Code::bad_file, "Tensor {} has the dtype {}, which is not a float dtype.",
         listed_name(t->report.name), t->source->stored);
    return nullptr;
  }
  t->report.use = ImportedTensor::Use::taken;
  t->report.parameter = name;
  return t;
}

std::optional<DType> Weights::common_dtype(const std::vector<Tensor*>& tensors) {
  DType common = parameter_dtype(*tensors[0]);
  for (const Tensor* t : tensors) {
    if ((t->source->encoding == "plain") != (tensors[0]->source->encoding == "plain")) {
      fail(Code::unsupported,
           "Tensor {} is stored as {}, but tensor {} as {}. A weight must be quantized in all "
           "layers "
           "or in none.",
           listed_name(tensors[0]->report.name), tensors[0]->source->stored,
           listed_name(t->report.name), t->source->stored);
      return std::nullopt;
    }
    if (parameter_dtype(*t) != common) {
      common = DType::f32;  // holds the values of both dtypes
    }
  }
  return common;
}

Weight Weights::one(const std::string& name, std::vector<int64_t> shape) {
  if (options_.skeleton) {
    return fresh(name, shape, initial_values(name, shape));
  }
  const Tensor* t = take(name, shape);
  if (t == nullptr) {
    return {};
  }
  const DType dtype = parameter_dtype(*t);
  Weight made = fresh(name, std::move(shape), Init::zeros(), StorageRole::weight, dtype);
  if (status_.ok()) {
    fill(*t, dtype);
  }
  return made;
}

Weight Weights::list(const std::string& name, int64_t count, std::vector<int64_t> shape,
                     int64_t first) {
  if (first > 0) {
    return list_from(first, name, count, shape);
  }
  if (options_.skeleton) {
    return fresh_list(name, count, shape, initial_values(name, shape), StorageRole::weight, dtype_);
  }
  std::vector<Tensor*> tensors;
  for (int64_t i = 0; i < count && status_.ok(); ++i) {
    tensors.push_back(take(numbered(name, i), shape));
  }
  const std::optional<DType> dtype = status_.ok() ? common_dtype(tensors) : std::nullopt;
  if (!dtype) {
    return {Parameter(), dtype_};
  }
  Weight made =
      fresh_list(name, count, std::move(shape), Init::zeros(), StorageRole::weight, *dtype);
  for (size_t i = 0; i < tensors.size() && status_.ok(); ++i) {
    fill(*tensors[i], *dtype);
  }
  return made;
}

Weight Weights::fresh(const std::string& name, std::vector<int64_t> shape, Init init,
                      StorageRole role, std::optional<DType> dtype) {
  const DType chosen = dtype.value_or(dtype_);
  return weight_of(model_.parameter(name, shape, init, role, chosen), chosen);
}

Weight Weights::list_from(int64_t first, const std::string& name, int64_t count,
                          const std::vector<int64_t>& shape) {
  Weight out = {ParameterList(), dtype_};
  std::vector<Parameter>& items = std::get<ParameterList>(out.of).items;
  for (int64_t i = first; i < count && status_.ok(); ++i) {
    const Weight made = one(numbered(name, i), shape);
    if (i > first && made.dtype != out.dtype) {
      fail(Code::unsupported, "The tensors of {} have different dtypes.", listed_name(name));
    }
    out.dtype = made.dtype;
    items.push_back(std::get<Parameter>(made.of));
  }
  if (!items.empty()) {
    items.insert(items.begin(), static_cast<size_t>(first), items.front());
  }
  return out;
}
Weight Weights::table(const std::string& name, std::vector<int64_t> shape,
                      std::vector<float> values, std::optional<DType> dtype) {
  const DType stored = dtype.value_or(dtype_);
  Weight made = fresh(name, std::move(shape), Init::zeros(), StorageRole::constant, stored);
  if (!options_.skeleton && status_.ok()) {
    const size_t count = values.size();
    const auto number = [of = std::move(values)](uint64_t first,
                                                 std::span<std::byte> out) -> Status {
      std::memcpy(out.data(), std::as_bytes(std::span(of)).data() + first, out.size());
      return {};
    };
    fail(model_.set_source(name, converted(number, DType::f32, stored, count)));
  }
  return made;
}

Weight Weights::fresh_list(const std::string& name, int64_t count, std::vector<int64_t> shape,
                           Init init, StorageRole role, DType dtype) {
  return weight_of(
      model_.parameters(name, static_cast<int>(count), std::move(shape), init, role, dtype), dtype);
}

Weight Weights::caches(const std::string& name, int64_t count, std::vector<int64_t> shape,
                       DType dtype, std::string_view encoding) {
  Weight made =
      fresh_list(name, count, std::move(shape), Init::zeros(), StorageRole::kv_cache, dtype);
  const auto zeros = [](uint64_t, std::span<std::byte> out) -> Status {
    std::ranges::fill(out, std::byte{0});
    return {};
  };
  for (int64_t i = 0; i < count && status_.ok() && encoding != "plain"; ++i) {
    fail(model_.set_source(numbered(name, i), zeros, encoding));
  }
  return made;
}

Weight Weights::tied(const std::string& name, const Weight& other, const std::string& other_name,
                     const std::string& declares) {
  const Parameter* to = std::get_if<Parameter>(&other.of);
  if (!status_.ok() || to == nullptr) {
    return {};
  }
  if (Tensor* t = find(name); t != nullptr) {
    const Tensor& kept = *find(other_name);
    const Result<bool> same = equal_tensors(*t->source, *kept.source, {progress_});
    fail(same.status());
    if (same.ok() && !same.value()) {
      fail(Code::bad_file,
           "{} ties {} and {}, but their values differ. To train them separately, set "
           "\"tie_word_embeddings\" to false. To keep one, remove the other from the source.",
           declares, listed_name(kept.report.name), listed_name(t->report.name));
      return {};
    }
    t->report.use = ImportedTensor::Use::tied;
    t->report.parameter = name;
    t->report.reason = fmt::format("to {}, by {}", listed_name(kept.report.name), declares);
  } else {
    notes_.push_back(fmt::format("{} is tied to {}: {}.", name, other_name, declares));
  }
  return weight_of(model_.tied_parameter(name, *to), other.dtype);
}

void Weights::drop(std::string_view pattern, std::string_view reason) {
  for (Tensor& t : tensors_) {
    if (t.report.use == ImportedTensor::Use::unexpected && matches(pattern, t.name)) {
      t.report.use = ImportedTensor::Use::dropped;
      t.report.reason = reason;
    }
  }
}

Status Weights::tie(Tensor& to, Tensor& tensor, std::string_view reason) {
  BOWLINE_TRY(model_.tie(to.report.parameter, tensor.report.parameter).status());
  tensor.report.use = ImportedTensor::Use::tied;
  tensor.report.reason = fmt::format("to {}: {}", listed_name(to.report.name), reason);
  return {};
}

Status Weights::tie_shared() {
  std::map<std::string_view, Tensor*> by_place;
  for (Tensor& t : tensors_) {
    if (t.report.use != ImportedTensor::Use::taken || t.source->place.empty()) {
      continue;
    }
    const auto [at, is_new] = by_place.emplace(t.source->place, &t);
    if (!is_new) {
      BOWLINE_TRY(tie(*at->second, t, "both have the same bytes of the file"));
    }
  }
  return {};
}

Result<Weights::Tensor*> Weights::asked(const std::string& name) {
  const auto found = std::ranges::find_if(tensors_, [&](const Tensor& t) {
    return t.report.name == name || t.report.parameter == name;
  });
  BOWLINE_REQUIRE(found != tensors_.end() && !found->report.parameter.empty(),
                  "--tie names {}, which is not a tensor of the source that becomes a parameter.",
                  listed_name(name));
  return &*found;
}

Status Weights::tie_asked() {
  for (const auto& [first, second] : options_.ties) {
    BOWLINE_TRY_ASSIGN(Tensor * a, asked(first));
    BOWLINE_TRY_ASSIGN(Tensor * b, asked(second));
    BOWLINE_TRY_ASSIGN(const bool same, equal_tensors(*a->source, *b->source, {progress_}));
    BOWLINE_REQUIRE(same, "--tie names {} and {}, but their values differ.",
                    listed_name(a->report.name), listed_name(b->report.name));
    BOWLINE_TRY(tie(*a, *b, "asked for"));
  }
  return {};
}

// Skips tensors that repeat one value, which can be equal by chance.
Status Weights::find_equal() {
  std::map<std::string, std::vector<Tensor*>> alike;
  std::string begin;
  Place place{progress_, 0, tensors_.size()};
  for (Tensor& t : tensors_) {
    BOWLINE_TRY(place.tell());
    ++place.done;
    const bool counts = t.source->shape.size() >= 2 || options_.tie_equal;
    if (t.report.use != ImportedTensor::Use::taken || !counts || t.source->bytes == 0) {
      continue;
    }
    BOWLINE_TRY(begin_of(*t.source, begin));
    if (is_constant(*t.source, begin)) {
      continue;
    }
    std::vector<Tensor*>& group = alike[begin];
    for (Tensor* other : group) {
      BOWLINE_TRY_ASSIGN(const bool same, equal_tensors(*other->source, *t.source, place));
      if (same && options_.tie_equal) {
        BOWLINE_TRY(tie_equal(*other, t));
        break;
      }
      if (same) {
        notes_.push_back(
            fmt::format("{0} and {1} have the same values, but the source does not tie them. --tie "
                        "{0} {1} ties "
                        "them; --tie-equal ties all tensors with equal values.",
                        listed_name(other->report.name), listed_name(t.report.name)));
        break;
      }
    }
    if (t.report.use == ImportedTensor::Use::taken) {
      group.push_back(&t);
    }
  }
  return options_.tie_equal ? tie_equal_layers() : Status();
}

Status Weights::tie_equal(Tensor& to, Tensor& tensor) {
  BOWLINE_TRY(tie(to, tensor, "both have the same values (--tie-equal)"));
  equal_.emplace_back(&tensor, &to);
  return {};
}

Status Weights::tie_equal_layers() {
  // For each layer: the layer that all of its tensors are tied to. Empty if a tensor is not tied,
  // or if the tensors are tied to several layers.
  std::map<std::string, std::optional<std::string>> twins;
  for (const auto& [tensor, to] : equal_) {
    const LayerName of = layer_name(tensor->name), other = layer_name(to->name);
    const bool same_part = !of.layer.empty() && of.part == other.part;
    const auto [at, is_new] =
        twins.emplace(of.layer, same_part ? std::optional(other.layer) : std::nullopt);
    if (!is_new && (!same_part || at->second != other.layer)) {
      at->second.reset();
    }
  }
  std::string begin;
  std::vector<Tensor*> constants;
  for (Tensor& t : tensors_) {
    if (t.report.use != ImportedTensor::Use::taken || t.source->bytes == 0) {
      continue;
    }
    BOWLINE_TRY(begin_of(*t.source, begin));
    if (is_constant(*t.source, begin)) {
      constants.push_back(&t);
    } else if (const auto twin = twins.find(layer_name(t.name).layer); twin != twins.end()) {
      twin->second.reset();
    }
  }
  for (Tensor* t : constants) {
    const LayerName of = layer_name(t->name);
    const auto twin = twins.find(of.layer);
    Tensor* const other =
        twin == twins.end() || !twin->second ? nullptr : find(*twin->second + of.part);
    if (other == nullptr || other->report.use != ImportedTensor::Use::taken) {
      continue;
    }
    BOWLINE_TRY_ASSIGN(const bool same, equal_tensors(*other->source, *t->source, {progress_}));
    if (same) {
      BOWLINE_TRY(tie_equal(*other, *t));
    }
  }
  return {};
}

Status Weights::check_unexpected() const {
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> names;
  size_t count = 0;
  for (const Tensor& t : tensors_) {
    if (t.report.use == ImportedTensor::Use::unexpected && ++count <= kMostNamed) {
      names.push_back(listed_name(t.report.name));
    }
  }
  if (count == 0) {
    return {};
  }
  return Status(Code::bad_file,
                fmt::format("{} of the {} tensors are unexpected: {}{}.", count, tensors_.size(),
                            fmt::join(names, ", "), names.size() < count ? ", ..." : ""));
}

void Weights::fill(const Tensor& tensor, DType dtype) {
  const SourceTensor& s = *tensor.source;
  ValueSource source = s.encoding == "plain"
                           ? converted(s.read, s.dtype, dtype, s.bytes / size_of(s.dtype))
                           : s.read;
  source =
      finite_.counted(tensor.report.name, std::move(source), elements_of(s), dtype, s.encoding);
  fail(model_.set_source(tensor.report.parameter, std::move(source), s.encoding)
           .at(fmt::format("While taking tensor {}.", listed_name(tensor.report.name))));
}

Status Weights::finish(Built& out) {
  BOWLINE_TRY(Status(status_));
  BOWLINE_TRY(check_unexpected());
  BOWLINE_TRY(tie_shared());
  BOWLINE_TRY(tie_asked());
  BOWLINE_TRY(find_equal());
  BOWLINE_TRY(options_.skeleton ? Status() : model_.materialize(options_.seed));
  for (Tensor& t : tensors_) {
    out.tensors.push_back(std::move(t.report));
  }
  out.notes.insert(out.notes.end(), notes_.begin(), notes_.end());
  out.finite = std::move(finite_);
  return {};
}

}  // namespace bowline::import
