// The listings of a table: a line per item of its description.
#include "base/escape.h"
#include "params/describe.h"

namespace bowline::detail::params {
namespace {

// For example " rows 2..5 as [2,3] transposed", or "" for the whole storage.
std::string view_text(const View& view) {
  std::string out;
  if (view.row_start != 0 || view.rows != -1) {
    out += view.rows == -1 ? format(" rows {}..", view.row_start)
                           : format(" rows {}..{}", view.row_start, view.row_start + view.rows);
  }
  if (!view.shape.empty()) {
    out += format(" as {}", Shape(view.shape));
  }
  if (view.transpose) {
    out += " transposed";
  }
  return out;
}

}  // namespace

std::string Table::list_parameters() const {
  std::string out;
  for (const ParameterInfo& p : describe_parameters(*this)) {
    out += format("{} tie {} {}{}{}", listed_name(p.name), p.tie, p.dtype, Shape(p.shape),
                  view_text(p.view));
    if (!p.target.empty()) {
      out += format(" changes {}", listed_name(p.target));
    }
    out += p.trainable ? "\n" : " frozen\n";
  }
  return out;
}

std::string Table::list_storages() const {
  std::string out;
  for (const StorageInfo& s : describe_storages(*this)) {
    if (s.empty) {
      out += format("{} empty\n", s.tie);
      continue;
    }
    out += format("{} {}{} {} bytes {}", s.tie, s.dtype, Shape(s.shape), s.bytes, name_of(s.role));
    if (s.owner) {
      out += format(" {} of {}", s.slot, *s.owner);
    }
    if (s.encoding != Encoding().name()) {
      out += format(" {}", s.encoding);
    }
    out += format("{} version {} generation {} {}", s.trainable ? "" : " frozen", s.version,
                  s.generation, s.where);
    if (!s.format.empty()) {
      out += format(" in block {} ({})", s.block, s.format);
    }
    for (const CopyInfo& c : s.copies) {
      out += format(", {} {} {}", c.op.empty() ? "on" : "as",
                    c.op.empty() ? c.device : std::string(name_of(c.dtype)),
                    c.version ? format("version {}", *c.version) : "to be made");
    }
    out += '\n';
  }
  return out;
}

std::string Table::list_ties() const {
  std::string out;
  for (const TieInfo& tie : describe_ties(*this)) {
    out += format("{}:", tie.tie);
    for (const uint32_t number : tie.parameters) {
      const ParameterRow& p = parameters[number];
      out += format("{} {}{}", number == tie.parameters.front() ? "" : ",", listed_name(p.name),
                    view_text(p.view));
    }
    out += '\n';
  }
  return out;
}

}  // namespace bowline::detail::params
