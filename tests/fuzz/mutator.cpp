#include "fuzz/mutator.h"

#include <flatbuffers/reflection.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace bowline::test {
namespace {

using reflection::BaseType;

const reflection::Schema& schema() {
  static const std::string bytes = [] {
    std::ifstream file(BOWLINE_FUZZ_SCHEMA, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return *reflection::GetSchema(bytes.data());
}

struct Scalar {
  uint8_t* at;
  BaseType type;
};

// A place with the offset of a table, string or vector. `kind` is the type of the target.
struct Reference {
  uint8_t* at;
  std::pair<BaseType, int> kind;
  uint8_t* target() const { return at + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(at); }
};

struct Elements {
  uint8_t* vector;
  size_t size;  // bytes of an element
  uint32_t count() const { return flatbuffers::ReadScalar<uint32_t>(vector); }
  uint8_t* element(uint32_t i) const { return vector + 4 + i * size; }
  bool offsets = false;
};

// All places in the tables that can change.
class Places {
 public:
  explicit Places(std::vector<uint8_t>& tables) {
    table(flatbuffers::GetAnyRoot(tables.data()), *schema().root_table());
  }
  std::vector<Scalar> scalars;
  std::vector<Reference> references;
  std::vector<Elements> vectors;

 private:
  void table(flatbuffers::Table* t, const reflection::Object& object) {
    for (const reflection::Field* field : *object.fields()) {
      if (t->CheckField(field->offset())) {
        place(t, t->GetAddressOf(field->offset()), *field, object);
      }
    }
  }

  void place(flatbuffers::Table* t, uint8_t* at, const reflection::Field& field,
             const reflection::Object& object) {
    const reflection::Type& type = *field.type();
    switch (type.base_type()) {
      case BaseType::String:
        return string(at);
      case BaseType::Obj:
        return reference(at, BaseType::Obj, type.index());
      case BaseType::Union:
        // Operators of a union: the type is in the field before it.
        return table(t->GetPointer<flatbuffers::Table*>(field.offset()),
                     flatbuffers::GetUnionType(schema(), object, field, *t));
      case BaseType::Vector:
        return vector(at, type);
      default:
        scalars.push_back({at, type.base_type()});
    }
  }

  void string(uint8_t* at) {
    references.push_back({at, {BaseType::String, 0}});
    uint8_t* text = references.back().target();
    for (uint32_t i = 0; i < flatbuffers::ReadScalar<uint32_t>(text); ++i) {
      scalars.push_back({text + 4 + i, BaseType::UByte});
    }
  }

  void reference(uint8_t* at, BaseType type, int index) {
    references.push_back({at, {type, index}});
    table(reinterpret_cast<flatbuffers::Table*>(references.back().target()),
          *schema().objects()->Get(static_cast<uint32_t>(index)));
  }

  void vector(uint8_t* at, const reflection::Type& type) {
    const BaseType element = type.element();
    const Elements v{at + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(at),
                     flatbuffers::GetTypeSize(element),
                     element == BaseType::Obj || element == BaseType::String};
    vectors.push_back(v);
    for (uint32_t i = 0; i < v.count(); ++i) {
      if (element == BaseType::Obj) {
        reference(v.element(i), element, type.index());
      } else if (element == BaseType::String) {
        string(v.element(i));
      } else {
        scalars.push_back({v.element(i), element});
      }
    }
  }
};

// A random change of a given kind.
class Change {
 public:
  Change(std::vector<uint8_t>& tables, std::mt19937& random)
      : tables_(tables), random_(random), places_(tables) {}

  void make() {
    switch (below(8)) {
      case 0:
        return swap();
      case 1:
        return shorten();
      case 2:
        return grow();
      case 3:
        return point_elsewhere();
      default:
        return set();
    }
  }

 private:
  size_t below(size_t n) { return random_() % n; }
  template <class T>
  T& one_of(std::vector<T>& from) {
    return from[below(from.size())];
  }

  void set() {
    if (places_.scalars.empty()) {
      return;
    }
    const Scalar& to = one_of(places_.scalars);
    const size_t bytes = flatbuffers::GetTypeSize(to.type);
    const Scalar& other = one_of(places_.scalars);
    const auto old = static_cast<uint64_t>(flatbuffers::GetAnyValueI(to.type, to.at));
    constexpr int64_t kEdges[] = {0,         1,          2,         -1,        127,
                                  128,       255,        65535,     65536,     INT32_MAX,
                                  INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, int64_t{1} << 40};
    constexpr double kNumbers[] = {0, 1, -1, 1e-30, 1e30, 0.5, INFINITY, -INFINITY, NAN};
    switch (below(5)) {
      case 0:
        if (flatbuffers::IsFloat(to.type)) {
          return flatbuffers::SetAnyValueF(to.type, to.at, kNumbers[below(std::size(kNumbers))]);
        }
        return flatbuffers::SetAnyValueI(to.type, to.at, kEdges[below(std::size(kEdges))]);
      case 1:
        return flatbuffers::SetAnyValueI(to.type, to.at, static_cast<int64_t>(old + 1));
      case 2:
        return flatbuffers::SetAnyValueI(to.type, to.at, static_cast<int64_t>(old - 1));
      case 3:
        return flatbuffers::SetAnyValueI(to.type, to.at, static_cast<int64_t>(below(64)));
      default:
        if (flatbuffers::GetTypeSize(other.type) == bytes) {
          std::memcpy(to.at, other.at, bytes);
        }
    }
  }

  Elements* some_vector(uint32_t least) {
    std::erase_if(places_.vectors, [&](const Elements& v) { return v.count() < least; });
    return places_.vectors.empty() ? nullptr : &one_of(places_.vectors);
  }

  void swap() {
    if (const Elements* v = some_vector(2)) {
      uint8_t* a = v->element(static_cast<uint32_t>(below(v->count())));
      uint8_t* b = v->element(static_cast<uint32_t>(below(v->count())));
      const uint8_t* a_target = v->offsets ? Reference{a, {}}.target() : nullptr;
      const uint8_t* b_target = v->offsets ? Reference{b, {}}.target() : nullptr;
      std::swap_ranges(a, a + v->size, b);
      if (v->offsets) {
        aim(a, b_target);
        aim(b, a_target);
      }
    }
  }

  // Drops an element; the last element replaces it.
  void shorten() {
    if (const Elements* v = some_vector(1)) {
      const uint32_t last = v->count() - 1;
      uint8_t* gone = v->element(static_cast<uint32_t>(below(v->count())));
      copy(*v, v->element(last), gone);
      flatbuffers::WriteScalar(v->vector, last);
    }
  }

  // Adds a copy of an element.
  void grow() {
    if (const Elements* v = some_vector(1)) {
      const uint32_t count = v->count();
      const auto from = static_cast<uint32_t>(below(count));
      const auto begin = v->vector - tables_.data();
      const size_t size = v->size;
      const bool offsets = v->offsets;
      flatbuffers::ResizeAnyVector(schema(), count + 1,
                                   reinterpret_cast<flatbuffers::VectorOfAny*>(v->vector), count,
                                   static_cast<flatbuffers::uoffset_t>(size), &tables_);
      const Elements grown{tables_.data() + begin, size, offsets};
      copy(grown, grown.element(from), grown.element(count));
    }
  }

  // Lets a reference point to the target of another reference of its kind.
  void point_elsewhere() {
    if (places_.references.empty()) {
      return;
    }
    const Reference to = one_of(places_.references);
    std::erase_if(places_.references, [&](const Reference& r) { return r.kind != to.kind; });
    aim(to.at, one_of(places_.references).target());
  }

  static void copy(const Elements& v, const uint8_t* from, uint8_t* to) {
    if (v.offsets) {
      aim(to, from + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(from));
    } else {
      std::memmove(to, from, v.size);
    }
  }

  // Offsets point forward; otherwise the offset stays unchanged.
  static void aim(uint8_t* at, const uint8_t* target) {
    if (target > at) {
      flatbuffers::WriteScalar(at, static_cast<flatbuffers::uoffset_t>(target - at));
    }
  }

  std::vector<uint8_t>& tables_;
  std::mt19937& random_;
  Places places_;
};

bool is_model(const std::vector<uint8_t>& tables) {
  flatbuffers::Verifier verifier(tables.data(), tables.size(), 64, 100000);
  return tables.size() >= 8 && file::VerifyModelBuffer(verifier);
}

// True if lists of 64-bit values are aligned, which the verifier of FlatBuffers does not check. The
// product must reject misaligned lists; here they end the mutation.
bool is_aligned(const flatbuffers::Table& t, const reflection::Object& object) {
  for (const reflection::Field* field : *object.fields()) {
    const reflection::Type& type = *field->type();
    if (!t.CheckField(field->offset())) {
      continue;
    }
    const auto inner = [&]() -> const reflection::Object& {
      return *schema().objects()->Get(static_cast<uint32_t>(type.index()));
    };
    if (type.base_type() == BaseType::Obj) {
      if (!is_aligned(*t.GetPointer<const flatbuffers::Table*>(field->offset()), inner())) {
        return false;
      }
    } else if (type.base_type() == BaseType::Union) {
      const auto* value = t.GetPointer<const flatbuffers::Table*>(field->offset());
      const auto kind =
          t.GetField<uint8_t>(static_cast<flatbuffers::voffset_t>(field->offset() - 2), 0);
      const auto& kinds = *schema().enums()->Get(static_cast<uint32_t>(type.index()))->values();
      const bool known = kind > 0 && kind < kinds.size();
      if (known && !is_aligned(*value, *schema().objects()->Get(static_cast<uint32_t>(
                                           kinds.Get(kind)->union_type()->index())))) {
        return false;
      }
    } else if (type.base_type() == BaseType::Vector) {
      const auto* list = t.GetPointer<const flatbuffers::Vector<uint8_t>*>(field->offset());
      if (flatbuffers::GetTypeSize(type.element()) == 8 &&
          reinterpret_cast<uintptr_t>(list->Data()) % 8 != 0) {
        return false;
      }
      const auto* tables =
          t.GetPointer<const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::Table>>*>(
              field->offset());
      for (uint32_t i = 0; type.element() == BaseType::Obj && i < list->size(); ++i) {
        if (!is_aligned(*tables->Get(i), inner())) {
          return false;
        }
      }
    }
  }
  return true;
}

bool can_be_read(const std::vector<uint8_t>& tables) {
  return is_model(tables) &&
         is_aligned(*flatbuffers::GetAnyRoot(tables.data()), *schema().root_table());
}

// Writes the tables again with every field present, and without sharing or gaps. The object API
// cannot write an operator without attributes, so it is dropped.
std::vector<uint8_t> normal(const std::vector<uint8_t>& tables) {
  const auto model = file::UnPackModel(tables.data());
  for (const auto& graph : model->graphs) {
    for (const auto& node : graph->nodes) {
      if (node->op.value == nullptr) {
        node->op.Reset();
      }
    }
  }
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  file::FinishModelBuffer(builder, file::Model::Pack(builder, model.get()));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

// Updates the checksum of every range inside of the data.
void repair(flatbuffers::Table* t, const reflection::Object& object, const Bytes& data) {
  if (object.name()->str() == "bowline.file.Range") {
    auto* range = reinterpret_cast<file::Range*>(t);
    if (range->offset() <= data.size() && range->length() <= data.size() - range->offset()) {
      const auto bytes = std::span(data).subspan(range->offset(), range->length());
      const reflection::Field* sum = object.fields()->LookupByKey("xxh3");
      flatbuffers::SetField(t, *sum, model::checksum(bytes));
    }
    return;
  }
  for (const reflection::Field* field : *object.fields()) {
    const reflection::Type& type = *field->type();
    const bool list = type.base_type() == BaseType::Vector && type.element() == BaseType::Obj;
    if (!t->CheckField(field->offset()) || !(list || type.base_type() == BaseType::Obj)) {
      continue;
    }
    const reflection::Object& inner = *schema().objects()->Get(static_cast<uint32_t>(type.index()));
    if (!list) {
      repair(t->GetPointer<flatbuffers::Table*>(field->offset()), inner, data);
      continue;
    }
    auto* items = t->GetPointer<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::Table>>*>(
        field->offset());
    for (uint32_t i = 0; i < items->size(); ++i) {
      repair(items->GetMutableObject(i), inner, data);
    }
  }
}

}  // namespace

void mutate(Frame& frame, std::mt19937& random) {
  if (!can_be_read(frame.tables)) {
    const Sample sample = make_sample();
    flatbuffers::FlatBufferBuilder builder;
    file::FinishModelBuffer(builder, file::Model::Pack(builder, &sample.model));
    frame.tables.assign(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
    frame.data = sample.data;
  }
  frame.tables = normal(frame.tables);
  for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
    std::vector<uint8_t> changed = frame.tables;
    Change(changed, random).make();
    if (can_be_read(changed)) {
      frame.tables = normal(changed);
    } else if (is_model(changed)) {
      frame.tables = std::move(changed);
      break;
    }
  }
  if (!frame.data.empty() && random() % 8 == 0) {
    frame.data[random() % frame.data.size()] = static_cast<std::byte>(random());
  }
  repair(flatbuffers::GetAnyRoot(frame.tables.data()), *schema().root_table(), frame.data);
}

bool succeeded(const Status& status) {
  if (status.code() == Code::internal) {
    __builtin_trap();
  }
  return status.ok();
}

size_t mutate(uint8_t* data, size_t size, size_t most, unsigned seed) {
  Frame frame = Frame::read({data, size});
  std::mt19937 random(seed);
  mutate(frame, random);
  const std::vector<uint8_t> out = frame.write();
  if (out.empty() || out.size() > most) {
    return size;
  }
  std::ranges::copy(out, data);
  return out.size();
}

}  // namespace bowline::test
