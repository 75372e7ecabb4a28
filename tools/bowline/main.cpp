// bowline: runs, fine-tunes and checks models from the command line. One file per verb.
#include "common/build.h"
#include "common/help.h"
#include "common/program.h"

namespace bowline::command {
namespace {

// conform is a separate program in tools/conform, because it contains reference implementations and
// test devices.
constexpr const char* kConform = "conform";
constexpr const char* kLicences = "--licences";
constexpr const char* kFooter = R"(From a GGUF file, or a Hugging Face folder, to a tuned model:
    bowline import model.gguf --out lm.bowline
    bowline finetune lm.bowline --data notes.txt --lora-rank 8 --out my.bowline
    bowline generate lm.bowline "Once upon a time" --adapter my.bowline

Exit codes
  0    done
  1    the work failed; the message says why
  2    wrong usage: unknown subcommand, flag or value, or the output exists
  3    a file cannot be read, is damaged, or is of the wrong kind
  4    a device is unknown, or cannot be used
  75   the device stopped working; run again (finetune: with --resume auto)
  130  interrupted, for example by Ctrl-C; finetune writes a checkpoint first

`bowline help SUBCOMMAND` shows the flags of a subcommand and examples.)";

int run(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "help") {  // "help VERB" means "VERB --help"
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (!words.empty() && words[0] == "--licenses") {
    words[0] = kLicences;
  }
  if (!words.empty() && words[0] == kConform) {
    words.erase(words.begin());
    return fail(start_beside("bowline-conform", std::move(words)));
  }
  CLI::App app{"Runs, fine-tunes and checks neural networks on CPUs and GPUs.", "bowline"};
  app.set_version_flag("-v,--version", "bowline " + build_text());
  app.add_flag_callback(
      kLicences, [] { throw CLI::CallForVersion(licences(), 0); },
      "Show the licences of Bowline and of the software in it");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.require_subcommand(1);
  Context context;
  add_verbs(app, context);
  app.add_subcommand(kConform, "Compares devices with reference implementations of the operators");
  return run_arguments(app, context, std::move(words));
}

}  // namespace
}  // namespace bowline::command

int main(int argc, char** argv) {
  return bowline::command::run_program(argc, argv, bowline::command::run);
}
