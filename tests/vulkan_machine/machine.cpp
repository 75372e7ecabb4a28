#include "machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <spirv/unified1/spirv.hpp11>

#include "base/status.h"
#include "group_operations.h"
#include "matrices.h"
#include "shared_memory.h"

namespace bowline::detail::vulkan::machine {
namespace {

class Workgroup {
 public:
  Workgroup(const Dispatch& dispatch, const IsMemory& is_memory)
      : d_(dispatch),
        m_(*dispatch.module),
        is_memory_(is_memory),
        shared_(m_.shared_bytes),
        lanes_(m_.local[0] * m_.local[1] * m_.local[2]) {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      lane.registers = m_.registers;
      lane.memory.resize(m_.lane_bytes + 4);
      lane.moment.lane = i;
      lane.moment.subgroup = i / d_.subgroup;
      point(lane);
    }
  }

  std::string run(const std::array<uint32_t, 3>& id) {
    shared_.poison();
    left_ = d_.most_operations;
    matrices_ = m_.matrices;
    for (Lane& lane : lanes_) {
      start(lane, id);
    }
    while (fault_.empty()) {
      for (size_t first = 0; first < lanes_.size() && fault_.empty(); first += d_.subgroup) {
        run_subgroup(
            std::span(lanes_).subspan(first, std::min<size_t>(d_.subgroup, lanes_.size() - first)));
      }
      if (!fault_.empty() || !pass_barrier()) {
        break;
      }
    }
    return fault_;
  }

 private:
  void fault(std::string what) {
    if (fault_.empty()) {
      fault_ = std::move(what);
    }
  }

  template <class T>
  static void set(Lane& lane, uint32_t at, T value) {
    std::memcpy(lane.registers.data() + at, &value, sizeof(value));
  }
  static char* pointer(const Lane& lane, uint32_t at) {
    char* address = nullptr;
    std::memcpy(&address, lane.registers.data() + at, sizeof(address));
    return address;
  }

  // Sets the addresses of all variables.
  void point(Lane& lane) {
    for (const Variable& v : m_.variables) {
      char* base = lane.memory.data();
      if (v.storage == static_cast<uint32_t>(spv::StorageClass::Workgroup)) {
        base = shared_.data();
      } else if (v.storage == static_cast<uint32_t>(spv::StorageClass::PushConstant)) {
        base = reinterpret_cast<char*>(const_cast<uint32_t*>(d_.push.data()));
      }
      set(lane, v.pointer, base + v.offset);
    }
  }

  void start(Lane& lane, const std::array<uint32_t, 3>& id) {
    lane.state = Lane::State::runs;
    lane.at = m_.entry;
    lane.frames.clear();
    lane.moment.workgroup_barriers = lane.moment.subgroup_barriers = 0;
    for (const Variable& v : m_.variables) {
      const auto storage = static_cast<spv::StorageClass>(v.storage);
      if (storage == spv::StorageClass::Private) {
        begin(lane, v);
      } else if (storage == spv::StorageClass::Input) {
        set_builtin(lane, v, id);
      }
    }
  }

  void set_builtin(Lane& lane, const Variable& v, const std::array<uint32_t, 3>& id) {
    const uint32_t i = lane.moment.lane, x = m_.local[0], y = m_.local[1];
    const auto lanes = static_cast<uint32_t>(lanes_.size());
    std::array<uint32_t, 3> value{};
    switch (static_cast<spv::BuiltIn>(v.builtin)) {
      case spv::BuiltIn::WorkgroupId:
        value = id;
        break;
      case spv::BuiltIn::NumWorkgroups:
        value = d_.groups;
        break;
      case spv::BuiltIn::LocalInvocationId:
        value = {i % x, i / x % y, i / x / y};
        break;
      case spv::BuiltIn::LocalInvocationIndex:
        value[0] = i;
        break;
      case spv::BuiltIn::GlobalInvocationId:
        value = {id[0] * x + i % x, id[1] * y + i / x % y, id[2] * m_.local[2] + i / x / y};
        break;
      case spv::BuiltIn::SubgroupSize:
        value[0] = d_.subgroup;
        break;
      case spv::BuiltIn::NumSubgroups:
        value[0] = (lanes + d_.subgroup - 1) / d_.subgroup;
        break;
      case spv::BuiltIn::SubgroupId:
        value[0] = lane.moment.subgroup;
        break;
      case spv::BuiltIn::SubgroupLocalInvocationId:
        value[0] = i % d_.subgroup;
        break;
      default:
        return fault(format("The machine does not know builtin {}.", v.builtin));
    }
    std::memcpy(lane.memory.data() + v.offset, value.data(), v.bytes);
  }

