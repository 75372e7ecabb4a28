#include "model/read.h"

#include "model/encoding.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

static_assert(static_cast<int>(file::Role::moment) == static_cast<int>(StorageRole::moment));
static_assert(static_cast<int>(file::Role::MAX) == static_cast<int>(StorageRole::master));
static_assert(static_cast<int>(file::InitKind::normal) == static_cast<int>(Init::Kind::normal));
static_assert(static_cast<int>(file::InitKind::MAX) == static_cast<int>(Init::Kind::uniform));

template <class T>
std::span<const T> span_of(const flatbuffers::Vector<T>* list) {
  return list == nullptr ? std::span<const T>() : std::span(list->data(), list->size());
}

template <class T>
std::vector<T> vector_of(const flatbuffers::Vector<T>* list) {
  const std::span<const T> items = span_of(list);
  return {items.begin(), items.end()};
}

std::string string_of(const flatbuffers::String* text) { return std::string(text_of(text)); }

// Applies `read` to each item of `from`.
template <class T, class Read>
auto all_of(const flatbuffers::Vector<flatbuffers::Offset<T>>* from, Read read) {
  std::vector<std::invoke_result_t<Read, const T&>> out;
  out.reserve(count_of(from));
  for (uint32_t i = 0; i < count_of(from); ++i) {
    out.push_back(read(*from->Get(i)));
  }
  return out;
}

Settings settings_of(const flatbuffers::Vector<flatbuffers::Offset<file::Setting>>* from) {
  return all_of(from, [](const file::Setting& s) {
    return std::pair(string_of(s.key()), string_of(s.value()));
  });
}

View view_of(const file::View* from) {
  if (from == nullptr) {
    return {};
  }
  return {from->row_start(), from->rows(), vector_of(from->shape()), from->transpose()};
}

RepeatEntry repeat_of(const file::RepeatAttributes& from) {
  RepeatEntry to;
  to.body = from.body();
  to.count = from.count();
  to.carried = from.carried();
  to.parameters = all_of(from.parameters(), [](const file::ParameterList& list) {
    return span_of(list.parameters());
  });
  return to;
}

}  // namespace

std::string_view GraphTable::name() const { return text_of(graph_.name()); }
bool GraphTable::is_body() const { return graph_.body(); }
uint32_t GraphTable::inputs() const { return count_of(graph_.inputs()); }
std::span<const uint32_t> GraphTable::parameters() const { return span_of(graph_.parameters()); }
std::span<const uint32_t> GraphTable::updates() const { return span_of(graph_.updates()); }
uint32_t GraphTable::nodes() const { return count_of(graph_.nodes()); }
uint32_t GraphTable::outputs() const { return count_of(graph_.outputs()); }

InputEntry GraphTable::input(uint32_t i) const {
  const file::Value& from = *graph_.inputs()->Get(i);
  InputEntry to;
  to.name = text_of(from.name());
  to.dtype = static_cast<DType>(from.dtype());
  to.dims = all_of(from.shape(), [](const file::Dim& d) {
    GraphDim dim(d.value());
    dim.name = text_of(d.name());
    return dim;
  });
  return to;
}

NodeEntry GraphTable::node(uint32_t i) const {
  const file::Node& from = *graph_.nodes()->Get(i);
  NodeEntry to;
  to.op = static_cast<Op>(from.op_type());
  to.name = text_of(from.name());
  to.inputs = vector_of(from.inputs());
  to.outputs = from.outputs();
  if (const file::RepeatAttributes* repeat = from.op_as_Repeat()) {
    to.repeat = repeat_of(*repeat);
    return to;
  }
  to.attributes = attributes_copy(
      to.op, from.op(), all_of(from.attribute_dims(), [](const file::AttributeDim& d) {
        return AttributeDim{string_of(d.attribute()), d.index(), string_of(d.dim())};
      }));
  return to;
}

OutputEntry GraphTable::output(uint32_t i) const {
  const file::Output& from = *graph_.outputs()->Get(i);
  return {text_of(from.name()), from.value()};
}

