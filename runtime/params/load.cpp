#include <algorithm>
#include <cstring>

#include "params/home.h"
#include "params/stage.h"
#include "params/verbs.h"
#include "params/view.h"

namespace bowline::detail::params {
namespace {

bool is_whole(const View& view) { return view == View{}; }

// One parameter of the source table, and the parameter here that takes its values.
struct Supply {
  const ParameterRow* to;
  const ParameterRow* from;
};

// Bytes [begin, end) of a storage that a parameter has supplied.
struct Covered {
  uint64_t begin;
  uint64_t end;
  std::string_view name;
};

// Collects the new bytes of one storage.
class Filling {
 public:
  Filling(Stage& stage, const Table& source, uint32_t tie)
      : stage_(stage),
        table_(stage.before()),
        storage_(stage.storage(tie)),
        source_(source),
        tie_(tie) {}

  // With LoadMode::assign, the storage takes the dtype and shape of a parameter that supplies all
  // of it.
  Status assign(std::span<const Supply> supplies) {
    for (const Supply& s : supplies) {
      const Storage& from = source_.storages[s.from->tie];
      if (from.dtype == storage_.dtype && from.shape == storage_.shape &&
          from.encoding == storage_.encoding) {
        return {};
      }
      if (is_whole(s.to->view) && is_whole(s.from->view)) {
        return take_over(from, s.to->name);
      }
    }
    return {};
  }

  Status add(const Supply& supply) {
    for (const Supply& earlier : added_) {
      if (earlier.from->tie == supply.from->tie && earlier.from->view == supply.from->view &&
          earlier.to->view == supply.to->view) {
        return {};  // the same payload for the same place
      }
    }
    added_.push_back(supply);
    const Storage& from = source_.storages[supply.from->tie];
    BOWLINE_TRY_ASSIGN(const Window to_window, payload_of(*supply.to, storage_));
    BOWLINE_TRY_ASSIGN(const Window from_window, payload_of(*supply.from, from));
    const bool fits = from.dtype == storage_.dtype && from_window.shape == to_window.shape;
    BOWLINE_REQUIRE(fits || taken_from_.empty(),
                    "Parameters \"{}\" and \"{}\" share storage {}. With \"{}\" of the file, "
                    "\"{}\" would be {}{}, but in the file it is {}{}.",
                    taken_from_, supply.to->name, tie_, taken_from_, supply.to->name,
                    storage_.dtype, to_window.shape, from.dtype, from_window.shape);
    BOWLINE_REQUIRE(fits, "Parameter \"{}\" is {}{} here and {}{} in the file.", supply.to->name,
                    storage_.dtype, to_window.shape, from.dtype, from_window.shape);
    BOWLINE_TRY(check_encodings(supply, from));
    std::vector<std::byte> scratch;
    BOWLINE_TRY_ASSIGN(Bytes run, read_run(from, from_window.first, from_window.count, scratch));
    std::vector<std::byte> ordered;
    if (supply.from->view.transpose != supply.to->view.transpose) {
      ordered = supply.from->view.transpose
                    ? to_parameter_order(run, to_window.shape, size_of(from.dtype))
                    : to_storage_order(run, to_window.shape, size_of(from.dtype));
      run = ordered;
    }
    return write(to_window.first, run, supply.to->name);
  }

  bool covers(uint64_t begin, uint64_t end) const {
    uint64_t reached = begin;
    for (const Covered& c : covered_) {
      if (c.begin <= reached) {
        reached = std::max(reached, c.end);
      }
    }
    return reached >= end;
  }

  // True if some elements were not supplied and the storage had no bytes. They are zeros.
  bool has_gaps() const { return has_gaps_; }

  Status finish() {
    if (!covers(0, storage_.bytes())) {
      BOWLINE_TRY(keep_the_rest());
    }
    // A storage that took another shape has no home of its own any more.
    storage_.home = table_.storages[tie_].home;
    const bool on_devices = storage_.home.block || !storage_.home.shards.empty();
    BOWLINE_TRY_ASSIGN(Home home, on_devices ? make_home_like(storage_, bytes_)
                                             : make_home(table_.device(), bytes_));
    install(storage_, std::move(home));
    return {};
  }

