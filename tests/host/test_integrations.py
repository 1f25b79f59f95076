"""Integrations with libraries, by libraries made here: when a module is arranged, and every reason why it is not."""

import contextlib
import importlib
import importlib.util
import re
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from backplane_tools.cli import doctor
from torch_backplane import _backend, imports, integrations
from torch_backplane.integrations import IntegrationWarning

ARRANGED = """
from torch_backplane.integrations import Integration
integration = Integration("fakelib-dist", ">=1.2,<1.4")

@integration.after("fakelib.core")
def choice(module, patch):
    @patch(module, "pick", "wish")
    def pick(pick, wish):
        return "chip" if wish == "auto" else pick(wish)
    @patch(module.State, "device", "self")
    def device(device, self):
        return "chip" + device(self)
    @patch(module.State, "made", "cls n")
    def made(made, cls, n):
        return made(cls, n) + 1
    @patch(module.State, "fixed", "")
    def fixed(fixed):
        return -fixed()
    patch.words(module, "says", cuda="chip")
    return "auto is chip"

@integration.after("fakelib.extra")
def names(module, patch):
    patch.value(module, "NAMES", lambda known: known | {"chip"})
    return "chip is a name"
"""
CPU, CHIP = {"cpu"}, {"cpu", "chip"}
CORE = """
def pick(wish):
    return "cpu"
class State:
    device = property(lambda self: "cpu")
    @classmethod
    def made(cls, n):
        return n
    @staticmethod
    def fixed():
        return 7
import functools
@functools.lru_cache
def says(wish=None):
    'cuda stays here'
    def inner():
        return "chip" in ("cuda", "xpu")
    return "cuda:0", f"cuda:{wish}", "a cuda: word", (lambda: wish.cuda.name if wish else "cuda")(), inner()
"""


class HasChip:
    chip = SimpleNamespace(name="attribute")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """``library(version, core=, ...)`` writes fakelib and its integration. The frame is new, the backend a name."""
    monkeypatch.setattr(_backend, "device", "chip")
    monkeypatch.setattr(_backend, "C", SimpleNamespace(devices=SimpleNamespace(count=lambda: 1)))
    monkeypatch.delenv("CHIP_INTEGRATIONS", raising=False)
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, imports.AfterImport)])
    names = {"fakelib": "fakelib_arranged", "otherlib": "otherlib_arranged", "third": "third_arranged"}
    monkeypatch.setattr(integrations, "LIBRARIES", names)
    monkeypatch.setattr(integrations, "DEPENDS_ON", {"otherlib": ("fakelib",), "third": ("otherlib",)})
    for name in ("_outcomes", "_patches", "_adapted"):
        monkeypatch.setattr(integrations, name, {})
    for name, value in (("_chosen", frozenset()), ("_announce", False), ("_outermost", ""), ("_finder", None)):
        monkeypatch.setattr(integrations, name, value)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(version="1.3.0", core=CORE, arranged=ARRANGED, top="from fakelib.core import pick\n"):
        folder = tmp_path / "fakelib"
        folder.mkdir(exist_ok=True)
        for name, text in (("__init__", top), ("core", core), ("extra", "NAMES = frozenset(['cpu'])\n")):
            (folder / f"{name}.py").write_text(text)
        (tmp_path / "fakelib_arranged.py").write_text(arranged)
        if version:
            info = tmp_path / "fakelib_dist-1.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fakelib-dist\nVersion: {version}\n")
        importlib.invalidate_caches()
        return tmp_path

    yield write
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("fakelib", "fakelib_arranged", "otherlib", "third")
    ]:
        del sys.modules[name]


def installed(monkeypatch, setting):
    monkeypatch.setenv("CHIP_INTEGRATIONS", setting)
    integrations.install()


def outcome(library="fakelib"):
    return next(one for one in integrations.report() if one.library == library)


def assert_arranged(fakelib):
    core = sys.modules["fakelib.core"]
    assert (fakelib.pick("auto"), core.pick("auto"), core.pick("tpu")) == ("chip", "chip", "cpu")
    assert (core.State().device, core.State.made(1), core.State.fixed()) == ("chipcpu", 2, -7)
    assert core.says() == ("chip:0", "chip:None", "a cuda: word", "chip", True)
    assert core.says(HasChip)[3] == "attribute"
    assert core.says.__doc__ == "cuda stays here"


def assert_untouched(fakelib):
    core = sys.modules["fakelib.core"]
    assert fakelib.pick is core.pick
    assert core.says() == ("cuda:0", "cuda:None", "a cuda: word", "cuda", False)
    assert (fakelib.pick("auto"), core.State().device, core.State.made(1), core.State.fixed()) == ("cpu", "cpu", 1, 7)


