#include "group_operations.h"

#include <algorithm>
#include <bit>
#include <spirv/unified1/spirv.hpp11>

#include "base/status.h"

namespace bowline::detail::vulkan::machine {
namespace {

using Combine = uint32_t (*)(uint32_t, uint32_t);

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
float real(uint32_t x) { return std::bit_cast<float>(x); }
int32_t whole(uint32_t x) { return static_cast<int32_t>(x); }

Combine combines(spv::Op operation) {
  switch (operation) {
    case spv::Op::OpGroupNonUniformIAdd:
      return [](uint32_t a, uint32_t b) { return a + b; };
    case spv::Op::OpGroupNonUniformFAdd:
      return [](uint32_t a, uint32_t b) { return bits(real(a) + real(b)); };
    case spv::Op::OpGroupNonUniformIMul:
      return [](uint32_t a, uint32_t b) { return a * b; };
    case spv::Op::OpGroupNonUniformFMul:
      return [](uint32_t a, uint32_t b) { return bits(real(a) * real(b)); };
    case spv::Op::OpGroupNonUniformSMin:
      return [](uint32_t a, uint32_t b) { return whole(b) < whole(a) ? b : a; };
    case spv::Op::OpGroupNonUniformUMin:
      return [](uint32_t a, uint32_t b) { return std::min(a, b); };
    case spv::Op::OpGroupNonUniformFMin:
      return [](uint32_t a, uint32_t b) { return real(b) < real(a) ? b : a; };
    case spv::Op::OpGroupNonUniformSMax:
      return [](uint32_t a, uint32_t b) { return whole(a) < whole(b) ? b : a; };
    case spv::Op::OpGroupNonUniformUMax:
      return [](uint32_t a, uint32_t b) { return std::max(a, b); };
    case spv::Op::OpGroupNonUniformFMax:
      return [](uint32_t a, uint32_t b) { return real(a) < real(b) ? b : a; };
    case spv::Op::OpGroupNonUniformBitwiseAnd:
    case spv::Op::OpGroupNonUniformLogicalAnd:
      return [](uint32_t a, uint32_t b) { return a & b; };
    case spv::Op::OpGroupNonUniformBitwiseOr:
    case spv::Op::OpGroupNonUniformLogicalOr:
      return [](uint32_t a, uint32_t b) { return a | b; };
    case spv::Op::OpGroupNonUniformBitwiseXor:
      return [](uint32_t a, uint32_t b) { return a ^ b; };
    default:
      return nullptr;
  }
}

// A sum over the lanes before each, up to each, or over all. Halves are combined first, as GPUs do.
void reduce(const Operation& o, Combine combine, std::span<Lane* const> together) {
  const auto kind = static_cast<spv::GroupOperation>(o.c);
  for (uint32_t k = 0; k < o.count; ++k) {
    std::vector<uint32_t> values;
    for (const Lane* const lane : together) {
      values.push_back(lane->registers[o.a + k]);
    }
    if (kind == spv::GroupOperation::Reduce) {
      for (size_t step = std::bit_ceil(values.size()) / 2; step > 0; step /= 2) {
        for (size_t i = 0; i < step && i + step < values.size(); ++i) {
          values[i] = combine(values[i], values[i + step]);
        }
      }
      std::ranges::fill(values, values[0]);
    } else {
      for (size_t i = 1; i < values.size(); ++i) {
        values[i] = combine(values[i - 1], values[i]);
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      together[i]->registers[o.to + k] = values[i];
    }
  }
}

// The lane that a lane reads from.
uint32_t source_of(spv::Op operation, uint32_t own, uint32_t operand) {
  switch (operation) {
    case spv::Op::OpGroupNonUniformShuffleXor:
      return own ^ operand;
    case spv::Op::OpGroupNonUniformShuffleUp:
      return own - operand;
    case spv::Op::OpGroupNonUniformShuffleDown:
      return own + operand;
    default:  // shuffle, broadcast
      return operand;
  }
}

void exchange(const Operation& o, std::span<Lane> lanes, std::span<Lane* const> together) {
  const auto size = static_cast<uint32_t>(lanes.size());
  std::vector<uint32_t> values;
  for (const Lane* const lane : together) {
    const auto own = static_cast<uint32_t>(lane - lanes.data());
    const uint32_t source = source_of(static_cast<spv::Op>(o.code), own, lane->registers[o.b]);
    const bool reads =
        source < size && std::ranges::find(together, &lanes[source]) != together.end();
    for (uint32_t k = 0; k < o.count; ++k) {
      values.push_back(reads ? lanes[source].registers[o.a + k] : kPoison);
    }
  }
  const uint32_t* from = values.data();
  for (Lane* const lane : together) {
    std::copy_n(from, o.count, lane->registers.data() + o.to);
    from += o.count;
  }
}

void ballot(const Operation& o, std::span<Lane> lanes, std::span<Lane* const> together) {
  uint32_t votes[4] = {};
  for (const Lane* const lane : together) {
    const auto own = static_cast<uint32_t>(lane - lanes.data());
    votes[own / 32] |= (lane->registers[o.a] != 0 ? 1u : 0u) << own % 32;
  }
  for (Lane* const lane : together) {
    std::copy_n(votes, 4, lane->registers.data() + o.to);
  }
}

}  // namespace

int compare(const Lane& a, const Lane& b) {
  for (size_t i = 0;; ++i) {
    const uint32_t x = i < a.frames.size() ? a.frames[i].site : a.at;
    const uint32_t y = i < b.frames.size() ? b.frames[i].site : b.at;
    if (x != y) {
      return x < y ? -1 : 1;
    }
    if (i >= a.frames.size() || i >= b.frames.size()) {
      return 0;
    }
  }
}

std::string operate(const Operation& o, std::span<Lane> lanes, std::span<Lane* const> together) {
  const auto code = static_cast<spv::Op>(o.code);
  if (const Combine combine = combines(code); combine != nullptr) {
    if (static_cast<spv::GroupOperation>(o.c) > spv::GroupOperation::InclusiveScan) {
      return "The machine knows only whole and inclusive sums.";
    }
    reduce(o, combine, together);
    return {};
  }
  switch (code) {
    case spv::Op::OpControlBarrier:
      for (Lane* const lane : together) {
        ++lane->moment.subgroup_barriers;
      }
      return together.size() == lanes.size() ? "" : "some lanes of a subgroup miss its barrier";
    case spv::Op::OpGroupNonUniformElect:
      for (Lane* const lane : together) {
        lane->registers[o.to] = lane == together[0] ? 1 : 0;
      }
      return {};
    case spv::Op::OpGroupNonUniformAll:
    case spv::Op::OpGroupNonUniformAny: {
      const auto holds = [&](const Lane* lane) { return lane->registers[o.a] != 0; };
      const bool result = code == spv::Op::OpGroupNonUniformAll
                              ? std::ranges::all_of(together, holds)
                              : std::ranges::any_of(together, holds);
      for (Lane* const lane : together) {
        lane->registers[o.to] = result ? 1 : 0;
      }
      return {};
    }
    case spv::Op::OpGroupNonUniformBallot:
      ballot(o, lanes, together);
      return {};
    case spv::Op::OpGroupNonUniformShuffle:
    case spv::Op::OpGroupNonUniformShuffleXor:
    case spv::Op::OpGroupNonUniformShuffleUp:
    case spv::Op::OpGroupNonUniformShuffleDown:
    case spv::Op::OpGroupNonUniformBroadcast:
      exchange(o, lanes, together);
      return {};
    default:
      return format("The machine does not know operation {}.", o.code);
  }
}

}  // namespace bowline::detail::vulkan::machine
