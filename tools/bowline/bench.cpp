// bowline bench: benchmarks of matrix products, runs, training steps, generation, large tables of
// storages, ties and tokenizers, and the modelled times of GPUs. bench/ has a file for each.
#include "bench/verbs.h"
#include "verb.h"

namespace bowline::command {

void add_bench(CLI::App& app, Context& context) {
  CLI::App* bench =
      add_verb(app, "bench", "Measures the speed of operators, models, training and tokenizers",
               "bowline bench matmul --m 768 --n 768 --k 768 --device cpu");
  bench->require_subcommand(1);
  for (const auto add :
       {add_bench_matmul, add_bench_run, add_bench_train, add_bench_decode, add_bench_model_time,
        add_bench_table, add_bench_ties, add_bench_tokenize}) {
    add(*bench, context);
  }
}

}  // namespace bowline::command
