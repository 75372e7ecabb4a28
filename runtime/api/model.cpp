// The members of bowline::Model.
#include <functional>

#include "api/describe.h"
#include "api/internals.h"
#include "api/reshaping.h"
#include "base/boundary.h"
#include "bowline.h"
#include "core/rules.h"
#include "graph/bind.h"
#include "graph/load.h"
#include "graph/readers.h"
#include "graph/save.h"
#include "params/file.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline {
namespace {

using graph::ModelState;

// Removes the added parameters, unless all of them were added.
class Declaring {
 public:
  explicit Declaring(params::Table& table)
      : table_(table), storages_(table.storages.size()), parameters_(table.parameters.size()) {}
  ~Declaring() {
    if (!done_) {
      table_.shrink(storages_, parameters_);
    }
  }
  Declaring(const Declaring&) = delete;
  Declaring& operator=(const Declaring&) = delete;
  void done() { done_ = true; }

 private:
  params::Table& table_;
  size_t storages_;
  size_t parameters_;
  bool done_ = false;
};

Status require_one_orientation(const ModelState& state, const params::Pair& pair) {
  const auto& parameters = state.table.parameters;
  const bool transpose = pair.view.value_or(parameters[pair.first].view).transpose;
  if (transpose == parameters[pair.second].view.transpose) {
    return {};
  }
  for (const graph::GenericGraph& g : state.entry_points.graphs) {
    BOWLINE_TRY(graph::check_orientation(g, state.table, pair.second, transpose)
                    .at(format("While tying \"{}\" to \"{}\".", parameters[pair.second].name,
                               parameters[pair.first].name)));
  }
  return {};
}

Result<TieReport> tie(ModelState& state, std::span<const params::Pair> pairs) {
  BOWLINE_TRY(require_no_accumulation(state, "tie()"));
  for (const params::Pair& pair : pairs) {
    BOWLINE_TRY(require_one_orientation(state, pair));
  }
  return params::tie(state.table, pairs, state.users.busy());
}

// The same model with another table.
std::shared_ptr<ModelState> with_table(const ModelState& state, params::Table table) {
  auto out = std::make_shared<ModelState>();
  out->table = std::move(table);
  out->formats = state.formats;
  out->entry_points.dims = state.entry_points.dims;
  for (const graph::GenericGraph& g : state.entry_points.graphs) {
    out->entry_points.graphs.push_back(graph::deep_copy(g));
  }
  out->extras = state.extras;
  out->extras.training.reset();
  return out;
}

Result<std::shared_ptr<ModelState>> copy_of(const ModelState& state) {
  BOWLINE_TRY_ASSIGN(params::Table table, params::clone(state.table));
  table.set_formats(state.table.formats());
  params::keep_formats(table);
  return with_table(state, std::move(table));
}

Result<LoadReport> load(ModelState& state, const std::string& path, const LoadOptions& options) {
  BOWLINE_TRY_ASSIGN(const auto file, model::VerifiedFile::open(path));
  params::Table source = params::read_table(model::Tables(*file));
  if (options.hook || !options.aliases.empty()) {
    const graph::Running held(state);  // a hook may not change the model
    BOWLINE_TRY_ASSIGN(source, params::substituted(state.table, source, options));
  }
  const auto into = [&](params::Table& table) {
    return params::load(table, source, options.mode, options.partial, state.users.busy());
  };
  return options.mode == LoadMode::copy ? into(state.table) : reshaping(state, "load()", {}, into);
}

Result<std::vector<std::vector<std::byte>>> values_of(
    const std::vector<model::SelfTestTensor>& tensors) {
  std::vector<std::vector<std::byte>> out;
  for (const model::SelfTestTensor& t : tensors) {
    BOWLINE_TRY_ASSIGN(out.emplace_back(), t.range->copy());
  }
  return out;
}

}  // namespace

