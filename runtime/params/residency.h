// Derived copies of storages: other forms of their values, beside them on their device.
//
// A copy lives as long as some plan reads it. It keeps its address, and a recording of its own, the refresh, makes it again in
// front of a submission that reads it after the storage was written.
#pragma once

#include <memory>

#include "core/attributes.h"
#include "device/device.h"

namespace bowline::params {

// Made of what a view of all of a storage shows.
struct Packing {
  Shape from;  // of the view
  Shape to;
  bool operator==(const Packing&) const = default;
};

// What an operator makes of a storage alone (OpDef::derived_copy): a working copy in another dtype, a packed format.
struct Form {
  Op op = Op::Invalid;
  Attributes attributes;
  DType dtype = DType::f32;
  std::optional<Packing> packing;  // none: element by element, in the shape of the storage

  uint64_t bytes(const Shape& storage) const {
    return Encoding().bytes(dtype, packing ? packing->to : storage);
  }
  bool operator==(const Form& other) const {
    return op == other.op && dtype == other.dtype && packing == other.packing &&
           attributes_text(op, attributes) == attributes_text(op, other.attributes);
  }
};

class Residency {
 public:
  // `refresh` reads the block of the storage and writes `block`.
  Residency(Form form, uint64_t generation, std::shared_ptr<device::Block> block,
            std::unique_ptr<device::Recording> refresh)
      : form_(std::move(form)),
        generation_(generation),
        block_(std::move(block)),
        refresh_(std::move(refresh)) {}
  ~Residency() { block_->device().release(std::move(refresh_)); }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  const Form& form() const { return form_; }
  // Of the storage when the copy was made; one of another generation is of no use.
  uint64_t generation() const { return generation_; }
  const std::shared_ptr<device::Block>& block() const { return block_; }
  device::Recording* refresh() const { return refresh_.get(); }
  // The version of the storage whose values it holds; none at first.
  std::optional<uint64_t> version() const { return version_; }
  void holds(uint64_t version) { version_ = version; }

 private:
  Form form_;
  uint64_t generation_;
  std::shared_ptr<device::Block> block_;
  std::unique_ptr<device::Recording> refresh_;
  std::optional<uint64_t> version_;
};

}  // namespace bowline::params
