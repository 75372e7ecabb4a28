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

// Maps two 32-bit values to two others.
class PairTable {
 public:
  struct Entry {
    uint64_t key = kNone;
    uint32_t first = 0;
    uint32_t second = 0;
  };
  static constexpr uint64_t kNone = UINT64_MAX;  // not a valid key: ids are smaller

  static uint64_t key(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

  const Entry* find(uint32_t a, uint32_t b) const {
    if (entries_.empty()) {
      return nullptr;
    }
    const uint64_t k = key(a, b);
    for (size_t i = mixed(k) & mask_;; i = (i + 1) & mask_) {
      if (entries_[i].key == k) {
        return &entries_[i];
      }
      if (entries_[i].key == kNone) {
        return nullptr;
      }
    }
  }
  // Keeps the first entry of a key. Returns false if too many keys collide.
  bool insert(uint32_t a, uint32_t b, uint32_t first, uint32_t second) {
    if (2 * (size_ + 1) > entries_.size()) {
      std::vector<Entry> old(std::max<size_t>(16, 2 * entries_.size()));
      old.swap(entries_);
      mask_ = entries_.size() - 1;
      size_ = 0;
      for (const Entry& e : old) {
        if (e.key != kNone && !place(e)) {
          return false;
        }
      }
    }
    return place({key(a, b), first, second});
  }
  size_t size() const { return size_; }

 private:
  bool place(const Entry& e) {
    size_t i = mixed(e.key) & mask_;
    for (size_t probe = 0; probe < kLongestProbe; ++probe, i = (i + 1) & mask_) {
      if (entries_[i].key == e.key) {
        return true;
      }
      if (entries_[i].key == kNone) {
        entries_[i] = e;
        ++size_;
        return true;
      }
    }
    return false;
  }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

// Maps texts to ids.
class TextTable {
 public:
  std::optional<int32_t> find(std::string_view text) const {
    if (slots_.empty()) {
      return std::nullopt;
    }
    const uint64_t h = hash_of(text);
    for (size_t i = h & mask_;; i = (i + 1) & mask_) {
      const Slot& s = slots_[i];
      if (s.id < 0) {
        return std::nullopt;
      }
      if (s.hash == static_cast<uint32_t>(h >> 32) && at(s) == text) {
        return s.id;
      }
    }
  }
  // Returns nothing if the text was inserted, its id if it exists already, and -1 if too many texts
  // collide.
  std::optional<int32_t> insert(std::string_view text, int32_t id) {
    if (const auto there = find(text)) {
      return there;
    }
    if (2 * (size_ + 1) > slots_.size()) {
      std::vector<Slot> old(std::max<size_t>(16, 2 * slots_.size()));
      old.swap(slots_);
      mask_ = slots_.size() - 1;
      for (const Slot& s : old) {
        if (s.id >= 0 && !place(s, hash_of(at(s)))) {
          return -1;
        }
      }
    }
    const uint64_t h = hash_of(text);
    const Slot slot{static_cast<uint32_t>(h >> 32), id, bytes_.size(), text.size()};
    bytes_ += text;
    if (!place(slot, h)) {
      return -1;
    }
    ++size_;
    return std::nullopt;
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    size_t begin = 0;
    size_t length = 0;
  };
  std::string_view at(const Slot& s) const {
    return std::string_view(bytes_).substr(s.begin, s.length);
  }
  bool place(const Slot& slot, uint64_t hash) {
    size_t i = hash & mask_;
    for (size_t probe = 0; probe < kLongestProbe; ++probe, i = (i + 1) & mask_) {
      if (slots_[i].id < 0) {
        slots_[i] = slot;
        return true;
      }
    }
    return false;
  }

  std::string bytes_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
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
