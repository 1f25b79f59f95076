"""Type comments, which TorchScript and type checkers read: one that names CUDA is left."""

from __future__ import annotations

import io
import re
import tokenize

from backplane_tools.port.findings import Findings

__all__ = ["port_type_comments"]

_TYPE_COMMENT = re.compile(r"#\s*type:(?!\s*ignore\b)[^#\n]*\btorch\.cuda\b")


def port_type_comments(findings: Findings) -> None:
    """``x = []  # type: List[torch.cuda.FloatTensor]``."""
    text = findings.source.text
    if not _TYPE_COMMENT.search(text):
        return
    lines = io.StringIO(re.sub(r"\r\n|\r", "\n", text))
    for token in tokenize.generate_tokens(lines.readline):
        if token.type == tokenize.COMMENT and _TYPE_COMMENT.match(token.string):
            line, column = token.start
            findings.leave_text(line, column + 1, token.string, "a type in a comment: write the device's by hand")
