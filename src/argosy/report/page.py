"""Build the parts that every page has: a frame that works offline, charts in their figures, plain tables.

The charts' data are in script elements of type JSON, escaped so that no text can end the element early.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import Any

from argosy.report import plots
from argosy.report.style import CSS, SCRIPT
from argosy.report.tables import versions, without_nan


def whole_page(title: str, body: Iterable[str], charts: Charts, *, style: str = "") -> str:
    """Return a page that needs no other files; the title is plain text, the parts of the body are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}{style}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n{charts.data()}\n<script>{_javascript()}</script>\n"
        + f"<script>{SCRIPT}</script>\n</body></html>\n"
    )


def footer(hint: str) -> str:
    made = f"Made by Argosy {escape(versions()['argosy'])} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    return f"<footer>{made} This page works offline; {escape(hint)}.</footer>"


class Charts:
    """Collects the charts of a page; each is drawn inside its figure."""

    def __init__(self) -> None:
        self._specs: list[dict[str, Any]] = []

    def figure(self, chart: plots.Chart, title: str, reading: str) -> str:
        """Return a figure with a sentence that tells how to read it; title and sentence are plain text."""
        self._specs.append(chart.to_dict())
        return (
            f"<figure><figcaption><b>{escape(title)}</b>{escape(reading)}</figcaption>"
            f'<div class="chart" data-spec="chart-{len(self._specs)}"></div></figure>'
        )

    def data(self) -> str:
        return "\n".join(
            f'<script type="application/json" id="chart-{number}">{_json(spec)}</script>'
            for number, spec in enumerate(self._specs, start=1)
        )


def _json(value: Any) -> str:
    text = json.dumps(without_nan(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


@cache
def _javascript() -> str:
    """Return Vega, Vega-Lite and vega-embed in one piece, cached because bundling takes two seconds."""
    import vl_convert

    snippet = "window.vegaEmbed = vegaEmbed;"
    bundle: str = vl_convert.javascript_bundle(snippet, vl_version=plots.vega_lite_version())
    return bundle.replace("</script", "<\\/script")


def text_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f'<th class="text">{escape(cell)}</th>' for cell in head)
    lines = ["".join(f'<td class="text">{escape(cell)}</td>' for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return wide_table(f"<tr>{top}</tr>{body}")


def wide_table(rows: str) -> str:
    """Return a table of these rows, which are HTML; on a narrow page it scrolls, with a note that it does."""
    return f'<div class="wide"><div class="scroll" tabindex="0"><table>{rows}</table></div></div>'


def with_small_spread(text: str) -> str:
    mean, plus_minus, spread = escape(text).partition(" ± ")
    return f"{mean}<br><small>± {spread}</small>" if plus_minus else mean
