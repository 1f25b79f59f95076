"""The documents say what the code does: names, links, chores and variables are compared with their sources."""

import re

import pytest
import torch  # noqa: F401 (first, because it loads the installed backends)
from pages import PAGES, ROOT, code, table_rows, text_of

from backplane_sdk import TORCH_MINORS
from backplane_tools.cli.conformance import conformance
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.record import BAD, STATUSES
from backplane_tools.conformance.suites import SUITES
from torch_backplane.device.unsupported import UNSUPPORTED
from torch_backplane.testing.opchecks import UTILITIES

KINDS = (".cpp", ".hpp", ".py")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    """Paths in code style, from the folders of this repository."""
    folders = "backend|benchmarks|check_driver|cmake|docs|drivers|examples|hooks|include|python|tests"
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", text_of(page))
    in_project = (
        "backend/driver/",
        "backend/kernels/",
        "backend/operators/",
        "backend/extensions.cpp",
        "tests/test_add.py",
    )  # of the generated project
    missing = [path for path in named if not (ROOT / path).exists() and not path.startswith(in_project)]
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_chores_are_in_the_makefile(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    template = set(
        re.findall(r"^([a-z-]+):", (ROOT / "{{cookiecutter.package_name}}/Makefile").read_text(), re.MULTILINE)
    )
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE))
    assert named
    assert named - targets - template == set()


def test_left_out_names_are_the_codes_own():
    rows = {name.strip("`"): reason for name, reason in table_rows("docs/device-module.md")}
    assert rows == UNSUPPORTED


def test_every_environment_variable_is_documented():
    """What the sources read under the device's prefix, and what the page lists, are the same."""
    sources = [*(ROOT / "backend").rglob("*.cpp"), *(ROOT / "python").rglob("*.py")]
    read = set()
    for path in sources:
        text = path.read_text(encoding="utf-8")
        read |= set(re.findall(r'\benv(?:_name)?\("([A-Z_]+)"\)', text))
        read |= set(re.findall(r'BACKPLANE_ENV_PREFIX "_([A-Z_]+)"', text))
    listed = {row[0].strip("`").removeprefix("MYDEVICE_") for row in table_rows("docs/environment.md")}
    assert listed == read


def test_every_status_is_documented():
    header = (ROOT / "include/backplane/driver.h").read_text()
    body = re.search(r"typedef enum bp_status \{(.*?)\} bp_status;", header, re.DOTALL).group(1)
    errors = set(re.findall(r"(BP_[A-Z_]+) = ", body)) - {"BP_OK", "BP_PENDING"}
    listed = {re.findall(r"BP_[A-Z_]+", row[0])[0] for row in table_rows("docs/errors.md") if row[0].startswith("`BP_")}
    assert listed == errors


def test_every_entry_of_the_driver_table_is_documented():
    header = (ROOT / "include/backplane/driver.h").read_text()
    table = re.search(r"typedef struct bp_driver \{(.*?)\n\} bp_driver;", header, re.DOTALL).group(1)
    entries = set(re.findall(r"\(\*(\w+)\)\(void\* self", table))
    listed = set(re.findall(r"`(\w+)`", " ".join(" ".join(row) for row in table_rows("docs/driver.md"))))
    assert len(entries) > 20
    assert entries - {"query_ext"} - listed == set()


def test_every_optional_group_is_documented():
    headers = {f"backplane/driver/{path.name}" for path in (ROOT / "include/backplane/driver").glob("*.h")}
    listed = {row[1].strip("`") for row in table_rows("docs/driver.md") if row[0].startswith("`bp.")}
    assert listed == headers
    assert headers


@pytest.mark.parametrize(
    ("driver", "source"),
    [
        ("sim", "drivers/sim/settings.h"),
        ("opencl", "drivers/opencl/settings.cpp"),
        ("vulkan", "drivers/vulkan/settings.cpp"),
        ("emulate", "drivers/shims/emulate/state.h"),
    ],
)
def test_driver_options_are_documented(driver, source):
    known = set(re.findall(r'options\.\w+\("(\w+)"', (ROOT / source).read_text()))
    prefix = "" if driver in ("sim", "opencl", "vulkan") else f"{driver}."
    listed = {row[0].strip("`") for row in table_rows("docs/driver.md")}
    assert known
    assert {prefix + key for key in known} - listed == set()


def test_extension_points_have_their_examples():
    header = (ROOT / "include/backplane/extend.h").read_text()
    points = set(re.findall(r"^struct (\w+) \{", header, re.MULTILINE))
    listed = set(re.findall(r"extend::(\w+)<", " ".join(row[1] for row in table_rows("docs/extend.md"))))
    assert listed == points


def test_refusals_are_quoted_from_the_code():
    """Each phrase of the page's second table stands in a source; "..." and the device's name stand for anything."""
    folders = ("backend", "include", "python")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.[chp]*") if path.suffix in KINDS]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text(encoding="utf-8") for path in sources))
    rows = [row[0] for row in table_rows("docs/errors.md") if "BP_" not in row[0]]
    phrases = [
        piece.strip()
        for row in rows
        for quote in re.findall(r"`(.+?)`", row)
        for piece in re.split(r"\.\.\.|mydevice|2\.x", quote)
    ]
    assert len(phrases) > 15
    assert [phrase for phrase in phrases if phrase and phrase not in code] == []


def test_the_versions_of_torch_are_those_of_the_sdk():
    first, last = TORCH_MINORS[0], TORCH_MINORS[-1]
    for page in ("README.md", "CHANGELOG.md"):
        assert f"ritten for torch {first} to {last} and Python" in text_of(page)
    workflow = (ROOT / "{{cookiecutter.package_name}}/.github/workflows/ci.yml").read_text()
    (matrix,) = re.findall(r"torch: \[(.*)\]", workflow)
    assert matrix == ", ".join(f'"{minor}.0"' for minor in TORCH_MINORS)


def test_options_suites_and_statuses_of_the_conformance_kit():
    page = "docs/conformance.md"
    rows = {row[0].strip("`"): row[1:] for row in table_rows(page)}
    options = {option for parameter in conformance.params for option in parameter.opts if option.startswith("--")}
    assert set(rows) == options | set(SUITES) | set(STATUSES)
    assert {name: rows[name][0] for name in STATUSES} == STATUSES
    assert {name for name in STATUSES if "yes" in rows[name][1]} == BAD


def test_the_list_of_expected_failures_is_read(tmp_path):
    (tmp_path / "conformance.toml").write_text(*code("docs/conformance.md", "toml"))
    entries = Expected.read(tmp_path / "conformance.toml").entries
    assert [entry.case for entry in entries] == ["ops/nn.functional.conv3d/float16"]


def test_utilities_of_opcheck_are_documented():
    rows = table_rows("docs/testing-ops.md")
    assert [name for row in rows if len(row) == 2 for name in re.findall(r"`(test_\w+)`", row[0])] == list(UTILITIES)
    assert {row[0].strip("`") for row in rows if len(row) == 3} <= set(UTILITIES)
