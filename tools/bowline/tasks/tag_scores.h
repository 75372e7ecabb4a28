// Measures tags of words: entities that are found whole, and single words.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/tagged_words.h"
#include "tasks/scores.h"

namespace bowline::command {

// An entity: words [begin, end) of a sentence.
struct Entity {
  std::string kind;
  size_t begin = 0;
  size_t end = 0;
  auto operator<=>(const Entity&) const = default;
};
// Returns the entities of the tags of a sentence. An entity starts at B, at S, at another kind, and
// at an I or E behind O, E or S. It ends before O, B and S, before another kind, and behind E and
// S. Source  seqeval 1.2: get_entities().
std::vector<Entity> entities_of(std::span<const std::string> tags);

class TagScores {
 public:
  explicit TagScores(TagScheme scheme) : scheme_(scheme) {}

  // Adds a sentence: the true and the predicted tag of each word.
  void add(std::span<const std::string> truth, std::span<const std::string> predicted);
  void add_nats(double nats) { nats_ += nats; }

  // Returns the mean loss of a word; "accuracy", the share of words with the right tag. With
  // TagScheme::entities also "precision", "recall" and "f1" of all entities together, as seqeval
  // computes them. With TagScheme::words "macro_f1", the mean F1 of the tags that occur in the
  // truth or in a prediction.
  Measure measure() const;

 private:
  TagScheme scheme_;
  double nats_ = 0;
  uint64_t words_ = 0;
  uint64_t right_ = 0;
  LabelCounts entities_;
  std::map<std::string, LabelCounts> tags_;
};

}  // namespace bowline::command
