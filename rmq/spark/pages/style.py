"""Style and script of the pages: all there is, nothing is loaded from anywhere."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """
  color-scheme: light;
  --page: #f4f4f1; --card: #ffffff; --ink: #1b1c1e; --soft: #5d6068; --faint: #8b8e96;
  --rule: #e3e3de; --grid: #ecece8; --base: #b9bac0; --empty: #f2f2ee;
  --s1: #2a6fd0; --s2: #e2622b; --s3: #17936a; --s4: #d99a00; --s5: #c94f86; --s6: #6a4bc4;
  --s7: #0e8fa8; --s8: #8a5a2b; --others: #a9abb2; --heat: #1f5fbf;
  --good: #0f7b4f; --good-soft: #e3f4ec; --bad: #c2292e; --bad-soft: #fdeaea;
  --doubt: #9a6300; --doubt-soft: #fdf2dc;
"""

_DARK: Final = """
  color-scheme: dark;
  --page: #131417; --card: #1b1d21; --ink: #ececea; --soft: #a8abb3; --faint: #7d8089;
  --rule: #2d3036; --grid: #26292f; --base: #565a63; --empty: #212328;
  --s1: #5b9bf0; --s2: #f0834f; --s3: #35bd8f; --s4: #e3b341; --s5: #e57fae; --s6: #a28bf0;
  --s7: #46bcd3; --s8: #c39164; --others: #666a73; --heat: #6aa8ff;
  --good: #4cc38a; --good-soft: #14291f; --bad: #ff7b7b; --bad-soft: #331a1c;
  --doubt: #f0b849; --doubt-soft: #2e2412;
