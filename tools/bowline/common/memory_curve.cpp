#include "common/memory_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/page.h"
#include "common/plot.h"
#include "common/report.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

constexpr size_t kMostRecords = size_t{1} << 18;   // that are executed
constexpr uint64_t kMostWork = uint64_t{1} << 26;  // accesses to pieces of the arena
constexpr size_t kMostPoints = 1200;               // of a plot

struct Touch {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t record = 0;
  bool write = false;
};

// Follows the records of a segment in the order in which they run.
class Walk {
 public:
  Walk(const SegmentInfo& segment, MemoryCurve& curve)
      : s_(segment), curve_(curve), first_(curve.node.size()) {}

  // Returns false if there are too many records or accesses.
  bool run() {
    struct Loop {
      size_t begin;  // its repeat_begin
      uint32_t done = 0;
    };
    std::vector<Loop> loops;
    size_t steps = first_;
    for (size_t i = 0; i < s_.records.size(); ++i) {
      if (++steps > kMostRecords) {
        return false;
      }
      const RecordInfo& r = s_.records[i];
      if (r.kind == RecordInfo::Kind::repeat_begin) {
        loops.push_back({i});
      } else if (r.kind == RecordInfo::Kind::op) {
        const RecordInfo* const loop = loops.empty() ? nullptr : &s_.records[loops.back().begin];
        const uint32_t done = loops.empty() ? 0 : loops.back().done;
        record(r, loop != nullptr && loop->reverse ? loop->count - 1 - done : done);
      } else if (++loops.back().done < s_.records[loops.back().begin].count) {
        i = loops.back().begin;
      } else {
        loops.pop_back();
      }
    }
    return add_live();
  }

 private:
  void record(const RecordInfo& r, uint32_t iteration) {
    const auto number = numbers_.try_emplace(r.node, static_cast<uint32_t>(curve_.nodes.size()));
    if (number.second) {
      curve_.nodes.push_back(r.node);
    }
    for (const OperandInfo& o : r.inputs) {
      touch(o, iteration, false);
    }
    for (const OperandInfo& o : r.outputs) {
      touch(o, iteration, true);
    }
    if (r.workspace) {
      touch(*r.workspace, iteration, true);
    }
    curve_.node.push_back(number.first->second);
  }

  void touch(const OperandInfo& o, uint32_t iteration, bool write) {
    uint64_t offset = o.offset;
    uint64_t bytes = o.bytes;
    OperandInfo::Slot slot = o.slot;
    if (o.slot == OperandInfo::Slot::table) {
      const std::vector<TableEntryInfo>& entries = s_.tables[o.number];
      const TableEntryInfo& entry = entries[iteration % entries.size()];
      slot = entry.slot;
      offset = entry.offset;
      bytes = entry.elements * size_of(o.dtype);
    } else if (o.modulo != 0) {
      offset += (iteration + o.shift) % o.modulo * o.step_bytes;
    }
    if (slot == OperandInfo::Slot::arena && bytes != 0) {
      touches_.push_back(
          {offset, offset + bytes, static_cast<uint32_t>(curve_.node.size()), write});
    }
  }

  // Splits the arena at the bounds of all operands. Each piece is live from a write to the last
  // read before the next write.
  bool add_live() {
    std::vector<uint64_t> cuts;
    for (const Touch& t : touches_) {
      cuts.push_back(t.begin);
      cuts.push_back(t.end);
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    pieces_.assign(cuts.size(), {});
    changes_.assign(curve_.node.size() - first_ + 1, 0);
    uint64_t work = 0;
    for (const Touch& t : touches_) {
      const auto begin = std::ranges::lower_bound(cuts, t.begin) - cuts.begin();
      for (auto i = static_cast<size_t>(begin); cuts[i] < t.end; ++i) {
        if (++work > kMostWork) {
          return false;
        }
        touch_piece(pieces_[i], cuts[i + 1] - cuts[i], t);
      }
    }
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      close(pieces_[i], cuts[i + 1] - cuts[i]);
    }
    int64_t sum = 0;
    for (size_t i = first_; i < curve_.node.size(); ++i) {
      sum += changes_[i - first_];
      curve_.live.push_back(static_cast<uint64_t>(sum));
    }
    return true;
  }

  struct Piece {
    bool open = false;
    uint32_t first = 0;
    uint32_t last = 0;
  };

  void touch_piece(Piece& piece, uint64_t bytes, const Touch& t) {
    const bool anew = t.write && piece.open && piece.first < t.record;
    if (anew) {
      // If a record reads and overwrites a piece, the piece counts once for this record.
      piece.last -= piece.last == t.record ? 1 : 0;
      close(piece, bytes);
    }
    if (!piece.open) {
      piece = {true, t.record, t.record};
    }
    piece.last = t.record;
  }

  void close(Piece& piece, uint64_t bytes) {
    if (piece.open) {
      changes_[piece.first - first_] += static_cast<int64_t>(bytes);
      changes_[piece.last + 1 - first_] -= static_cast<int64_t>(bytes);
    }
    piece.open = false;
  }

