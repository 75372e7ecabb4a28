// Verbs succeed completely or change nothing: for every verb the n-th device call fails, n = 1, 2,
// ..., until the verb succeeds.
#include <gtest/gtest.h>

#include "params/table_fixture.h"
#include "params/weight_format.h"

namespace bowline {
namespace {

using params::Table;
using test::Fault;
using test::make_table;
using test::state_of;
using Floats = std::vector<float>;

// Returns the number of calls that the verb makes without failures.
template <class Make, class Verb>
int expect_all_or_nothing(const Make& make, const Verb& verb) {
  for (const Code code : {Code::out_of_memory, Code::device_lost}) {
    for (int n = 1;; ++n) {
      const auto fault = std::make_shared<Fault>();
      Table t = make(fault);
      const std::string before = state_of(t);
      fault->arm(n, code);
      const Status status = verb(t, fault);
      const bool fired = fault->fired();
      const int calls = fault->calls;
      fault->disarm();
      if (!fired) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_NE(state_of(t), before) << "the verb did something";
        if (code == Code::device_lost) {
          return calls;
        }
        break;
      }
      EXPECT_EQ(status.code(), code) << "call " << n << ": " << status.message();
      EXPECT_EQ(state_of(t), before) << "call " << n;
    }
  }
  return 0;
}

Table on_device(const std::shared_ptr<Fault>& fault) {
  return make_table(test::faulty_device(fault));
}

TEST(AllOrNothing, Move) {
  const int calls =
      expect_all_or_nothing([](const auto&) { return make_table(); },
                            [](Table& t, const auto& fault) {
                              return params::move(t, test::faulty_device(fault), 0).status();
                            });
  EXPECT_EQ(calls, 8) << "rows of training without a trainer stay";
  EXPECT_EQ(
      expect_all_or_nothing(
          on_device, [](Table& t, const auto&) { return params::move(t, nullptr, 0).status(); }),
      5);
  EXPECT_EQ(expect_all_or_nothing(on_device,
                                  [](Table& t, const auto& fault) {
                                    return params::move(t, test::faulty_device(fault), 0).status();
                                  }),
            15);
}

TEST(AllOrNothing, ReplicateAndShard) {
  EXPECT_GE(expect_all_or_nothing(
                [](const auto&) { return make_table(); },
                [](Table& t, const auto& fault) {
                  return params::replicate(t, test::faulty_device(fault), "*", 0).status();
                }),
            4);
  const auto shard = [](Table& t, const auto& fault) {
    const std::shared_ptr<device::OpenDevice> both[] = {test::faulty_device(fault),
                                                        test::faulty_device(fault)};
    return params::shard(t, both, "*", 0).status();
  };
  EXPECT_GE(expect_all_or_nothing([](const auto&) { return make_table(); }, shard), 8);
  const auto sharded = [&](const auto& fault) {
    Table t = make_table();
    EXPECT_TRUE(shard(t, fault).ok());
    return t;
  };
  EXPECT_GE(
      expect_all_or_nothing(
          sharded, [](Table& t, const auto&) { return params::move(t, nullptr, 0).status(); }),
      2);
}

TEST(AllOrNothing, Untie) {
  for (const char* name : {"head", "emb_t", "tail"}) {
    const int calls = expect_all_or_nothing(
        on_device, [&](Table& t, const auto&) { return params::untie(t, name, 0).status(); });
    EXPECT_GE(calls, 4) << name;
  }
}

TEST(AllOrNothing, QuantizeAndDequantize) {
  const params::EncodingChoice int8 =
      params::EncodingChoice::parse("int8 block row scale f16").value();
  EXPECT_GE(expect_all_or_nothing(on_device,
                                  [&](Table& t, const auto&) {
                                    return params::quantize(t, int8, "*", {}, {}, 0).status();
                                  }),
            3);
  const auto quantized = [&](const auto& fault) {
    Table t = on_device(fault);
    EXPECT_TRUE(params::quantize(t, int8, "*", {}, {}, 0).ok());
    return t;
  };
  EXPECT_GE(expect_all_or_nothing(quantized,
                                  [](Table& t, const auto&) {
                                    return params::dequantize(t, DType::f32, "*", {}, 0).status();
                                  }),
            3);
}

TEST(AllOrNothing, SetValue) {
  for (const auto& written : {std::pair("emb_t", std::vector<int64_t>{2, 3}),
                              std::pair("tail", std::vector<int64_t>{2, 2})}) {
    const int calls = expect_all_or_nothing(on_device, [&](Table& t, const auto&) {
      Floats v = {-1, -2, -3, -4, -5, -6};
      return params::set_value(t, written.first, test::tensor_of(v, written.second), 0);
    });
    EXPECT_EQ(calls, 1) << "one device write";
  }
}

TEST(AllOrNothing, Resize) {
  const int calls = expect_all_or_nothing(on_device, [](Table& t, const auto&) {
    return params::resize(t, "{emb,w}", 5, Init::normal(1), 1, 0).status();
  });
  EXPECT_EQ(calls, 9) << "out, room, in for two storages and a moment";
}

// A format that stores rows one behind the other.
std::shared_ptr<const WeightFormat> row_format() {
  WeightFormat row;
  row.name = "row";
  row.layout = [](std::span<const StorageInfo> group) -> Result<FormatLayout> {
    FormatLayout out;
    for (const StorageInfo& s : group) {
      out.offsets.push_back(out.bytes);
      out.bytes += s.bytes;
    }
    return out;
  };
  return std::make_shared<const WeightFormat>(std::move(row));
}

TEST(AllOrNothing, Formats) {
  const auto set = [](Table& t, const auto&) {
    return params::set_format(t, row_format(), "{emb,w}", 0).status();
  };
  EXPECT_EQ(expect_all_or_nothing(on_device, set), 4) << "room, zeros, and a copy of each storage";
  const auto packed = [&](const auto& fault) {
    Table t = on_device(fault);
    EXPECT_TRUE(set(t, fault).ok());
    return t;
  };
  const int calls = expect_all_or_nothing(
      packed, [](Table& t, const auto&) { return params::restore_format(t, "emb", 0).status(); });
  EXPECT_EQ(calls, 4) << "room and a copy for each storage";
}

TEST(AllOrNothing, Materialize) {
  const int calls = expect_all_or_nothing(
      [](const auto& fault) {
        Table t = on_device(fault);
        EXPECT_TRUE(
            params::add_parameter(t, "new", DType::f32, Shape{3}.dims(), Init::normal(1), 0).ok());
        EXPECT_TRUE(
            params::add_parameter(t, "other", DType::f32, Shape{2}.dims(), Init::ones(), 0).ok());
        return t;
      },
      [](Table& t, const auto&) { return params::materialize(t, 1, 0); });
  EXPECT_EQ(calls, 4);
}

TEST(AllOrNothing, Load) {
  Table source = make_table();
  for (uint32_t tie = 0; tie < source.storages.size(); ++tie) {
    const std::vector<std::byte> zeros(source.storages[tie].bytes());
    source.set_home(tie, params::make_home(nullptr, zeros).value());
  }
  for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
    const int calls = expect_all_or_nothing(on_device, [&](Table& t, const auto&) {
      return params::load(t, source, mode, false, 0).status();
    });
    EXPECT_EQ(calls, 8) << "an allocation and a copy for each storage with parameters";
  }
}

TEST(AllOrNothing, Clone) {
  for (int n = 1; n <= 9; ++n) {
    const auto fault = std::make_shared<Fault>();
    const Table t = on_device(fault);
    const std::string before = state_of(t);
    const uint64_t live = t.device()->counters().live_bytes;
    fault->arm(n);
    const auto c = params::clone(t);
    fault->disarm();
    EXPECT_EQ(c.ok(), n == 9) << n;
    EXPECT_EQ(state_of(t), before);
    if (!c.ok()) {
      EXPECT_EQ(t.device()->counters().live_bytes, live) << "nothing leaks";
    }
  }
}

TEST(AllOrNothing, TieSwapAndFreezeNeedNoDevice) {
  const auto fault = std::make_shared<Fault>();
  Table t = on_device(fault);
  fault->arm(1);
  EXPECT_TRUE(params::swap(t, "w", "b", 0).ok());
  EXPECT_TRUE(params::swap(t, "w", "b", 0).ok());
  EXPECT_TRUE(params::tie(t, "w", "q", {}, 0).ok());
  EXPECT_TRUE(params::freeze(t, "w", true, false, 0).ok());
  EXPECT_EQ(fault->calls, 0);
}

}  // namespace
}  // namespace bowline