 private:
  // Quantized values are meaningless without their scales, so they are copied only as a whole.
  Status check_encodings(const Supply& supply, const Storage& from) const {
    BOWLINE_REQUIRE(from.encoding == storage_.encoding,
                    "Parameter \"{}\" is stored as {} here and as {} in the file.", supply.to->name,
                    storage_.encoding, from.encoding);
    BOWLINE_REQUIRE(
        from.encoding.is_plain() ||
            (from.shape == storage_.shape && supply.from->view == supply.to->view),
        "Parameter \"{}\" is stored as {}, and its view here differs from its view in the file.",
        supply.to->name, storage_.encoding);
    return {};
  }

  Status take_over(const Storage& from, std::string_view name) {
    BOWLINE_REQUIRE(from.encoding.is_plain() || !storage_.trainable,
                    "Parameter \"{}\" is stored as {} in the file, which cannot be trained. Call "
                    "freeze() first.",
                    name, from.encoding);
    const auto floor = floor_dtype(storage_.role);
    BOWLINE_REQUIRE(!floor || from.dtype == *floor, "Parameter \"{}\" is a {}, which must stay {}.",
                    name, name_of(storage_.role), *floor);
    for (const uint32_t user : sorted(table_.users(tie_))) {
      const ParameterRow& p = table_.parameters[user];
      BOWLINE_TRY(view_shape(p.view, from.shape)
                      .status()
                      .at(format("While giving \"{}\" the shape of the file; \"{}\" is tied to it.",
                                 name, p.name)));
      BOWLINE_TRY(
          from.encoding.check_view(p.view, from.shape)
              .at(format("While giving \"{}\" the encoding of the file; \"{}\" is tied to it.",
                         name, p.name)));
    }
    if (!(storage_.shape == from.shape)) {
      drop_owned();
    }
    storage_.dtype = from.dtype;
    storage_.shape = from.shape;
    storage_.encoding = from.encoding;
    storage_.home = {};
    taken_from_ = name;
    return {};
  }

  // The optimizer makes rows of another shape anew.
  void drop_owned() {
    for (const uint32_t row : stage_.owned_by(tie_)) {
      stage_.make_empty(row);
    }
  }

  Status write(uint64_t first, Bytes run, std::string_view name) {
    BOWLINE_TRY(require_host_memory(storage_.bytes()));
    bytes_.resize(storage_.bytes());
    const uint64_t end = first + run.size();
    for (const Covered& c : covered_) {
      const uint64_t a = std::max(first, c.begin);
      const uint64_t b = std::min(end, c.end);
      BOWLINE_REQUIRE(
          a >= b || std::memcmp(bytes_.data() + a, run.data() + (a - first), b - a) == 0,
          "Parameters \"{}\" and \"{}\" share storage {}, but their values in the file "
          "differ.",
          c.name, name, tie_);
    }
    if (!run.empty()) {
      std::memcpy(bytes_.data() + first, run.data(), run.size());
    }
    const Covered added{first, end, name};
    covered_.insert(std::ranges::upper_bound(covered_, first, {}, &Covered::begin), added);
    return {};
  }

  Status keep_the_rest() {
    if (!storage_.home.valid()) {
      has_gaps_ = true;
      return {};
    }
    std::vector<std::byte> scratch;
    BOWLINE_TRY_ASSIGN(const Bytes old, read_all(storage_, scratch));
    std::vector<std::byte> merged(old.begin(), old.end());
    for (const Covered& c : covered_) {
      std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(c.begin),
                bytes_.begin() + static_cast<std::ptrdiff_t>(c.end),
                merged.begin() + static_cast<std::ptrdiff_t>(c.begin));
    }
    bytes_ = std::move(merged);
    return {};
  }