  const SegmentInfo& s_;
  MemoryCurve& curve_;
  size_t first_;  // its first record in the curve
  std::map<std::string, uint32_t> numbers_;
  std::vector<Touch> touches_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> changes_;  // change of the live bytes at each record
};

std::string group_of(StorageRole role) {
  switch (role) {
    case StorageRole::adapter_a:
    case StorageRole::adapter_b:
      return "adapters";
    case StorageRole::kv_cache:
      return "cache";
    case StorageRole::gradient:
      return "gradients";
    case StorageRole::moment:
      return "moments";
    case StorageRole::master:
      return "masters";
    default:
      return "weights";
  }
}

std::string bar(const MemoryReport& m, const ModelInfo& model) {
  std::map<std::string, uint64_t> sizes;
  uint64_t counted = 0;
  for (const StorageInfo& s : model.storages) {
    if (!s.empty) {
      sizes[group_of(s.role)] += s.bytes;
      counted += s.bytes;
    }
  }
  if (counted > m.storage_bytes) {  // some are in other memory
    sizes = {{"storages", m.storage_bytes}};
  } else {
    sizes["other storages"] = m.storage_bytes - counted;
  }
  sizes["copies of storages"] = m.copy_bytes;
  sizes["activations"] = m.arena_bytes;
  sizes["inputs and outputs"] = m.io_bytes;
  sizes["backend"] = m.backend_bytes + m.staging_bytes;
  std::vector<BarPart> parts;
  for (const auto& [name, bytes] : sizes) {
    if (bytes != 0) {
      parts.push_back({name, static_cast<double>(bytes), bytes_text(bytes)});
    }
  }
  return bar_html(fmt::format("Memory on the device: {} predicted", bytes_text(m.predicted_bytes)),
                  parts);
}

// Returns the largest value of each stretch of records, at its record.
std::vector<PlotPoint> points_of(const MemoryCurve& curve) {
  const size_t count = curve.live.size();
  const size_t stretch = (count + kMostPoints - 1) / kMostPoints;
  std::vector<PlotPoint> points;
  for (size_t begin = 0; begin < count; begin += stretch) {
    const auto first = curve.live.begin() + static_cast<ptrdiff_t>(begin);
    const auto end = curve.live.begin() + static_cast<ptrdiff_t>(std::min(count, begin + stretch));
    const auto largest = std::max_element(first, end);
    points.push_back(
        {static_cast<double>(largest - curve.live.begin() + 1), static_cast<double>(*largest)});
  }
  return points;
}

std::string short_name(const std::string& text) {
  const std::string_view begin = begin_of(text, 60);
  return std::string(begin) + (begin.size() == text.size() ? "" : "...");
}

}  // namespace

std::optional<MemoryCurve> memory_curve(const PlanInfo& plan,
                                        const std::vector<std::string_view>& segments) {
  MemoryCurve curve;
  for (const std::string_view name : segments) {
    const auto segment = std::ranges::find(plan.segments, name, &SegmentInfo::name);
    if (segment == plan.segments.end()) {
      continue;
    }
    curve.parts.push_back({segment->name, curve.node.size()});
    if (!Walk(*segment, curve).run()) {
      return {};
    }
  }
  if (!curve.live.empty()) {
    curve.peak = static_cast<size_t>(std::ranges::max_element(curve.live) - curve.live.begin());
  }
  return curve;
}

std::string memory_html(const std::string& id, const std::string& of, const MemoryReport& memory,
                        const ModelInfo& model, const std::optional<MemoryCurve>& curve) {
  std::string out = bar(memory, model);
  if (!curve) {
    return out + paragraph_html("The plan has too many records for a curve.");
  }
  if (curve->live.empty()) {
    return out;
  }
  const MemoryCurve& c = *curve;
  const auto text = [](double y) { return bytes_text(static_cast<uint64_t>(y)); };
  const auto peak = static_cast<double>(c.live[c.peak]);
  out += plot_html(
      {.id = id,
       .title = fmt::format("Activations over {}", of),
       .unit = "live bytes of the arena",
       .x_name = "record",
       .series = {{"live", PlotStyle::area, points_of(c)}},
       .from_zero = true,
       .binary = true,
       .peak = {{static_cast<double>(c.peak + 1), peak, short_name(c.node_at(c.peak))}},
       .limit = {{0, static_cast<double>(memory.arena_bytes),
                  fmt::format("arena, {}", bytes_text(memory.arena_bytes))}},
       .x_detail = [&](double x) { return short_name(c.node_at(static_cast<size_t>(x) - 1)); },
       .y_text = text});
  std::string parts;
  for (size_t i = 0; i < c.parts.size() && c.parts.size() > 1; ++i) {
    const size_t end = i + 1 < c.parts.size() ? c.parts[i + 1].begin : c.live.size();
    parts += fmt::format(" Records {} to {} belong to \"{}\".", grouped(c.parts[i].begin + 1),
                         grouped(end), c.parts[i].segment);
  }
  return out + paragraph_html(fmt::format("Peak: {} at record {} of {}, {}.{}", text(peak),
                                          grouped(c.peak + 1), grouped(c.live.size()),
                                          c.node_at(c.peak), parts));
}

}  // namespace bowline::command
