// Prints the page elements of a classifier: for three classes with a hostile name, or for many
// classes.
#include <cstdio>

#include "common/confusion.h"

using namespace bowline::command;

int main(int argc, char** argv) {
  std::string page;
  if (argc == 2 && std::string(argv[1]) == "three") {
    const Confusion three{{"maps", "<b>&\"'\u202e", "net"}, {8, 1, 0, 2, 5, 3, 0, 0, 9}};
    const ConfusedExample examples[] = {
        {"draws <script>maps\n</script>\x1b[2J", "maps", "<b>&\"'\u202e", 0.75, 0.25}};
    page = confusion_html(three) + classes_html(three) + examples_html(examples);
  } else {
    Confusion many;
    for (size_t i = 0; i < 60; ++i) {
      many.labels.push_back("class " + std::to_string(i));
    }
    many.counts.assign(many.labels.size() * many.labels.size(), 0);
    many.counts[59 * 60 + 57] = 4;  // all other predictions are right
    page = confusion_html(many);
  }
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