  Stage& stage_;
  const Table& table_;
  Storage& storage_;
  const Table& source_;
  uint32_t tie_;
  std::string_view taken_from_;  // with LoadMode::assign: the source of dtype and shape
  std::vector<Supply> added_;
  std::vector<Covered> covered_;  // sorted by begin
  std::vector<std::byte> bytes_;
  bool has_gaps_ = false;
};

struct Pairing {
  std::vector<std::vector<Supply>> by_tie;
  LoadReport report;
};

Pairing pair_by_name(const Table& table, const Table& source) {
  Pairing out;
  out.by_tie.resize(table.storages.size());
  for (const ParameterRow& from : source.parameters) {
    const std::optional<uint32_t> found = table.find(from.name);
    if (!found) {
      out.report.unexpected.push_back(from.name);
    } else if (source.storages[from.tie].home.valid()) {
      const ParameterRow& to = table.parameters[*found];
      out.by_tie[to.tie].push_back({&to, &from});
    }
  }
  return out;
}

std::string some_of(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) {
    out += format(i == 0 ? "\"{}\"" : ", \"{}\"", names[i]);
  }
  return names.size() > 5 ? out + format(" and {} more", names.size() - 5) : out;
}

// The advice in the message about parameters that the file names, but has no values for.
std::string_view remedy(const Table& source, const std::vector<std::string>& missing) {
  const bool any = std::ranges::any_of(missing, [&](const std::string& name) {
    const std::optional<uint32_t> found = source.find(name);
    return found && !source.storages[source.parameters[*found].tie].home.valid();
  });
  return any ? " It was saved before materialize() or load() gave its model values. Load a file "
               "that has values, or call materialize()."
             : "";
}

// Adds the parameters of one storage that were not supplied completely.
Status find_missing(const Table& table, uint32_t tie, const Storage& storage,
                    const Filling* filling, std::vector<std::string>& missing) {
  for (const uint32_t user : sorted(table.users(tie))) {
    const ParameterRow& p = table.parameters[user];
    BOWLINE_TRY_ASSIGN(const Window window, payload_of(p, storage));
    if (filling == nullptr || !filling->covers(window.first, window.first + window.count)) {
      missing.push_back(p.name);
    }
  }
  return {};
}

}  // namespace

Result<LoadReport> load(Table& table, const Table& source, LoadMode mode, bool partial, int busy) {
  BOWLINE_TRY_ASSIGN(Stage stage, Stage::begin(table, busy, "load()"));
  // The names in the pairs are those of `table`, which stays as it is until the commit.
  Pairing pairs = pair_by_name(table, source);
  LoadReport& report = pairs.report;
  for (uint32_t tie = 0; tie < table.storages.size(); ++tie) {
    const std::vector<Supply>& supplies = pairs.by_tie[tie];
    if (supplies.empty()) {
      BOWLINE_TRY(find_missing(table, tie, stage.current(tie), nullptr, report.missing));
      continue;
    }
    Filling filling(stage, source, tie);
    const auto fill = [&]() -> Status {
      if (mode == LoadMode::assign) {
        BOWLINE_TRY(filling.assign(supplies));
      }
      for (const Supply& supply : supplies) {
        BOWLINE_TRY(filling.add(supply));
      }
      return filling.finish();
    };
    BOWLINE_TRY(fill().at(format("While loading storage {} (\"{}\").", tie, supplies[0].to->name)));
    const size_t known = report.missing.size();
    BOWLINE_TRY(find_missing(table, tie, stage.current(tie), &filling, report.missing));
    BOWLINE_REQUIRE(
        !filling.has_gaps() || report.missing.size() == known,
        "Storage {} has no values, and the file supplies only a part of it: \"{}\" is missing.",
        tie, report.missing.back());
    ++report.storages;
  }
  if (!partial) {
    BOWLINE_REQUIRE(report.missing.empty(), "The file does not supply {}.{}",
                    some_of(report.missing), remedy(source, report.missing));
    BOWLINE_REQUIRE(report.unexpected.empty(), "The model has no {}.", some_of(report.unexpected));
  }
  stage.commit();
  return std::move(report);
}

}  // namespace bowline::detail::params
