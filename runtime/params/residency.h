// Derived copies of storages: other forms of their values beside them on their device, and the
// values themselves on other devices (replicas).
//
// A copy lives as long as some plan reads it, or as it was asked for (Table::replicate()). It keeps
// its address. In front of a submission that reads it after the storage was written it is made
// again: a derived one by a recording of its own, the refresh, a replica by a transfer.
#pragma once

#include <memory>

#include "core/attributes.h"
#include "device/device.h"

namespace bowline::detail::params {

// Made of what a view of all of a storage shows.
struct Packing {
  Shape from;  // of the view
  Shape to;
  bool operator==(const Packing&) const = default;
};

// What an operator makes of a storage alone (OpDef::derived_copy): a working copy in another dtype,
// a packed format. Op::Invalid: the bytes of the storage as they are, for a replica.
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
           (op == Op::Invalid ||
            attributes_text(op, attributes) == attributes_text(op, other.attributes));
  }
};

// The form of a replica.
inline Form whole_form(DType dtype) {
  Form out;
  out.dtype = dtype;
  return out;
}

class Residency {
 public:
  // `refresh` reads the storage on the device of `block`, and writes that. Null: of a replica.
  Residency(Form form, uint64_t generation, std::shared_ptr<device::Block> block,
            std::unique_ptr<device::Recording> refresh)
      : form_(std::move(form)),
        generation_(generation),
        block_(std::move(block)),
        refresh_(std::move(refresh)) {}
  ~Residency() {
    if (refresh_ != nullptr) {
      block_->device().release(std::move(refresh_));
    }
  }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  const Form& form() const { return form_; }
  // Of the storage when the copy was made; one of another generation is of no use.
  uint64_t generation() const { return generation_; }
  const std::shared_ptr<device::Block>& block() const { return block_; }
  device::Recording* refresh() const { return refresh_.get(); }
  uint64_t bytes() const {
    return block_->bytes() + (refresh_ == nullptr ? 0 : refresh_->overhead_bytes());
  }
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

}  // namespace bowline::detail::params
