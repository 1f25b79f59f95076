"""Makes the reference of the driver interface out of the comments in its C headers: Markdown, one page a header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["page"]

_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_NOISE = re.compile(r"#(if|ifdef|ifndef|else|endif|include|elif|pragma)\b.*|extern \"C\" \{|#define \w+_H|\}")
_LABELS = re.compile(r"\b(units|owner|errors|order|flags|blocks|threads):(?=\s)")
_SECTION = re.compile(r"-{4} (.+?) -{2,}\s*")


@dataclass
class Item:
    """A declaration with the comment that stands over it."""

    comment: str
    code: str


def page(header: Path) -> str:
    """The reference of one header.

    Raises:
        ValueError: the header has no comment at its head, or a declaration that is not understood.
    """
    text = header.read_text(encoding="utf-8")
    head = _COMMENT.match(text)
    if head is None:
        raise ValueError(f"{header}: no comment at its head")
    title, _, rest = _words(head[1]).partition(": ")
    parts = [f"# {title}", _prose(rest[:1].upper() + rest[1:])]
    for item in _items(text[head.end() :]):
        parts += list(_rendered(item))
    return "\n\n".join(part for part in parts if part) + "\n"


def _items(text: str) -> Iterator[Item]:
    """Blocks between empty lines, outside of braces; what only keeps compilers content is left out."""
    block: list[str] = []
    depth = 0
    for line in [*text.splitlines(), ""]:
        code = _COMMENT.sub("", line)
        if depth == 0 and not block and (not line.strip() or _NOISE.fullmatch(line.strip())):
            continue
        if not line.strip() and depth == 0 and "\n".join(block).count("/*") == "\n".join(block).count("*/"):
            item = _item("\n".join(block))
            if item.code or item.comment:
                yield item
            block = []
            continue
        block.append(line)
        depth += code.count("{") - code.count("}")


def _item(block: str) -> Item:
    comment = re.match(r"\s*/\*(.*?)\*/[ \t]*\n", block, re.DOTALL)
    code = block[comment.end() :] if comment else block
    lines = [line for line in code.splitlines() if not re.match(r"#(if|ifdef|else|endif|elif)\b", line)]
    return Item(comment[1] if comment else "", "\n".join(lines).strip("\n"))


def _rendered(item: Item) -> Iterator[str]:
    struct = re.match(r"typedef struct (\w+) \{\n(.*)\n\} \w+;", item.code, re.DOTALL)
    if re.match(r"struct \w+;|#define \w+_SLOTS|#define BP_EXPORT|#define \w+_(ID|VERSION) ", item.code):
        return
    if struct and "(void* self" in struct[2]:
        yield f"## {struct[1]}"
        yield _prose(_words(item.comment))
        fields = re.findall(r"^  \w[\w* ]*;.*\n?", struct[2], re.MULTILINE)
        fields.append("  ... /* the entries below */\n")
        yield f"```c\ntypedef struct {struct[1]} {{\n{''.join(fields)}}} {struct[1]};\n```"
        yield from _entries(struct[2])
        return
    yield f"## {_name(item.code)}"
    yield _prose(_words(item.comment))
    yield f"```c\n{item.code}\n```"


def _name(code: str) -> str:
    """What a declaration is found by."""
    for pattern in (r"typedef (?:struct|enum) (\w+) \{", r"typedef struct \w+ (\w+);", r"\(\*(\w+)\)", r"(\w+)\("):
        if found := re.search(pattern, code):
            return found[1]
    names = re.findall(r"#define (\w+)", code) or re.findall(r"\b(BP_\w+) =", code)
    if not names:
        raise ValueError(f"no name in:\n{code}")
    if len(names) < 4:
        return ", ".join(names)
    words = [name.split("_") for name in names]
    common = [part for part, *others in zip(*words, strict=False) if all(other == part for other in others)]
    return "_".join([*common, "*"])


def _entries(body: str) -> Iterator[str]:
    """The entries of a table: sections, then for each entry its signature and what it promises."""
    comment = ""
    for piece in re.findall(r"/\*.*?\*/|[^/]+(?:/(?!\*)[^/]*)*", body, re.DOTALL):
        if piece.startswith("/*"):
            comment = _words(piece[2:-2])
            if section := _SECTION.fullmatch(f"{comment} "):
                yield f"### {section[1][:1].upper()}{section[1][1:]}"
                comment = ""
            continue
        for statement in map(str.strip, piece.split(";")):
            if entry := re.search(r"\(\*(\w+)\)", statement):
                yield f"#### {entry[1]}"
                yield f"```c\n{' '.join(statement.split())};\n```"
                yield _prose(comment)
                comment = ""


def _words(comment: str) -> str:
    """A comment's text, its stars and margins taken away."""
    lines = [
        re.sub(r"^\s*\* ?", "", line) if index else line.strip() for index, line in enumerate(comment.splitlines())
    ]
    return "\n".join(lines).strip()


def _prose(text: str) -> str:
    """Paragraphs, and lists where lines begin with a word and a column of space."""
    out: list[str] = []
    for line in text.splitlines():
        named = re.match(r" +([\w.*/]+) {2,}(\S.*)", line)
        if named:
            if out and out[-1] and not out[-1].startswith("- "):
                out.append("")
            out.append(f"- **{_safe(named[1])}**: {_safe(named[2])}")
        elif line.startswith("  ") and out and out[-1].startswith("- "):
            out[-1] += f" {_safe(line.strip())}"
        else:
            if line and out and out[-1].startswith("- "):
                out.append("")
            out.append(_safe(line))
    return _LABELS.sub(r"**\1:**", "\n".join(out)).strip()


def _safe(text: str) -> str:
    """C's words are no marks of Markdown, outside of code."""
    parts = text.split("`")
    return "`".join(part if odd % 2 else _escaped(part) for odd, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[\]])", r"\\\1", text.replace("<", "&lt;"))
