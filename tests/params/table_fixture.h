// A small tied table, and the state that a failed verb must not change.
#pragma once

#include <numeric>

#include "faults/faulty_device.h"
#include "faults/host_device.h"
#include "model/checksum.h"
#include "params/home.h"
#include "params/verbs.h"
#include "ties/mocks.h"

namespace bowline::test {

using DevicePointer = std::shared_ptr<device::OpenDevice>;

inline std::span<const std::byte> bytes_of(const std::vector<float>& v) {
  return std::as_bytes(std::span(v));
}

inline Tensor tensor_of(std::vector<float>& values, const std::vector<int64_t>& shape) {
  return {"", DType::f32, shape, values.data()};
}

// Storages: 0 is E [3,2] = 1..6 (parameters emb, head, emb_t transposed, and tail with rows 1..3),
// 1 is w [2,2] (w), 2 is a moment of E, 3 is b [4] (b), and 4 is q [2,2] (q).
inline params::Table make_table(const DevicePointer& device = nullptr) {
  params::Table t;
  t.set_device(device);
  const auto add = [&](Shape shape, float first, params::Role role, int32_t owner) {
    params::Storage s;
    s.shape = shape;
    s.role = role;
    s.owner = owner;
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), first);
    params::install(s, params::make_home(device, bytes_of(values)).value());
    t.add(std::move(s));
  };
  add({3, 2}, 1, params::Role::weight, params::kNoOwner);
  add({2, 2}, 10, params::Role::weight, params::kNoOwner);
  add({3, 2}, 100, params::Role::moment, 0);
  add({4}, 50, params::Role::weight, params::kNoOwner);
  add({2, 2}, 20, params::Role::weight, params::kNoOwner);
  View transposed;
  transposed.transpose = true;
  View rows;
  rows.row_start = 1;
  rows.rows = 2;
  for (params::ParameterRow row :
       std::initializer_list<params::ParameterRow>{{"emb", 0, {}, {}},
                                                   {"head", 0, {}, {}},
                                                   {"emb_t", 0, transposed, {}},
                                                   {"tail", 0, rows, {}},
                                                   {"w", 1, {}, {}},
                                                   {"b", 3, {}, {}},
                                                   {"q", 4, {}, {}}}) {
    t.add(std::move(row));
  }
  return t;
}

inline std::vector<float> values_of(const params::Table& t, std::string_view name) {
  const params::ParameterRow& p = t.parameters[t.require(name).value()];
  const Shape shape = view_shape(p.view, t.storages[p.tie].shape).value();
  std::vector<float> out(static_cast<size_t>(shape.elements()));
  Tensor tensor{"", DType::f32, shape.dims(), out.data()};
  const Status status = params::get_value(t, name, tensor);
  return status.ok() ? out : std::vector<float>{};
}

// Returns the listings with versions and generations, and a hash of all bytes.
inline std::string state_of(const params::Table& t) {
  std::string out = t.list_parameters() + t.list_storages() + t.list_ties();
  for (const params::Storage& s : t.storages) {
    std::vector<std::byte> scratch;
    if (s.home.valid()) {
      const auto bytes = params::read_all(s, scratch);
      out += bytes.ok() ? format("{} ", model::checksum(bytes.value())) : "unreadable ";
    }
  }
  return out;
}

inline DevicePointer host_device() {
  return open_for_test("host:0", std::make_unique<HostDevice>());
}
inline DevicePointer opaque_device() {
  return open_for_test("opaque", std::make_unique<OpaqueDevice>(std::make_unique<HostDevice>()));
}
inline DevicePointer moving_device() {
  return open_for_test("moving", std::make_unique<MovingDevice>(std::make_unique<HostDevice>()));
}
inline DevicePointer faulty_device(const std::shared_ptr<Fault>& fault) {
  return open_for_test("faulty",
                       std::make_unique<FaultyDevice>(std::make_unique<HostDevice>(), fault));
}

}  // namespace bowline::test
