#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/require.h"

namespace bowline::text {
namespace {

// Joins a range with the previous range in the order of `ranges` if joins(match, previous match).
template <class Joins>
void merge(const auto& ranges, std::vector<Piece>& out, Joins&& joins) {
  bool after_match = false;
  for (const Range& r : ranges) {
    if (!out.empty() && joins(r.match, after_match)) {
      out.back().begin = std::min(out.back().begin, r.begin);
      out.back().end = std::max(out.back().end, r.end);
    } else {
      out.push_back({r.begin, r.end});
    }
    after_match = r.match;
  }
}

void cut(const std::vector<Range>& ranges, Matches matches, std::vector<Piece>& out) {
  const auto joins_text = [](bool match, bool after_match) { return match && !after_match; };
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
      merge(ranges, out, joins_text);
      return;
    case Matches::merged_with_next:
      merge(std::vector(ranges.rbegin(), ranges.rend()), out, joins_text);
      std::ranges::reverse(out);
      return;
    case Matches::contiguous:
      merge(ranges, out, std::equal_to<>());
      return;
  }
}

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

// Adds a space before a piece that does not start with a space.
PreTokenizer prefix_space() {
  return [add = prepend(" ")](Pieces& pieces) {
    return pieces.rewrite(
        [&](AlignedText& t) { return t.text.starts_with(' ') ? Status() : add(t); });
  };
}

// Replaces spaces by `replacement` and adds it at the start of the text.
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

// ---- one for each step

using Parts = std::vector<PreTokenizer>;

Status add_split(Parts& out, Pattern pattern, Matches matches, bool invert = false) {
  out.push_back(split(std::move(pattern), matches, invert));
  return {};
}

Status add(const steps::ByteLevel& step, Parts& out) {
  if (step.add_prefix_space) {
    out.push_back(prefix_space());
  }
  if (step.use_regex) {
    out.push_back(split(Pattern::gpt2(), Matches::isolated, false));
  }
  out.push_back([bytes = map_bytes()](Pieces& pieces) { return pieces.rewrite(bytes); });
  return {};
}
Status add(const steps::Metaspace& step, Parts& out) {
  const std::string& space = step.replacement.text;
  out.push_back(metaspace(space, step.prepend_scheme));
  return step.split ? add_split(out, Pattern::of_text(space), Matches::merged_with_next) : Status();
}
Status add(const steps::Whitespace&, Parts& out) {
  return add_split(out, Pattern::of_words(), Matches::removed, true);
}
Status add(const steps::WhitespaceSplit&, Parts& out) {
  return add_split(out, Pattern::of_class(is_white_space), Matches::removed);
}
Status add(const steps::Punctuation& step, Parts& out) {
  return add_split(out, Pattern::of_class(is_punctuation), step.behavior);
}
Status add(const steps::BertPreTokenizer&, Parts& out) {
  BOWLINE_TRY(add(steps::WhitespaceSplit(), out));
  return add(steps::Punctuation(), out);
}
Status add(const steps::Digits& step, Parts& out) {
  return add_split(out, Pattern::of_class(is_number),
                   step.individual_digits ? Matches::isolated : Matches::contiguous);
}
Status add(const steps::CharDelimiterSplit& step, Parts& out) {
  return add_split(out, Pattern::of_text(step.delimiter.text), Matches::removed);
}
Status add(const steps::FixedLength& step, Parts& out) {
  BOWLINE_REQUIRE_FILE(step.length > 0, "\"length\" is 0.");
  out.push_back(fixed_length(step.length));
  return {};
}
Status add(const steps::Split& step, Parts& out) {
  BOWLINE_TRY_ASSIGN(Pattern pattern, Pattern::of(step.pattern));
  return add_split(out, std::move(pattern), step.behavior, step.invert);
}

}  // namespace

Status add_pre_tokenizer(const steps::PreTokenizer& step, std::vector<PreTokenizer>& out) {
  return std::visit([&](const auto& s) { return add(s, out); }, step);
}

}  // namespace bowline::text
