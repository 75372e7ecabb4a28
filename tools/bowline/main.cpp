// bowline: runs, fine-tunes and checks models from the command line. One file per verb.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "common/arguments.h"
#include "common/build.h"
#include "verb.h"

namespace bowline::command {
namespace {

constexpr const char* kFooter = R"(Exit codes
  0    done
  1    the work failed (the message says what, with the values)
  2    wrong usage: an unknown verb, flag or value
  3    a file cannot be read, is damaged, or is not what it should be
  4    a device is unknown, or cannot be used
  75   the device is lost: start the same command again (finetune goes on with --resume auto)
  130  interrupted by Ctrl-C, SIGTERM or SIGHUP; finetune has written a checkpoint, if it had begun

`bowline help VERB`, or `bowline VERB --help`, shows the flags of a verb and an example.)";

int run(int argc, char** argv) {
  CLI::App app{"Runs, fine-tunes and checks neural networks; never loses a weight tie.", "bowline"};
  app.set_version_flag("-v,--version", "bowline " + build_text());
  app.footer(kFooter);
  app.require_subcommand(1);
  Context context;
  add_verbs(app, context);

  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "help") {  // help VERB is VERB --help
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (const std::string problem = find_unknown(app, words); !problem.empty()) {
    return fail(kUsage, problem);
  }
  try {
    std::ranges::reverse(words);  // as CLI11 wants them
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app.exit(error, text, text);
      print("{}", Lines{text.str()});
      return kOk;
    }
    return fail(kUsage, usage_message(app, error.what()));
  }
  const Result<int> code = context.run();
  return code.ok() ? code.value() : fail(code.status());
}

int run_guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return fail(kFailed, fmt::format("Unexpected failure: {}.", error.what()));
  }
}

// A verb is not done when what it printed did not arrive, unless its reader wanted no more.
int finish(int code) {
  std::string why;
  if (printed(why) || code != kOk) {
    return code;
  }
  return fail(kFailed, fmt::format("Standard output cannot be written: {}.", why));
}

}  // namespace
}  // namespace bowline::command

int main(int argc, char** argv) {
  // A reader that leaves early (| head) is no reason to die half way through a checkpoint.
  std::signal(SIGPIPE, SIG_IGN);
  // A file size limit fails the write, which says so.
  std::signal(SIGXFSZ, SIG_IGN);
  return bowline::command::finish(bowline::command::run_guarded(argc, argv));
}
