#include <cmath>
#include <cstring>
#include <numbers>

#include "base/random.h"
#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

// Separates these random numbers from those of Dropout, whose counters have small second words.
constexpr uint32_t kStream = 0x494E4954;

// A number in (0, 1) from 32 random bits.
double unit(uint32_t bits) { return (bits + 0.5) / 4294967296.0; }

// Elements 4 * block ... 4 * block + 3 of a row. Normal: Box and Muller, "A Note on the Generation
// of Random Normal Deviates", 1958.
std::array<float, 4> draw(const Init& init, uint64_t seed, uint32_t tie, uint64_t block) {
  const RandomBlock bits =
      philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), tie, kStream},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  std::array<float, 4> out;
  for (size_t i = 0; i < 4; i += 2) {
    double a = 2 * unit(bits[i]) - 1;
    double b = 2 * unit(bits[i + 1]) - 1;
    if (init.kind == Init::Kind::normal) {
      const double radius = std::sqrt(-2 * std::log(unit(bits[i])));
      const double angle = 2 * std::numbers::pi * unit(bits[i + 1]);
      a = radius * std::cos(angle);
      b = radius * std::sin(angle);
    }
    out[i] = static_cast<float>(a * static_cast<double>(init.scale));
    out[i + 1] = static_cast<float>(b * static_cast<double>(init.scale));
  }
  return out;
}

}  // namespace

Result<std::vector<std::byte>> initial_bytes(const Storage& storage, uint64_t seed, uint32_t tie) {
  BOWLINE_REQUIRE_CODE(storage.encoding.is_plain(), Code::unsupported,
                       "Storage {} is stored as {} and cannot be initialised. Call load() instead.",
                       tie, storage.encoding);
  BOWLINE_TRY(require_host_memory(storage.bytes()));
  std::vector<std::byte> bytes(storage.bytes());
  if (storage.init.kind == Init::Kind::zeros) {
    return bytes;
  }
  BOWLINE_REQUIRE_CODE(is_float(storage.dtype), Code::unsupported,
                       "Only floats can be initialised to ones or random values, not {}.",
                       storage.dtype);
  const size_t element = size_of(storage.dtype);
  const size_t n = bytes.size() / element;
  std::array<float, 4> block = {1, 1, 1, 1};
  for (size_t i = 0; i < n; i += 4) {
    if (storage.init.kind != Init::Kind::ones) {
      block = draw(storage.init, seed, tie, i / 4);
    }
    const std::span some(bytes.data() + i * element, std::min<size_t>(4, n - i) * element);
    convert_floats(std::as_bytes(std::span(block)), DType::f32, some, storage.dtype);
  }
  return bytes;
}

Status materialize(Table& table, uint64_t seed, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "materialize()"));
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    if (table.storages[tie].empty || table.storages[tie].home.valid()) {
      continue;
    }
    Storage& storage = stage.storage(tie);
    const auto made = [&]() -> Result<Home> {
      BOWLINE_TRY_ASSIGN(const std::vector<std::byte> bytes, initial_bytes(storage, seed, tie));
      return make_home(table.device(), bytes);
    };
    BOWLINE_TRY_ASSIGN(Home home,
                       in_context(made(), format("While initialising storage {}.", tie)));
    install(storage, std::move(home));
  }
  stage.commit();
  return {};
}

}  // namespace bowline::detail::params
