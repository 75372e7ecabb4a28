#include "core/escape.h"
#include "params/table.h"

namespace bowline::params {
namespace {

// " rows 2..5 as [2,3] transposed"; nothing for the whole storage.
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

std::string home_text(const Home& home) {
  if (home.block) {
    return home.block->device().info().name;
  }
  return home.host ? "host" : home.file ? "file" : "nowhere";
}

}  // namespace

std::string Table::list_parameters() const {
  std::string out;
  for (const ParameterRow& p : parameters) {
    const Storage& s = storages[p.tie];
    const Result<Shape> shape = view_shape(p.view, s.shape);
    out += format("{} tie {} {}{}{}", listed_name(p.name), p.tie, s.dtype,
                  shape.ok() ? shape.value() : s.shape, view_text(p.view));
    if (!p.target.empty()) {
      out += format(" changes {}", listed_name(p.target));
    }
    out += s.trainable ? "\n" : " frozen\n";
  }
  return out;
}

std::string Table::list_storages() const {
  std::string out;
  const size_t rows = used_rows();
  for (size_t i = 0; i < rows; ++i) {
    const Storage& s = storages[i];
    if (s.empty) {
      out += format("{} empty\n", i);
      continue;
    }
    out += format("{} {}{} {} bytes {}", i, s.dtype, s.shape, s.bytes(), name_of(s.role));
    if (s.owner != kNoOwner) {
      out += format(" {} of {}", s.slot, s.owner);
    }
    if (!s.encoding.is_plain()) {
      out += format(" {}", s.encoding);
    }
    out += format("{} version {} generation {} {}", s.trainable ? "" : " frozen", s.version,
                  s.generation, home_text(s.home));
    for (const std::weak_ptr<Residency>& c : s.copies) {
      if (const std::shared_ptr<Residency> copy = c.lock()) {
        out += format(", as {} {}", copy->form().dtype,
                      copy->version() ? format("version {}", *copy->version()) : "to be made");
      }
    }
    out += '\n';
  }
  return out;
}

std::string Table::list_ties() const {
  std::vector<std::vector<const ParameterRow*>> members(storages.size());
  for (const ParameterRow& p : parameters) {
    members[p.tie].push_back(&p);
  }
  std::string out;
  for (size_t tie = 0; tie < members.size(); ++tie) {
    if (members[tie].size() < 2) {
      continue;
    }
    out += format("{}:", tie);
    for (const ParameterRow* p : members[tie]) {
      const std::string view = view_text(p->view);
      out += format("{} {}{}", p == members[tie].front() ? "" : ",", listed_name(p->name), view);
    }
    out += '\n';
  }
  return out;
}

}  // namespace bowline::params
