// Attributes: the attribute table of one node as bytes of its FlatBuffers table, shared and immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "generated/ops.h"

namespace bowline {

class Attributes {
 public:
  Attributes() = default;

  // `table` is one of the generated object types: Attributes::of(GeluAttributesT{...}).
  template <class T>
  static Attributes of(const T& table) {
    flatbuffers::FlatBufferBuilder builder(128);
    builder.Finish(T::TableType::Pack(builder, &table));
    Attributes out;
    const uint8_t* begin = builder.GetBufferPointer();
    out.bytes_ = std::make_shared<const std::vector<uint8_t>>(begin, begin + builder.GetSize());
    return out;
  }

  template <class Table>
  const Table& as() const {
    return *flatbuffers::GetRoot<Table>(bytes_->data());
  }
  const void* root() const { return flatbuffers::GetRoot<flatbuffers::Table>(bytes_->data()); }
  bool empty() const { return bytes_ == nullptr; }

 private:
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
};

// Generated from the schemas (generated/op_table.cpp).
//
// "eps=1e-05 causal=true": every attribute, defaults included.
std::string attributes_text(Op op, const Attributes& attributes);
// The attributes of an operator from names and values. Errors: an unknown name, a value of the wrong kind.
Result<Attributes> attributes_from(Op op, std::span<const Attribute> values);
// A copy of the attribute table of a node in a verified file.
Attributes attributes_copy(Op op, const void* table);
// The reverse: writes the table into a file that is being built.
flatbuffers::Offset<void> attributes_pack(Op op, const Attributes& attributes,
                                          flatbuffers::FlatBufferBuilder& builder);

}  // namespace bowline
