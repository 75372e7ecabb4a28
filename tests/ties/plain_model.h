// A reference model without shared storages. Its storages are lists of values, and every verb is
// written out by hand.
#pragma once

#include <map>

#include "core/view.h"
#include "ties/models.h"

namespace bowline::test {

struct PlainStorage {
  Shape shape;
  std::vector<double> values;
  bool trainable = true;
  bool encoded = false;  // the values are the dequantized values
};

struct PlainParameter {
  std::string name;
  size_t storage = 0;
  View view;
};

struct PlainModel {
  std::map<size_t, PlainStorage> storages;
  std::vector<PlainParameter> parameters;
  size_t next = 0;

  size_t add(PlainStorage storage) {
    storages[next] = std::move(storage);
    return next++;
  }
  size_t users(size_t storage) const {
    return static_cast<size_t>(std::ranges::count(parameters, storage, &PlainParameter::storage));
  }
  void drop_unused() {
    std::erase_if(storages, [&](const auto& s) { return users(s.first) == 0; });
  }

  Shape shown(const PlainParameter& p) const {
    return view_shape(p.view, storages.at(p.storage).shape).value();
  }
  // Returns the storage index of each element of a parameter.
  std::vector<size_t> places(const PlainParameter& p) const {
    const Shape& whole = storages.at(p.storage).shape;
    const Shape shown = view_shape(p.view, whole).value();
    const ElementRun run = view_run(p.view, whole);
    const int64_t rows = shown.rank() < 2 ? 1 : shown[shown.rank() - 2];
    const int64_t columns = shown.rank() < 1 ? 1 : shown.back();
    std::vector<size_t> out;
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t row = i / columns % std::max<int64_t>(rows, 1), column = i % columns;
      const int64_t matrix = i / (rows * columns) * rows * columns;
      const int64_t at = p.view.transpose ? matrix + column * rows + row : i;
      out.push_back(static_cast<size_t>(run.first + at));
    }
    return out;
  }
  std::vector<double> read(const PlainParameter& p) const {
    std::vector<double> out;
    for (const size_t at : places(p)) {
      out.push_back(storages.at(p.storage).values[at]);
    }
    return out;
  }
  void write(const PlainParameter& p, std::span<const double> values) {
    const std::vector<size_t> at = places(p);
    for (size_t i = 0; i < at.size(); ++i) {
      storages[p.storage].values[at[i]] = values[i];
    }
  }

  void tie(size_t a, size_t b) {
    parameters[b].storage = parameters[a].storage;
    parameters[b].view = parameters[a].view;
    drop_unused();
  }
  void untie(size_t p) {
    PlainParameter& of = parameters[p];
    if (users(of.storage) == 1) {
      return;
    }
    PlainParameter straight = of;
    straight.view.transpose = false;
    const PlainStorage& from = storages[of.storage];
    PlainStorage own{view_shape(straight.view, from.shape).value(), read(straight), from.trainable,
                     from.encoded};
    const bool transposed = of.view.transpose;
    of.view = {};
    of.view.transpose = transposed;
    of.storage = add(std::move(own));
  }
  bool fits(size_t storage, const Shape& shape) const {
    return std::ranges::all_of(parameters, [&](const PlainParameter& p) {
      return p.storage != storage || view_shape(p.view, shape).ok();
    });
  }
  void swap(size_t a, size_t b) {
    std::swap(storages[parameters[a].storage], storages[parameters[b].storage]);
  }
};

}  // namespace bowline::test
