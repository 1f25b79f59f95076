"""The HTML report: one page that needs no network, from the template beside this file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from backplane_tools.conformance.engine import Report
from backplane_tools.conformance.record import BAD, STATUSES, Row
from backplane_tools.conformance.trend import Trend

_TEMPLATE = "report.html.jinja"


def write_html(report: Report, trend: Trend | None, path: Path) -> None:
    """Write the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    suites = [_suite(name, rows, report.shown) for name, rows in report.suites.items()]
    total = len(report.rows)
    bad = sum(row.bad for row in report.rows)
    page = environment.get_template(_TEMPLATE).render(
        about=report.about,
        started=report.started.replace("T", " ").replace("+00:00", " UTC"),
        seconds=report.seconds,
        statuses=[
            {"name": s, "meaning": STATUSES[s], "count": report.counts[s], "bad": s in BAD} for s in report.shown
        ],
        suites=suites,
        total=total,
        bad=bad,
        failed=report.failed,
        # 4999 of 5000 is not "100.0 %"
        share=int(1000 * (total - bad) / total) / 10 if total else 0,
        problems=report.problems,
        trend=trend,
        rows=[_row(row, report, trend) for row in report.rows],
    )
    path.write_text(page, encoding="utf-8")


def _suite(name: str, mine: list[Row], statuses: list[str]) -> dict[str, Any]:
    counts = Counter(row.status for row in mine)
    routes = Counter(row.route for row in mine)
    ratios = [row.ratio for row in mine if row.ratio is not None]
    return {
        "name": name,
        "total": len(mine),
        "bad": sum(row.bad for row in mine),
        "parts": [{"status": s, "count": counts[s], "percent": 100 * counts[s] / len(mine)} for s in statuses],
        "routes": ", ".join(f"{count} {route}" for route, count in routes.most_common() if route),
        "ratio": median(ratios) if ratios else None,
    }


def _row(row: Row, report: Report, trend: Trend | None) -> dict[str, Any]:
    """What the page's script reads; empty values are left out, there are thousands of rows."""
    case_id = row.case.id
    factor = trend and (trend.slower.get(case_id) or trend.faster.get(case_id))
    values = {
        **row.to_json(),
        "compared": sum(row.checks.values()),
        "ratio": row.ratio,
        "seconds": round(row.seconds, 4),
        "command": report.commands.get(case_id),
        "trend": trend.word(case_id) if trend else "",
        "factor": factor,
    }
    return {key: value for key, value in values.items() if value not in (None, "", {}, 0)}
