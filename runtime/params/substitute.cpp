// The values of a file, with the names of the model and the replacements of a hook.
#include "core/encoding_check.h"
#include "params/describe.h"
#include "params/home.h"
#include "params/verbs.h"

namespace bowline::detail::params {
namespace {

class Substitution {
 public:
  Substitution(const Table& table, const Table& source, const LoadOptions& options)
      : table_(table),
        source_(source),
        options_(options),
        out_(std::vector(source.storages.begin(), source.storages.end())) {}

  Result<Table> run() && {
    for (const auto& [from, to] : options_.aliases) {
      BOWLINE_REQUIRE(source_.find(from).has_value(),
                      "The file has no parameter \"{}\", for which \"{}\" is an alias.", from, to);
    }
    if (options_.hook) {
      here_ = describe_parameters(table_);
      storages_here_ = describe_storages(table_);
      file_ = describe_parameters(source_);
      storages_file_ = describe_storages(source_);
    }
    for (uint32_t p = 0; p < source_.parameters.size(); ++p) {
      BOWLINE_TRY(add(p));
    }
    return std::move(out_);
  }

 private:
  // One call of the hook.
  struct Called {
    uint32_t from;
    View view;
    uint32_t to;
    std::optional<uint32_t> row;  // of the value that it returned
  };

  std::string_view name_of(const ParameterRow& p) const {
    const auto alias =
        std::ranges::find(options_.aliases, p.name, [](const auto& a) { return a.first; });
    return alias == options_.aliases.end() ? p.name : alias->second;
  }

  Status add(uint32_t number) {
    const ParameterRow& p = source_.parameters[number];
    ParameterRow row = p;
    row.name = name_of(p);
    BOWLINE_REQUIRE(!out_.find(row.name).has_value(),
                    "Two parameters of the file have the name \"{}\" in the model.", row.name);
    const std::optional<uint32_t> to = table_.find(row.name);
    if (options_.hook && to && source_.storages[p.tie].home.valid()) {
      BOWLINE_TRY_ASSIGN(const std::optional<uint32_t> given, called(number, *to));
      if (given) {
        row.tie = *given;
        row.view = {};
      }
    }
    out_.add(std::move(row));
    return {};
  }

  // Calls the hook for a parameter of the file. Returns the row of its value, or nothing.
  Result<std::optional<uint32_t>> called(uint32_t number, uint32_t to) {
    const ParameterRow& p = source_.parameters[number];
    const uint32_t tie = table_.parameters[to].tie;
    for (const Called& c : called_) {
      if (c.from == p.tie && c.view == p.view && c.to == tie) {
        return c.row;
      }
    }
    const ParameterInfo& info = file_[number];
    const Storage& storage = source_.storages[p.tie];
    BOWLINE_TRY_ASSIGN(const Shape shape, Shape::checked(info.shape));
    const auto bytes = static_cast<uint64_t>(shape.elements()) * size_of(storage.dtype);
    BOWLINE_TRY(require_host_memory(bytes));
    std::vector<std::byte> values(bytes);
    const Tensor value{p.name, storage.dtype, info.shape, values.data()};
    BOWLINE_TRY(read_values(p, storage, value));
    const LoadedParameter of{here_[to], storages_here_[tie], info, storages_file_[p.tie]};
    BOWLINE_TRY_ASSIGN(
        std::optional<LoadedValue> given,
        in_context(options_.hook(of, value),
                   format("While the hook was called for parameter \"{}\".", p.name)));
    std::optional<uint32_t> row;
    if (given) {
      BOWLINE_TRY_ASSIGN(Storage own, stored(std::move(*given), storage.role));
      row = out_.add(std::move(own));
    }
    called_.push_back({p.tie, p.view, tie, row});
    return row;
  }

  static Result<Storage> stored(LoadedValue given, Role role) {
    Storage out;
    out.dtype = given.dtype;
    out.role = role;
    BOWLINE_TRY_ASSIGN(out.shape, Shape::checked(given.shape));
    BOWLINE_REQUIRE(given.bytes.size() == out.bytes(),
                    "The hook returned {} bytes, which do not fit {}{}.", given.bytes.size(),
                    given.dtype, out.shape);
    if (!given.encoding.empty()) {
      BOWLINE_TRY(encode(out, given));
    }
    out.home.host = std::make_shared<const std::vector<std::byte>>(std::move(given.bytes));
    return out;
  }

  static Status encode(Storage& out, LoadedValue& given) {
    BOWLINE_TRY_ASSIGN(const Encoding encoding, parse_encoding(given.encoding));
    BOWLINE_REQUIRE(is_float(out.dtype),
                    "The hook returned {} to be stored as {}; only floats can be quantized.",
                    out.dtype, given.encoding);
    const Encoding fitting = encoding.for_shape(out.shape);
    BOWLINE_TRY(fitting.check(out.dtype, out.shape));
    const auto elements = static_cast<uint64_t>(out.shape.elements());
    BOWLINE_TRY(require_host_memory(elements * sizeof(float)));
    std::vector<float> numbers(elements);
    out.encoding.decode(given.bytes, out.dtype, out.shape, {0, out.shape.elements()}, numbers);
    given.bytes.assign(fitting.bytes(out.dtype, out.shape), std::byte{});
    fitting.encode(numbers, out.dtype, out.shape, given.bytes);
    BOWLINE_TRY(check_encoded(fitting, numbers, given.bytes, out.dtype, out.shape)
                    .at(format("While storing the value of the hook as {}.", fitting)));
    out.encoding = fitting;
    return {};
  }

  const Table& table_;
  const Table& source_;
  const LoadOptions& options_;
  Table out_;
  std::vector<ParameterInfo> here_, file_;
  std::vector<StorageInfo> storages_here_, storages_file_;
  std::vector<Called> called_;
};

}  // namespace

Result<Table> substituted(const Table& table, const Table& source, const LoadOptions& options) {
  return Substitution(table, source, options).run();
}

}  // namespace bowline::detail::params
