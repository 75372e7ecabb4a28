// SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is closed).
#pragma once

namespace bowline::command {

// From now on a signal ends the process at once, with the exit code of an interruption.
void watch_interrupts();
// From now on the first signal is a wish, which interrupted() tells; the second ends the process.
void defer_interrupts();
bool interrupted();
// From now on a signal ends the process at once again; a wish that came is forgotten.
void end_deferral();

}  // namespace bowline::command