Model::Model() {
  guarded([&] { return (state_ = std::make_shared<ModelState>()) != nullptr; });
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::Model(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}

Result<Model> Model::open(const std::string& path, const OpenOptions& options) {
  return guarded([&]() -> Result<Model> {
    BOWLINE_TRY_ASSIGN(auto state, graph::load_model(path, options));
    return Model(std::move(state));
  });
}

Result<Model> Model::open_memory(std::span<const std::byte> bytes, const OpenOptions& options) {
  return guarded([&]() -> Result<Model> {
    auto file = model::MappedFile::of_memory(bytes, model::MappedFile::access_of(options));
    BOWLINE_TRY_ASSIGN(auto state, graph::load_model(std::move(file), options));
    return Model(std::move(state));
  });
}

Result<Model> Model::open_descriptor(int descriptor, uint64_t offset, uint64_t bytes,
                                     const OpenOptions& options) {
  return guarded([&]() -> Result<Model> {
    BOWLINE_TRY_ASSIGN(
        auto file, model::MappedFile::of_descriptor(descriptor, offset, bytes, real_file_system(),
                                                    model::MappedFile::access_of(options)));
    BOWLINE_TRY_ASSIGN(auto state, graph::load_model(std::move(file), options));
    return Model(std::move(state));
  });
}

Result<Model> Model::open_reader(ModelReader reader, const OpenOptions& options) {
  return guarded([&]() -> Result<Model> {
    BOWLINE_TRY_ASSIGN(auto file, model::MappedFile::of_reader(
                                      std::move(reader), model::MappedFile::access_of(options)));
    BOWLINE_TRY_ASSIGN(auto state, graph::load_model(std::move(file), options));
    return Model(std::move(state));
  });
}

Status Model::verify(const std::string& path, const OpenOptions& options) {
  return guarded([&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto file,
                       model::VerifiedFile::open(path, real_file_system(), options));
    return file->verify_all();
  });
}

Result<ModelInfo> Model::describe() const {
  return guarded(state_, "model",
                 [](const ModelState& s) -> Result<ModelInfo> { return api::describe(s); });
}

Result<std::vector<std::byte>> Model::storage_bytes(uint32_t tie) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<std::vector<std::byte>> {
    BOWLINE_REQUIRE(tie < s.table.storages.size() && s.table.storages[tie].home.valid(),
                    "There is no storage {} that has values.", tie);
    return params::read_bytes(s.table.storages[tie]);
  });
}

Result<std::vector<std::byte>> Model::asset(std::string_view name) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<std::vector<std::byte>> {
    const auto found = std::ranges::find(s.extras.assets, name, &model::Asset::name);
    BOWLINE_REQUIRE(found != s.extras.assets.end(), "The model has no asset \"{}\".", name);
    return found->range->copy();
  });
}

Result<SelfTestValues> Model::self_test(size_t number) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<SelfTestValues> {
    BOWLINE_REQUIRE(number < s.extras.self_tests.size(),
                    "There is no self test {}; the model has {} self tests.", number,
                    s.extras.self_tests.size());
    const model::SelfTest& test = s.extras.self_tests[number];
    SelfTestValues out;
    BOWLINE_TRY_ASSIGN(out.inputs, values_of(test.inputs));
    BOWLINE_TRY_ASSIGN(out.outputs, values_of(test.outputs));
    return out;
  });
}

Result<Parameter> Model::parameter(std::string_view name, const TensorShape& shape, Init init,
                                   StorageRole role, DType dtype) {
  return guarded(state_, "model", [&](ModelState& s) -> Result<Parameter> {
    BOWLINE_TRY_ASSIGN(const uint32_t index, params::add_parameter(s.table, name, dtype, shape,
                                                                   init, s.users.busy(), role));
    return s.handle_of(index);
  });
}

Result<Parameter> Model::tied_parameter(std::string_view name, Parameter other,
                                        const std::optional<View>& view) {
  return guarded(state_, "model", [&](ModelState& s) -> Result<Parameter> {
    BOWLINE_TRY_ASSIGN(const uint32_t of, s.number_of(other));
    BOWLINE_TRY_ASSIGN(const uint32_t index,
                       params::add_tied_parameter(s.table, name, of, view, s.users.busy()));
    return s.handle_of(index);
  });
}

