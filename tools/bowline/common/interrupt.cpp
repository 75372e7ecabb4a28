#include "common/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "verb.h"

namespace bowline::command {
namespace {

volatile sig_atomic_t deferred = 0;
volatile sig_atomic_t interrupts = 0;

// One interruption may arrive as several signals: timeout(1) signals the process and then its
// group, and a closed terminal sends SIGHUP and SIGTERM. A later signal ends the process.
constexpr time_t kOneInterruption = 1;  // seconds
timespec first_signal = {};

bool is_the_same_interruption() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const time_t seconds = now.tv_sec - first_signal.tv_sec;
  return seconds < kOneInterruption ||
         (seconds == kOneInterruption && now.tv_nsec < first_signal.tv_nsec);
}

void on_signal(int) {
  if (deferred == 0) {
    _exit(kInterrupted);  // files appear whole or not at all, so nothing is lost
  }
  if (interrupts == 0) {
    clock_gettime(CLOCK_MONOTONIC, &first_signal);
    interrupts = 1;
  } else if (!is_the_same_interruption()) {
    _exit(kInterrupted);
  }
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  // No handler interrupts another one, which may be writing `first_signal`.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&action.sa_mask, signal);
  }
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
