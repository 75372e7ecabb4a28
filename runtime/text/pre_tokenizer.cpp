#include "text/pre_tokenizer.h"

#include <algorithm>

namespace bowline::text {
namespace {

// Joins each match with the previous range in the order of `ranges`, unless that is a match, too.
template <class Ranges>
void merge(const Ranges& ranges, std::vector<Piece>& out) {
  bool after_match = false;
  for (const Range& r : ranges) {
    if (r.match && !after_match && !out.empty()) {
      out.back().begin = std::min(out.back().begin, r.begin);
      out.back().end = std::max(out.back().end, r.end);
    } else {
      out.push_back({r.begin, r.end});
    }
    after_match = r.match;
  }
}

void cut(const std::vector<Range>& ranges, Matches matches, std::vector<Piece>& out) {
  switch (matches) {
    case Matches::removed:
    case Matches::isolated:
      for (const Range& r : ranges) {
        if (matches == Matches::isolated || !r.match) {
          out.push_back({r.begin, r.end});
        }
      }
      return;
    case Matches::merged_with_previous:
      merge(ranges, out);
      return;
    case Matches::merged_with_next: {
      const std::vector<Range> backward(ranges.rbegin(), ranges.rend());
      merge(backward, out);
      std::ranges::reverse(out);
      return;
    }
    case Matches::contiguous: {
      bool after_match = false;
      for (const Range& r : ranges) {
        if (r.match == after_match && !out.empty()) {
          out.back().end = r.end;
        } else {
          out.push_back({r.begin, r.end});
        }
        after_match = r.match;
      }
      return;
    }
  }
}

}  // namespace

PreTokenizer split(Pattern pattern, Matches matches, bool invert) {
  return [pattern = std::move(pattern), matches, invert](Pieces& pieces) {
    std::vector<Range> ranges;
    return pieces.split([&](std::string_view text, std::vector<Piece>& out) -> Status {
      ranges.clear();
      BOWLINE_TRY(pattern.find(text, ranges));
      if (invert) {
        for (Range& r : ranges) {
          r.match = !r.match;
        }
      }
      cut(ranges, matches, out);
      return {};
    });
  };
}

PreTokenizer fixed_length(size_t code_points) {
  return [code_points](Pieces& pieces) {
    return pieces.split([&](std::string_view text, std::vector<Piece>& out) -> Status {
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        for (size_t n = 0; n < code_points && at < text.size(); ++n) {
          at += length_of(text[at]);
        }
        out.push_back({begin, at});
      }
      return {};
    });
  };
}

PreTokenizer prefix_space() {
  return [add = prepend(" ")](Pieces& pieces) {
    return pieces.rewrite(
        [&](AlignedText& t) { return t.text.starts_with(' ') ? Status() : add(t); });
  };
}

PreTokenizer rewrite(Normalizer normalizer) {
  return
      [normalizer = std::move(normalizer)](Pieces& pieces) { return pieces.rewrite(normalizer); };
}

PreTokenizer metaspace(std::string replacement, Prepend where) {
  return [spaces = replace(Pattern::of_text(" "), replacement), add = prepend(replacement),
          replacement, where](Pieces& pieces) {
    return pieces.rewrite([&](AlignedText& t) -> Status {
      if (t.text.empty()) {
        return {};
      }
      const bool first = t.at[0].begin == 0;
      BOWLINE_TRY(spaces(t));
      const bool wanted = where == Prepend::always || (where == Prepend::first && first);
      return wanted && !t.text.starts_with(replacement) ? add(t) : Status();
    });
  };
}

}  // namespace bowline::text
