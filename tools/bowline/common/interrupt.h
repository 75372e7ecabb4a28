// SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is closed).
#pragma once

namespace bowline::command {

// Installs handlers: a signal now ends the process at once, with the exit code kInterrupted.
void watch_interrupts();
// After this call, the first signal only makes interrupted() return true. A second signal, at least
// one second later, ends the process.
void defer_interrupts();
bool interrupted();
// Undoes defer_interrupts() and forgets a signal that arrived meanwhile.
void end_deferral();

}  // namespace bowline::command
