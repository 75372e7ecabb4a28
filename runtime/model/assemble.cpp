#include "model/assemble.h"

#include <algorithm>

#include "generated/attribute_fields.h"
#include "model/encoding.h"
#include "model/write.h"

namespace bowline::detail::model {
namespace {

std::unique_ptr<file::InitT> init_of(const Init& from) {
  if (from.kind == Init::Kind::zeros && from.scale == 0) {
    return nullptr;
  }
  auto to = std::make_unique<file::InitT>();
  to->kind = static_cast<file::InitKind>(from.kind);
  to->scale = from.scale;
  return to;
}

std::unique_ptr<file::StorageT> table_of(const StorageEntry& from) {
  auto to = std::make_unique<file::StorageT>();
  to->empty = from.empty;
  if (from.empty) {
    return to;
  }
  to->dtype = static_cast<file::DType>(from.dtype);
  to->shape.assign(from.shape.dims().begin(), from.shape.dims().end());
  to->encoding = model::table_of(from.encoding);
  to->role = static_cast<file::Role>(from.role);
  to->owner = from.owner;
  to->slot = from.slot;
  to->trainable = from.trainable;
  to->init = init_of(from.init);
  return to;
}

std::unique_ptr<file::ParameterT> table_of(const ParameterEntry& from) {
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

std::unique_ptr<file::NamedDimT> table_of(const DimInfo& from) {
  auto to = std::make_unique<file::NamedDimT>();
  to->name = from.name;
  to->min = from.min;
  to->max = from.max;
  to->kind = from.dynamic ? file::DimKind::counted : file::DimKind::bound;
  return to;
}

std::unique_ptr<file::ValueT> table_of(const InputEntry& from) {
  auto to = std::make_unique<file::ValueT>();
  to->name = from.name;
  to->dtype = static_cast<file::DType>(from.dtype);
  for (const GraphDim& d : from.dims) {
    to->shape.push_back(std::make_unique<file::DimT>());
    to->shape.back()->value = d.value;
    to->shape.back()->name = d.name;
  }
  return to;
}

file::RepeatAttributesT* table_of(const RepeatEntry& from) {
  auto to = std::make_unique<file::RepeatAttributesT>();
  to->body = from.body;
  to->count = from.count;
  to->carried = from.carried;
  for (const std::span<const uint32_t> list : from.parameters) {
    to->parameters.push_back(std::make_unique<file::ParameterListT>());
    to->parameters.back()->parameters.assign(list.begin(), list.end());
  }
  return to.release();
}

std::unique_ptr<file::NodeT> table_of(const NodeEntry& from) {
  auto to = std::make_unique<file::NodeT>();
  to->name = from.name;
  to->inputs = from.inputs;
  to->outputs = from.outputs;
  to->op.type = static_cast<file::Op>(from.op);
  if (from.repeat) {
    to->op.value = table_of(*from.repeat);  // the union owns it
    return to;
  }
  to->op.value = file::OpUnion::UnPack(from.attributes.root(), to->op.type, nullptr);
  for (const AttributeDim& d : from.attributes.dims()) {
    to->attribute_dims.push_back(std::make_unique<file::AttributeDimT>());
    *to->attribute_dims.back() = {{}, d.attribute, d.index, d.dim};
  }
  return to;
}

std::unique_ptr<file::OutputT> table_of(const OutputEntry& from) {
  auto to = std::make_unique<file::OutputT>();
  to->name = from.name;
  to->value = from.value;
  return to;
}

std::unique_ptr<file::GraphT> table_of(const GraphEntry& from);

template <class Entries, class Rows>
void append_all(const Entries& from, Rows& to) {
  to.reserve(from.size());
  for (const auto& entry : from) {
    to.push_back(table_of(entry));
  }
}

std::unique_ptr<file::GraphT> table_of(const GraphEntry& from) {
  auto to = std::make_unique<file::GraphT>();
  to->name = from.name;
  to->body = from.body;
  append_all(from.inputs, to->inputs);
  to->parameters = from.parameters;
  to->body_parameters = from.body_parameters;
  to->updates = from.updates;
  append_all(from.nodes, to->nodes);
  append_all(from.outputs, to->outputs);
  return to;
}

template <class Row>
std::vector<std::unique_ptr<Row>> rows_of(const Settings& from) {
  std::vector<std::unique_ptr<Row>> to;
  for (const auto& [key, value] : from) {
    to.push_back(std::make_unique<Row>());
    to.back()->key = key;
    to.back()->value = value;
  }
  return to;
}

std::unique_ptr<file::TrainingStateT> table_of(const TrainingState& from) {
  auto to = std::make_unique<file::TrainingStateT>();
  to->step = from.step;
  to->epoch = from.epoch;
  to->sample_cursor = from.sample_cursor;
  to->micro_step = from.micro_step;
  to->shuffle_seed = from.shuffle_seed;
  to->rng_seed = from.rng_seed;
  to->rng_counter = from.rng_counter;
  to->loss_scale = from.loss_scale;
  to->loss_scale_good_steps = from.loss_scale_good_steps;
  to->optimizer = from.optimizer;
  to->schedule = from.schedule;
  to->config = rows_of<file::SettingT>(from.config);
  to->versions = rows_of<file::SettingT>(from.versions);
  to->plan_hash = from.plan_hash;
  to->loss_log = from.loss_log;
  to->loss_weights = from.loss_weights;
  to->applied_steps = from.applied_steps;
  to->run = rows_of<file::SettingT>(from.run);
  if (from.learning_rate) {
    to->learning_rate = *from.learning_rate;
  }
  return to;
}

// Adds the features that the fields of a node need.
class AddFeatures {
 public:
  explicit AddFeatures(std::vector<std::string>& features) : features_(features) {}

  template <class V>
  Status operator()(const AttributeField& field, const V& value) {
    if constexpr (std::is_arithmetic_v<V>) {
      add(field.feature, static_cast<double>(value) != field.absent);
    }
    return {};
  }
  template <class T>
  Status operator()(const AttributeField& field, const flatbuffers::Vector<T>* list) {
    add(field.feature, list->size() > 0);
    return {};
  }

 private:
  void add(std::string_view feature, bool is_used) {
    if (is_used && !feature.empty() && std::ranges::find(features_, feature) == features_.end()) {
      features_.emplace_back(feature);
    }
  }

  std::vector<std::string>& features_;
};

std::vector<std::string> features_of(const std::vector<GraphEntry>& graphs) {
  std::vector<std::string> out;
  for (const GraphEntry& graph : graphs) {
    for (const NodeEntry& node : graph.nodes) {
      if (!node.repeat) {
        with_attribute_table(node.op, [&]<class Table>(AttributeTable<Table>) {
          return visit_fields(node.attributes.as<Table>(), AddFeatures(out));
        }).ok();
      }
    }
  }
  std::ranges::sort(out);
  return out;
}

class Assembly {
 public:
  explicit Assembly(const Description& from) : from_(from) {
    model_.features = features_of(from.graphs);
    append_all(from.dims, model_.dims);
    add_storages();
    append_all(from.parameters, model_.parameters);
    append_all(from.graphs, model_.graphs);
    model_.metadata = rows_of<file::MetadataT>(from.metadata);
    add_assets();
    add_self_tests();
    if (from.base != nullptr) {
      model_.base = std::make_unique<file::BaseT>();
      model_.base->digest = from.base->digest;
      model_.base->name = from.base->name;
    }
    model_.training = from.training == nullptr ? nullptr : table_of(*from.training);
  }

  file::ModelT& tables() { return model_; }
  std::span<const Payload> payloads() const { return payloads_; }

 private:
  void add_storages() {
    append_all(from_.storages, model_.storages);
    for (uint32_t tie = 0; tie < model_.storages.size(); ++tie) {
      if (!from_.has_bytes[tie]) {
        continue;
      }
      const StorageEntry& s = from_.storages[tie];
      auto& range = model_.storages[tie]->range;
      range = std::make_unique<file::RangeT>();
      payloads_.push_back(
          {range.get(), s.encoding.bytes(s.dtype, s.shape),
           [this, tie](uint64_t first, uint64_t count, std::vector<std::byte>& scratch) {
             return from_.bytes(tie, first, count, scratch);
           }});
    }
  }

  // Adds a range without copying its bytes.
  std::unique_ptr<file::RangeT> add(const std::shared_ptr<const FileRange>& bytes) {
    auto range = std::make_unique<file::RangeT>();
    payloads_.push_back({range.get(), bytes->length,
                         [bytes](uint64_t first, uint64_t count, std::vector<std::byte>& scratch) {
                           return bytes->read(first, count, scratch);
                         }});
    return range;
  }

  void add_assets() {
    for (const Asset& a : from_.assets) {
      auto to = std::make_unique<file::AssetT>();
      to->name = a.name;
      to->media_type = a.media_type;
      to->range = add(a.range);
      model_.assets.push_back(std::move(to));
    }
  }

  std::vector<std::unique_ptr<file::TensorT>> tensors_of(const std::vector<SelfTestTensor>& from) {
    std::vector<std::unique_ptr<file::TensorT>> out;
    for (const SelfTestTensor& t : from) {
      out.push_back(std::make_unique<file::TensorT>());
      out.back()->name = t.name;
      out.back()->dtype = static_cast<file::DType>(t.dtype);
      out.back()->shape = t.shape;
      out.back()->range = add(t.range);
    }
    return out;
  }

  void add_self_tests() {
    for (const SelfTest& test : from_.self_tests) {
      auto to = std::make_unique<file::SelfTestT>();
      to->graph = test.graph;
      to->relative_tolerance = test.relative_tolerance;
      to->inputs = tensors_of(test.inputs);
      to->outputs = tensors_of(test.outputs);
      model_.self_tests.push_back(std::move(to));
    }
  }

  const Description& from_;
  file::ModelT model_;
  std::vector<Payload> payloads_;
};

}  // namespace

Status write_model(const std::string& path, const Description& model, const Acceptance& acceptance,
                   FileSystem& files) {
  Assembly assembly(model);
  return write_file(path, assembly.tables(), assembly.payloads(), acceptance, files);
}

}  // namespace bowline::detail::model
