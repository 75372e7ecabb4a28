// Hash tables of a vocabulary: pairs of ids, texts, and tries over bytes. They are built once and
// then only read. Files choose the keys, so a table rejects keys with more collisions than real
// files have. This bounds the time to build it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/boundary.h"

namespace bowline::text {

inline constexpr size_t kLongestProbe = 512;

inline uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93;
  return x ^ x >> 32;
}

inline uint64_t hash_of(std::string_view text) {
  uint64_t h = mixed(text.size());
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    h = mixed(h ^ word) + word;
    text.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  return mixed(h ^ rest);
}

// Slots with open addressing, at least half of them free.
template <class Slot>
class OpenTable {
 protected:
  // Returns the first slot from `hash` on that is free or satisfies is(slot). Null: there is none
  // within kLongestProbe slots.
  template <class Is>
  const Slot* find_slot(uint64_t hash, Is&& is) const {
    size_t i = hash & mask_;
    for (size_t probe = 0; probe < std::min(kLongestProbe, slots_.size()); ++probe) {
      if (slots_[i].is_free() || is(slots_[i])) {
        return &slots_[i];
      }
      i = (i + 1) & mask_;
    }
    return nullptr;
  }
  // Adds a slot with a new key. Returns false if too many keys collide.
  bool add(const Slot& slot) {
    if (2 * (size_ + 1) > slots_.size()) {
      std::vector<Slot> old(std::max<size_t>(16, 2 * slots_.size()));
      old.swap(slots_);
      mask_ = slots_.size() - 1;
      for (const Slot& s : old) {
        if (!s.is_free() && !place(s)) {
          return false;
        }
      }
    }
    size_ += 1;
    return place(slot);
  }

 private:
  bool place(const Slot& slot) {
    const Slot* const free = find_slot(slot.hash(), [](const Slot&) { return false; });
    if (free != nullptr) {
      slots_[static_cast<size_t>(free - slots_.data())] = slot;
    }
    return free != nullptr;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

struct PairEntry {
  static constexpr uint64_t kNone = UINT64_MAX;  // not a valid key: ids are smaller
  uint64_t key = kNone;
  uint32_t first = 0;
  uint32_t second = 0;
  bool is_free() const { return key == kNone; }
  uint64_t hash() const { return mixed(key); }
};

// Maps two 32-bit values to two others.
class PairTable : public OpenTable<PairEntry> {
 public:
  using Entry = PairEntry;

  const Entry* find(uint32_t a, uint32_t b) const {
    const uint64_t k = key(a, b);
    const Entry* const e = find_slot(mixed(k), [k](const Entry& s) { return s.key == k; });
    return e == nullptr || e->is_free() ? nullptr : e;
  }
  // Keeps the first entry of a key. Returns false if too many keys collide.
  bool insert(uint32_t a, uint32_t b, uint32_t first, uint32_t second) {
    return find(a, b) != nullptr || add({key(a, b), first, second});
  }

 private:
  static uint64_t key(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }
};

struct TextSlot {
  uint64_t hash_ = 0;
  int32_t id = -1;
  uint32_t length = 0;
  size_t begin = 0;
  bool is_free() const { return id < 0; }
  uint64_t hash() const { return hash_; }
};

// Maps texts to ids.
class TextTable : public OpenTable<TextSlot> {
 public:
  std::optional<int32_t> find(std::string_view text) const {
    const uint64_t h = hash_of(text);
    const TextSlot* const s =
        find_slot(h, [&](const TextSlot& slot) { return slot.hash_ == h && at(slot) == text; });
    return s == nullptr || s->is_free() ? std::nullopt : std::optional(s->id);
  }
  // Returns nothing if the text was inserted, its id if it exists already, and -1 if too many texts
  // collide.
  std::optional<int32_t> insert(std::string_view text, int32_t id) {
    if (const auto there = find(text)) {
      return there;
    }
    const TextSlot slot{hash_of(text), id, static_cast<uint32_t>(text.size()), bytes_.size()};
    bytes_ += text;
    return add(slot) ? std::nullopt : std::optional(-1);
  }

 private:
  std::string_view at(const TextSlot& s) const {
    return std::string_view(bytes_).substr(s.begin, s.length);
  }

  std::string bytes_;
};

// Finds all texts of a set that start at a given position of another text.
class ByteTrie {
 public:
  // Keeps the first id of a text. Returns false if there are too many nodes or collisions.
  bool insert(std::string_view text, int32_t id) {
    uint32_t node = 0;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (const PairTable::Entry* e = children_.find(node, byte)) {
        node = e->first;
        continue;
      }
      const auto next = static_cast<uint32_t>(ids_.size());
      if (ids_.size() >= UINT32_MAX - 1 || !children_.insert(node, byte, next, 0)) {
        return false;
      }
      ids_.push_back(-1);
      node = next;
    }
    if (ids_[node] < 0) {
      ids_[node] = id;
    }
    return true;
  }
  // Calls found(length, id) for each text that starts here, in order of length.
  template <class F>
  void match(std::string_view text, F&& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const PairTable::Entry* e = children_.find(node, static_cast<uint8_t>(text[i]));
      if (e == nullptr) {
        return;
      }
      node = e->first;
      if (ids_[node] >= 0) {
        found(i + 1, ids_[node]);
      }
    }
  }

 private:
  PairTable children_;  // (node, byte) -> node
  std::vector<int32_t> ids_ = {-1};
};

}  // namespace bowline::text
