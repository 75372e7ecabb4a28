#include "common/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/nearest.h"
#include "verb.h"

namespace bowline::command {
namespace {

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

std::string without_dashes(const std::string& flag) {
  return flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
}

// "lr" is made of the first letters of "learning-rate".
bool abbreviates(const std::string& word, const std::string& name) {
  std::string initials;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '-' && (i == 0 || name[i - 1] == '-')) {
      initials += name[i];
    }
  }
  return word.size() >= 2 && word == initials;
}

// Returns the flags that a word abbreviates: by their initials, else as a prefix.
std::vector<std::string> shortened_by(const std::string& word,
                                      const std::vector<std::string>& names) {
  const std::string letters = without_dashes(word);
  std::vector<std::string> initials;
  std::vector<std::string> begins;
  for (const std::string& name : names) {
    const std::string full = without_dashes(name);
    if (abbreviates(letters, full)) {
      initials.push_back(name);
    } else if (letters.size() >= 3 && full.starts_with(letters)) {
      begins.push_back(name);
    }
  }
  return initials.empty() ? begins : initials;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string> shortened = shortened_by(word, names);
  if (!shortened.empty()) {
    return fmt::format(" Did you mean '{}'?", fmt::join(shortened, "' or '"));
  }
  const std::string name = nearest(word, names);
  return name.empty() ? "" : fmt::format(" Did you mean '{}'?", name);
}

// Returns a hint for flags that only `bowline` without a subcommand has.
std::string of_the_program(const std::string& flag) {
  return flag == "-v" || flag == "-V" || flag == "--version"
             ? " 'bowline --version' prints the version."
             : "";
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(word[1]);
}

// True if the flag takes the word that follows it.
bool takes_value(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

std::string find_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string flag = words[i].substr(0, words[i].find('='));
    if (words[i] == "--") {
      return "";
    }
    if (is_flag(flag)) {
      const std::vector<std::string> flags = flags_of(*at);
      const bool joined_short = flag[1] != '-' && contains(flags, flag.substr(0, 2));
      if (!contains(flags, flag) && !joined_short) {
        const std::string version = of_the_program(flag);
        return fmt::format("Flag '{}' of '{}' is unknown.{} See '{} --help'.", flag, full_name(*at),
                           version.empty() ? suggestion(flag, flags) : version, full_name(*at));
      }
      i += flag == words[i] && takes_value(*at, flag) ? 1 : 0;
      continue;
    }
    const std::vector<std::string> verbs = verbs_of(*at);
    if (verbs.empty()) {
      continue;  // an argument of the verb
    }
    if (!contains(verbs, words[i])) {
      return fmt::format("Verb '{}' of '{}' is unknown.{} See '{} --help'.", words[i],
                         full_name(*at), suggestion(words[i], verbs), full_name(*at));
    }
    at = at->get_subcommand(words[i]);
  }
  return "";
}

std::string usage_message(const CLI::App& app, const std::string& what) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
  }
  return fmt::format("{}{} See '{} --help'.", what, what.empty() || what.back() == '.' ? "" : ".",
                     full_name(*at));
}

}  // namespace bowline::command
