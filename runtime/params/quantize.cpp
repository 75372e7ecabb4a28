#include "core/encoding_check.h"
#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// The reason why a storage cannot be quantized, regardless of its readers, or "".
std::string why_it_stays(const Table& table, uint32_t tie, const Encoding& encoding) {
  const Storage& row = table.storages[tie];
  if (row.role != Role::weight && row.role != Role::constant) {
    return format("is a {}", name_of(row.role));
  }
  if (row.shape.rank() < 2) {
    return format("has rank {}", row.shape.rank());
  }
  if (const Status fits = encoding.check(row.dtype, row.shape); !fits.ok()) {
    return format("does not fit: {}", fits.message());
  }
  for (const uint32_t user : sorted(table.users(tie))) {
    const ParameterRow& p = table.parameters[user];
    if (const Status fits = encoding.check_view(p.view, row.shape); !fits.ok()) {
      return format("is viewed by \"{}\": {}", p.name, fits.message());
    }
  }
  const uint64_t bytes = encoding.bytes(row.dtype, row.shape);
  return bytes < row.bytes() ? std::string()
                             : format("would have {} bytes instead of {}", bytes, row.bytes());
}

void restate(Storage& row, const Encoding& encoding, DType dtype) {
  row.encoding = encoding;
  row.dtype = dtype;
  row.trainable = false;
}

// A storage with its new encoding, and its new bytes if it has values.
struct Recoded {
  Storage row;
  Home home;
};

// Changes the encoding of storages. The storages of one list of a Repeat change together or not at
// all.
class Recoding {
 public:
  Recoding(Stage& stage, const std::vector<std::vector<uint32_t>>& alike) : stage_(stage) {
    for (const std::vector<uint32_t>& ties : alike) {
      for (const uint32_t tie : ties) {
        lists_[tie].push_back(&ties);
      }
    }
  }

  // Makes the new bytes; the storage keeps its own until apply(). A storage whose values the
  // encoding cannot hold stays as it is.
  Status recode(const Chosen& entry, const Encoding& encoding, DType dtype) {
    const Storage& row = stage_.current(entry.tie);
    Recoded made{row, {}};
    restate(made.row, encoding, dtype);
    if (row.home.valid()) {
      BOWLINE_TRY_ASSIGN(const std::vector<float> numbers, decoded(row));
      const uint64_t size = made.row.bytes();
      BOWLINE_TRY(require_host_memory(size));
      std::vector<std::byte> bytes(size);
      encoding.encode(numbers, dtype, row.shape, bytes);
      const Status fits = check_encoded(encoding, numbers, bytes, dtype, row.shape);
      if (!fits.ok()) {
        keep(entry,
             format("has values that {} cannot hold: {}",
                    encoding.is_plain() ? std::string(name_of(dtype)) : format("{}", encoding),
                    fits.message()));
        return {};
      }
      BOWLINE_TRY_ASSIGN(made.home, make_home_like(made.row, bytes));
    }
    made_.emplace_back(entry, std::move(made));
    return {};
  }

  // Reports why a storage stays. The other storages of its lists stay too.
  void keep(const Chosen& entry, const std::string& why) {
    report.kept.push_back(format("\"{}\" {}", entry.name, why));
    keep_lists_of(entry);
  }

  void apply() {
    drop_lists();
    for (auto& [entry, made] : made_) {
      Storage& row = stage_.storage(entry.tie);
      report.bytes_before += row.bytes();
      restate(row, made.row.encoding, made.row.dtype);
      if (made.home.valid()) {
        install(row, std::move(made.home));
      } else {
        ++row.generation;
      }
      report.bytes_after += row.bytes();
      ++report.storages;
      for (const uint32_t owned : stage_.owned_by(entry.tie)) {
        const Storage& gone = stage_.current(owned);
        report.dropped.push_back({owned, gone.role, gone.bytes()});
        stage_.make_empty(owned);
      }
    }
  }

  QuantizeReport report;

 private:
  using Lists = std::vector<const std::vector<uint32_t>*>;

  void keep_lists_of(const Chosen& entry) {
    const auto lists = lists_.find(entry.tie);
    for (const std::vector<uint32_t>* list : lists == lists_.end() ? Lists() : lists->second) {
      for (const uint32_t tie : *list) {
        stays_beside_.try_emplace(tie, entry.name);
      }
    }
  }

