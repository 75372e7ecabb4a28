// Prints the built-in chat formats with their templates as JSON.
#include <bowline_text.h>

#include <iostream>
#include <nlohmann/json.hpp>

int main() {
  nlohmann::json out;
  for (const std::string& name : bowline::text::ChatTemplate::names()) {
    out[name] = bowline::text::ChatTemplate::named(name).value().text();
  }
  std::cout << out.dump() << "\n";
}
