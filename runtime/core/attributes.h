// Attributes: the attributes of a node, as the shared, immutable bytes of a FlatBuffers table.
//
// An attribute is a bool, a number, an enum, a text, or a list of numbers or texts. An i64
// attribute is a size: -kMaxDim..kMaxDim, or the name of a dim of the model, which bind() replaces
// by its value. The build generates the list of fields from the schemas
// (generated/attribute_fields.h). An attribute of another kind does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bowline.h"
#include "generated/ops.h"

namespace bowline {

// A size attribute, or entry `index` of a list of sizes, that is given as the name of a dim. The
// table has 0 in its place.
struct AttributeDim {
  std::string attribute;
  uint32_t index = 0;
  std::string dim;
  bool operator==(const AttributeDim&) const = default;
};

class Attributes {
 public:
  Attributes() = default;

  // `table` is one of the generated object types: Attributes::of(GeluAttributesT{...}).
  template <class T>
  static Attributes of(const T& table, std::vector<AttributeDim> dims = {}) {
    flatbuffers::FlatBufferBuilder builder(128);
    builder.Finish(T::TableType::Pack(builder, &table));
    Attributes out;
    const uint8_t* begin = builder.GetBufferPointer();
    out.bytes_ = std::make_shared<const std::vector<uint8_t>>(begin, begin + builder.GetSize());
    if (!dims.empty()) {
      out.dims_ = std::make_shared<const std::vector<AttributeDim>>(std::move(dims));
    }
    return out;
  }

  // Texts and lists are never null, but may be empty.
  template <class Table>
  const Table& as() const {
    return *flatbuffers::GetRoot<Table>(bytes_->data());
  }
  const void* root() const { return flatbuffers::GetRoot<flatbuffers::Table>(bytes_->data()); }
  bool empty() const { return bytes_ == nullptr; }
  // The sizes that are given as names of dims. Empty in a bound graph.
  std::span<const AttributeDim> dims() const {
    return dims_ == nullptr ? std::span<const AttributeDim>() : *dims_;
  }

 private:
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
  std::shared_ptr<const std::vector<AttributeDim>> dims_;
};

// Returns every attribute with its value as text, including defaults.
Settings attributes_list(Op op, const Attributes& attributes);
// Returns the same in one line: "eps=1e-05 causal=true dims=[batch,4]".
std::string attributes_text(Op op, const Attributes& attributes);
// Makes the attributes of an operator from names and values.
// Errors  bad_argument: a name or enum value is unknown, a value has the wrong kind or is out of
//         range, or a list is too long.
Result<Attributes> attributes_from(Op op, std::span<const Attribute> values);
// Copies the attribute table of a node in a verified file.
Attributes attributes_copy(Op op, const void* table, std::vector<AttributeDim> dims);
// Replaces names of dims by their values.
// Errors  bad_argument: a dim has no value.
Result<Attributes> attributes_bound(Op op, const Attributes& attributes,
                                    std::span<const BoundDim> dims);

}  // namespace bowline