Result<ParameterList> Model::parameters(std::string_view name, int count, const TensorShape& shape,
                                        Init init, StorageRole role, DType dtype) {
  return guarded(state_, "model", [&](ModelState& s) -> Result<ParameterList> {
    BOWLINE_REQUIRE(count >= 1, "The list would have {} parameters; it needs at least 1.", count);
    Declaring declaring(s.table);
    ParameterList list;
    for (int i = 0; i < count; ++i) {
      BOWLINE_TRY_ASSIGN(const uint32_t index,
                         params::add_parameter(s.table, format(name, i), dtype, shape, init,
                                               s.users.busy(), role));
      list.items.push_back(s.handle_of(index));
    }
    declaring.done();
    return list;
  });
}

Result<Parameter> Model::find(std::string_view name) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<Parameter> {
    BOWLINE_TRY_ASSIGN(const uint32_t index, s.table.require(name));
    return s.handle_of(index);
  });
}

Status Model::set_dim_limits(std::string_view name, const DimLimits& limits) {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(check_name(name, "A dim"));
    BOWLINE_TRY(check_limits(name, limits.min, limits.max));
    const graph::NamedDim dim{std::string(name), limits.min, limits.max, limits.dynamic};
    const graph::NamedDim* const found = s.entry_points.find_dim(name);
    if (found == nullptr) {
      s.entry_points.dims.push_back(dim);
      return {};
    }
    BOWLINE_REQUIRE(*found == dim,
                    "The model already has a dim \"{}\" with other limits: {}..{}, {}dynamic.",
                    name, found->min, found->max, found->dynamic ? "" : "not ");
    return {};
  });
}

Status Model::materialize(uint64_t seed) {
  return changing(
      state_, [&](ModelState& s) { return params::materialize(s.table, seed, s.users.busy()); });
}

Result<TieReport> Model::tie(std::string_view a, std::string_view b,
                             const std::optional<View>& view) {
  return changing(state_, [&](ModelState& s) -> Result<TieReport> {
    BOWLINE_TRY_ASSIGN(const uint32_t first, s.table.require(a));
    BOWLINE_TRY_ASSIGN(const uint32_t second, s.table.require(b));
    const params::Pair pair{first, second, view};
    return bowline::tie(s, {&pair, 1});
  });
}

Result<TieReport> Model::tie_layers(std::string_view pattern) {
  return changing(state_, [&](ModelState& s) -> Result<TieReport> {
    BOWLINE_TRY_ASSIGN(const auto pairs, params::numbered_pairs(s.table, pattern));
    return bowline::tie(s, pairs);
  });
}

Result<uint64_t> Model::untie(std::string_view name) {
  return changing(state_, [&](ModelState& s) -> Result<uint64_t> {
    BOWLINE_TRY(require_no_accumulation(s, "untie()"));
    return params::untie(s.table, name, s.users.busy());
  });
}

Result<uint64_t> Model::untie_cost(std::string_view name) const {
  return guarded(state_, "model",
                 [&](const ModelState& s) { return params::untie_cost(s.table, name); });
}

Status Model::set_value(std::string_view name, const Tensor& value) {
  return guarded(state_, "model", [&](ModelState& s) {
    return params::set_value(s.table, name, value, s.users.busy());
  });
}

Status Model::set_source(std::string_view name, ValueSource source, std::string_view encoding) {
  return changing(state_, [&](ModelState& s) -> Status {
    BOWLINE_TRY_ASSIGN(const Encoding parsed, parse_encoding(encoding));
    BOWLINE_TRY_ASSIGN(const uint32_t index, s.table.require(name));
    const uint32_t tie = s.table.parameters[index].tie;
    if (parsed.is_plain() && s.table.storages[tie].encoding.is_plain()) {
      return params::set_source(s.table, name, std::move(source), parsed, s.users.busy());
    }
    BOWLINE_TRY(require_no_trainer(s, "set_source()"));
    // Before quantized values are used, every reader of the storage must support them.
    const std::map<uint32_t, std::string> plain = graph::plain_readers(s);
    const auto reader = plain.find(tie);
    BOWLINE_REQUIRE(parsed.is_plain() || reader == plain.end(),
                    "\"{}\" cannot be stored as {}: it {}.", name, parsed, reader->second);
    return reshaping(s, "set_source()", {}, [&](params::Table& table) {
      return params::set_source(table, name, std::move(source), parsed, s.users.busy());
    });
  });
}

