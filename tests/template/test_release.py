"""What is uploaded: the same bytes from the same sources, all of them, and what an index takes."""

import os
import shutil
import tarfile
import zipfile

import pytest
from projects import ROOT, build_sdk, run

pytestmark = pytest.mark.long


def test_V02_the_same_sources_give_the_same_bytes(sdk_dist, tmp_path):
    """Whenever, wherever and by whomever they are built: times, permissions and folders of the checkout are others."""
    copy = tmp_path / "elsewhere"
    not_copied = shutil.ignore_patterns(".venv", "build", "dist", ".git", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=not_copied)
    for path in copy.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    build_sdk(copy, tmp_path / "out", TZ="Asia/Tokyo", LC_ALL="C", HOME=str(tmp_path))
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(name.rpartition("-")[2] for name in made) == ["0.1.0.tar.gz", "any.whl"]
    assert {path.name: path.read_bytes() for path in sdk_dist.iterdir()} == made


def test_the_wheel_has_the_requested_time(sdk_wheel):
    with zipfile.ZipFile(sdk_wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_an_index_accepts_them(sdk_dist):
    said = run("twine", "check", "--strict", *sdk_dist.iterdir())
    assert said.count("PASSED") == 2


def test_V02_the_sdist_has_what_the_repository_has(sdk_dist):
    (path,) = sdk_dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    missing = {name for name in listed if (ROOT / name).is_file()} - names
    assert {name for name in missing if not name.startswith(".ci/")} == set()
