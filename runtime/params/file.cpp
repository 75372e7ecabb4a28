#include "params/file.h"

#include "model/encoding.h"
#include "params/home.h"

namespace bowline::params {
namespace {

static_assert(static_cast<int>(file::Role::moment) == static_cast<int>(Role::moment));
static_assert(static_cast<int>(file::Role::MAX) == static_cast<int>(Role::master));
static_assert(static_cast<int>(file::InitKind::normal) == static_cast<int>(Init::Kind::normal));
static_assert(static_cast<int>(file::InitKind::MAX) == static_cast<int>(Init::Kind::uniform));

std::span<const int64_t> dims_of(const flatbuffers::Vector<int64_t>* dims) {
  return dims == nullptr ? std::span<const int64_t>() : std::span(dims->data(), dims->size());
}

std::string string_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

std::vector<int64_t> vector_of(std::span<const int64_t> dims) { return {dims.begin(), dims.end()}; }

Storage read_storage(const model::VerifiedFile& file, const file::Storage& from) {
  Storage to;
  to.dtype = static_cast<DType>(from.dtype());
  to.shape = Shape(dims_of(from.shape()));
  to.encoding = model::encoding_of(from.encoding()).value();
  to.role = static_cast<Role>(from.role());
  to.owner = from.owner();
  to.slot = from.slot();
  to.trainable = from.trainable();
  to.empty = from.empty();
  if (from.init() != nullptr) {
    to.init = {static_cast<Init::Kind>(from.init()->kind()), from.init()->scale()};
  }
  if (from.range() != nullptr) {
    to.home.file = file.range(*from.range());
    to.version = 1;
    to.generation = 1;
  }
  return to;
}

View read_view(const file::View* from) {
  if (from == nullptr) {
    return {};
  }
  return {from->row_start(), from->rows(), vector_of(dims_of(from->shape())), from->transpose()};
}

std::unique_ptr<file::StorageT> describe_storage(const Storage& from) {
  auto to = std::make_unique<file::StorageT>();
  to->dtype = static_cast<file::DType>(from.dtype);
  to->shape = vector_of(from.shape.dims());
  to->encoding = model::table_of(from.encoding);
  to->role = static_cast<file::Role>(from.role);
  to->owner = from.owner;
  to->slot = from.slot;
  to->trainable = from.trainable;
  if (from.init.kind != Init::Kind::zeros || from.init.scale != 0) {
    to->init = std::make_unique<file::InitT>();
    to->init->kind = static_cast<file::InitKind>(from.init.kind);
    to->init->scale = from.init.scale;
  }
  return to;
}

std::unique_ptr<file::ParameterT> describe_parameter(const ParameterRow& from) {
  auto to = std::make_unique<file::ParameterT>();
  to->name = from.name;
  to->tie = from.tie;
  to->target = from.target;
  if (!(from.view == View{})) {
    to->view = std::make_unique<file::ViewT>();
    to->view->row_start = from.view.row_start;
    to->view->rows = from.view.rows;
    to->view->shape = from.view.shape;
    to->view->transpose = from.view.transpose;
  }
  return to;
}

}  // namespace

Table read_table(const model::VerifiedFile& file) {
  std::vector<Storage> storages;
  const file::Model& model = file.tables();
  storages.reserve(model.storages() == nullptr ? 0 : model.storages()->size());
  for (uint32_t i = 0; model.storages() != nullptr && i < model.storages()->size(); ++i) {
    storages.push_back(read_storage(file, *model.storages()->Get(i)));
  }
  Table table(std::move(storages));
  table.reserve(0, model.parameters() == nullptr ? 0 : model.parameters()->size());
  for (uint32_t i = 0; model.parameters() != nullptr && i < model.parameters()->size(); ++i) {
    const file::Parameter& p = *model.parameters()->Get(i);
    table.add({string_of(p.name()), p.tie(), read_view(p.view()), string_of(p.target())});
  }
  return table;
}

void describe_table(const Table& table, const std::vector<bool>& keep, file::ModelT& model,
                    std::vector<model::Payload>& payloads) {
  for (size_t tie = 0; tie < table.storages.size(); ++tie) {
    const Storage& storage = table.storages[tie];
    if (storage.empty || !keep[tie]) {
      model.storages.push_back(std::make_unique<file::StorageT>());
      model.storages.back()->empty = true;
      continue;
    }
    model.storages.push_back(describe_storage(storage));
    if (storage.home.valid()) {
      auto& range = model.storages.back()->range;
      range = std::make_unique<file::RangeT>();
      payloads.push_back(
          {range.get(), storage.bytes(),
           [&storage](std::vector<std::byte>& scratch) { return read_all(storage, scratch); }});
    }
  }
  // Empty rows at the end need no number.
  while (!model.storages.empty() && model.storages.back()->empty) {
    model.storages.pop_back();
  }
  for (const ParameterRow& p : table.parameters) {
    model.parameters.push_back(describe_parameter(p));
  }
}

}  // namespace bowline::params
