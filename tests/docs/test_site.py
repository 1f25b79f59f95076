"""The site of `make docs`, without building it: links with anchors, the order of its pages, what is generated."""

import json
import re
import sys

import pytest
from pages import PAGES, ROOT, text_of
from projects import run

sys.path.insert(0, str(ROOT / "docs" / "site"))
import ecosystem
import headers

EVERY_PAGE = [*PAGES, "drivers/cuda/README.md", "drivers/opencl/README.md", "drivers/vulkan/README.md"]
HEADERS = [ROOT / "include/backplane/driver.h", *sorted((ROOT / "include/backplane/driver").glob("*.h"))]


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """As a code host and the site make them of headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if not number else f"{slug}_{number}" for slug, count in found.items() for number in range(count + 1)}


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_links_lead_to_pages_and_headings(page):
    dead = []
    for path, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose(page)):
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.relative_to(ROOT).as_posix())):
            dead.append((path, anchor))
    assert dead == []


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_headings_and_blocks_of_code_stand_by_themselves(page):
    """A heading right behind a table is a row of it; what follows an open block is code up to the next fence."""
    assert re.findall(r"^\S.*\n#+ .*$", prose(page), re.MULTILINE) == []
    fences = re.findall(r"^```(\S*)", text_of(page), re.MULTILINE)
    assert not any(fences[1::2])  # a language opens a block
    assert len(fences) % 2 == 0


def test_every_page_has_its_place_in_the_order():
    nav = re.search(r"^nav:\n(.*?)^\S", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)[1]
    listed = re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted(set(listed))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert pages == {page for page in listed if "/" not in page}
    assert {f"reference/c/{header.stem}.md" for header in HEADERS} == {
        p for p in listed if p.startswith("reference/c/")
    }
    assert [
        p for p in listed if p.startswith("repository/") and not (ROOT / p.removeprefix("repository/")).exists()
    ] == []


def test_warnings_of_the_build_are_errors():
    """With --quiet MkDocs counts none of what --strict would end with."""
    (command,) = re.findall(r"-m mkdocs build (.*)", (ROOT / "Makefile").read_text())
    assert command.split() == ["--strict", "--clean"]


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_the_reference_has_what_the_header_says(header):
    """Each entry with its signature, each struct, each number, and every word of the comments."""
    text, page = header.read_text(encoding="utf-8"), headers.page(header)
    entries = re.findall(r"^  int32_t \(\*(\w+)\)\(void\* self", text, re.MULTILINE)
    assert [name for name in re.findall(r"^#### (\w+)$", page, re.MULTILINE) if name in entries] == entries
    for name in re.findall(r"^typedef (?:struct|enum) (\w+) \{", text, re.MULTILINE):
        assert re.search(rf"^## .*\b{name}\b", page, re.MULTILINE), name
    numbers = re.findall(r"^#define (BP_\w+)[ \\]", text, re.MULTILINE)
    assert [name for name in numbers if not name.endswith(("_ID", "_VERSION", "_H")) and name not in page] == []
    said = re.sub(r"[^\w]+", "", page.replace("&lt;", "")).lower()
    for comment in re.findall(r"/\*(.*?)\*/", text, re.DOTALL):
        for word in re.findall(r"\w{5,}", comment):
            assert word.lower() in said, word


def test_a_header_that_is_not_understood_is_refused(tmp_path):
    header = tmp_path / "odd.h"
    for text in ("int x;\n", "/* odd.h: a header. */\n\n/* what */\nint;\n"):
        header.write_text(text)
        with pytest.raises(ValueError, match=r"no comment|no name"):
            headers.page(header)


def test_the_ecosystems_table_is_that_of_the_last_results():
    results = json.loads((ROOT / "docs/ecosystem.json").read_text())
    page = text_of("docs/ecosystem.md")
    assert ecosystem.written(page, results) == page
    assert "| `zero` | float32, float16, bfloat16, float64, int32, int64, bool | writes zeros" in page
    assert results
    assert not any(found["failed"] for found in results.values())
    for found in results.values():
        for library, version in found["libraries"].items():
            assert f"{library.replace('_', '-')} {version}" in page
    acme = {"libraries": {"acme": "1"}, "torch": "2", "passed": 1, "failed": 2, "skipped": 3, "what": "a|b."}
    assert "| acme 1 | 2 | 1 pass, 2 **fail**, 3 left out | a\\|b |" in ecosystem.written(page, {"test_acme": acme})


def test_a_results_file_keeps_the_modules_that_a_run_did_not_try(tmp_path):
    (tmp_path / "test_click.py").write_text('"""Clicks."""\ndef test_a(): pass\ndef test_b(): assert False\n')
    file = tmp_path / "results.json"
    words = "-m pytest -q -p ecosystem_results -p no:cacheprovider -c /dev/null --rootdir . --results".split()

    def tried(*more):
        command = [sys.executable, *words, file, "test_click.py", *more]
        return run(*command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "tests")}, check=False)

    file.write_text('{"test_other": {"passed": 1}}')
    assert "1 failed, 1 passed" in tried()
    found = json.loads(file.read_text())
    assert found["test_other"] == {"passed": 1}
    click = found["test_click"]
    assert (click["passed"], click["failed"], click["what"]) == (1, 1, "Clicks.")
    assert list(click["libraries"]) == ["click"]
    file.write_text('{"test_click": 1}')
    tried("--deselect", "test_click.py::test_b")
    assert json.loads(file.read_text()) == {"test_click": 1}  # a part says nothing of the whole
