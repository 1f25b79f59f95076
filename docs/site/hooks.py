"""What `make docs` adds to the pages of docs/: the references, and the files of the repository that pages link to.

The pages themselves are plain Markdown, with links that work on a code host.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import contract
import headers
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include" / "backplane"

# page of the Python reference -> title, a sentence, and modules whose __all__ it shows
PYTHON = {
    "reference/kernel.md": ("torch_backplane", "Kernels in Python.", ["torch_backplane.ops.kernels"]),
    "reference/ops.md": (
        "torch_backplane.ops",
        "Operators of your own, and what looks at them.",
        ["torch_backplane.ops"],
    ),
    "reference/testing.md": (
        "torch_backplane.testing",
        "Checks of operators, and fixtures.",
        ["torch_backplane.testing"],
    ),
    "reference/tools.md": (
        "Fallback, compiler, coverage, sanitizer",
        "What a program asks of the runtime and the tools.",
        [
            *(f"torch_backplane.{name}" for name in ("fallback", "account", "compiler", "sanitizer", "safetensors")),
            "backplane_tools.coverage",
        ],
    ),
    "reference/device.md": (
        "torch.mydevice",
        "The device module, under the device's own name.",
        [
            f"torch_backplane.device.{name}"
            for name in ("devices", "streams", "memory", "random", "graphs", "amp", "profiler")
        ],
    ),
    "reference/sdk.md": ("backplane_sdk", "Where headers and sources are, for builds.", ["backplane_sdk"]),
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".sh": "sh", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages: dict[str, str] = {}
    for header in [ROOT / "include/backplane/driver.h", *sorted((INCLUDE / "driver").glob("*.h"))]:
        pages[f"reference/c/{header.stem}.md"] = headers.page(header)
    for name, (title, sentence, modules) in PYTHON.items():
        pages[name] = f"# {title}\n\n{sentence}\n\n" + "".join(f"::: {module}\n\n" for module in modules)
    linked = [ROOT / page.removeprefix("repository/") for page in listed(config.nav) if page.startswith("repository/")]
    for file in files:
        if file.src_uri.endswith(".md"):
            linked += outside(Path(file.abs_src_path))
    while linked:
        path = linked.pop()
        name = place_of(path)
        if name not in pages:
            pages[name] = text_of(path)
            linked += outside(path)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def listed(nav: Any) -> Iterator[str]:
    """The pages of a navigation, which is a list, or a dict of one title, or a page."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(part)


def outside(path: Path) -> list[Path]:
    """Files of the repository beyond docs/ that a page links to."""
    found = []
    for link in LINK.finditer(FENCES.sub("", path.read_text(encoding="utf-8"))):
        target = (path.parent / link[2]).resolve()
        if "://" not in link[2] and target.is_file() and not target.is_relative_to(ROOT / "docs"):
            found.append(target)
    return found


def place_of(path: Path) -> str:
    """Where the site has a file of the repository; each is a page."""
    inside = path.relative_to(ROOT).as_posix()
    return f"repository/{inside}" if path.suffix == ".md" else f"repository/{inside}.md"


def text_of(path: Path) -> str:
    """A Markdown file as it is, with its links made ready; a source in a block."""
    if path.suffix == ".md":
        return moved(path.read_text(encoding="utf-8"), path, place_of(path))
    language = LANGUAGES.get(path.suffix, "text")
    inside, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    return f"# {path.name}\n\n`{inside}`\n\n````{language}\n{text}````\n"


def moved(text: str, path: Path, page: str) -> str:
    """Links of a file, as they are from its place in the site."""

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[2]).resolve()
        if "://" in match[2] or match[2].startswith("mailto:") or not target.exists():
            return match[0]
        docs = ROOT / "docs"
        place = target.relative_to(docs).as_posix() if target.is_relative_to(docs) else place_of(target)
        return f"{match[1]}{posixpath.relpath(place, posixpath.dirname(page))}{match[3] or ''}{match[4]}"

    parts, here = [], 0
    for fence in FENCES.finditer(text):
        parts += [LINK.sub(link, text[here : fence.start()]), fence[0]]
        here = fence.end()
    return "".join([*parts, LINK.sub(link, text[here:])])


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Send links that leave docs/ to the pages made of those files."""
    path = page.file.abs_src_path
    if path is None or not Path(path).is_relative_to(ROOT / "docs"):
        return markdown
    if page.file.src_uri == "contract.md":
        markdown = contract.with_tests(markdown)
    named = re.compile(r"\[([\w-]+\.md)\]\((?=\1[)#])")
    titled = named.sub(lambda match: f"[{title_of(ROOT / 'docs' / match[1])}](", markdown)
    return moved(titled, Path(path), page.file.src_uri)


def title_of(path: Path) -> str:
    """A page's heading: on a code host pages are known by their files, on the site by their titles."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings have a little of Sphinx's marks, which editors show."""
    return re.sub(r":(?:class|meth|func|mod|attr):<code>", "<code>", html).replace("::</p>", ":</p>")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Search in pages that are opened as files, by a script of ours: the theme's comes from a server."""
    return output.replace("https://unpkg.com/iframe-worker/shim", get_relative_url("site/worker.js", page.url))
