#include <algorithm>
#include <iterator>

#include "stream.h"

namespace bowline::detail::vulkan {
namespace {

using device::Operand;
using device::Program;
using device::Record;

void barrier(uint32_t record, CommandList* list) {
  Command command;
  command.kind = Command::Kind::barrier;
  command.record = record;
  list->commands.push_back(command);
}

Status check_operand(const Program& program, size_t slots, const Operand& operand, uint32_t count,
                     bool in_repeat) {
  if (operand.table == device::kNoTable) {
    BOWLINE_REQUIRE(operand.slot < slots, "Operand names slot {} of {}.", operand.slot, slots);
    return {};
  }
  BOWLINE_REQUIRE(operand.table < program.tables.size(), "Operand names table {} of {}.",
                  operand.table, program.tables.size());
  const auto& entries = program.tables[operand.table].entries;
  BOWLINE_REQUIRE(!in_repeat || entries.size() >= count,
                  "Table {} has {} entries for {} iterations.", operand.table, entries.size(),
                  count);
  for (const device::TableEntry& entry : entries) {
    BOWLINE_REQUIRE(entry.slot < slots, "Table {} names slot {} of {}.", operand.table, entry.slot,
                    slots);
  }
  return {};
}

Status check_record(const Program& program, size_t slots, const Record& record, uint32_t count,
                    bool in_repeat) {
  const int index = index_of(record.op);
  BOWLINE_REQUIRE(record.op != Op::Invalid && index >= 0 && index < kOps,
                  "Record has no operator.");
  BOWLINE_TRY(device::require_kernel<Kernel>(kKernels, kBackendName, record));
  for (const Operand& operand : record.inputs) {
    BOWLINE_TRY(check_operand(program, slots, operand, count, in_repeat));
  }
  for (const Operand& operand : record.outputs) {
    BOWLINE_TRY(check_operand(program, slots, operand, count, in_repeat));
  }
  return check_operand(program, slots, record.workspace, count, in_repeat);
}

class Lowering {
 public:
  Lowering(const PhysicalDevice& physical, const Program& program,
           std::span<const Buffer* const> slots, CommandList* list)
      : physical_(physical), program_(program), slots_(slots), list_(list) {}

  Status run() {
    const auto size = static_cast<uint32_t>(program_.records.size());
    for (uint32_t r = 0; r < size;) {
      const Record& record = program_.records[r];
      if (record.kind == Record::Kind::op) {
        const uint32_t end = end_of_straight(r);
        BOWLINE_TRY(straight(r, end, 1, false, 0));
        r = end;
        continue;
      }
      BOWLINE_REQUIRE(record.kind == Record::Kind::repeat_begin,
                      "Record {} ends a Repeat without a start.", r);
      const uint32_t end = end_of_straight(r + 1);
      BOWLINE_REQUIRE(end < size && program_.records[end].kind == Record::Kind::repeat_end,
                      "The Repeat of record {} does not end.", r);
      for (uint32_t i = 0; i < record.count; ++i) {
        BOWLINE_TRY(
            straight(r + 1, end, record.count, true, record.reverse ? record.count - 1 - i : i));
      }
      r = end + 1;
    }
    return {};
  }

 private:
  uint32_t end_of_straight(uint32_t r) const {
    while (r < program_.records.size() && program_.records[r].kind == Record::Kind::op) {
      ++r;
    }
    return r;
  }

  // Lowers records [begin, end) level by level, with a barrier before each level.
  Status straight(uint32_t begin, uint32_t end, uint32_t count, bool in_repeat,
                  uint32_t iteration) {
    std::vector<uint32_t> order;
    for (uint32_t r = begin; r < end; ++r) {
      order.push_back(r);
      BOWLINE_TRY(check_record(program_, slots_.size(), program_.records[r], count, in_repeat));
    }
    std::stable_sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      return program_.records[a].level < program_.records[b].level;
    });
    const Record* last = nullptr;
    size_t level = list_->commands.size();
    for (const uint32_t r : order) {
      const Record& record = program_.records[r];
      if (last == nullptr || last->level != record.level) {
        join_stages(level);
        barrier(r, list_);
        level = list_->commands.size();
      }
      last = &record;
      const size_t first = list_->commands.size();
      list_->bound.clear();
      Launch launch(physical_, program_, slots_, r, in_repeat, iteration, list_);
      device::find_kernel<Kernel>(kKernels, record.op, record.type)->launch(launch);
      BOWLINE_TRY(Status(list_->status));
      if (!physical_.has_buffer_addresses) {
        take_bound(first);
      }
    }
    join_stages(level);
    return {};
  }

  // Kernels with several dependent dispatches have barriers between them. The commands from `first`
  // on belong to records that do not depend on each other, so the records share these barriers: the
  // first dispatches of all records come first, then a barrier, then the second dispatches.
  void join_stages(size_t first) {
    const auto level = std::span(list_->commands).subspan(first);
    if (std::ranges::any_of(level, &Command::runs_alone)) {
      return;
    }
    std::vector<std::vector<Command>> stages(1);
    size_t stage = 0;
    for (size_t i = 0; i < level.size(); ++i) {
      stage = i > 0 && level[i].record != level[i - 1].record ? 0 : stage;
      if (level[i].kind == Command::Kind::barrier) {
        ++stage;
        continue;
      }
      stages.resize(std::max(stages.size(), stage + 1));
      stages[stage].push_back(std::move(level[i]));
    }
    list_->commands.resize(first);
    for (std::vector<Command>& commands : stages) {
      if (!commands.empty() && list_->commands.size() > first) {
        barrier(commands.front().record, list_);
      }
      std::ranges::move(commands, std::back_inserter(list_->commands));
    }
  }

  // The commands from `first` on use the bound buffers.
  void take_bound(size_t first) {
    std::vector<BoundBuffers>& sets = list_->sets;
    if (list_->bound.empty()) {
      return;
    }
    const auto found = std::ranges::find(sets, list_->bound);
    const auto number = static_cast<uint32_t>(found - sets.begin());
    if (found == sets.end()) {
      sets.push_back(list_->bound);
    }
    for (size_t i = first; i < list_->commands.size(); ++i) {
      list_->commands[i].set = number;
    }
  }

  const PhysicalDevice& physical_;
  const Program& program_;
  std::span<const Buffer* const> slots_;
  CommandList* list_;
};

}  // namespace

Status lower(const PhysicalDevice& physical, const Program& program,
             std::span<const Buffer* const> slots, CommandList* list) {
  return Lowering(physical, program, slots, list).run();
}

}  // namespace bowline::detail::vulkan
