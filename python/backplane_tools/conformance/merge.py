"""One report from the JSON of several runs: of shards, or of one run whose page was not asked for then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backplane_tools.conformance.engine import Report
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.record import Row, read_report

_SAME = ("device_name", "torch", "backend", "options", "seed")


def merge(paths: Sequence[Path]) -> Report:
    """Put reports together; of a case that is in several, the last counts.

    Raises:
        ConformanceError: a file is no report, or they are of different devices.
    """
    documents = [read_report(path, "--merge") for path in paths]
    first = documents[0]
    for path, document in zip(paths, documents, strict=True):
        for key in _SAME:
            one, other = first["about"].get(key), document["about"].get(key)
            if one != other:
                raise ConformanceError(f"--merge: {key} is {one!r} in {paths[0]} and {other!r} in {path}")
    cases = {case["id"]: case for document in documents for case in document["cases"]}
    return Report(
        about={**first["about"], "shard": [1, 1]} if len(paths) > 1 else first["about"],
        rows=[Row.from_json(case) for case in cases.values()],
        problems=list(dict.fromkeys(problem for document in documents for problem in document["problems"])),
        seconds=sum(document["seconds"] for document in documents),
        commands={case_id: case["command"] for case_id, case in cases.items() if "command" in case},
        started=min(document["started"] for document in documents),
    )
