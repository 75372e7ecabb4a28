// A self-contained HTML page: no scripts, no requests, well-formed as XML. It has styles for light
// and dark mode, phones and print. Every picture has a table with its values.
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
  // Both arguments are plain text.
  Page(std::string title, std::string subtitle)
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  // Sets the state of the run ("running", "finished", ...) and a sentence about it.
  void set_state(std::string_view state, std::string_view sentence);
  // Makes the page reload itself every `seconds` seconds.
  void set_refresh(int seconds) { refresh_ = seconds; }
  // Sets the main results, at the top of the page.
  void set_headline(const Facts& facts);
  // Adds a section. `id` must consist of letters. `html` must come from the functions of html.h.
  void add(std::string_view id, std::string_view heading, std::string html);
  // Sets the JSON in the element "data", for programs.
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

// Reads the element "data" of a page. Errors  bad_file: bowline did not write the page.
Result<nlohmann::json> read_page_data(const std::string& path);
// Checks before the work starts that the page can be written.
// Errors  bad_argument: the file exists and `force` is false. io_error.
Status check_page(const std::string& flag, const std::string& path, bool force);

}  // namespace bowline::command