@pytest.fixture
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("setting", ["auto", "fakelib", " otherlib , fakelib", "otherlib"])
def test_I01_a_module_is_arranged_when_it_is_imported(library, monkeypatch, silent, setting):
    library()
    installed(monkeypatch, setting)
    assert outcome().state == "not imported"
    assert "fakelib_arranged" not in sys.modules
    import fakelib

    assert_arranged(fakelib)
    assert (outcome().state, outcome().version, outcome().done) == ("applied", "1.3.0", ("auto is chip",))
    import fakelib.extra

    assert fakelib.extra.NAMES == CHIP
    assert outcome().done == ("auto is chip", "chip is a name")
    assert type(fakelib.core.__loader__) is type(fakelib.core.__spec__.loader) is type(fakelib.__loader__)
    assert isinstance(fakelib.core.__loader__, importlib.machinery.SourceFileLoader)


def test_I01_what_a_library_requires_is_arranged_with_it_and_so_on(library, monkeypatch):
    monkeypatch.setenv("CHIP_INTEGRATIONS", "third")
    assert integrations._from_environment() == ["third", "otherlib", "fakelib"]


@pytest.mark.parametrize("setting", ["none", "third"])
def test_I03_what_is_imported_and_was_not_asked_for_is_off(library, monkeypatch, silent, setting):
    monkeypatch.setattr(integrations, "DEPENDS_ON", {})
    library()
    installed(monkeypatch, setting)
    import fakelib

    assert_untouched(fakelib)
    assert (outcome().state, outcome("otherlib").state) == ("off", "not imported")
    watches = any(isinstance(one, imports.AfterImport) for one in sys.meta_path)
    assert watches == (setting != "none")


def test_I03_without_a_setting_the_first_import_names_the_switch(library):
    library()
    integrations.install()
    with pytest.warns(IntegrationWarning, match="CHIP_INTEGRATIONS=auto .*CHIP_INTEGRATIONS=none") as caught:
        import fakelib
    assert len(caught) == 1
    assert_untouched(fakelib)
    assert (outcome().state, outcome("otherlib").state) == ("off", "not imported")


@pytest.mark.parametrize("fails", [False, True])
def test_I03_what_the_user_imported_is_named_and_not_what_that_imports(library, fails):
    """Where that fails, the next one is."""
    folder = library(top="import otherlib\n" + ("raise ImportError('broken')\n" if fails else ""))
    for name in ("otherlib", "third"):
        (folder / f"{name}.py").write_text("")
    integrations.install()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ImportError, match="broken") if fails else contextlib.nullcontext():
            importlib.import_module("fakelib")
        importlib.import_module("third")
    (warning,) = caught
    assert str(warning.message).startswith("third " if fails else "fakelib ")


def test_without_a_device_there_is_no_hint(library, monkeypatch, silent):
    library()
    monkeypatch.setattr(_backend, "C", SimpleNamespace(devices=SimpleNamespace(count=lambda: 0)))
    integrations.install()
    import fakelib

    assert_untouched(fakelib)


def test_I03_an_unknown_name_lists_the_known_ones(library, monkeypatch):
    monkeypatch.setenv("CHIP_INTEGRATIONS", "fakelib,accelerat")
    with pytest.raises(ImportError, match=r"CHIP_INTEGRATIONS=\S+ .* accelerat\. .*fakelib, otherlib, third"):
        integrations.check_setting()


@pytest.mark.parametrize("version", ["1.4.0", "1.1.9", "1.4.0.dev1", "not a version", None])
def test_I02_a_version_that_was_not_tried_is_one_warning(library, monkeypatch, version):
    library(version)
    installed(monkeypatch, "auto")
    with pytest.warns(IntegrationWarning, match=r"tried with >=1\.2,<1\.4") as caught:
        import fakelib.extra
    assert len(caught) == 1
    assert_untouched(fakelib)
    assert fakelib.extra.NAMES == CPU
    assert (outcome().state, outcome().version) == ("unknown version", version)


@pytest.mark.parametrize("version", ["1.2", "1.3.9+vendor", "1.3.0rc1"])
def test_versions_within_those_tried(library, monkeypatch, silent, version):
    library(version)
    installed(monkeypatch, "auto")
    import fakelib

    assert_arranged(fakelib)


@pytest.mark.parametrize(("version", "names"), [("1.2.9", CPU), ("1.3.0rc1", CHIP)])
def test_a_step_for_some_of_the_versions(library, monkeypatch, silent, version, names):
    words = 'integration.words("it says chip", "fakelib.extra: nothing", releases="<1.2")\n'
    library(version, arranged=ARRANGED.replace('"fakelib.extra"', '"fakelib.extra", releases=">=1.3"') + words)
    installed(monkeypatch, "auto")
    import fakelib.extra

    assert_arranged(fakelib)
    assert names == fakelib.extra.NAMES
    assert outcome().done == ("auto is chip", "chip is a name")[: len(names)]