  // A variable of a lane has its initial value, or poison.
  void begin(Lane& lane, const Variable& v) {
    char* const to = lane.memory.data() + v.offset;
    if (v.has_initial) {
      for (const Leaf& leaf : m_.accesses[v.access].leaves) {
        std::memcpy(to + leaf.offset, lane.registers.data() + v.initial + leaf.at, leaf.bytes);
      }
      return;
    }
    for (uint32_t k = 0; k < v.bytes; k += sizeof(kPoison)) {
      std::memcpy(to + k, &kPoison, std::min<size_t>(sizeof(kPoison), v.bytes - k));
    }
  }

  // ---- memory

  bool can_access(const Lane& lane, const Access& access, const char* address, bool writes) {
    const auto storage = static_cast<spv::StorageClass>(access.storage);
    if (storage == spv::StorageClass::PhysicalStorageBuffer ||
        storage == spv::StorageClass::StorageBuffer) {
      const auto number = reinterpret_cast<uint64_t>(address);
      if (number % access.alignment != 0) {
        fault(format("lane {} accesses an address that is not a multiple of {}", lane.moment.lane,
                     access.alignment));
      } else if (!is_memory_(number, access.bytes)) {
        fault(format("lane {} {} {} bytes outside of all allocations", lane.moment.lane,
                     writes ? "writes" : "reads", access.bytes));
      }
    } else if (storage == spv::StorageClass::Workgroup) {
      for (const Leaf& leaf : access.leaves) {
        const char* const at = address + leaf.offset;
        fault(writes ? shared_.writes(at, leaf.bytes, lane.moment)
                     : shared_.reads(at, leaf.bytes, lane.moment));
      }
    }
    return fault_.empty();
  }

  bool can_access_matrix(const Lane& lane, const MatrixAccess& access, const char* address,
                         uint32_t bytes, bool writes) {
    if (access.storage == static_cast<uint32_t>(spv::StorageClass::Workgroup)) {
      Moment now = lane.moment;
      now.lane = writes ? kMatrixStore : kMatrixLoad;
      now.subgroup = access.matrix.is_of_workgroup ? kAnySubgroup : now.subgroup;
      fault(writes ? shared_.writes(address, bytes, now) : shared_.reads(address, bytes, now));
    } else if (!is_memory_(reinterpret_cast<uint64_t>(address), bytes)) {
      fault("a matrix is outside of all allocations");
    } else if (reinterpret_cast<uint64_t>(address) % access.alignment != 0) {
      fault(format("a line of a matrix is not at a multiple of {}", access.alignment));
    }
    return fault_.empty();
  }

  void load(Lane& lane, const Operation& o) {
    const Access& access = m_.accesses[o.b];
    const char* const from = pointer(lane, o.a);
    if (!can_access(lane, access, from, false)) {
      return;
    }
    uint32_t* const to = lane.registers.data() + o.to;
    if (access.is_word) {
      std::memcpy(to, from, sizeof(*to));
      return;
    }
    for (const Leaf& leaf : access.leaves) {
      to[leaf.at] = 0;
      std::memcpy(to + leaf.at, from + leaf.offset, leaf.bytes);
    }
  }

  void store(Lane& lane, const Operation& o) {
    const Access& access = m_.accesses[o.b];
    char* const to = pointer(lane, o.a);
    if (!can_access(lane, access, to, true)) {
      return;
    }
    const uint32_t* const from = lane.registers.data() + o.to;
    if (access.is_word) {
      std::memcpy(to, from, sizeof(*from));
      return;
    }
    for (const Leaf& leaf : access.leaves) {
      std::memcpy(to + leaf.offset, from + leaf.at, leaf.bytes);
    }
  }

  // An atomic operation on a word, which returns the word before it.
  void change(Lane& lane, const Operation& o) {
    const auto code = static_cast<spv::Op>(o.code);
    char* const address = pointer(lane, o.a);
    if (!can_access(lane, m_.accesses[o.b], address, code != spv::Op::OpAtomicLoad)) {
      return;
    }
    uint32_t word = 0;
    std::memcpy(&word, address, sizeof(word));
    lane.registers[o.to] = word;
    if (code != spv::Op::OpAtomicLoad) {
      const uint32_t operand = lane.registers[o.c];
      word = code == spv::Op::OpAtomicIAdd  ? word + operand
             : code == spv::Op::OpAtomicAnd ? word & operand
                                            : word | operand;
      std::memcpy(address, &word, sizeof(word));
    }
  }

