// The members of bowline::Model: each forwards to a verb of the table, or to load and save.
#include "device/device.h"
#include "graph/bind.h"
#include "graph/load.h"
#include "graph/save.h"
#include "params/file.h"
#include "params/verbs.h"

namespace bowline {

Model::Model() : state_(std::make_shared<graph::ModelState>()) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::Model(std::shared_ptr<graph::ModelState> state) : state_(std::move(state)) {}

Result<Model> Model::open(const std::string& path) {
  BOWLINE_ASSIGN(auto state, graph::load_model(path));
  return Model(std::move(state));
}

Result<Parameter> Model::parameter(std::string_view name, std::span<const int64_t> shape,
                                   Init init) {
  BOWLINE_ASSIGN(const uint32_t index,
                 params::add_parameter(state_->table, name, DType::f32, shape, init, state_->busy));
  return Parameter{index};
}

Result<Parameter> Model::tied_parameter(std::string_view name, Parameter other, const View& view) {
  BOWLINE_ASSIGN(const uint32_t index,
                 params::add_tied_parameter(state_->table, name, other.index, view, state_->busy));
  return Parameter{index};
}

Result<ParameterList> Model::parameters(std::string_view name, int count,
                                        std::span<const int64_t> shape, Init init) {
  BOWLINE_REQUIRE(count >= 1, "{} parameters are asked for.", count);
  params::Table staged = state_->table;
  ParameterList list;
  for (int i = 0; i < count; ++i) {
    BOWLINE_ASSIGN(const uint32_t index, params::add_parameter(staged, format(name, i), DType::f32,
                                                               shape, init, state_->busy));
    list.items.push_back({index});
  }
  state_->table = std::move(staged);
  return list;
}

Result<Parameter> Model::find(std::string_view name) const {
  BOWLINE_ASSIGN(const uint32_t index, state_->table.require(name));
  return Parameter{index};
}

Status Model::materialize(uint64_t seed) {
  return params::materialize(state_->table, seed, state_->busy);
}

Status Model::tie(std::string_view a, std::string_view b, const View& view) {
  return params::tie(state_->table, a, b, view, state_->busy);
}

Result<uint64_t> Model::untie(std::string_view name) {
  return params::untie(state_->table, name, state_->busy);
}

Status Model::set_value(std::string_view name, const Tensor& value) {
  return params::set_value(state_->table, name, value, state_->busy);
}

Status Model::get_value(std::string_view name, const Tensor& out) const {
  return params::get_value(state_->table, name, out);
}

Status Model::freeze(std::string_view name, bool frozen) {
  return params::freeze(state_->table, name, frozen, state_->busy);
}

Status Model::to(const Device& device) {
  return params::move(state_->table, device.handle(), state_->busy);
}

Result<Model> Model::clone() const {
  auto out = std::make_shared<graph::ModelState>();
  BOWLINE_ASSIGN(out->table, params::clone(state_->table));
  for (const graph::Graph& g : state_->graphs) {
    out->graphs.push_back(graph::deep_copy(g));
  }
  out->dims = state_->dims;
  out->source = state_->source;
  const auto copy_all = [](const auto& from, auto& to) {
    for (const auto& object : from) {
      to.push_back(graph::copy_of(*object));
    }
  };
  copy_all(state_->assets, out->assets);
  copy_all(state_->metadata, out->metadata);
  copy_all(state_->self_tests, out->self_tests);
  out->base = state_->base ? graph::copy_of(*state_->base) : nullptr;
  out->training = state_->training ? graph::copy_of(*state_->training) : nullptr;
  return Model(std::move(out));
}

Status Model::save(const std::string& path) const {
  return graph::save_model(*state_, path, state_->training.get());
}

Result<LoadReport> Model::load(const std::string& path, LoadMode mode, bool partial) {
  BOWLINE_ASSIGN(const auto file, model::VerifiedFile::open(path));
  Result<LoadReport> report =
      params::load(state_->table, params::read_table(*file), mode, partial, state_->busy);
  BOWLINE_TRY(Status(report.status()).at(format("While loading \"{}\" into a model.", path)));
  return report;
}

Status Model::set_metadata(std::string_view key, std::string_view value) {
  BOWLINE_REQUIRE(!key.empty(), "A metadata key is empty.");
  auto& all = state_->metadata;
  std::erase_if(all, [&](const auto& m) { return m->key == key; });
  if (!value.empty()) {
    auto entry = std::make_unique<file::MetadataT>();
    entry->key = key;
    entry->value = value;
    all.push_back(std::move(entry));
  }
  return {};
}

std::string Model::metadata(std::string_view key) const {
  for (const auto& m : state_->metadata) {
    if (m->key == key) {
      return m->value;
    }
  }
  return {};
}

std::string Model::parameters() const { return state_->table.list_parameters(); }
std::string Model::storages() const { return state_->table.list_storages(); }
std::string Model::ties() const { return state_->table.list_ties(); }

bool Model::same_storage(std::string_view a, std::string_view b) const {
  const auto ia = state_->table.find(a);
  const auto ib = state_->table.find(b);
  return ia && ib && state_->table.parameters[*ia].tie == state_->table.parameters[*ib].tie;
}

}  // namespace bowline
