#include "device/tuning.h"

#include <cmath>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/escape.h"
#include "base/parse.h"
#include "base/read_file.h"

namespace bowline::detail::device {
namespace {

constexpr std::string_view kMagic = "bowline tuning 1";
constexpr std::string_view kChoice = "choice ";
constexpr std::string_view kNoCandidateText = "default";
constexpr std::string_view kChecksum = "checksum ";
constexpr size_t kChecksumBytes = kChecksum.size() + 17;  // 16 digits and a newline
constexpr uint64_t kMostBytes = 16 << 20;

std::string hex(uint64_t value) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) {
    out[i] = "0123456789abcdef"[value & 15];
  }
  return out;
}

std::string hash_of(std::string_view text) { return hex(XXH3_64bits(text.data(), text.size())); }

// The lines that identify what the choices are for.
std::string head_of(const TuningKey& key) {
  return format("{}\nversion {}, contract {}\ndevice {}\ndriver {}\n", kMagic, version(),
                kContractVersion, escaped(key.model), escaped(key.driver));
}

// Removes the first line of `text`, and returns it without its newline. Empty: there is no line.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

// Removes the first word of `line` and the space behind it.
std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

std::string line_of(const std::string& node, const Choice& c) {
  return format(
      "{}{} {} {} {} {}\n", kChoice,
      c.candidate == kNoCandidate ? std::string(kNoCandidateText) : format("{}", c.candidate),
      c.candidates, c.ns, c.default_ns, node);
}

// Reads a line of line_of(). Returns false if it has another form.
bool read_line(std::string_view line, Choices* choices) {
  if (!line.starts_with(kChoice)) {
    return false;
  }
  line.remove_prefix(kChoice.size());
  const std::string_view candidate_text = take_word(line);
  const bool is_default = candidate_text == kNoCandidateText;
  const auto candidate = is_default ? kNoCandidate : number_in<uint32_t>(candidate_text);
  const auto candidates = number_in<uint32_t>(take_word(line));
  const auto ns = number_in<double>(take_word(line));
  const auto default_ns = number_in<double>(take_word(line));
  const auto is_time = [](std::optional<double> t) { return t && std::isfinite(*t) && *t >= 0; };
  return candidate && candidates && (is_default || *candidate < *candidates) && is_time(ns) &&
         is_time(default_ns) && !line.empty() &&
         choices->emplace(line, Choice{*candidate, *candidates, *ns, *default_ns}).second;
}

Status damaged(const std::string& path) {
  return Status(Code::bad_file, format("Tuning file \"{}\" is damaged or was edited.", path));
}

}  // namespace

std::string node_key(const NodeQuery& node) {
  const auto list = [](std::span<const Operand> operands) {
    std::string out;
    for (const Operand& o : operands) {
      out += out.empty() ? "" : ", ";
      out += o.encoding.is_plain() ? format("{}", o.dtype) : format("{}", o.encoding);
      out += format("{}", o.shape);
      out += o.counted_axis < 0 ? "" : format(" with dynamic axis {}", o.counted_axis);
    }
    return out;
  };
  const std::string attributes = attributes_text(node.op, node.attributes);
  return escaped(format("{} {} ({}) -> ({}){}{}", node.op, node.type, list(node.inputs),
                        list(node.outputs), attributes.empty() ? "" : " ", attributes));
}

std::string tuning_path(const std::string& folder, const TuningKey& key) {
  return format("{}/tuning-{}.txt", folder, hash_of(key.model));
}

Result<Choices> read_tuning(const std::string& path, const TuningKey& key) {
  BOWLINE_TRY_ASSIGN(const std::optional<std::string> text,
                     read_file("Tuning file", path, kMostBytes, real_file_system()));
  Choices choices;
  if (!text) {
    return choices;
  }
  if (text->size() < kChecksumBytes) {
    return damaged(path);
  }
  std::string_view rest = std::string_view(*text).substr(0, text->size() - kChecksumBytes);
  const std::string checksum = format("{}{}\n", kChecksum, hash_of(rest));
  if (!text->ends_with(checksum)) {
    return damaged(path);
  }
  const std::string expected = head_of(key);
  std::string_view wanted = expected;
  while (!wanted.empty()) {
    const std::string_view line = take_line(rest), own = take_line(wanted);
    BOWLINE_REQUIRE_CODE(line == own, Code::bad_file,
                         "Tuning file \"{}\" has \"{}\", but this is \"{}\".", path, escaped(line),
                         own);
  }
  while (!rest.empty()) {
    if (!read_line(take_line(rest), &choices)) {
      return damaged(path);
    }
  }
  return choices;
}

Status write_tuning(const std::string& path, const TuningKey& key, const Choices& choices) {
  std::string text = head_of(key);
  for (const auto& [node, choice] : choices) {
    text += line_of(node, choice);
  }
  text += format("{}{}\n", kChecksum, hash_of(text));
  make_folders(folder_of(path), real_file_system());
  BOWLINE_TRY_ASSIGN(const auto file, AtomicFile::create(path, text.size(), real_file_system()));
  BOWLINE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

}  // namespace bowline::detail::device
