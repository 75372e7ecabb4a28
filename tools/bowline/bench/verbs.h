// The verbs of `bowline bench`.
#pragma once

#include <CLI/CLI.hpp>

#include "verb.h"

namespace bowline::command {

void add_bench_matmul(CLI::App& bench, Context& context);
void add_bench_run(CLI::App& bench, Context& context);
void add_bench_train(CLI::App& bench, Context& context);
void add_bench_decode(CLI::App& bench, Context& context);
void add_bench_model_time(CLI::App& bench, Context& context);
void add_bench_table(CLI::App& bench, Context& context);
void add_bench_ties(CLI::App& bench, Context& context);
void add_bench_tokenize(CLI::App& bench, Context& context);

}  // namespace bowline::command
