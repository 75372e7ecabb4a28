// Attributes: the attribute table of one node as bytes of its FlatBuffers table, shared and
// immutable.
//
// The kinds of attributes are those that the functions below have a case for: truth values,
// numbers, enums, texts, and lists of numbers or texts. One of 64 signed bits is a size:
// -kMaxDim..kMaxDim, or the name of a dim of the model, whose value it gets when the graph is
// bound. What follows from a table of the schemas is generated (generated/attribute_fields.h); an
// attribute of another kind does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bowline.h"
#include "generated/ops.h"

namespace bowline {

// A size among the attributes that is the value of a named dim; entry `index` of a list. The table
// holds 0 there.
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

  // Texts and lists are there, if empty.
  template <class Table>
  const Table& as() const {
    return *flatbuffers::GetRoot<Table>(bytes_->data());
  }
  const void* root() const { return flatbuffers::GetRoot<flatbuffers::Table>(bytes_->data()); }
  bool empty() const { return bytes_ == nullptr; }
  // Empty when the graph is bound.
  std::span<const AttributeDim> dims() const {
    return dims_ == nullptr ? std::span<const AttributeDim>() : *dims_;
  }

 private:
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
  std::shared_ptr<const std::vector<AttributeDim>> dims_;
};

// Every attribute with its value as text, defaults included.
Settings attributes_list(Op op, const Attributes& attributes);
// The same in a line: "eps=1e-05 causal=true dims=[batch,4]".
std::string attributes_text(Op op, const Attributes& attributes);
// The attributes of an operator from names and values. Errors  bad_argument: an unknown name or
// enum value, a value of the
// wrong kind or outside its range, a list that is too long.
Result<Attributes> attributes_from(Op op, std::span<const Attribute> values);
// A copy of the attribute table of a node in a verified file.
Attributes attributes_copy(Op op, const void* table, std::vector<AttributeDim> dims);
// Named dims replaced by their values. Errors  bad_argument: a dim that is not bound.
Result<Attributes> attributes_bound(Op op, const Attributes& attributes,
                                    std::span<const BoundDim> dims);

}  // namespace bowline
