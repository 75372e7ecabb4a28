#include "train/together.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/boundary.h"
#include "params/home.h"
#include "train/optimizer.h"

namespace bowline::detail::train {
namespace {

using params::Storage;
using params::Table;

// The bytes of a value, to send and to receive.
template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Place place_of(const TrainOptions& options) {
#ifdef BOWLINE_WITHOUT_PROCESSES
  (void)options;
  return {};
#else
  return options.processes == nullptr ? Place()
                                      : Place{options.processes->rank(), options.processes->size()};
#endif
}

std::vector<uint32_t> owners(const Table& table, uint32_t processes) {
  std::vector<uint32_t> by_size = trained(table);
  std::ranges::stable_sort(by_size, std::greater<>(),
                           [&](uint32_t tie) { return table.storages[tie].shape.elements(); });
  std::vector<uint32_t> out(table.storages.size());
  std::vector<int64_t> load(processes);
  for (const uint32_t tie : by_size) {
    const auto least = std::ranges::min_element(load);
    *least += table.storages[tie].shape.elements();
    out[tie] = static_cast<uint32_t>(least - load.begin());
  }
  return out;
}

std::vector<uint32_t> owned_here(const Table& table, const TrainOptions& options) {
  const Place place = place_of(options);
  std::vector<uint32_t> out = trained(table);
  if (place.size > 1) {
    const std::vector<uint32_t> owner = owners(table, place.size);
    std::erase_if(out, [&](uint32_t tie) { return owner[tie] != place.rank; });
  }
  return out;
}

Status share(ProcessGroup& group, std::span<const std::span<std::byte>> parts) {
  const std::vector<std::span<const std::byte>> to(group.size(), parts[group.rank()]);
  return group.exchange(to, parts);
}

Status agree_all(ProcessGroup& group, const Status& mine) {
  struct Note {
    uint32_t code = 0;
    uint32_t length = 0;
    std::array<char, 1016> text = {};
  };
  std::vector<Note> notes(group.size());
  Note& own = notes[group.rank()];
  own.code = static_cast<uint32_t>(mine.code());
  own.length = static_cast<uint32_t>(std::min(mine.message().size(), own.text.size()));
  std::memcpy(own.text.data(), mine.message().data(), own.length);
  std::vector<std::span<std::byte>> parts;
  for (Note& note : notes) {
    parts.push_back(bytes_of(note));
  }
  BOWLINE_TRY(share(group, parts));
  for (uint32_t rank = 0; rank < group.size(); ++rank) {
    const Note& note = notes[rank];
    if (note.code == 0) {
      continue;
    }
    if (rank == group.rank()) {
      return mine;
    }
    const bool known =
        note.code <= static_cast<uint32_t>(Code::internal) && note.length <= note.text.size();
    return Status(known ? static_cast<Code>(note.code) : Code::internal,
                  format("Process {} of {} failed: {}", rank, group.size(),
                         known ? std::string_view(note.text.data(), note.length)
                               : std::string_view("its message cannot be read.")));
  }
  return {};
}

Status require_same(ProcessGroup& group, const Items& items) {
  std::string mine;
  for (const auto& [what, value] : items) {
    mine += what + '\0' + value + '\0';
  }
  // Process 0 tells the others what it has, so that the message can name both values.
  std::vector<uint64_t> lengths(group.size());
  std::vector<std::span<std::byte>> parts;
  for (uint64_t& l : lengths) {
    parts.push_back(bytes_of(l));
  }
  lengths[group.rank()] = mine.size();
  BOWLINE_TRY(share(group, parts));
  constexpr uint64_t kMost = uint64_t{1} << 24;
  BOWLINE_REQUIRE(lengths[0] <= kMost,
                  "The processes cannot compare their runs: the description of process 0 has {} "
                  "bytes. All processes must run the same version of Bowline.",
                  lengths[0]);
  std::string theirs(lengths[0], '\0');
  std::vector<std::span<const std::byte>> to(group.size());
  std::vector<std::span<std::byte>> from(group.size());
  if (group.rank() == 0) {
    std::ranges::fill(to, std::as_bytes(std::span(mine)));
  } else {
    from[0] = std::as_writable_bytes(std::span(theirs));
  }
  BOWLINE_TRY(group.exchange(to, from));
  Status same;
  std::string_view rest = theirs;
  const auto next = [&rest] {
    const std::string_view text = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    return text;
  };
  for (size_t i = 0; group.rank() != 0 && i < items.size() && same.ok(); ++i) {
    const std::string_view what = next();
    const std::string_view value = next();
    if (what != items[i].first || value != items[i].second) {
      same =
          Status(Code::bad_argument,
                 format("The processes do not train the same run: {} is \"{}\" in process 0 and "
                        "\"{}\" in process {}. Start all processes with the same program, model, "
                        "data and options.",
                        items[i].first, value, items[i].second, group.rank()));
    }
  }
  return agree(&group, same);
}

GradientSums::GradientSums(const Table& table, const TrainOptions& options)
    : group_(options.processes.get()), place_(place_of(options)), parts_(place_.size) {
  const std::vector<uint32_t> owner = owners(table, place_.size);
  for (const uint32_t tie : trained(table)) {
    const auto elements = static_cast<uint64_t>(table.storages[tie].shape.elements());
    parts_[owner[tie]].items.push_back({tie, elements});
    parts_[owner[tie]].elements += elements;
  }
  uint64_t first = 0;
  for (OwnedPart& part : parts_) {
    part.first = first;
    first += part.elements;
  }
  allocate();
}

void GradientSums::allocate() {
  rows_.resize(parts_.back().first + parts_.back().elements);
  sums_.resize(parts_[place_.rank].elements);
  received_.resize(sums_.size() * (place_.size - 1));
}

Status GradientSums::settle(const Table& table, const std::shared_ptr<device::OpenDevice>& device) {
  const Status kept = unlink(true);
  const Status linked = link(table, device, kept);
  if (!linked.ok()) {
    BOWLINE_TRY(guarded([&]() -> Status {
      allocate();
      return {};
    }));
  }
  settled_ = true;
  if (device->has_log() && !device->capabilities().host_memory) {
    device->log(
        LogLevel::info,
        linked.ok()
            ? format("The devices of {} processes exchange gradients directly.", place_.size)
            : format("The processes exchange gradients through the host. {}", linked.message()));
  }
  return kept;
}

// Whatever fails in one of the processes, all of them make the same calls of the group.
Status GradientSums::link(const Table& table, const std::shared_ptr<device::OpenDevice>& device,
                          const Status& ready) {
  struct Note {
    uint32_t usable = 0;
    device::LinkOffer offer;
  };
  std::vector<Note> notes(place_.size);
  const Result<device::LinkOffer> mine =
      ready.ok() ? device->offer_link() : Result<device::LinkOffer>(ready);
  if (mine.ok()) {
    notes[place_.rank] = {1, mine.value()};
  }
  std::vector<std::span<std::byte>> parts;
  for (Note& note : notes) {
    parts.push_back(bytes_of(note));
  }
  BOWLINE_TRY(share(*group_, parts));
  BOWLINE_TRY(Status(mine.status()));
  for (uint32_t r = 0; r < place_.size; ++r) {
    BOWLINE_REQUIRE_CODE(notes[r].usable != 0, Code::unsupported,
                         "The device of process {} has no link to those of the others.", r);
    for (uint32_t other = 0; other < r; ++other) {
      BOWLINE_REQUIRE_CODE(notes[r].offer.device != notes[other].offer.device, Code::unsupported,
                           "Processes {} and {} have the same device. For a link, each process "
                           "needs a device of its own.",
                           other, r);
    }
  }
  Result<std::unique_ptr<LinkedSums>> made =
      guarded([&] { return LinkedSums::make(table, parts_, place_, device); });
  BOWLINE_TRY(agree(group_, made.status()));
  const auto connect = [&]() -> Status {
    BOWLINE_TRY(made.value()->connect(notes[0].offer, group_->timeout_seconds()));
    return made.value()->set_sums(sums_);
  };
  BOWLINE_TRY(agree(group_, connect()));
  linked_ = std::move(made).value();
  rows_ = {};
  sums_ = {};
  received_ = {};
  return {};
}

Status GradientSums::unlink(bool keep) {
  settled_ = false;
  if (linked() == nullptr) {
    return {};
  }
  const std::unique_ptr<LinkedSums> linked = std::move(linked_);
  return guarded([&]() -> Status {
    if (keep) {
      BOWLINE_TRY_ASSIGN(sums_, linked->sums());
    }
    return {};
  });
}

Status GradientSums::read(const Table& table, std::vector<float>& to) const {
  float* at = to.data();
  for (const OwnedPart& part : parts_) {
    for (const OwnedPart::Item& item : part.items) {
      BOWLINE_TRY(gradient_row(table, item.tie)
                      .home.block->read(0, std::as_writable_bytes(std::span(at, item.elements))));
      at += item.elements;
    }
  }
  return {};
}

Status GradientSums::add(const Table& table, uint32_t processes, bool first) {
  if (linked() != nullptr) {
    return linked()->add(table, processes, first);
  }
  allocate();
  const Status mine = place_.rank < processes ? read(table, rows_) : Status();
  std::vector<std::span<const float>> terms(place_.size);
  terms[place_.rank] = part_of(rows_, place_.rank);
  if (place_.size > 1) {
    std::vector<std::span<const std::byte>> to(place_.size);
    std::vector<std::span<std::byte>> from(place_.size);
    size_t others = 0;
    for (uint32_t r = 0; r < place_.size; ++r) {
      if (r == place_.rank) {
        continue;
      }
      if (place_.rank < processes) {
        to[r] = std::as_bytes(part_of(rows_, r));
      }
      if (r < processes) {
        const auto place = std::span(received_).subspan(others * sums_.size(), sums_.size());
        from[r] = std::as_writable_bytes(place);
        terms[r] = place;
        ++others;
      }
    }
    BOWLINE_TRY(group_->exchange(to, from));
  }
  BOWLINE_TRY(Status(mine));
  // The first two terms are read together, which saves a pass over the sums.
  uint32_t next = 0;
  if (first && processes > 1) {
    std::ranges::transform(terms[0], terms[1], sums_.begin(), std::plus<>());
    next = 2;
  } else if (first) {
    std::ranges::copy(terms[0], sums_.begin());
    next = 1;
  }
  for (uint32_t r = next; r < processes; ++r) {
    std::ranges::transform(sums_, terms[r], sums_.begin(), std::plus<>());
  }
  return {};
}

Status GradientSums::share_sums(const Table& table) {
  if (linked() != nullptr) {
    return linked()->share_sums(table);
  }
  allocate();
  std::vector<std::span<float>> sums;
  for (uint32_t r = 0; r < place_.size; ++r) {
    sums.push_back(r == place_.rank ? std::span(sums_) : part_of(rows_, r));
  }
  if (place_.size > 1) {
    std::vector<std::span<std::byte>> parts;
    for (const std::span<float> part : sums) {
      parts.push_back(std::as_writable_bytes(part));
    }
    BOWLINE_TRY(share(*group_, parts));
  }
  for (uint32_t r = 0; r < place_.size; ++r) {
    const float* at = sums[r].data();
    for (const OwnedPart::Item& item : parts_[r].items) {
      BOWLINE_TRY(gradient_row(table, item.tie)
                      .home.block->write(0, std::as_bytes(std::span(at, item.elements))));
      at += item.elements;
    }
  }
  return {};
}

Status GradientSums::share_weights(Table& table) {
  if (linked() != nullptr) {
    return linked()->share_weights(table);
  }
  allocate();
  // No trained value has more bytes than its gradient, so the weights fit into the same place.
  std::vector<std::span<std::byte>> parts;
  for (uint32_t r = 0; r < place_.size; ++r) {
    uint64_t bytes = 0;
    for (const OwnedPart::Item& item : parts_[r].items) {
      bytes += table.storages[item.tie].bytes();
    }
    parts.push_back(std::as_writable_bytes(part_of(rows_, r)).first(bytes));
  }
  // Calls `each` with every storage of an owner and its place.
  const auto walk = [&](uint32_t rank, const auto& each) -> Status {
    size_t at = 0;
    for (const OwnedPart::Item& item : parts_[rank].items) {
      const uint64_t bytes = table.storages[item.tie].bytes();
      BOWLINE_TRY(each(item.tie, parts[rank].subspan(at, bytes)));
      at += bytes;
    }
    return {};
  };
  const Status mine = walk(place_.rank, [&](uint32_t tie, std::span<std::byte> to) {
    return table.storages[tie].home.block->read(0, to);
  });
  BOWLINE_TRY(first_error(mine, share(*group_, parts)));
  for (uint32_t r = 0; r < place_.size; ++r) {
    if (r != place_.rank) {
      BOWLINE_TRY(walk(r, [&](uint32_t tie, std::span<const std::byte> from) -> Status {
        BOWLINE_TRY(table.storages[tie].home.block->write(0, from));
        table.wrote(tie);
        return {};
      }));
    }
  }
  return {};
}

Status GradientSums::load(const Table& table) {
  if (linked() != nullptr) {
    return linked()->load(table);
  }
  allocate();
  BOWLINE_TRY(read(table, rows_));
  std::ranges::copy(part_of(rows_, place_.rank), sums_.begin());
  return {};
}

Result<std::vector<float>> GradientSums::sums() const {
  return linked() != nullptr ? linked()->sums() : Result<std::vector<float>>(sums_);
}

Status GradientSums::set_sums(const std::vector<float>& sums) {
  if (linked() != nullptr) {
    return linked()->set_sums(sums);
  }
  sums_ = sums;
  return {};
}

}  // namespace bowline::detail::train
