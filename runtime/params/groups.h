// Groups of numbered items. Each item is in one numbered group or in none. Examples: parameters
// grouped by storage, gradients and moments grouped by owner.
//
// Each group is a linked list. So moving an item takes constant time, allocates nothing and cannot
// fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bowline::detail::params {

// Reserves room for more elements, so that adding them cannot fail. The room grows by doubling.
template <class T>
void reserve_more(std::vector<T>& rows, size_t more) {
  if (rows.capacity() - rows.size() < more) {
    rows.reserve(std::max(rows.size() + more, 2 * rows.capacity()));
  }
}

class Groups {
  struct Item {
    uint32_t group;
    uint32_t previous;
    uint32_t next;
  };

 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The items of one group, in no particular order. A change of the group invalidates them.
  class Members {
   public:
    class Iterator {
     public:
      Iterator(const Item* items, uint32_t at) : items_(items), at_(at) {}
      uint32_t operator*() const { return at_; }
      Iterator& operator++() {
        at_ = items_[at_].next;
        return *this;
      }
      bool operator==(const Iterator& other) const { return at_ == other.at_; }

     private:
      const Item* items_;
      uint32_t at_;
    };
    Members(const Item* items, uint32_t first) : items_(items), first_(first) {}
    Iterator begin() const { return {items_, first_}; }
    Iterator end() const { return {items_, kNone}; }
    bool has_several() const { return first_ != kNone && items_[first_].next != kNone; }

   private:
    const Item* items_;
    uint32_t first_;
  };

  void reserve_items(size_t more) { reserve_more(items_, more); }
  void reserve_groups(size_t more) { reserve_more(first_, more); }
  // Add an item without a group, and a group without items.
  void add_item() { items_.push_back({kNone, kNone, kNone}); }
  void add_group() { first_.push_back(kNone); }
  // Remove the last item or group.
  void remove_item() {
    leave(static_cast<uint32_t>(items_.size() - 1));
    items_.pop_back();
  }
  void remove_group() {
    while (first_.back() != kNone) {
      leave(first_.back());
    }
    first_.pop_back();
  }

  // Moves an item to a group. If there is no such group, the item is then in none.
  void move(uint32_t item, uint32_t group) {
    group = group < first_.size() ? group : kNone;
    if (items_[item].group == group) {
      return;
    }
    leave(item);
    if (group != kNone) {
      items_[item] = {group, kNone, first_[group]};
      if (first_[group] != kNone) {
        items_[first_[group]].previous = item;
      }
      first_[group] = item;
    }
  }

  Members of(uint32_t group) const {
    return {items_.data(), group < first_.size() ? first_[group] : kNone};
  }

 private:
  void leave(uint32_t item) {
    const Item was = items_[item];
    if (was.group == kNone) {
      return;
    }
    (was.previous == kNone ? first_[was.group] : items_[was.previous].next) = was.next;
    if (was.next != kNone) {
      items_[was.next].previous = was.previous;
    }
    items_[item] = {kNone, kNone, kNone};
  }

  std::vector<Item> items_;
  std::vector<uint32_t> first_;  // first item of each group
};

// Returns the items in ascending order.
inline std::vector<uint32_t> sorted(Groups::Members members) {
  std::vector<uint32_t> out;
  for (const uint32_t item : members) {
    out.push_back(item);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace bowline::detail::params
