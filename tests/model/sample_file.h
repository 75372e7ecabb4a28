// A small valid model file as a tree. Tests change the tree before they write it as bytes.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>

#include "model/checksum.h"
#include "model/layout.h"
#include "model/verify.h"
#include "model/write.h"

namespace bowline::test {

using Bytes = std::vector<std::byte>;

inline std::unique_ptr<file::ValueT> make_input(const char* name, file::DType dtype,
                                                const std::vector<GraphDim>& dims) {
  auto value = std::make_unique<file::ValueT>();
  value->name = name;
  value->dtype = dtype;
  for (const GraphDim& d : dims) {
    auto dim = std::make_unique<file::DimT>();
    dim->name = d.name;
    dim->value = d.value;
    value->shape.push_back(std::move(dim));
  }
  return value;
}

template <class Attributes>
std::unique_ptr<file::NodeT> make_node(const char* name, std::vector<uint32_t> inputs,
                                       Attributes attributes, file::Op op) {
  auto node = std::make_unique<file::NodeT>();
  node->name = name;
  node->inputs = std::move(inputs);
  node->op.type = op;
  node->op.value = new Attributes(std::move(attributes));
  return node;
}

// Sets entry `index` of an attribute to the value of a dimension.
inline void name_size(file::NodeT& node, const char* attribute, uint32_t index, const char* dim) {
  node.attribute_dims.push_back(std::make_unique<file::AttributeDimT>());
  file::AttributeDimT& named = *node.attribute_dims.back();
  named.attribute = attribute;
  named.index = index;
  named.dim = dim;
}

inline std::unique_ptr<file::OutputT> make_output(const char* name, uint32_t value) {
  auto output = std::make_unique<file::OutputT>();
  output->name = name;
  output->value = value;
  return output;
}

// The tables of the sample, with the ranges and the bytes that the tables refer to.
struct Sample {
  file::ModelT model;
  Bytes data;

  void add_storage(std::vector<int64_t> shape, const std::vector<float>& values,
                   file::Role role = file::Role::weight, int32_t owner = -1) {
    auto row = std::make_unique<file::StorageT>();
    row->shape = std::move(shape);
    row->role = role;
    row->owner = owner;
    row->range = add_range(std::as_bytes(std::span(values)));
    model.storages.push_back(std::move(row));
  }

  std::unique_ptr<file::RangeT> add_range(std::span<const std::byte> bytes) {
    auto range = std::make_unique<file::RangeT>();
    range->offset = data.size();
    range->length = bytes.size();
    range->xxh3 = model::checksum(bytes);
    data.insert(data.end(), bytes.begin(), bytes.end());
    data.resize(round_up(data.size(), model::kRangeAlignment));
    return range;
  }

  void add_parameter(const char* name, uint32_t tie) {
    auto parameter = std::make_unique<file::ParameterT>();
    parameter->name = name;
    parameter->tie = tie;
    model.parameters.push_back(std::move(parameter));
  }

  // Returns header, tables, data and trailer as the tree describes them, even if the result is
  // invalid.
  Bytes bytes() const {
    flatbuffers::FlatBufferBuilder builder;
    file::FinishModelBuffer(builder, file::Model::Pack(builder, &model));
    return assemble({builder.GetBufferPointer(), builder.GetSize()});
  }

  Bytes assemble(std::span<const uint8_t> tables) const {
    model::Header header;
    header.flatbuffer_length = tables.size();
    header.data_start = round_up(model::kHeaderBytes + tables.size(), model::kPageBytes);
    header.file_length = header.data_start + data.size() + model::kTrailerBytes;
    Bytes out(header.file_length);
    std::memcpy(out.data(), &header, sizeof(header));
    std::ranges::copy(std::as_bytes(tables), out.begin() + model::kHeaderBytes);
    std::ranges::copy(data, out.begin() + static_cast<std::ptrdiff_t>(header.data_start));
    seal(out);
    return out;
  }

  // Writes a trailer that matches the bytes.
  static void seal(Bytes& bytes) {
    const size_t end = bytes.size() - model::kTrailerBytes;
    model::StreamHash hash;
    hash.add(std::span(bytes).first(end));
    model::Trailer trailer;
    trailer.hash_low = hash.value().low;
    trailer.hash_high = hash.value().high;
    std::memcpy(bytes.data() + end, &trailer, sizeof(trailer));
  }
};

// Storages: 0 is E [3,2] with a moment (storage 3), 1 and 2 are [2,2], 4 is empty, and 5 is [4]
// without bytes. Parameters: emb, head (tied), emb_t (a transposed view), l0, l1 and bias. Graphs:
// forward with a Repeat, and the body of the Repeat.
Sample make_sample();

inline Result<std::shared_ptr<const model::VerifiedFile>> verify(Bytes bytes) {
  return model::VerifiedFile::verify(model::MappedFile::from_bytes(std::move(bytes), "sample"));
}

}  // namespace bowline::test
