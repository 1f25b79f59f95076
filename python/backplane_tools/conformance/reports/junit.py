"""JUnit XML: one test suite per conformance suite, one test case per case."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from backplane_tools.conformance.engine import Report
from backplane_tools.conformance.record import Row

# status -> its element
_ELEMENT = {
    **dict.fromkeys(("fail", "xpass"), "failure"),
    **dict.fromkeys(("crash", "timeout"), "error"),
    **dict.fromkeys(("skip", "xfail"), "skipped"),
}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(report: Report, path: Path) -> None:
    """Write the file."""
    root = ET.Element("testsuites", name="torch-backplane conformance", time=f"{report.seconds:.3f}")
    _count(root, report.rows, len(report.problems))
    for suite, rows in report.suites.items():
        element = ET.SubElement(
            root, "testsuite", name=suite, timestamp=report.started, time=f"{sum(r.seconds for r in rows):.3f}"
        )
        _count(element, rows)
        properties = ET.SubElement(element, "properties")
        for key in ("device", "device_name", "torch", "backend", "driver", "options", "seed"):
            ET.SubElement(properties, "property", name=key, value=_text(str(report.about[key])))
        for row in rows:
            _case(element, row, report.commands.get(row.case.id, ""))
    if report.problems:
        element = ET.SubElement(root, "testsuite", name="conformance.toml")
        _count(element, [], len(report.problems))
        for problem in report.problems:
            case = ET.SubElement(element, "testcase", classname="conformance.toml", name=_text(problem))
            ET.SubElement(case, "failure", message=_text(problem))
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _case(parent: ET.Element, row: Row, command: str) -> None:
    name = row.case.id.removeprefix(f"{row.case.suite}/")
    case = ET.SubElement(parent, "testcase", classname=row.case.suite, name=_text(name), time=f"{row.seconds:.3f}")
    element = _ELEMENT.get(row.status)
    if element is None:
        return
    message = f"expected: {row.reason}" if row.status == "xfail" else f"{row.status}: {row.message}"
    detail = ET.SubElement(case, element, message=_text(message))
    if row.bad:
        detail.text = _text("\n".join(filter(None, [row.message, row.trace, command])))


def _count(element: ET.Element, rows: Iterable[Row], problems: int = 0) -> None:
    kinds = [_ELEMENT.get(row.status, "") for row in rows] + ["failure"] * problems
    element.set("tests", str(len(kinds)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(kinds.count(kind)))


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