  void index(Lane& lane, const Operation& o) {
    const Chain& chain = m_.chains[o.b];
    char* address = nullptr;
    if (chain.buffer.has_value()) {
      const uint32_t number = lane.registers[*chain.buffer];
      if (number >= d_.buffers.size()) {
        return fault(
            format("lane {} uses buffer {} of {}", lane.moment.lane, number, d_.buffers.size()));
      }
      address = reinterpret_cast<char*>(d_.buffers[number]);
    } else {
      address = pointer(lane, o.a);
    }
    address += chain.offset;
    for (const Index& i : chain.indices) {
      const auto value = static_cast<int32_t>(lane.registers[i.at]);
      if (i.count != 0 && static_cast<uint32_t>(value) >= i.count) {
        fault(format("lane {} uses index {} of an array of {}", lane.moment.lane, value, i.count));
      }
      address += int64_t{value} * i.stride;
    }
    set(lane, o.to, address);
  }

  // ---- control

  void copy(Lane& lane, const std::vector<Copy>& copies) {
    uint32_t* const r = lane.registers.data();
    moved_.clear();
    for (const Copy& c : copies) {
      moved_.insert(moved_.end(), r + c.from, r + c.from + c.count);
    }
    const uint32_t* from = moved_.data();
    for (const Copy& c : copies) {
      std::copy_n(from, c.count, r + c.to);
      from += c.count;
    }
  }

  void jump(Lane& lane, uint32_t edge) {
    const Edge& e = m_.edges[edge];
    if (!e.copies.empty()) {
      copy(lane, e.copies);
    }
    lane.at = e.target;
  }

  void jump_by(Lane& lane, const Switch& s, uint32_t value) {
    for (const auto& [wanted, edge] : s.cases) {
      if (wanted == value) {
        return jump(lane, edge);
      }
    }
    jump(lane, s.otherwise);
  }

  void leave(Lane& lane, const Operation& o) {
    if (lane.frames.empty()) {
      lane.state = Lane::State::ended;
      return;
    }
    const Frame frame = lane.frames.back();
    lane.frames.pop_back();
    std::copy_n(lane.registers.data() + o.a, o.count, lane.registers.data() + frame.result);
    lane.at = frame.site + 1;
  }

  // Runs until the lane waits for others or ends.
  void run_lane(Lane& lane) {
    while (lane.state == Lane::State::runs && fault_.empty()) {
      const Operation* next = &m_.operations[lane.at];
      uint32_t* const registers = lane.registers.data();
      for (; next->execute != nullptr; ++next) {
        next->execute(registers, *next);
      }
      lane.at = static_cast<uint32_t>(next - m_.operations.data());
      if (--left_ == 0) {
        fault("it does not end");
      }
      const Operation& o = *next;
      switch (static_cast<spv::Op>(o.code)) {
        case spv::Op::OpVariable:
          begin(lane, m_.variables[o.a]);
          ++lane.at;
          break;
        case spv::Op::OpLoad:
          load(lane, o);
          ++lane.at;
          break;
        case spv::Op::OpStore:
          store(lane, o);
          ++lane.at;
          break;
        case spv::Op::OpAtomicLoad:
        case spv::Op::OpAtomicIAdd:
        case spv::Op::OpAtomicAnd:
        case spv::Op::OpAtomicOr:
          change(lane, o);
          ++lane.at;
          break;
        case spv::Op::OpAccessChain:
        case spv::Op::OpInBoundsAccessChain:
          index(lane, o);
          ++lane.at;
          break;
        case spv::Op::OpBranch:
          jump(lane, o.a);
          break;
        case spv::Op::OpBranchConditional:
          jump(lane, lane.registers[o.a] != 0 ? o.b : o.c);
          break;
        case spv::Op::OpSwitch:
          jump_by(lane, m_.switches[o.b], lane.registers[o.a]);
          break;
        case spv::Op::OpFunctionCall:
          copy(lane, m_.calls[o.a].arguments);
          lane.frames.push_back({lane.at, o.to});
          lane.at = m_.calls[o.a].target;
          break;
        case spv::Op::OpReturn:
        case spv::Op::OpReturnValue:
          leave(lane, o);
          break;
        case spv::Op::OpUnreachable:
          fault(format("lane {} reaches code that is declared unreachable", lane.moment.lane));
          break;
        default:
          lane.state = waits_for_workgroup(o) ? Lane::State::at_barrier : Lane::State::in_subgroup;
      }
    }
  }

