"""A profile's summary as a page of HTML: one file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence

from backplane_tools.timeline import MOST, Summary, Work, tables
from torch_backplane.fallback import Count

_MOST_BARS = 4000  # of a row; where there are more, bars that touch become one
_WIDTH = 1000.0
_STYLE = """
:root { --ink: #1d2530; --soft: #667085; --line: #e3e7ee; --kernel: #3b6fd4; --copy: #d9822b; --fill: #8a94a6;
        --paper: #ffffff; --warn: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2c3442; --kernel: #6f9bf0; --copy: #eba559; --fill: #7c879b;
          --paper: #141922; --warn: #f97066; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
p.about { color: var(--soft); margin: 0 0 1.2rem; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; }
.figure { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; min-width: 8rem; }
.figure b { display: block; font-size: 1.35rem; font-weight: 600; }
.figure span { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: .85rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; }
.row { display: grid; grid-template-columns: 10rem 1fr; align-items: center; gap: .6rem; margin: .25rem 0; }
.row span { color: var(--soft); font-size: .85rem; }
svg { width: 100%; height: 26px; background: color-mix(in srgb, var(--line) 40%, transparent); border-radius: .25rem;
      display: block; }
.kernel { fill: var(--kernel); } .copy { fill: var(--copy); } .fill { fill: var(--fill); }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin: 0 .35rem 0 1rem; }
.key { color: var(--soft); font-size: .85rem; margin: .3rem 0 0 9rem; }
.warn { color: var(--warn); }
"""


def page(summary: Summary, title: str, device: str, fallbacks: Sequence[Count]) -> str:
    """Write a page."""
    length = summary.microseconds
    figures = [(_time(length), "profile")]
    figures += [(f"{100 * summary.busy_share(d.device):.1f} %", f"{device}:{d.device} busy") for d in summary.devices]
    figures.append((f"{sum(kernel.calls for kernel in summary.kernels):,}", "kernels and fills"))
    figures.append((f"{sum(copies.calls for copies in summary.copies):,}", "copies"))
    figures.append((_share(sum(each.seconds for each in fallbacks) * 1e6, length), "of the time in fallbacks"))
    parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="about">What {device} did, and when.</p>']
    boxes = "".join(f'<div class="figure"><b>{value}</b><span>{what}</span></div>' for value, what in figures)
    parts.append(f'<div class="figures">{boxes}</div>')
    if summary.unfinished:
        parts.append(f'<p class="warn">{summary.unfinished} pieces of work were not complete at the end.</p>')
    parts += ["<h2>Streams</h2>", *_rows(summary, device)]
    for name, columns, rows in tables(summary, device, fallbacks):
        parts += _table(name, columns, rows)
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2f} s"
    return f"{microseconds / 1e3:.2f} ms" if microseconds >= 1e3 else f"{microseconds:.1f} us"


def _share(microseconds: float, of: float) -> str:
    return f"{100 * microseconds / of:.1f} %" if of else "-"


def _rows(summary: Summary, device: str) -> list[str]:
    """A line of bars for each stream."""
    streams: dict[tuple[int, int], list[Work]] = {}
    for each in summary.work:
        streams.setdefault((each.device, each.stream), []).append(each)
    if not streams:
        return ["<p>No work of the device was seen.</p>"]
    rows = []
    for (index, stream), work in sorted(streams.items()):
        name = f"{device}:{index}, " + ("default stream" if stream == 0 else f"stream {stream}")
        bars = "".join(_bar(each, summary.microseconds) for each in _merged(work, summary.microseconds))
        view = (
            f'<svg viewBox="0 0 {_WIDTH:.0f} 26" preserveAspectRatio="none" role="img" aria-label="{name}">{bars}</svg>'
        )
        rows.append(f'<div class="row"><span>{name}</span>{view}</div>')
    key = "".join(f'<i style="background: var(--{kind})"></i>{kind}' for kind in ("kernel", "copy", "fill"))
    return [*rows, f'<div class="key">{key}</div>']


def _merged(work: Sequence[Work], length: float) -> list[Work]:
    """Bars of a row; those that a screen could not tell apart are one, of the first one's kind."""
    if len(work) <= _MOST_BARS:
        return list(work)
    bars: list[Work] = []
    for each in work:
        if bars and each.begin - bars[-1].end < length / _MOST_BARS and each.kind == bars[-1].kind:
            last = bars.pop()
            each = Work(last.device, last.stream, last.kind, "several", last.begin, max(last.end, each.end))
        bars.append(each)
    return bars


def _bar(work: Work, length: float) -> str:
    x = work.begin / length * _WIDTH
    width = max((work.end - work.begin) / length * _WIDTH, 0.4)
    text = html.escape(
        f"{work.name}, {_time(work.end - work.begin)}" + (f", by {work.operator}" if work.operator else "")
    )
    return f'<rect class="{work.kind}" x="{x:.2f}" y="3" width="{width:.2f}" height="20"><title>{text}</title></rect>'


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose first column is text; nothing for one without rows."""
    if not rows:
        return []
    lines = [_line("td", [html.escape(cell) for cell in row]) for row in rows[:MOST]]
    more = [f"<p>and {len(rows) - MOST} more</p>"] if len(rows) > MOST else []
    return [f"<h2>{title.capitalize()}</h2><table>", _line("th", ["", *columns]), *lines, "</table>", *more]


def _line(tag: str, cells: Sequence[str]) -> str:
    kinds = ["name", *["number"] * (len(cells) - 1)]
    marked = [f'<{tag} class="{kind}">{cell}</{tag}>' for kind, cell in zip(kinds, cells, strict=True)]
    return f"<tr>{''.join(marked)}</tr>"
