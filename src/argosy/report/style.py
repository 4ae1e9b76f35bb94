"""Define how a report looks: its style sheet, and the script that draws the charts in the reader's colours."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d2430; --soft: #5d6675; --line: #e3e5e8; --grid: #eceef0;
  --accent: #0072b2; --good: #00714f; --good-paper: #e3f4ee; --warn: #9a5b00; --warn-paper: #fdf1dc; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181f; --card: #1c222b; --ink: #e8ebf0; --soft: #9aa4b3; --line: #313945; --grid: #2a323d;
  --accent: #56b4e9; --good: #4fd1a5; --good-paper: #17362d; --warn: #f0b44c; --warn-paper: #3a2c12; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 80px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 6px; }
h2 { font-size: 20px; letter-spacing: -.01em; margin: 52px 0 4px; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 4px 0 14px; }
.soft, figcaption, .note { color: var(--soft); }
.note { font-size: 13.5px; margin: 6px 0; }
pre { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.lead { font-size: 17px; max-width: 75ch; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px;
  margin: 22px 0 6px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.card b { display: block; font-size: 21px; line-height: 1.25; overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: 12.5px; text-transform: uppercase; letter-spacing: .05em; }
.card small { color: var(--soft); font-size: 13px; }
.wide { position: relative; overflow: hidden; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; margin: 12px 0; }
.scroll { overflow-x: auto; }
.wide.more::before { content: ""; position: absolute; right: 0; top: 0; bottom: 0; width: 56px; z-index: 1;
  pointer-events: none; background: linear-gradient(to right, transparent, var(--card)); }
.wide.more::after { content: "scroll sideways: more columns →"; display: block; position: relative; z-index: 2;
  padding: 3px 12px; border-top: 1px solid var(--line); color: var(--accent); font-size: 13px; font-weight: 600;
  text-align: right; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 9px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; font-size: 13px; }
th small { display: block; font-weight: 400; color: var(--soft); }
tr:last-child td { border-bottom: 0; }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0; background: var(--card);
  font-weight: 600; }
td small { color: var(--soft); }
td.best { background: var(--good-paper); color: var(--good); font-weight: 600; }
td.best small { color: inherit; font-weight: 400; }
td.text, th.text { text-align: left; vertical-align: top; }
td.text:last-child { white-space: normal; min-width: 360px; }
td.middle, th.middle { text-align: center; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 8px; }
.star { color: var(--warn); background: var(--warn-paper); border-radius: 5px; padding: 1px 6px;
  font-size: 12.5px; font-weight: 600; white-space: nowrap; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 12px 0;
  min-width: 0; padding: 14px 16px 12px; }
.pair figure { margin: 0; }
figcaption { font-size: 13.5px; margin-bottom: 10px; }
figcaption b { display: block; color: var(--ink); font-size: 15px; }
.chart { width: 100%; }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; }
footer { color: var(--soft); font-size: 13px; margin-top: 56px; border-top: 1px solid var(--line);
  padding-top: 14px; }
@media print { .wide.more::before, .wide.more::after { display: none; } main { max-width: none; padding: 0; }
  figure, .wide, .card { break-inside: avoid; } }
"""

# Charts use the page's colours, and are drawn again when the reader switches between light and dark.
SCRIPT = """
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const font = getComputedStyle(document.body).fontFamily;
async function draw() {
  const ink = css("--ink"), soft = css("--soft"), grid = css("--grid"), card = css("--card");
  const config = { background: "transparent", font, view: { stroke: null },
    axis: { labelColor: soft, titleColor: soft, gridColor: grid, domainColor: grid, tickColor: grid,
            labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 8 },
    legend: { labelColor: ink, titleColor: soft, labelFontSize: 13, titleFontWeight: "normal" },
    text: { color: soft }, rule: { color: soft }, rect: { stroke: null } };
  for (const place of document.querySelectorAll(".chart")) {
    const spec = JSON.parse(document.getElementById(place.dataset.spec).textContent);
    const scrolled = window.scrollY;
    await vegaEmbed(place, spec, { config, actions: false, renderer: "svg" });
    window.scrollTo(0, scrolled);
  }
  document.body.dataset.ready = "yes";
}
draw();
for (const wide of document.querySelectorAll(".wide")) {
  const box = wide.querySelector(".scroll");
  const mark = () => wide.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(box);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
"""