uint32_t Tables::storages() const { return count_of(file_.tables().storages()); }
uint32_t Tables::parameters() const { return count_of(file_.tables().parameters()); }
uint32_t Tables::graphs() const { return count_of(file_.tables().graphs()); }
GraphTable Tables::graph(uint32_t i) const { return GraphTable(*file_.tables().graphs()->Get(i)); }

StorageEntry Tables::storage(uint32_t tie) const {
  const file::Storage& from = *file_.tables().storages()->Get(tie);
  StorageEntry to;
  to.dtype = static_cast<DType>(from.dtype());
  to.shape = Shape(span_of(from.shape()));
  to.encoding = encoding_of(from.encoding()).value();
  to.role = static_cast<StorageRole>(from.role());
  to.owner = from.owner();
  to.slot = from.slot();
  to.trainable = from.trainable();
  to.empty = from.empty();
  if (from.init() != nullptr) {
    to.init = {static_cast<Init::Kind>(from.init()->kind()), from.init()->scale()};
  }
  return to;
}

std::shared_ptr<const FileRange> Tables::range(uint32_t tie) const {
  const file::Range* const range = file_.tables().storages()->Get(tie)->range();
  return range == nullptr ? nullptr : file_.range(*range);
}

ParameterEntry Tables::parameter(uint32_t i) const {
  const file::Parameter& from = *file_.tables().parameters()->Get(i);
  return {text_of(from.name()), from.tie(), view_of(from.view()), text_of(from.target())};
}

std::vector<DimInfo> Tables::dims() const {
  return all_of(file_.tables().dims(), [](const file::NamedDim& d) {
    return DimInfo{string_of(d.name()), d.min(), d.max(), d.kind() == file::DimKind::counted};
  });
}

std::vector<Asset> Tables::assets() const {
  return all_of(file_.tables().assets(), [&](const file::Asset& a) {
    return Asset{string_of(a.name()), string_of(a.media_type()), file_.range(*a.range())};
  });
}

std::optional<BaseInfo> Tables::base() const {
  const file::Base* from = file_.tables().base();
  if (from == nullptr) {
    return std::nullopt;
  }
  return BaseInfo{vector_of(from->digest()), string_of(from->name())};
}

Settings Tables::metadata() const {
  return all_of(file_.tables().metadata(), [](const file::Metadata& m) {
    return std::pair(string_of(m.key()), string_of(m.value()));
  });
}

std::vector<SelfTest> Tables::self_tests() const {
  const auto tensor = [&](const file::Tensor& t) {
    return SelfTestTensor{string_of(t.name()), static_cast<DType>(t.dtype()), vector_of(t.shape()),
                          file_.range(*t.range())};
  };
  return all_of(file_.tables().self_tests(), [&](const file::SelfTest& t) {
    return SelfTest{string_of(t.graph()), all_of(t.inputs(), tensor), all_of(t.outputs(), tensor),
                    t.relative_tolerance()};
  });
}

std::optional<TrainingState> Tables::training() const {
  const file::TrainingState* from = file_.tables().training();
  if (from == nullptr) {
    return std::nullopt;
  }
  TrainingState to;
  to.step = from->step();
  to.epoch = from->epoch();
  to.sample_cursor = from->sample_cursor();
  to.micro_step = from->micro_step();
  to.shuffle_seed = from->shuffle_seed();
  to.rng_seed = from->rng_seed();
  to.rng_counter = from->rng_counter();
  to.loss_scale = from->loss_scale();
  to.loss_scale_good_steps = from->loss_scale_good_steps();
  to.optimizer = text_of(from->optimizer());
  to.schedule = text_of(from->schedule());
  to.config = settings_of(from->config());
  to.versions = settings_of(from->versions());
  to.plan_hash = from->plan_hash();
  to.loss_log = vector_of(from->loss_log());
  to.loss_weights = vector_of(from->loss_weights());
  to.applied_steps = from->applied_steps();
  to.run = settings_of(from->run());
  if (const auto rate = from->learning_rate()) {
    to.learning_rate = *rate;
  }
  return to;
}

}  // namespace bowline::detail::model
