// A page of HTML that one file holds whole: no script, no request, well-formed as XML too. It reads
// in light and dark, on a phone and on paper; every picture has a table with its numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"
#include "common/files.h"
#include "common/html.h"

namespace bowline::command {

class Page {
 public:
  // Both are text.
  Page(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  // What the page is of: "running", "finished", ... and a sentence about it.
  void set_state(std::string_view state, std::string_view sentence);
  // Lets the page load itself anew after so many seconds.
  void set_refresh(int seconds) { refresh_ = seconds; }
  // The few numbers that are read first.
  void set_headline(const Facts& facts);
  // `id` is of letters; `html` is the body, made of what stands below.
  void add(std::string_view id, std::string_view heading, std::string html);
  // What a program reads: stands in the element "data".
  void set_data(const nlohmann::json& data);

  std::string html() const;

 private:
  struct Section {
    std::string id;
    std::string heading;
    std::string body;
  };
  std::string title_;
  std::string subtitle_;
  std::string state_;
  std::string headline_;
  std::string data_;
  int refresh_ = 0;
  std::vector<Section> sections_;
};

// "2026-01-31 12:00:00 UTC"
std::string now_text();

// The element "data" of a page that the command wrote. Errors  bad_file: it is none.
Result<nlohmann::json> read_page_data(const std::string& path);
// Before the work: that the file may be written, and can be. Errors  bad_argument: there is one,
// and not `force`. io_error.
Status check_page(const std::string& flag, const std::string& path, bool force);

}  // namespace bowline::command