  // Repeats until no list has both storages that stay and storages that change.
  void drop_lists() {
    for (bool changes = true; changes;) {
      changes = std::erase_if(made_, [&](const auto& made) {
                  const Chosen& entry = made.first;
                  const auto beside = stays_beside_.find(entry.tie);
                  if (beside == stays_beside_.end()) {
                    return false;
                  }
                  keep(entry, format("is in the same list of a Repeat as \"{}\", which is kept",
                                     beside->second));
                  return true;
                }) > 0;
    }
  }

  Stage& stage_;
  std::map<uint32_t, Lists> lists_;  // by tie
  std::map<uint32_t, std::string_view> stays_beside_;
  std::vector<std::pair<Chosen, Recoded>> made_;
};

// Checks that the device has room for all new bytes before any are made. `size(tie)` returns the
// new bytes of a storage.
template <class Size>
Status require_room(const Table& table, std::span<const Chosen> storages, const Size& size) {
  const std::shared_ptr<device::OpenDevice>& device = table.device();
  device::Demand demand;
  for (const auto& [tie, name] : storages) {
    const Storage& row = table.storages[tie];
    if (row.home.block && row.home.block->device_handle() == device) {
      demand.add(size(tie), device::MemoryKind::device);
    }
  }
  return device ? device->require_room(demand).at("While reserving memory for the storages.")
                : Status();
}

}  // namespace

Result<QuantizeReport> quantize(Table& table, const EncodingChoice& choice,
                                std::string_view pattern,
                                const std::map<uint32_t, std::string>& plain,
                                const std::vector<std::vector<uint32_t>>& alike, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "quantize()"));
  BOWLINE_TRY_ASSIGN(std::vector<Chosen> storages, chosen(table, pattern));
  Recoding recoding(stage, alike);
  Status failed;
  std::erase_if(storages, [&](const Chosen& entry) {
    const Storage& row = table.storages[entry.tie];
    const Encoding wanted = choice.of(table, entry.tie);
    if (!row.encoding.is_plain() && row.role != Role::kv_cache) {
      if (row.encoding != wanted && failed.ok()) {
        failed = Status(Code::bad_argument,
                        format("\"{}\" is stored as {}, not {}; call dequantize() first.",
                               entry.name, row.encoding, wanted));
      }
      return true;
    }
    std::string why = why_it_stays(table, entry.tie, wanted);
    if (const auto reader = plain.find(entry.tie); why.empty() && reader != plain.end()) {
      why = reader->second;
    }
    if (!why.empty()) {
      recoding.keep(entry, why);
    }
    return !why.empty();
  });
  BOWLINE_TRY(std::move(failed));
  BOWLINE_TRY(require_room(table, storages, [&](uint32_t tie) {
    const Storage& row = table.storages[tie];
    return choice.of(table, tie).bytes(row.dtype, row.shape);
  }));
  for (const Chosen& entry : storages) {
    const Storage& row = table.storages[entry.tie];
    BOWLINE_TRY(recoding.recode(entry, choice.of(table, entry.tie), row.dtype)
                    .at(format("While quantizing storage {} (\"{}\").", entry.tie, entry.name)));
  }
  recoding.apply();
  if (recoding.report.storages > 0) {
    stage.counters().quantized += recoding.report.storages;
    stage.commit();
  }
  return std::move(recoding.report);
}

Result<QuantizeReport> dequantize(Table& table, DType to, std::string_view pattern,
                                  const std::vector<std::vector<uint32_t>>& alike, int busy) {
  BOWLINE_REQUIRE(is_float(to), "dequantize() converts to f32, f16 or bf16, not to {}.", to);
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "dequantize()"));
  BOWLINE_TRY_ASSIGN(std::vector<Chosen> storages, chosen(table, pattern));
  std::erase_if(storages,
                [&](const Chosen& entry) { return table.storages[entry.tie].encoding.is_plain(); });
  BOWLINE_TRY(require_room(table, storages, [&](uint32_t tie) {
    return Encoding().bytes(to, table.storages[tie].shape);
  }));
  Recoding recoding(stage, alike);
  for (const Chosen& entry : storages) {
    BOWLINE_TRY(recoding.recode(entry, {}, to)
                    .at(format("While dequantizing storage {} (\"{}\").", entry.tie, entry.name)));
  }
  recoding.apply();
  if (recoding.report.storages > 0) {
    stage.counters().dequantized += recoding.report.storages;
    stage.commit();
  }
  return std::move(recoding.report);
}

}  // namespace bowline::detail::params
