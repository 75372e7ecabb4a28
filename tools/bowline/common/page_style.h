// The style sheet of all pages. It loads no external fonts or pictures.
#pragma once

#include <string_view>

namespace bowline::command {

constexpr std::string_view kPageStyle = R"(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f6f7f9; --ink: #1a1f26; --soft: #5a6472; --line: #d9dee5; --grid: #e6e9ee;
  --link: #0b57b0; --focus: #0b57b0; --good: #1a7f45; --bad: #b3261e; --busy: #8a5a00; --on: #ffffff;
  --c0: #2266bb; --c1: #c2410c; --c2: #0f766e; --c3: #8b2fa0; --c4: #97730a; --c5: #64748b; --c6: #a12a5e; --c7: #3f7d20;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171c; --panel: #1c2027; --ink: #e7eaef; --soft: #a3adba; --line: #363d48; --grid: #272d36;
    --link: #8ab8f5; --focus: #8ab8f5; --good: #6fcf97; --bad: #ff8f85; --busy: #f2b84b; --on: #14171c;
    --c0: #74aef2; --c1: #f59e6c; --c2: #4fc9bb; --c3: #d294e3; --c4: #d9b84a; --c5: #9aa8ba; --c6: #ee8fb5; --c7: #93cf76;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1.25rem 3rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.65rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-top: .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 46rem; overflow-wrap: anywhere; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; background: var(--paper); color: var(--link); padding: .5rem 1rem; z-index: 1; }
.skip:focus { left: .5rem; top: .5rem; }
.subtitle, .note { color: var(--soft); margin: .25rem 0 0; }
.state { margin: .75rem 0 0; }
.pill { display: inline-block; padding: 0 .6rem; margin-right: .35rem; border-radius: 1rem; color: var(--on); background: var(--busy);
  font-size: .85rem; line-height: 1.6; }
.pill.finished { background: var(--good); }
.pill.failed { background: var(--bad); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; margin: 1rem 0 0; padding: 0; }
dl { margin: 0; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin-top: 1.5rem; }
.headline div { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .85rem; }
.headline dt { color: var(--soft); font-size: .85rem; }
.headline dd { font-size: 1.3rem; font-weight: 600; line-height: 1.35; overflow-wrap: anywhere; }
.facts div { display: grid; grid-template-columns: 13rem 1fr; gap: 0 1rem; padding: .3rem 0; border-top: 1px solid var(--grid); }
.facts dt { color: var(--soft); overflow-wrap: anywhere; }
.facts dd { overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem; }
figure { margin: 1rem 0 1.5rem; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: .1rem 1.25rem; margin-bottom: .25rem; }
figcaption strong { font-weight: 600; }
figcaption .unit { color: var(--soft); font-weight: 400; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.key { display: inline-block; width: 1.1rem; height: .7rem; margin-right: .4rem; border-radius: 2px; background: var(--own); }
.key.line { height: 3px; vertical-align: middle; }
svg { display: block; overflow: visible; }
.chart { width: calc(100% - 5.25rem); margin: .75rem 1.25rem 3rem 4rem; }
.chart text { font-size: .8rem; fill: var(--soft); font-variant-numeric: tabular-nums; }
.chart .y { text-anchor: end; dominant-baseline: central; }
.chart .x { text-anchor: middle; }
.chart .grid { stroke: var(--grid); }
.chart .axis { stroke: var(--line); }
.chart .limit { stroke: var(--soft); stroke-dasharray: 5 4; }
.chart path { fill: none; stroke: var(--own); stroke-width: 1.75; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.chart path.faint { stroke-width: 1; opacity: .4; }
.chart path.area { fill: var(--own); fill-opacity: .22; stroke-width: 1.25; }
.chart circle { fill: var(--paper); stroke: var(--own); stroke-width: 2; }
.chart .peak { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.stop { outline: none; }
.stop rect { fill: transparent; }
.stop line, .stop .reading, .stop .ring { visibility: hidden; }
.stop line { stroke: var(--soft); }
.chart .stop .reading { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round; }
.chart .stop .ring { fill: var(--own); stroke: var(--paper); }
.stop:hover line, .stop:hover .reading, .stop:hover .ring,
.stop:focus line, .stop:focus .reading, .stop:focus .ring { visibility: visible; }
.stop:focus line { stroke: var(--focus); stroke-width: 2; }
.bar rect { fill: var(--own); stroke: var(--paper); }
.c0 { --own: var(--c0); } .c1 { --own: var(--c1); } .c2 { --own: var(--c2); } .c3 { --own: var(--c3); }
.c4 { --own: var(--c4); } .c5 { --own: var(--c5); } .c6 { --own: var(--c6); } .c7 { --own: var(--c7); }
.scroll { overflow: auto; max-width: 100%; max-height: 90vh; margin-bottom: 1.25rem; }
table { border-collapse: collapse; font-size: .9rem; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0; border-top: 1px solid var(--grid); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 36rem; }
details { margin: .25rem 0; }
summary { cursor: pointer; color: var(--link); width: fit-content; max-width: 100%; overflow-wrap: anywhere; }
.confusion td { text-align: right; padding: .3rem .55rem; min-width: 2.6rem; font-variant-numeric: tabular-nums; border: 1px solid var(--paper);
  background: color-mix(in srgb, var(--c0) calc(var(--share) * 50%), var(--panel)); }
.confusion td.hit { outline: 1px solid var(--soft); outline-offset: -2px; }
.confusion thead th { writing-mode: vertical-rl; transform: rotate(180deg); vertical-align: bottom; padding: .4rem .2rem; font-weight: 400; }
.confusion thead th.corner { writing-mode: horizontal-tb; transform: none; }
.confusion tbody th { font-weight: 400; border-top: 0; padding: .3rem .75rem .3rem 0; white-space: nowrap; }
.graph { list-style: none; margin: .75rem 0; padding: 0; }
.graph ol { list-style: none; margin: 0; padding: 0; }
.node { border: 1px solid var(--line); border-radius: .4rem; background: var(--paper); padding: .4rem .75rem; margin: 0 0 .4rem;
  position: relative; overflow-wrap: anywhere; }
.node .op { font-weight: 600; }
.operands { font-size: .875rem; color: var(--soft); margin: .1rem 0 0; max-width: none; }
.repeat { border: 2px solid var(--c0); border-radius: .6rem; background: var(--panel); padding: .6rem .75rem .2rem; margin: 0 0 .4rem; }
.repeat > .op { font-weight: 600; color: var(--c0); }
.port { border-radius: 1.2rem; border-style: dashed; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .9em; overflow-wrap: anywhere; }
:target { background: color-mix(in srgb, var(--c4) 22%, transparent); }
h2:target { background: none; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .875rem; }
@media (max-width: 40rem) {
  body { padding: 1rem .9rem 2rem; }
  .facts div { grid-template-columns: 1fr; }
  .headline { grid-template-columns: 1fr 1fr; }
  .headline dd { font-size: 1.1rem; }
  .chart { width: calc(100% - 4rem); margin: .75rem .5rem 3rem 3.5rem; }
  .chart .wide { display: none; }
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, .skip, .state a { display: none; }
  .scroll { max-height: none; }
  figure, .headline div, .node { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .confusion td, .key, .bar rect, .pill { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
)";

}  // namespace bowline::command
