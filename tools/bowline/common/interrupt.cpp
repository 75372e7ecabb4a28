#include "common/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "verb.h"

namespace bowline::command {
namespace {

volatile sig_atomic_t deferred = 0;
volatile sig_atomic_t interrupts = 0;

void on_signal(int) {
  if (interrupts != 0 || deferred == 0) {
    _exit(kInterrupted);  // files appear whole or not at all, so nothing is lost
  }
  interrupts = 1;
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction old = {};
  if (sigaction(SIGHUP, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {  // not under nohup
    sigaction(SIGHUP, &action, nullptr);
  }
}

void defer_interrupts() { deferred = 1; }

bool interrupted() { return interrupts != 0; }

void end_deferral() {
  deferred = 0;
  interrupts = 0;
}

}  // namespace bowline::command
