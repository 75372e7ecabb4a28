#include "common/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/escape.h"
#include "bowline.h"

namespace bowline::command {
namespace {

std::string with_entities(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string html_text(std::string_view text) { return with_entities(escaped(text)); }

std::string html_lines(std::string_view text) { return with_entities(escaped_lines(text)); }

std::string html_json(const nlohmann::json& value) {
  using nlohmann::json;
  std::string out;
  for (const char c : value.dump(-1, ' ', true, json::error_handler_t::replace)) {
    switch (c) {  // these characters occur only in strings
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string facts_html(const Facts& facts, std::string_view kind) {
  std::string out = fmt::format("<dl class=\"{}\">\n", kind);
  for (const auto& [name, value] : facts) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_text(name), html_text(value));
  }
  return out + "</dl>\n";
}

std::string table_html(const Table& t) {
  const auto cell = [&](size_t column, std::string_view element, const std::string& text) {
    const bool number = std::ranges::find(t.numbers, column) != t.numbers.end();
    return fmt::format("<{0}{1}>{2}</{3}>", element, number ? " class=\"number\"" : "",
                       html_text(text), element.substr(0, 2));
  };
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\">\n<table>\n<caption>{0}"
      "</caption>\n<thead><tr>",
      html_text(t.caption));
  for (size_t i = 0; i < t.head.size(); ++i) {
    out += cell(i, "th scope=\"col\"", t.head[i]);
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : t.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += cell(i, "td", row[i]);
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

std::string folded_html(std::string_view summary, std::string_view html) {
  return fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n", html_text(summary), html);
}

std::string paragraph_html(std::string_view text) {
  return fmt::format("<p>{}</p>\n", html_text(text));
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
