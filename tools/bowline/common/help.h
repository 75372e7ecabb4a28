// The layout of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace bowline::command {

// One line per flag: its name, its value, its description, and the default in brackets.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// The group of flags that few runs need; --help lists it last.
inline constexpr const char* kAdvanced = "Advanced";
// During its lifetime, new flags of the verb are added to the group "Advanced".
class AdvancedFlags {
 public:
  explicit AdvancedFlags(CLI::App* verb)
      : verb_(verb), before_(verb->option_defaults()->get_group()) {
    verb->option_defaults()->group(kAdvanced);
  }
  ~AdvancedFlags() { verb_->option_defaults()->group(before_); }
  AdvancedFlags(const AdvancedFlags&) = delete;
  AdvancedFlags& operator=(const AdvancedFlags&) = delete;

 private:
  CLI::App* verb_;
  std::string before_;
};

}  // namespace bowline::command
