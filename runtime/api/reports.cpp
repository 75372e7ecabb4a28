// Reports as text.
#include "base/format.h"
#include "bowline/quantize.h"

namespace bowline {
namespace {

std::string text_of(const std::vector<DroppedStorage>& dropped) {
  std::string out;
  for (const DroppedStorage& d : dropped) {
    out += format("dropped storage {} ({}, {} bytes)\n", d.storage, name_of(d.role), d.bytes);
  }
  return out;
}

}  // namespace

std::string TieReport::text() const {
  std::string out;
  for (const Tie& t : ties) {
    out += format("tied \"{}\" to \"{}\"\n", t.parameter, t.to);
  }
  return out + text_of(dropped);
}

std::string QuantizeReport::text() const {
  std::string out = format("{} storage{} converted: {} bytes before, {} after\n", storages,
                           storages == 1 ? "" : "s", bytes_before, bytes_after);
  for (const std::string& k : kept) {
    out += format("kept {}\n", k);
  }
  return out + text_of(dropped);
}

}  // namespace bowline
