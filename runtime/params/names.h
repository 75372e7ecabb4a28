// A hash table from names to numbers, with linear probing. It stores no names: a callback returns
// the name of a number.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace bowline::detail::params {

class Names {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Returns the number of a name, or kNone. name_of(number) returns the name of a number.
  template <class NameOf>
  uint32_t find(std::string_view name, const NameOf& name_of) const {
    const uint32_t hash = hash_of(name);
    for (size_t at = hash; !slots_.empty(); ++at) {
      const Slot& slot = slots_[at & mask()];
      if (slot.number == kNone || (slot.hash == hash && name_of(slot.number) == name)) {
        return slot.number;
      }
    }
    return kNone;
  }

  // Reserves room for more names, so that adding them cannot fail.
  void reserve(size_t more) {
    const size_t wanted = std::bit_ceil(2 * (used_ + more));  // at most half of them are used
    if (wanted <= slots_.size()) {
      return;
    }
    std::vector<Slot> old(wanted);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != kNone) {
        insert(slot);
      }
    }
  }
  // Adds a name that is not in the table. Room must be reserved.
  void add(std::string_view name, uint32_t number) {
    insert({hash_of(name), number});
    ++used_;
  }
  // Removes a name that is in the table with this number.
  void remove(std::string_view name, uint32_t number) {
    size_t hole = hash_of(name) & mask();
    while (slots_[hole].number != number) {
      hole = (hole + 1) & mask();
    }
    // Later entries move up to close the hole. Otherwise, find() would stop at it.
    for (size_t at = (hole + 1) & mask(); slots_[at].number != kNone; at = (at + 1) & mask()) {
      const size_t pushed = (at - slots_[at].hash) & mask();
      if (pushed >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = {};
    --used_;
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t number = kNone;
  };

  static uint32_t hash_of(std::string_view name) {
    return static_cast<uint32_t>(std::hash<std::string_view>{}(name));
  }
  size_t mask() const { return slots_.size() - 1; }
  void insert(Slot slot) {
    size_t at = slot.hash & mask();
    while (slots_[at].number != kNone) {
      at = (at + 1) & mask();
    }
    slots_[at] = slot;
  }

  std::vector<Slot> slots_;  // the size is 0 or a power of two
  size_t used_ = 0;
};

}  // namespace bowline::detail::params
