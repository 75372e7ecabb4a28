#include "params/chosen.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

using Floats = std::vector<float>;

// Why a storage cannot be codes whoever reads it, or nothing.
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
      return format("is shown by \"{}\": {}", p.name, fits.message());
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

// Gives the row these numbers in another encoding.
Status replace(Storage& row, const Floats& numbers, const Encoding& encoding, DType dtype) {
  const uint64_t size = encoding.bytes(dtype, row.shape);
  BOWLINE_TRY(require_host_memory(size));
  std::vector<std::byte> bytes(size);
  encoding.encode(numbers, dtype, row.shape, bytes);
  restate(row, encoding, dtype);
  BOWLINE_ASSIGN(Home home, make_home_like(row, bytes));
  install(row, std::move(home));
  return {};
}

Result<Floats> numbers_of(const Storage& row) {
  const auto elements = static_cast<uint64_t>(row.shape.elements());
  BOWLINE_TRY(require_host_memory(elements * sizeof(float)));
  std::vector<std::byte> scratch;
  BOWLINE_ASSIGN(const Bytes bytes, read_all(row, scratch));
  Floats out(elements);
  row.encoding.decode(bytes, row.dtype, row.shape, {0, row.shape.elements()}, out);
  return out;
}

class Recoding {
 public:
  explicit Recoding(Stage& stage) : stage_(stage) {}

  // With what it says in its report; masters and moments belong to the numbers that the storage had.
  Status recode(uint32_t tie, const Encoding& encoding, DType dtype) {
    Storage& row = stage_.storage(tie);
    report.bytes_before += row.bytes();
    if (row.home.valid()) {
      BOWLINE_ASSIGN(const Floats numbers, numbers_of(row));
      BOWLINE_TRY(replace(row, numbers, encoding, dtype));
    } else {
      restate(row, encoding, dtype);
      ++row.generation;
    }
    report.bytes_after += row.bytes();
    ++report.storages;
    for (const uint32_t owned : stage_.owned_by(tie)) {
      const Storage& gone = stage_.current(owned);
      report.dropped.push_back({owned, gone.role, gone.bytes()});
      stage_.make_empty(owned);
    }
    return {};
  }

  QuantizeReport report;

 private:
  Stage& stage_;
};

// Room on the device for what is made, before anything is.
Status require_room(const Table& table, std::span<const Chosen> storages, const Encoding& encoding,
                    std::optional<DType> dtype) {
  const std::shared_ptr<device::OpenDevice>& device = table.device();
  device::Demand demand;
  for (const auto& [tie, name] : storages) {
    const Storage& row = table.storages[tie];
    if (row.home.block && row.home.block->device_handle() == device) {
      demand.add(encoding.for_shape(row.shape).bytes(dtype.value_or(row.dtype), row.shape),
                 device::MemoryKind::device);
    }
  }
  return device ? device->require_room(demand).at("While making room for the storages.") : Status();
}

}  // namespace

Result<QuantizeReport> quantize(Table& table, const Encoding& encoding, std::string_view pattern,
                                const std::map<uint32_t, std::string>& plain, int busy) {
  BOWLINE_REQUIRE(!encoding.is_plain(), "quantize() makes codes; dequantize() makes numbers.");
  BOWLINE_ASSIGN(Stage stage, Stage::begin(table, busy, "quantize()"));
  BOWLINE_ASSIGN(std::vector<Chosen> storages, chosen(table, pattern));
  Recoding recoding(stage);
  Status failed;
  std::erase_if(storages, [&](const Chosen& entry) {
    const Storage& row = table.storages[entry.tie];
    const Encoding wanted = encoding.for_shape(row.shape);
    if (!row.encoding.is_plain() && row.role != Role::kv_cache) {
      if (row.encoding != wanted && failed.ok()) {
        failed = Status(Code::bad_argument,
                        format("\"{}\" is stored as {}, not {}; dequantize() gives it numbers.",
                               entry.name, row.encoding, wanted));
      }
      return true;
    }
    std::string why = why_it_stays(table, entry.tie, wanted);
    if (const auto reader = plain.find(entry.tie); why.empty() && reader != plain.end()) {
      why = reader->second;
    }
    if (!why.empty()) {
      recoding.report.kept.push_back(format("\"{}\" {}", entry.name, why));
    }
    return !why.empty();
  });
  BOWLINE_TRY(std::move(failed));
  BOWLINE_TRY(require_room(table, storages, encoding, {}));
  for (const auto& [tie, name] : storages) {
    const Storage& row = table.storages[tie];
    BOWLINE_TRY(recoding.recode(tie, encoding.for_shape(row.shape), row.dtype)
                    .at(format("While quantizing storage {} (\"{}\").", tie, name)));
  }
  if (recoding.report.storages > 0) {
    stage.counters().quantized += recoding.report.storages;
    stage.commit();
  }
  return std::move(recoding.report);
}

Result<QuantizeReport> dequantize(Table& table, DType to, std::string_view pattern, int busy) {
  BOWLINE_REQUIRE(is_float(to), "dequantize() makes f32, f16 or bf16 of codes, not {}.", to);
  BOWLINE_ASSIGN(Stage stage, Stage::begin(table, busy, "dequantize()"));
  BOWLINE_ASSIGN(std::vector<Chosen> storages, chosen(table, pattern));
  std::erase_if(storages,
                [&](const Chosen& entry) { return table.storages[entry.tie].encoding.is_plain(); });
  BOWLINE_TRY(require_room(table, storages, {}, to));
  Recoding recoding(stage);
  for (const auto& [tie, name] : storages) {
    BOWLINE_TRY(recoding.recode(tie, {}, to)
                    .at(format("While dequantizing storage {} (\"{}\").", tie, name)));
  }
  if (recoding.report.storages > 0) {
    stage.counters().dequantized += recoding.report.storages;
    stage.commit();
  }
  return std::move(recoding.report);
}

}  // namespace bowline::detail::params