  bool waits_for_workgroup(const Operation& o) const {
    return is_of_workgroup(m_, o) || (static_cast<spv::Op>(o.code) == spv::Op::OpControlBarrier &&
                                      o.a == static_cast<uint32_t>(spv::Scope::Workgroup));
  }

  void operate_on_matrices_of(std::span<Lane* const> together, const Operation& o) {
    fault(operate_on_matrices(
        m_, o, together, &matrices_, [&](char* address, uint32_t bytes, bool writes) {
          return can_access_matrix(*together[0], m_.matrix_accesses[o.b], address, bytes, writes);
        }));
  }

  // Runs until all lanes are at a barrier of the workgroup or at the end. The lanes that wait at
  // the place that comes first in the module go on first, as branches that join do.
  void run_subgroup(std::span<Lane> lanes) {
    while (fault_.empty()) {
      for (Lane& lane : lanes) {
        run_lane(lane);
      }
      std::vector<Lane*> together;
      for (Lane& lane : lanes) {
        if (lane.state != Lane::State::in_subgroup) {
          continue;
        }
        const int order = together.empty() ? -1 : compare(lane, *together[0]);
        if (order < 0) {
          together.clear();
        }
        if (order <= 0) {
          together.push_back(&lane);
        }
      }
      if (together.empty()) {
        return;
      }
      const Operation& o = m_.operations[together[0]->at];
      if (!is_about_matrices(o)) {
        fault(operate(o, lanes, together));
      } else if (together.size() < lanes.size()) {
        fault("some lanes of a subgroup miss an operation on matrices");
      } else {
        operate_on_matrices_of(together, o);
      }
      for (Lane* const lane : together) {
        lane->state = Lane::State::runs;
        ++lane->at;
      }
    }
  }

  // Lets all lanes go on, after an operation on matrices of the workgroup if they wait at one.
  // Returns false if they have ended.
  bool pass_barrier() {
    const Lane& first = lanes_[0];
    for (const Lane& lane : lanes_) {
      if (lane.state != first.state ||
          (lane.state == Lane::State::at_barrier && compare(lane, first) != 0)) {
        fault(format("lanes {} and {} of a workgroup are not at the same barrier",
                     first.moment.lane, lane.moment.lane));
      }
    }
    if (first.state == Lane::State::ended || !fault_.empty()) {
      return false;
    }
    const Operation& o = m_.operations[first.at];
    const bool is_barrier = !is_about_matrices(o);
    if (!is_barrier) {
      std::vector<Lane*> together;
      for (Lane& lane : lanes_) {
        together.push_back(&lane);
      }
      operate_on_matrices_of(together, o);
    }
    for (Lane& lane : lanes_) {
      lane.moment.workgroup_barriers += is_barrier ? 1 : 0;
      lane.state = Lane::State::runs;
      ++lane.at;
    }
    return true;
  }

  const Dispatch& d_;
  const Module& m_;
  const IsMemory& is_memory_;
  SharedMemory shared_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> moved_;
  std::vector<Elements> matrices_;  // of the workgroup
  std::string fault_;
  uint64_t left_ = 0;
};

}  // namespace

std::string run(const Dispatch& dispatch, const IsMemory& is_memory) {
  if (!dispatch.module->refusal.empty()) {
    return dispatch.module->refusal;
  }
  Workgroup workgroup(dispatch, is_memory);
  const auto& [x, y, z] = dispatch.groups;
  for (uint32_t k = 0; k < z; ++k) {
    for (uint32_t j = 0; j < y; ++j) {
      for (uint32_t i = 0; i < x; ++i) {
        const std::array<uint32_t, 3> id = {dispatch.base[0] + i, dispatch.base[1] + j,
                                            dispatch.base[2] + k};
        if (const std::string fault = workgroup.run(id); !fault.empty()) {
          return format("workgroup ({}, {}, {}): {}", id[0], id[1], id[2], fault);
        }
      }
    }
  }
  return {};
}

}  // namespace bowline::detail::vulkan::machine
