// Ctrl-C: the first asks for a clean stop, the second ends the process at once.
#pragma once

namespace bowline::command {

// From now on SIGINT and SIGTERM are counted.
void watch_interrupts();
bool interrupted();

}  // namespace bowline::command
