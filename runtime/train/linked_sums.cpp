#include "train/linked_sums.h"

#include <algorithm>

#include "train/together.h"

namespace bowline::detail::train {

using device::Block;
using device::Recording;
using device::Transfer;
using params::Storage;
using params::Table;

namespace {

// NCCL takes at most 2048 transfers at once. A process sends to, and receives from, each other one.
constexpr size_t kMostTransfers = 2048;
// Of one record: its elements are counted in 32 bits.
constexpr uint64_t kMostElements = uint64_t{1} << 30;

// Operands of a sum: slots of a program.
constexpr uint32_t kSums = device::kFirstStorageSlot;
constexpr uint32_t kTerms = kSums + 1;

Status require_home(const Storage& row, const device::OpenDevice& device) {
  BOWLINE_REQUIRE_CODE(row.home.block != nullptr && &row.home.block->device() == &device,
                       Code::unsupported,
                       "A storage with {} bytes is not in the memory of the device {}.",
                       row.bytes(), device.info().name);
  return {};
}

}  // namespace

Result<std::unique_ptr<LinkedSums>> LinkedSums::make(const Table& table,
                                                     std::span<const OwnedPart> parts, Place place,
                                                     std::shared_ptr<device::OpenDevice> device) {
  for (const OwnedPart& part : parts) {
    for (const OwnedPart::Item& item : part.items) {
      BOWLINE_TRY(require_home(table.storages[item.tie], *device));
      BOWLINE_TRY(require_home(gradient_row(table, item.tie), *device));
    }
  }
  std::unique_ptr<LinkedSums> self(new LinkedSums(parts, place, std::move(device)));
  const uint64_t bytes = parts[place.rank].elements * sizeof(float);
  BOWLINE_TRY_ASSIGN(self->sums_, Block::allocate(self->device_, bytes));
  BOWLINE_TRY_ASSIGN(self->terms_, Block::allocate(self->device_, bytes * place.size));
  BOWLINE_TRY(self->record());
  return self;
}

LinkedSums::~LinkedSums() {
  if (link_ != nullptr) {
    device_->release(std::move(link_));
  }
  if (first_two_ != nullptr) {
    device_->release(std::move(first_two_));
  }
  for (std::unique_ptr<Recording>& r : next_) {
    device_->release(std::move(r));
  }
}

Status LinkedSums::connect(const device::LinkOffer& first, double timeout_seconds) {
  BOWLINE_TRY_ASSIGN(link_, device_->link(first, place_.rank, place_.size, timeout_seconds));
  return {};
}

Result<std::unique_ptr<Recording>> LinkedSums::record_sum(uint64_t a, uint64_t b) const {
  device::Program program;
  program.slots = kTerms + 1;
  const uint64_t elements = sums_->bytes() / sizeof(float);
  for (uint64_t at = 0; at < elements; at += kMostElements) {
    const uint64_t count = std::min(kMostElements, elements - at);
    const auto operand = [&](uint32_t slot, uint64_t first) {
      device::Operand o;
      o.slot = slot;
      o.offset = first + at * sizeof(float);
      o.shape = Shape{static_cast<int64_t>(count)};
      return o;
    };
    device::Record& sum = program.records.emplace_back();
    sum.op = Op::Add;
    // UINT64_MAX: the sums so far.
    sum.inputs = {a == UINT64_MAX ? operand(kSums, 0) : operand(kTerms, a), operand(kTerms, b)};
    sum.outputs = {operand(kSums, 0)};
  }
  // The records use nothing of the first three slots.
  const Block* const slots[] = {sums_.get(), sums_.get(), sums_.get(), sums_.get(), terms_.get()};
  return device::record(*device_, program, slots);
}

Status LinkedSums::record() {
  if (sums_->bytes() == 0) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(first_two_, record_sum(term(0), term(1)));
  for (uint32_t r = 0; r < place_.size; ++r) {
    BOWLINE_TRY_ASSIGN(next_.emplace_back(), record_sum(UINT64_MAX, term(r)));
  }
  return {};
}

template <class RowOf>
LinkedSums::Pieces LinkedSums::pieces(uint32_t peer, const OwnedPart& part,
                                      const RowOf& row_of) const {
  Pieces out;
  for (const OwnedPart::Item& item : part.items) {
    const Storage& row = row_of(item.tie);
    out.push_back({peer, row.home.block->buffer(), row.home.block->offset(), row.bytes()});
  }
  return out;
}

LinkedSums::Pieces LinkedSums::packed(uint32_t peer, const Pieces& like, const Block& block,
                                      uint64_t at) const {
  Pieces out;
  for (const Transfer& piece : like) {
    out.push_back({peer, block.buffer(), block.offset() + at, piece.bytes});
    at += piece.bytes;
  }
  return out;
}

Status LinkedSums::copy(const Pieces& to, const Pieces& from) const {
  for (size_t i = 0; i < to.size(); ++i) {
    BOWLINE_TRY(
        device_->copy(to[i].buffer, to[i].offset, from[i].buffer, from[i].offset, to[i].bytes));
  }
  return {};
}

Status LinkedSums::exchange(std::span<const Pieces> sent, std::span<const Pieces> received) {
  const size_t others = std::max(place_.size, 2u) - 1;
  const size_t at_once = std::max<size_t>(1, kMostTransfers / (2 * others));
  // All processes count the rounds in the same way.
  size_t most = 0;
  for (const OwnedPart& part : parts_) {
    most = std::max(most, part.items.size());
  }
  for (size_t first = 0; first < most; first += at_once) {
    const auto some = [&](std::span<const Pieces> lists) {
      Pieces out;
      for (const Pieces& list : lists) {
        for (size_t i = first; i < std::min(first + at_once, list.size()); ++i) {
          out.push_back(list[i]);
        }
      }
      return out;
    };
    BOWLINE_TRY(device_->exchange(*link_, some(sent), some(received)));
  }
  return {};
}

Status LinkedSums::add(const Table& table, uint32_t processes, bool first) {
  const auto gradients = [&](uint32_t tie) -> const Storage& { return gradient_row(table, tie); };
  const Pieces here = pieces(place_.rank, parts_[place_.rank], gradients);
  std::vector<Pieces> sent(place_.size), received(place_.size);
  for (uint32_t r = 0; r < place_.size; ++r) {
    if (r != place_.rank && place_.rank < processes) {
      sent[r] = pieces(r, parts_[r], gradients);
    }
    if (r != place_.rank && r < processes) {
      received[r] = packed(r, here, *terms_, term(r));
    }
  }
  const Status copied = place_.rank < processes
                            ? copy(packed(place_.rank, here, *terms_, term(place_.rank)), here)
                            : Status();
  BOWLINE_TRY(first_error(copied, exchange(sent, received)));
  if (here.empty()) {
    return {};
  }
  std::vector<Recording*> sums;
  if (first && processes == 1) {
    BOWLINE_TRY(sums_->copy(0, *terms_, 0, sums_->bytes()));
  } else if (first) {
    sums.push_back(first_two_.get());
  }
  for (uint32_t r = !first ? 0 : std::min(processes, 2u); r < processes; ++r) {
    sums.push_back(next_[r].get());
  }
  BOWLINE_TRY(device_->submit(sums));
  return device_->wait();
}

Status LinkedSums::share_sums(const Table& table) {
  const auto gradients = [&](uint32_t tie) -> const Storage& { return gradient_row(table, tie); };
  const Pieces rows = pieces(place_.rank, parts_[place_.rank], gradients);
  std::vector<Pieces> sent(place_.size), received(place_.size);
  for (uint32_t r = 0; r < place_.size; ++r) {
    if (r != place_.rank) {
      sent[r] = packed(r, rows, *sums_, 0);
      received[r] = pieces(r, parts_[r], gradients);
    }
  }
  const Status copied = copy(rows, packed(place_.rank, rows, *sums_, 0));
  return first_error(copied, exchange(sent, received));
}

Status LinkedSums::share_weights(Table& table) {
  const auto values = [&](uint32_t tie) -> const Storage& { return table.storages[tie]; };
  std::vector<Pieces> sent(place_.size), received(place_.size);
  for (uint32_t r = 0; r < place_.size; ++r) {
    if (r != place_.rank) {
      sent[r] = pieces(r, parts_[place_.rank], values);
      received[r] = pieces(r, parts_[r], values);
    }
  }
  BOWLINE_TRY(exchange(sent, received));
  for (uint32_t r = 0; r < place_.size; ++r) {
    for (const OwnedPart::Item& item : parts_[r].items) {
      if (r != place_.rank) {
        table.wrote(item.tie);
      }
    }
  }
  return {};
}

Status LinkedSums::load(const Table& table) {
  const Pieces rows = pieces(place_.rank, parts_[place_.rank], [&](uint32_t tie) -> const Storage& {
    return gradient_row(table, tie);
  });
  return copy(packed(place_.rank, rows, *sums_, 0), rows);
}

Result<std::vector<float>> LinkedSums::sums() const {
  std::vector<float> out(parts_[place_.rank].elements);
  BOWLINE_TRY(sums_->read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

Status LinkedSums::set_sums(std::span<const float> sums) {
  return sums_->write(0, std::as_bytes(sums));
}

}  // namespace bowline::detail::train
