// Sums of gradients over the linked devices of several processes, without the host.
#pragma once

#include <vector>

#include "params/table.h"
#include "train/place.h"

namespace bowline::detail::train {

// The storages of an owner, by tie index, and their place in a buffer of all gradients.
struct OwnedPart {
  struct Item {
    uint32_t tie = 0;
    uint64_t elements = 0;
  };
  std::vector<Item> items;
  uint64_t first = 0;
  uint64_t elements = 0;
};

inline const params::Storage& gradient_row(const params::Table& table, uint32_t tie) {
  return table.storages[*table.owned(tie, params::Role::gradient, 0)];
}

// The functions have the same meaning as those of GradientSums, and add in the same order: so the
// sums have the same bits. Every process calls them together with the others.
class LinkedSums {
 public:
  // `parts`: by rank of the owner. Allocates the sums on the device.
  static Result<std::unique_ptr<LinkedSums>> make(const params::Table& table,
                                                  std::span<const OwnedPart> parts, Place place,
                                                  std::shared_ptr<device::OpenDevice> device);
  ~LinkedSums();
  LinkedSums(const LinkedSums&) = delete;
  LinkedSums& operator=(const LinkedSums&) = delete;

  // Connects the device with those of the other processes. `first`: the offer of process 0.
  Status connect(const device::LinkOffer& first, double timeout_seconds);

  Status add(const params::Table& table, uint32_t processes, bool first);
  Status share_sums(const params::Table& table);
  Status share_weights(params::Table& table);
  Status load(const params::Table& table);
  Result<std::vector<float>> sums() const;
  uint64_t device_bytes() const { return sums_->bytes() + terms_->bytes(); }
  Status set_sums(std::span<const float> sums);

 private:
  using Pieces = std::vector<device::Transfer>;

  LinkedSums(std::span<const OwnedPart> parts, Place place,
             std::shared_ptr<device::OpenDevice> device)
      : parts_(parts.begin(), parts.end()), place_(place), device_(std::move(device)) {}

  Status record();
  Result<std::unique_ptr<device::Recording>> record_sum(uint64_t a, uint64_t b) const;
  // Where process `rank` puts its gradients of the storages of this process, in bytes of terms_.
  uint64_t term(uint32_t rank) const { return rank * sums_->bytes(); }
  // The pieces of the rows or values of a part, in order. `row_of` returns a storage.
  template <class RowOf>
  Pieces pieces(uint32_t peer, const OwnedPart& part, const RowOf& row_of) const;
  // The same pieces inside one block, from byte `at`.
  Pieces packed(uint32_t peer, const Pieces& like, const device::Block& block, uint64_t at) const;
  // Copies pieces of this process.
  Status copy(const Pieces& to, const Pieces& from) const;
  // Sends and receives pieces, by peer.
  Status exchange(std::span<const Pieces> sent, std::span<const Pieces> received);

  std::vector<OwnedPart> parts_;
  Place place_;
  std::shared_ptr<device::OpenDevice> device_;
  std::shared_ptr<device::Block> sums_;   // of the storages of this process
  std::shared_ptr<device::Block> terms_;  // the gradients of them, by process
  std::unique_ptr<device::Recording> first_two_;
  std::vector<std::unique_ptr<device::Recording>> next_;  // adds the gradients of a process
  std::unique_ptr<device::Link> link_;
};

}  // namespace bowline::detail::train
