#include "common/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/escape.h"
#include "bowline.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

using Replacements = std::span<const std::pair<char, std::string_view>>;
constexpr std::pair<char, std::string_view> kEntities[] = {
    {'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
// In JSON these characters occur only in strings.
constexpr std::pair<char, std::string_view> kInScript[] = {
    {'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}};

std::string replaced(std::string_view text, Replacements by) {
  std::string out;
  out.reserve(text.size());
  for (const char& c : text) {
    const auto found = std::ranges::find(by, c, &std::pair<char, std::string_view>::first);
    out += found == by.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

}  // namespace

std::string html_text(std::string_view text) { return replaced(escaped(text), kEntities); }

std::string html_lines(std::string_view text) { return replaced(escaped_lines(text), kEntities); }

std::string html_json(const nlohmann::json& value) {
  return replaced(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), kInScript);
}

std::string facts_html(const Facts& facts, std::string_view kind) {
  std::string out = fmt::format("<dl class='{}'>\n", kind);
  for (const auto& [name, value] : facts) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_text(name), html_text(value));
  }
  return out + "</dl>\n";
}

std::string table_html(const Table& t) {
  const auto is_in = [](const std::vector<size_t>& columns, size_t column) {
    return std::ranges::find(columns, column) != columns.end();
  };
  const auto cell = [&](std::string_view element, size_t column, const std::string& html) {
    return fmt::format("<{0}{1}>{2}</{0}>", element,
                       is_in(t.numbers, column) ? " class='number'" : "", html);
  };
  std::string rows = "<thead><tr>";
  for (size_t i = 0; i < t.head.size(); ++i) {
    rows += cell("th", i, html_text(t.head[i]));
  }
  rows += "</tr></thead>\n<tbody>\n";
  for (size_t r = 0; r < t.rows.size(); ++r) {
    rows += r < t.ids.size() ? fmt::format("<tr id='{}'>", t.ids[r]) : "<tr>";
    for (size_t i = 0; i < t.rows[r].size(); ++i) {
      const std::string& text = t.rows[r][i];
      rows += cell("td", i, is_in(t.markup, i) ? text : html_text(text));
    }
    rows += "</tr>\n";
  }
  return scrolled_html(t.caption, "", rows + "</tbody>\n");
}

std::string scrolled_html(std::string_view caption, std::string_view kind, std::string_view rows) {
  return fmt::format(
      "<div class='scroll' tabindex='0' role='region' aria-label='{0}'>\n<table{1}>\n"
      "<caption>{0}</caption>\n{2}</table>\n</div>\n",
      html_text(caption), kind, rows);
}

std::string folded_html(std::string_view summary, std::string_view html) {
  return fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n", html_text(summary), html);
}

std::string link_html(std::string_view id, std::string_view text) {
  return fmt::format("<a href='#{}'>{}</a>", id, html_text(text));
}

std::string paragraph_html(std::string_view text) {
  return fmt::format("<p>{}</p>\n", html_text(text));
}

std::string shortened(std::string_view text, size_t most) {
  const std::string_view begin = begin_of(text, most);
  return begin.size() == text.size() ? std::string(text)
                                     : fmt::format("{}... ({} bytes)", begin, text.size());
}

std::string grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      out += ',';
    }
    out += digits[i];
  }
  return out;
}

}  // namespace bowline::command
