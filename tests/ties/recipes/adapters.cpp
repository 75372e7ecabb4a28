// Adapters: the report says which uses they change, and they are merged only if every use wants the
// change.
#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// LM32 with an adapter that adds (1,1) to row 0 of the head, for the head alone or for every use.
Seed adapted(bool per_parameter, std::string_view target = "head", bool freeze_others = true) {
  Seed s = lm32();
  AdapterOptions o;
  o.rank = 1;
  o.alpha = 1;
  o.target = target;
  o.per_parameter = per_parameter;
  o.freeze_others = freeze_others;
  must(add_adapter(s.model, "ad", o));
  const std::string prefix = std::string(target) + ".ad";
  must(set(s.model, prefix + ".lora_a", {1, 2}, {1, 1}));
  must(set(s.model, prefix + ".lora_b", {3, 1}, {1, 0, 0}));
  return s;
}

Floats logits_of_id(Session& session, Seed& s, int32_t id) {
  s.ids = {id};
  return logits_of(session, s);
}

void of_one_use(Bench& t) {
  Seed s = adapted(true);
  must(s.model.to(t.b));
  Session session = must(Session::create(s.model, t.b, "loss", {}));
  t.same("logits of (1,1)", logits_of_id(session, s, 2), Floats({3, 1, 2}));
  t.same("logits of row 0, looked up as (1,0)", logits_of_id(session, s, 0), Floats({2, 0, 1}));
  const std::string before = s.model.parameters() + s.model.storages() + s.model.ties();
  t.refused("a merge of one use of two", merge_adapter(s.model, "ad"), Code::bad_argument,
            {"\"head\"", "\"embed\"", "untie(\"head\") first; it costs 24 bytes"});
  t.same("after the refusal", s.model.parameters() + s.model.storages() + s.model.ties(), before);
  t.same("E", values(s.model, "embed"), Floats({1, 0, 0, 1, 1, 1}));
  t.count("bytes of the untie", must(s.model.untie("head")), 24);
  t.same("logits after it", logits_of_id(session, s, 2), Floats({3, 1, 2}));
  must(merge_adapter(s.model, "ad"));
  t.same("the head, merged", values(s.model, "head"), Floats({2, 1, 0, 1, 1, 1}));
  t.same("the embedding", values(s.model, "embed"), Floats({1, 0, 0, 1, 1, 1}));
  t.same("logits after the merge", logits_of_id(session, s, 2), Floats({3, 1, 2}));
  t.count("adapters", adapters(s.model).size(), 0);
}

void of_the_storage(Bench& t) {
  Seed s = adapted(false);
  must(s.model.to(t.b));
  Session session = must(Session::create(s.model, t.b, "loss", {}));
  t.same("logits of (1,1)", logits_of_id(session, s, 2), Floats({3, 1, 2}));
  t.same("logits of row 0, (2,1) for lookup and head", logits_of_id(session, s, 0),
         Floats({5, 1, 3}));
  must(merge_adapter(s.model, "ad"));
  t.same("logits after the merge", logits_of_id(session, s, 0), Floats({5, 1, 3}));
  t.same("the head", values(s.model, "head"), values(s.model, "embed"));
}

// The tied storage is trained together with an adapter.
void beside_whole_training(Bench& t) {
  Seed s = adapted(false, "embed", false);
  must(s.model.to(t.b));
  const std::string ties = s.model.ties();
  Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.125f)));
  step(trainer, s);
  t.same("ties", s.model.ties(), ties);
  const Floats base = values(s.model, "embed"), a = values(s.model, "embed.ad.lora_a"),
               b = values(s.model, "embed.ad.lora_b");
  t.holds("the storage is trained", base != Floats({1, 0, 0, 1, 1, 1}));
  Floats live = base;
  for (size_t i = 0; i < live.size(); ++i) {
    live[i] += b[i / 2] * a[i % 2];
  }
  const float before = loss(trainer, s);
  must(merge_adapter(s.model, "ad"));
  t.same("the embedding, merged", values(s.model, "embed"), live);
  t.same("the head, merged", values(s.model, "head"), live);
  t.number("the loss after the merge", loss(trainer, s), before, {}, 1e-5);
}

constexpr Recipe kAdaptersRecipes[] = {
    {"R113", "huggingface/peft#2018",
     "an adapter of the head was merged into bytes that the embedding reads too", of_one_use},
    {"R113 storage", "huggingface/peft#2018",
     "an adapter that is meant for every use of a tie was seen by one of them", of_the_storage},
    {"R114", "huggingface/peft#1750, PR#2972, PR#2879; unslothai/unsloth PR#9331, PR#3711",
     "copies of a tied layer per name drifted apart in training: 5.895 off after the merge",
     beside_whole_training},
};

}  // namespace

std::span<const Recipe> recipes_of_adapters() { return kAdaptersRecipes; }

}  // namespace bowline::test