"""

STYLE: Final = (
    ":root {"
    + _LIGHT
    + "}\n@media (prefers-color-scheme: dark) { :root {"
    + _DARK
    + """} }
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1060px; margin: 0 auto; padding: 28px 20px 60px; }
header h1 { font-size: 24px; line-height: 1.25; margin: 0 0 2px; letter-spacing: -0.01em; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
.verdict {
  display: flex; gap: 12px; align-items: baseline; margin: 18px 0; padding: 13px 16px;
  border-radius: 10px; border-left: 5px solid;
}
.verdict b { white-space: nowrap; }
.verdict span { color: var(--ink); overflow-wrap: anywhere; }
.holds { background: var(--good-soft); border-color: var(--good); color: var(--good); }
.fails { background: var(--bad-soft); border-color: var(--bad); color: var(--bad); }
.unknown { background: var(--doubt-soft); border-color: var(--doubt); color: var(--doubt); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.tile, section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 12px 15px; min-width: 0; }
.tile .label { color: var(--soft); font-size: 13px; }
.tile .number { font-size: 25px; font-weight: 620; letter-spacing: -0.02em; line-height: 1.3; }
.tile .note { color: var(--faint); font-size: 12.5px; overflow-wrap: anywhere; }
.tile.bad .number { color: var(--bad); }
section { margin-top: 16px; padding: 18px 20px 20px; }
section h2 { font-size: 17px; margin: 0 0 2px; }
section > p { margin: 0 0 10px; color: var(--soft); max-width: 78ch; }
figure { margin: 18px 0 0; }
figcaption { margin-bottom: 4px; overflow-wrap: anywhere; }
figcaption .sub { color: var(--soft); margin-left: 8px; font-size: 13.5px; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.tick { fill: var(--soft); font-variant-numeric: tabular-nums; }
.name { fill: var(--ink); } .value { fill: var(--soft); }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--grid); } .base { stroke: var(--base); }
.area { fill: var(--c); stroke: none; }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.dot { fill: var(--c); stroke: var(--card); stroke-width: 1.5; }
.band { fill: var(--s1); fill-opacity: 0.3; stroke: none; } .band.faint { fill-opacity: 0.13; }
.bar { fill: var(--s1); } .bar.bad { fill: var(--bad); }
.limit { stroke: var(--bad); stroke-dasharray: 5 4; } svg .limit-text { fill: var(--bad); }
.hit { fill: var(--ink); fill-opacity: 0; } .hit:hover { fill-opacity: 0.07; }
.empty { fill: var(--empty); }
.heat { fill: var(--heat); } .heat:hover, .cell:hover { stroke: var(--ink); stroke-width: 1.5; }
.h1 { fill-opacity: 0.12; } .h2 { fill-opacity: 0.26; } .h3 { fill-opacity: 0.4; }
.h4 { fill-opacity: 0.55; } .h5 { fill-opacity: 0.7; } .h6 { fill-opacity: 0.85; }
.cell-equal { fill: var(--s3); fill-opacity: 0.55; } .cell-differs { fill: var(--bad); }
.cell-missing { fill: var(--s4); } .cell-beyond { fill: var(--s6); }
.cell-apart { fill: var(--others); fill-opacity: 0.45; }
.legend {
  display: flex; flex-wrap: wrap; gap: 3px 18px; margin: 4px 0 8px; font-size: 13px;
  color: var(--soft); overflow-wrap: anywhere;
}
.legend > span { display: inline-flex; align-items: center; gap: 6px; min-width: 0; }
.legend b { color: var(--ink); font-weight: 560; white-space: nowrap; }
.legend i { flex: none; width: 11px; height: 11px; border-radius: 3px; background: var(--heat); }
.legend .ramp { gap: 2px; } .legend .ramp i { width: 20px; border-radius: 2px; }
.legend i.key-line { height: 2px; width: 16px; background: var(--s1); }
.legend i.key-band { background: var(--s1); opacity: 0.43; }
.legend i.key-faint { background: var(--s1); opacity: 0.18; }
i.swatch.h1 { opacity: 0.12; } i.swatch.h2 { opacity: 0.26; } i.swatch.h3 { opacity: 0.4; }
i.swatch.h4 { opacity: 0.55; } i.swatch.h5 { opacity: 0.7; } i.swatch.h6 { opacity: 0.85; }
i.swatch.cell-equal { background: var(--s3); opacity: 0.55; }
i.swatch.cell-differs { background: var(--bad); } i.swatch.cell-missing { background: var(--s4); }
i.swatch.cell-beyond { background: var(--s6); }
i.swatch.cell-apart { background: var(--others); opacity: 0.45; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 10px; }
th {
  text-align: left; font-weight: 560; color: var(--soft); border-bottom: 1px solid var(--base);
  white-space: nowrap;
}
th, td { padding: 6px 14px 6px 0; vertical-align: top; }
td { border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; min-width: 5ch; }
tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: color-mix(in srgb, var(--ink) 4%, transparent); }
th.num, td.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.short { white-space: nowrap; }
td.bad { color: var(--bad); font-weight: 560; } td.good { color: var(--good); }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.more { color: var(--faint); font-size: 13px; margin: 8px 0 0; }
ul.findings { margin: 10px 0 0; padding-left: 18px; } ul.findings li { overflow-wrap: anywhere; }
footer { margin-top: 22px; color: var(--faint); font-size: 12.5px; overflow-wrap: anywhere; }
#tip {
  position: fixed; z-index: 9; pointer-events: none; display: none; white-space: pre-line;
  max-width: 380px; padding: 7px 10px; border-radius: 7px; font-size: 12.5px; line-height: 1.45;
  background: var(--ink); color: var(--card); font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; box-shadow: 0 4px 18px rgb(0 0 0 / 0.25);
}
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
)

SCRIPT: Final = """
(function () {
  var tip = document.getElementById('tip');
  document.querySelectorAll('svg title').forEach(function (title) {
    var shape = title.parentNode;
    shape.setAttribute('data-tip', title.textContent);
    shape.removeChild(title);
  });
  document.addEventListener('pointermove', function (event) {
    var shape = event.target.closest ? event.target.closest('[data-tip]') : null;
    if (!shape) { tip.style.display = 'none'; return; }
    tip.textContent = shape.getAttribute('data-tip');
    tip.style.display = 'block';
    var x = event.clientX + 14, y = event.clientY + 14;
    if (x + tip.offsetWidth > innerWidth - 8) { x = event.clientX - tip.offsetWidth - 14; }
    if (y + tip.offsetHeight > innerHeight - 8) { y = event.clientY - tip.offsetHeight - 14; }
    tip.style.left = Math.max(4, x) + 'px';
    tip.style.top = Math.max(4, y) + 'px';
  });
})();
"""
"""Shows the titles of shapes at once; without it the browser shows them after a while."""
