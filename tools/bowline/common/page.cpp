#include "common/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "base/atomic_file.h"
#include "base/status.h"
#include "common/build.h"
#include "common/files.h"
#include "common/page_style.h"

namespace bowline::command {
namespace {

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"data\">";
constexpr std::string_view kDataEnd = "</script>";
constexpr uint64_t kMostPageBytes = uint64_t{256} << 20;
// The free space that is checked before the work begins.
constexpr uint64_t kProbeBytes = uint64_t{1} << 20;

// The page may use only its own style. Even a name that is not escaped can then load or run
// nothing.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

}  // namespace

void Page::set_state(std::string_view state, std::string_view sentence) {
  state_ = fmt::format("<p class='state'><strong class='pill {0}'>{0}</strong> {1}</p>\n",
                       html_text(state), html_text(sentence));
}

void Page::set_headline(const Facts& facts) { headline_ = facts_html(facts, "headline"); }

void Page::add(std::string_view id, std::string_view heading, std::string html) {
  sections_.push_back({std::string(id), std::string(heading), std::move(html)});
}

void Page::set_data(const nlohmann::json& data) { data_ = html_json(data); }

std::string Page::html() const {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
      "<meta name='color-scheme' content='light dark'/>\n"
      "<meta http-equiv='Content-Security-Policy' content=\"{}\"/>\n",
      kPolicy);
  if (refresh_ > 0) {
    out += fmt::format("<meta http-equiv='refresh' content='{}'/>\n", refresh_);
  }
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", html_text(title_),
                     kPageStyle);
  out += "<a class='skip' href='#main'>Skip to the content</a>\n<header>\n";
  out += fmt::format("<h1>{}</h1>\n<p class='subtitle'>{}</p>\n{}<nav aria-label='Sections'><ul>\n",
                     html_text(title_), html_text(subtitle_), state_);
  for (const Section& s : sections_) {
    out += fmt::format("<li><a href='#{}'>{}</a></li>\n", s.id, html_text(s.heading));
  }
  out += fmt::format("</ul></nav>\n</header>\n<main id='main'>\n{}", headline_);
  for (const Section& s : sections_) {
    out += fmt::format("<section aria-labelledby='{0}'>\n<h2 id='{0}'>{1}</h2>\n{2}</section>\n",
                       s.id, html_text(s.heading), s.body);
  }
  out += fmt::format("</main>\n<footer><p>Written {} by bowline {}.</p></footer>\n", now_text(),
                     html_text(build_text()));
  if (!data_.empty()) {
    out += fmt::format("{}{}{}\n", kDataBegin, data_, kDataEnd);
  }
  return out + "</body>\n</html>\n";
}

std::string now_text() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
}

Result<nlohmann::json> read_page_data(const std::string& path) {
  std::string text;
  BOWLINE_TRY(read_regular("Page", path, kMostPageBytes, [&](std::string_view piece) {
    text += piece;
    return Status();
  }));
  const size_t begin = text.find(kDataBegin);
  const size_t end = begin == std::string::npos ? begin : text.find(kDataEnd, begin);
  BOWLINE_REQUIRE_CODE(end != std::string::npos, Code::bad_file,
                       "\"{}\" is not a page that bowline wrote.", path);
  const size_t first = begin + kDataBegin.size();
  nlohmann::json data =
      nlohmann::json::parse(std::string_view(text).substr(first, end - first), nullptr, false);
  BOWLINE_REQUIRE_CODE(data.is_object(), Code::bad_file, "The data of page \"{}\" is damaged.",
                       path);
  return data;
}

Status check_page(const std::string& flag, const std::string& path, bool force) {
  std::error_code error;
  BOWLINE_REQUIRE(force || !std::filesystem::exists(std::filesystem::symlink_status(path, error)),
                  "{} \"{}\" exists already; --force replaces it.", flag, path);
  return probe_file(path, kProbeBytes);
}

}  // namespace bowline::command