Status Model::assign(std::string_view name, const Tensor& value) {
  return changing(state_, [&](ModelState& s) -> Status {
    BOWLINE_TRY_ASSIGN(const uint32_t index, s.table.require(name));
    BOWLINE_TRY_ASSIGN(const Shape shape, Shape::checked(value.shape));
    params::Storage row = s.table.storages[s.table.parameters[index].tie];
    row.dtype = value.dtype;
    row.shape = shape;
    row.encoding = {};
    BOWLINE_REQUIRE(value.buffer == nullptr,
                    "The tensor for parameter \"{}\" is in a buffer of a device. Pass values in "
                    "host memory.",
                    name);
    BOWLINE_REQUIRE(value.data != nullptr || shape.elements() == 0,
                    "The tensor for parameter \"{}\" has no data.", name);
    const params::Bytes bytes(static_cast<const std::byte*>(value.data), row.bytes());
    BOWLINE_TRY_ASSIGN(row.home, params::make_home(nullptr, bytes));
    params::Table source;
    source.add({std::string(name), 0, {}, {}}, std::move(row));
    return reshaping(s, "assign()", {}, [&](params::Table& table) {
      return params::load(table, source, LoadMode::assign, true, s.users.busy()).status();
    });
  });
}

Status Model::swap(std::string_view a, std::string_view b) {
  return changing(state_, [&](ModelState& s) {
    return reshaping(s, "swap()", {}, [&](params::Table& table) {
      return params::swap(table, a, b, s.users.busy());
    });
  });
}

Result<ResizeReport> Model::resize(std::string_view pattern, int64_t rows, Init init,
                                   uint64_t seed) {
  return changing(state_, [&](ModelState& s) {
    return reshaping(s, "resize()", {}, [&](params::Table& table) {
      return params::resize(table, pattern, rows, init, seed, s.users.busy());
    });
  });
}

Status Model::get_value(std::string_view name, const Tensor& out) const {
  return guarded(state_, "model",
                 [&](const ModelState& s) { return params::get_value(s.table, name, out); });
}

Status Model::freeze(std::string_view name, bool frozen) {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(require_no_accumulation(s, frozen ? "freeze()" : "thaw()"));
    return params::freeze(s.table, name, frozen, false, s.users.busy());
  });
}

Status Model::freeze_storage(std::string_view name, bool frozen) {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(require_no_accumulation(s, frozen ? "freeze()" : "thaw()"));
    return params::freeze(s.table, name, frozen, true, s.users.busy());
  });
}

Result<CastReport> Model::cast(DType to, std::string_view pattern) {
  return changing(state_, [&](ModelState& s) -> Result<CastReport> {
    return reshaping(
        s, "cast()", pattern == "*" ? std::optional(to) : std::nullopt,
        [&](params::Table& table) { return params::cast(table, to, pattern, s.users.busy()); });
  });
}

ModelCounters Model::counters() const {
  return guarded(state_, "model", [](const ModelState& s) { return s.table.counters(); });
}

void Model::reset_counters() {
  if (state_ != nullptr) {
    state_->table.set_counters({});
  }
}

Result<Model> Model::clone() const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<Model> {
    BOWLINE_TRY_ASSIGN(auto state, copy_of(s));
    return Model(std::move(state));
  });
}

Result<Model> Model::skeleton() const {
  return guarded(state_, "model", [](const ModelState& s) -> Result<Model> {
    std::shared_ptr<ModelState> state = with_table(s, params::skeleton(s.table));
    state->extras.self_tests.clear();  // their values are missing
    return Model(std::move(state));
  });
}

Result<Model> Model::share() {
  return guarded(state_, "model", [&](ModelState&) -> Result<Model> { return Model(state_); });
}

Status Model::save(const std::string& path) const {
  return guarded(state_, "model",
                 [&](const ModelState& s) { return graph::save_model(s, path, nullptr); });
}

Result<CompactReport> Model::save_compacted(const std::string& path) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<CompactReport> {
    params::Compacted compact = params::compacted(s.table);
    BOWLINE_TRY(graph::save_model(*with_table(s, std::move(compact.table)), path, nullptr));
    return std::move(compact.report);
  });
}

