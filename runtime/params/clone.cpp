#include "params/verbs.h"

namespace bowline::params {

// Host memory and files are never written in place (a write makes new bytes), so only device blocks
// are copied.
Result<Table> clone(const Table& table) {
  Table out = table;
  out.shrink(table.used_rows(), table.parameters.size());
  drop_training(out);
  for (uint32_t tie = 0; tie < out.storages.size(); ++tie) {
    const device::Block* from = table.storages[tie].home.block.get();
    if (from == nullptr || out.storages[tie].empty) {
      continue;
    }
    const std::string place = format("While copying storage {}.", tie);
    Result<std::shared_ptr<device::Block>> block =
        device::Block::allocate(from->device_handle(), from->bytes(), device::MemoryKind::device);
    BOWLINE_TRY(std::move(block).status().at(place));
    BOWLINE_TRY(block.value()->copy(0, *from, 0, from->bytes()).at(place));
    Home home;
    home.block = std::move(block).value();
    out.set_home(tie, std::move(home));
  }
  return out;
}

}  // namespace bowline::params
