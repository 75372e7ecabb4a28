#include "tasks/tag_scores.h"

#include <algorithm>
#include <iterator>

namespace bowline::command {
namespace {

struct Tag {
  char prefix = 'O';
  std::string kind;
};

Tag tag_of(const std::string& text) {
  return text.size() > 2 && text[1] == '-' ? Tag{text[0], text.substr(2)} : Tag();
}

bool is_one(char prefix, std::string_view of) { return of.find(prefix) != std::string_view::npos; }

double share(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

std::vector<Entity> entities_of(std::span<const std::string> tags) {
  std::vector<Entity> out;
  Tag before;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const Tag now = i < tags.size() ? tag_of(tags[i]) : Tag();
    const bool is_other = before.kind != now.kind;
    const bool ends = before.prefix != 'O' &&
                      (is_one(before.prefix, "ES") || is_one(now.prefix, "BSO") || is_other);
    const bool starts =
        now.prefix != 'O' && (is_one(now.prefix, "BS") || is_one(before.prefix, "ESO") || is_other);
    if (ends) {
      out.back().end = i;
    }
    if (starts) {
      out.push_back({now.kind, i, i});
    }
    before = now;
  }
  return out;
}

void TagScores::add(std::span<const std::string> truth, std::span<const std::string> predicted) {
  words_ += truth.size();
  for (size_t i = 0; i < truth.size(); ++i) {
    if (truth[i] == predicted[i]) {
      ++right_;
      ++tags_[truth[i]].right;
    } else {
      ++tags_[truth[i]].missed;
      ++tags_[predicted[i]].mistaken;
    }
  }
  std::vector<Entity> own = entities_of(truth), found = entities_of(predicted), both;
  std::ranges::sort(own);
  std::ranges::sort(found);
  std::ranges::set_intersection(own, found, std::back_inserter(both));
  entities_.right += both.size();
  entities_.missed += own.size() - both.size();
  entities_.mistaken += found.size() - both.size();
}

Measure TagScores::measure() const {
  Measure m;
  m.loss = words_ == 0 ? 0 : nats_ / static_cast<double>(words_);
  m.more = {{"accuracy", share(right_, words_)}};
  if (scheme_ == TagScheme::entities) {
    m.more.emplace_back("precision", share(entities_.right, entities_.right + entities_.mistaken));
    m.more.emplace_back("recall", share(entities_.right, entities_.right + entities_.missed));
    m.more.emplace_back("f1", entities_.f1());
    return m;
  }
  double sum = 0;
  for (const auto& [tag, count] : tags_) {
    sum += count.f1();
  }
  m.more.emplace_back("macro_f1", tags_.empty() ? 0 : sum / static_cast<double>(tags_.size()));
  return m;
}

}  // namespace bowline::command