@pytest.mark.parametrize(
    ("core", "reason"),
    [
        (CORE.replace("cuda", "tpu"), r"fakelib\.core\.says does not contain cuda"),
        (CORE.replace("fixed", "mended"), r"fakelib\.core\.State has no fixed"),
        (CORE.replace("(cls, n)", "(cls, m, n)"), r"State\.made takes \(cls, m, n\), not \(cls, n, \.\.\.\)"),
        (CORE.replace("def fixed():\n        return 7", "def made2(): 0\n    fixed = 7"), r"fixed is not a function"),
        (CORE.replace("class State", "class Estate"), "AttributeError: .*State"),
    ],
)
def test_I02_what_is_not_as_expected_is_one_warning_and_nothing_is_changed(library, monkeypatch, core, reason):
    library(core=core)
    installed(monkeypatch, "auto")
    with pytest.warns(IntegrationWarning, match=reason) as caught:
        import fakelib.extra
    assert len(caught) == 1
    assert fakelib.pick("auto") == fakelib.core.pick("auto") == "cpu"
    assert fakelib.extra.NAMES == CPU
    assert outcome().state == "failed"


def test_I02_a_later_module_that_does_not_fit_takes_back_the_earlier(library, monkeypatch):
    registers = "    module.register.add(1)\n    patch.also(module.register.clear)\n    patch.words"
    arranged = ARRANGED.replace('"NAMES"', '"NOMENS"').replace("    patch.words", registers)
    library(arranged=arranged, core=CORE + "\nregister = set()\n")
    installed(monkeypatch, "auto")
    import fakelib

    assert_arranged(fakelib)
    assert fakelib.core.register == {1}
    with pytest.warns(IntegrationWarning, match=r"fakelib\.extra has no NOMENS"):
        import fakelib.extra
    assert_untouched(fakelib)
    assert fakelib.core.register == set()


def test_I01_auto_arranges_what_is_imported_already(library):
    library()
    import fakelib

    taken = fakelib.pick
    assert_untouched(fakelib)  # and what is cached does not stay
    integrations.enable()
    assert_arranged(fakelib)
    assert taken("auto") == "cpu"
    import fakelib.extra

    assert fakelib.extra.NAMES == CHIP


def test_the_environment_overrides_auto(library, monkeypatch):
    library()
    monkeypatch.setenv("CHIP_INTEGRATIONS", "none")
    integrations.enable()
    import fakelib

    assert_untouched(fakelib)


def test_I01_a_module_whose_import_brings_the_backend_is_arranged_at_its_end(library, monkeypatch, silent):
    brings = "from torch_backplane import integrations\nintegrations.install()\n"
    library(core=brings + CORE)
    monkeypatch.setenv("CHIP_INTEGRATIONS", "auto")
    import fakelib

    assert_arranged(fakelib)
    assert type(fakelib.__spec__) is type(fakelib.core.__spec__) is importlib.machinery.ModuleSpec


def test_an_import_that_fails_leaves_nothing_behind(library, monkeypatch, silent):
    brings = "from torch_backplane import integrations\nintegrations.install()\n"
    library(core=brings + CORE + "raise OSError('no disk')\n")
    monkeypatch.setenv("CHIP_INTEGRATIONS", "auto")
    with pytest.raises(OSError, match="no disk"):
        import fakelib
    library(core=CORE)
    import fakelib

    assert_arranged(fakelib)


def test_I01_a_reload_is_arranged_again(library, monkeypatch, silent):
    library()
    installed(monkeypatch, "auto")
    import fakelib

    importlib.reload(fakelib.core)
    importlib.reload(fakelib)
    assert_arranged(fakelib)


