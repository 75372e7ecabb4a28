// Copies of storages: derived copies have another dtype or layout and are on the same device.
// Replicas have the same bytes and are on another device.
//
// A copy lives while a plan reads it, or while it is requested (replicate()). Its address does not
// change. If the storage was written, the next submission that reads the copy renews it first: a
// derived copy with its own recording, the refresh, and a replica with a transfer.
#pragma once

#include <memory>

#include "core/attributes.h"
#include "device/device.h"

namespace bowline::detail::params {

// The shapes of a copy that is made from a view of the whole storage.
struct Packing {
  Shape from;  // the shape of the view
  Shape to;
  bool operator==(const Packing&) const = default;
};

// What a copy contains: the result of an operator on the storage (OpDef::derived_copy), such as
// another dtype or a packed layout. Op::Invalid: the bytes of the storage, for a replica.
struct Form {
  Op op = Op::Invalid;
  Attributes attributes;
  DType dtype = DType::f32;
  std::optional<Packing> packing;  // not set: element by element, same shape

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
  // `refresh` reads the storage and writes `block`. Null for a replica.
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
  // The generation of the storage when the copy was made. A copy of another one is not used.
  uint64_t generation() const { return generation_; }
  const std::shared_ptr<device::Block>& block() const { return block_; }
  device::Recording* refresh() const { return refresh_.get(); }
  uint64_t bytes() const {
    return block_->bytes() + (refresh_ == nullptr ? 0 : refresh_->overhead_bytes());
  }
  // The version of the storage whose values the copy holds. Not set at first.
  std::optional<uint64_t> version() const { return version_; }
  // Records that the copy holds the values of `version`.
  void holds(uint64_t version) { version_ = version; }

 private:
  Form form_;
  uint64_t generation_;
  std::shared_ptr<device::Block> block_;
  std::unique_ptr<device::Recording> refresh_;
  std::optional<uint64_t> version_;
};

}  // namespace bowline::detail::params