Result<LoadReport> Model::load(const std::string& path, const LoadOptions& options) {
  return changing(state_, [&](ModelState& s) -> Result<LoadReport> {
    Result<LoadReport> report = bowline::load(s, path, options);
    if (!report.ok()) {  // after a success nothing may fail, not even this format()
      return std::move(report).status().at(format("While loading \"{}\" into a model.", path));
    }
    return report;
  });
}

Status Model::copy_values_from(const Model& other) {
  return guarded(state_, "model", [&](ModelState& to) {
    return guarded(other.state_, "model", [&](ModelState& from) -> Status {
      if (&to == &from) {
        return {};
      }
      // In the order of addresses, so that two threads that copy in both directions do not block.
      const bool is_first = std::less<>()(&to, &from);
      const graph::Quiet one(is_first ? to : from);
      const graph::Quiet two(is_first ? from : to);
      BOWLINE_TRY(params::require_idle(from.users.active(), "copy_values_from()"));
      for (const ModelState* s : {&from, &to}) {
        const graph::User* const trainer = s->users.trainer();
        BOWLINE_REQUIRE(trainer == nullptr || !trainer->is_damaged(),
                        "A failure left the weights of {} model partly written. Call rollback() or "
                        "resume() of its Trainer first.",
                        s == &from ? "the other" : "this");
      }
      return params::copy_values(to.table, from.table, to.users.active());
    });
  });
}

Status Model::drop_training_state() {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_REQUIRE(s.users.trainer() == nullptr,
                    "The model is busy: a Trainer uses the training s. Destroy the Trainer first.");
    BOWLINE_TRY(params::require_idle(s.users.busy(), "drop_training_state()"));
    params::drop_training(s.table);
    s.extras.training.reset();
    return {};
  });
}

Status Model::set_metadata(std::string_view key, std::string_view value) {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(check_name(key, "A metadata entry"));
    BOWLINE_TRY(check_text(value, format("The metadata \"{}\"", key)));
    Settings::value_type entry(key, value);
    params::reserve_more(s.extras.metadata, 1);
    std::erase_if(s.extras.metadata, [&](const auto& m) { return m.first == key; });
    if (!value.empty()) {
      s.extras.metadata.push_back(std::move(entry));
    }
    return {};
  });
}

Status Model::set_asset(std::string_view name, std::string_view media_type,
                        std::span<const std::byte> bytes) {
  return guarded(state_, "model", [&](ModelState& s) -> Status {
    BOWLINE_TRY(check_name(name, "An asset"));
    BOWLINE_TRY(check_name(media_type, "A media type"));
    model::Asset asset{std::string(name), std::string(media_type), nullptr};
    if (!bytes.empty()) {
      asset.range = model::in_memory({bytes.begin(), bytes.end()}, format("asset {}", name));
    }
    params::reserve_more(s.extras.assets, 1);
    std::erase_if(s.extras.assets, [&](const model::Asset& a) { return a.name == name; });
    if (!bytes.empty()) {
      s.extras.assets.push_back(std::move(asset));
    }
    return {};
  });
}

std::string Model::metadata(std::string_view key) const {
  return guarded(state_, "model", [&](const ModelState& s) -> std::string {
    const auto found = std::ranges::find(s.extras.metadata, key, &Settings::value_type::first);
    return found == s.extras.metadata.end() ? std::string() : found->second;
  });
}

std::string Model::parameters() const {
  return guarded(state_, "model", [](const ModelState& s) { return s.table.list_parameters(); });
}

std::string Model::storages() const {
  return guarded(state_, "model", [](const ModelState& s) { return s.table.list_storages(); });
}

std::string Model::ties() const {
  return guarded(state_, "model", [](const ModelState& s) { return s.table.list_ties(); });
}

Result<bool> Model::same_storage(std::string_view a, std::string_view b) const {
  return guarded(state_, "model", [&](const ModelState& s) -> Result<bool> {
    BOWLINE_TRY_ASSIGN(const uint32_t ia, s.table.require(a));
    BOWLINE_TRY_ASSIGN(const uint32_t ib, s.table.require(b));
    return s.table.parameters[ia].tie == s.table.parameters[ib].tie;
  });
}

}  // namespace bowline