def test_lazy_modules_are_arranged_when_they_load(library, monkeypatch, silent):
    library()
    installed(monkeypatch, "auto")
    import fakelib

    spec = importlib.util.find_spec("fakelib.extra")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules["fakelib.extra"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert outcome().done == ("auto is chip",)
    assert module.NAMES == CHIP
    assert fakelib.pick("auto") == "chip"


def test_a_namespace_and_a_module_that_is_not_there(library, monkeypatch, silent):
    folder = library()
    (folder / "otherlib").mkdir()
    installed(monkeypatch, "auto")
    import otherlib

    assert otherlib.__file__ is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fakelib.missing")


def test_another_finder_of_the_same_kind(library, monkeypatch, silent):
    """Each asks the other; neither for ever."""
    library()
    seen = []
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    sys.meta_path.insert(
        0,
        imports.AfterImport(
            lambda name: name.startswith("fakelib.") or name == "fakelib", lambda *args: seen.append(args)
        ),
    )
    installed(monkeypatch, "auto")
    import fakelib

    assert_arranged(fakelib)
    assert [name for name, _, _ in seen] == ["fakelib.core", "fakelib"]


@pytest.mark.parametrize("brings", [False, True])
def test_I01_threads_that_import_at_once_see_it_arranged(library, monkeypatch, silent, brings):
    library(core="import time; time.sleep(0.05)\n" + CORE, top="from fakelib.core import *\n")
    if not brings:
        installed(monkeypatch, "auto")
    monkeypatch.setenv("CHIP_INTEGRATIONS", "auto")
    start, found = threading.Barrier(5), []

    def work(first):
        start.wait()
        if first:
            integrations.enable()
        found.append(importlib.import_module("fakelib.core").pick("auto"))

    threads = [threading.Thread(target=work, args=(brings and n == 0,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not brings:
        assert found == ["chip"] * 5
    assert sys.modules["fakelib.core"].pick("auto") == "chip"
    assert outcome().done == ("auto is chip",)


def test_auto_without_a_backend_says_what_to_import():
    code = "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'\nimport torch_backplane.integrations.auto"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import the vendor's package first" in done.stderr


def test_I03_doctor_reports_each_state(monkeypatch):
    lines = [
        '{"library": "a", "state": "applied", "version": "1", "done": ["x", "y"], "error": "", "chosen": true',
        '{"library": "b", "state": "unknown version", "version": "2", "done": ["tried"], "error": "", "chosen": true',
        '{"library": "c", "state": "off", "version": "3", "done": [], "error": "", "chosen": false',
        '{"library": "d", "state": "not imported", "version": "4", "done": [], "error": "no disk", "chosen": true',
    ]
    output = "\n".join(line + ', "variable": "CHIP_INTEGRATIONS", "tried": "==1"}' for line in lines)
    monkeypatch.setattr(doctor, "_run", lambda command: subprocess.CompletedProcess(command, 0, output, ""))
    monkeypatch.delenv("CHIP_INTEGRATIONS", raising=False)
    found = {one.what: (one.state, one.found, one.cure) for one in doctor.check_integrations("chip")}
    assert found["with a"] == ("ok", "1: x; y", "")
    assert found["with b"] == ("warn", "2: unknown version, tried", "install b ==1")
    assert found["with c"] == ("warn", "3: off, it chooses the device by itself", "CHIP_INTEGRATIONS=auto")
    assert found["with d"] == ("warn", "4: no disk", "")
    monkeypatch.setenv("CHIP_INTEGRATIONS", "none")
    found = {one.what: one.found for one in doctor.check_integrations("chip")}
    assert found["with c"] == "3: off, as CHIP_INTEGRATIONS says"


def test_every_library_has_its_file():
    for library, where in integrations.LIBRARIES.items():
        integration = importlib.import_module(where).integration
        assert integration.modules
        assert all(name.partition(".")[0] == library for name in integration.modules)
        assert integration.tried


def test_the_files_import_no_library():
    names = list(integrations.LIBRARIES)
    code = f"""
    import importlib, sys
    from torch_backplane import integrations
    for where in integrations.LIBRARIES.values():
        importlib.import_module(where)
    assert not set({names}) & set(sys.modules), sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_every_library_has_a_proposed_change():
    """A section of docs/upstream.md: the symptom, the version tried, a patch that asks torch for the device."""
    page = Path(__file__).resolve().parents[2] / "docs" / "upstream.md"
    sections = page.read_text(encoding="utf-8").split("\n## ")[1:]
    for library, where in integrations.LIBRARIES.items():
        file = where.rpartition(".")[2]
        names = [f"`torch_backplane/integrations/{file}.py`", f"`{file}.py`"]
        if "lightning" in library:
            names = ["`torch_backplane/integrations/_lightning_accelerator.py`"]
        (section,) = (one for one in sections if any(name in one for name in names))
        cells = [line.strip("| ").partition(" | ") for line in section.splitlines() if line.startswith("| ")]
        rows = {cell: text for cell, _, text in cells}
        assert {"symptom", "cause", "workaround", "change"} <= set(rows), library
        tried = re.search(r"\d+(\.\d+)?", importlib.import_module(where).integration.tried)[0]
        assert tried in rows["cause"], library
        patch = section.partition("```")[2].partition("```")[0]
        assert len(patch.splitlines()) > 3, library
