"""The conformance kit's engine, on a suite that crashes, hangs, fails and passes unexpectedly (fake_suite.py)."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from backplane_tools.cli.conformance import conformance
from backplane_tools.conformance import Case
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.expected import Entry, Expected
from backplane_tools.conformance.journal import Journal
from backplane_tools.conformance.pool import case_seed
from backplane_tools.conformance.record import Row
from backplane_tools.conformance.trend import Trend

pytestmark = pytest.mark.xdist_group("conformance_engine")  # the suite runs once

HERE = Path(__file__).parent
FAKE = ["--device", "cpu", "--suite", "fake=fake_suite:FakeSuite"]
COMMAND = [sys.executable, "-m", "backplane_tools", "conformance"]


def environment(**changes):
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **changes}


def run(folder, *arguments, command=None, **changes):
    """The command's exit status and text, in a folder."""
    done = subprocess.run(
        command or [*COMMAND, *FAKE, *arguments],
        cwd=folder,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def results(path):
    return {case["id"]: case for case in json.loads(path.read_text())["cases"]}


def wait_until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All of the fake suite once, with every report: (folder, exit status, text)."""
    folder = tmp_path_factory.mktemp("whole")
    files = ["--json", "r.json", "--junit", "r.xml", "--html", "r.html"]
    return folder, *run(folder, "--jobs", "2", "--timeout", "4", *files)


def test_crash_and_hang_cost_one_row_each(whole):
    folder, status, text = whole
    assert status == 1, text
    found = {case_id: case["status"] for case_id, case in results(folder / "r.json").items()}
    assert found == {
        "fake/good": "pass",
        "fake/bad": "fail",
        "fake/raises": "fail",
        "fake/skips": "skip",
        "fake/crashes": "crash",
        "fake/exits": "crash",
        "fake/hangs": "timeout",
        "fake/draws": "pass",
        "fake/last": "pass",
        "fake/typed/float32": "pass",
        "fake/typed/int64": "pass",
    }
    assert "5 of 11 cases failed" in text


def test_a_row_says_why(whole):
    rows = results(whole[0] / "r.json")
    assert "SIGSEGV" in rows["fake/crashes"]["message"]
    assert "in crashes" in rows["fake/crashes"]["trace"], "the Python stack of the crash"
    assert rows["fake/crashes"]["trace"].count("noise on the standard output") == 1, "this case's output alone"
    assert "exit status 3" in rows["fake/exits"]["message"]
    assert "within 4 s" in rows["fake/hangs"]["message"]
    assert "in hangs" in rows["fake/hangs"]["trace"], "where it hung"
    assert rows["fake/raises"]["message"] == "ValueError: the shape is wrong"
    assert "in raises" in rows["fake/raises"]["trace"]
    assert rows["fake/skips"]["message"] == "no such hardware"
    assert rows["fake/good"]["checks"] == {"forward": 3, "out": 1}


def test_each_failure_prints_the_line_that_repeats_it(whole):
    folder, _, text = whole
    line = next(line.strip() for line in text.splitlines() if "conformance fake/raises" in line)
    words = shlex.split(line)
    assert words[:3] == ["torch-backplane", "conformance", "fake/raises"]
    status, again = run(folder, command=[*COMMAND[:-1], *words[1:]])
    assert status == 1
    assert "1 of 1 cases failed" in again
    assert "ValueError: the shape is wrong" in again


@pytest.mark.long
def test_junit_has_a_case_a_row(whole):
    root = ET.parse(whole[0] / "r.xml").getroot()
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "11",
        "failures": "2",
        "errors": "3",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert "expected 1, found 2 <b>&amp;</b>" in cases["bad"].find("failure").get("message")
    assert cases["crashes"].find("error") is not None
    assert len(cases["typed/int64"]) == 0


class Page(HTMLParser):
    """Collects the embedded data and every address that the page would load."""

    def __init__(self):
        super().__init__()
        self.data, self.addresses, self._inside = "", [], False

    def handle_starttag(self, tag, attrs):
        self._inside = dict(attrs).get("id") == "data"
        self.addresses += [value for key, value in attrs if key in ("src", "href")]

    def handle_data(self, data):
        self.data += data if self._inside else ""

    def handle_endtag(self, tag):
        self._inside = False


def test_html_holds_every_row_and_loads_nothing(whole):
    text = (whole[0] / "r.html").read_text()
    page = Page()
    page.feed(text)
    rows = {row["id"]: row for row in json.loads(page.data)["rows"]}
    assert rows.keys() == results(whole[0] / "r.json").keys()
    assert rows["fake/bad"]["message"].startswith("expected 1, found 2 <b>&amp;</b>")
    assert rows["fake/good"]["ratio"] == 2
    assert rows["fake/bad"]["command"].startswith("torch-backplane conformance fake/bad")
    assert page.addresses == []
    assert "url(" not in text


@pytest.mark.long
def test_an_interrupted_run_is_resumed(tmp_path):
    gate, log = tmp_path / "gate", tmp_path / "log"
    changes = {"FAKE_CASES": "good,draws,waits,last", "FAKE_GATE": str(gate), "FAKE_LOG": str(log)}
    process = subprocess.Popen(
        [*COMMAND, *FAKE, "--jobs", "1"], cwd=tmp_path, env=environment(**changes), stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: log.exists() and "fake/waits" in log.read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130, text
    assert "interrupted after 2 of 6 cases" in text
    assert "--resume" in text
    worker = int(log.read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    gate.touch()
    status, text = run(tmp_path, "--jobs", "1", "--resume", "--json", "r.json", **changes)
    assert status == 0, text
    ran = [line.split()[0] for line in log.read_text().splitlines()]
    assert ran == ["fake/good", "fake/draws", "fake/waits", "fake/waits", *list(results(tmp_path / "r.json"))[3:]]
    assert len(results(tmp_path / "r.json")) == 6


@pytest.mark.long
def test_workers_end_with_a_run_that_is_killed(tmp_path):
    log = tmp_path / "log"
    changes = {"FAKE_CASES": "hangs", "FAKE_LOG": str(log)}
    process = subprocess.Popen([*COMMAND, *FAKE, "--jobs", "1"], cwd=tmp_path, env=environment(**changes))
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
    process.kill()
    process.wait()
    worker = Path("/proc") / log.read_text().split()[1]
    wait_until(lambda: not worker.exists())


def test_the_journal_survives_half_a_line_and_refuses_another_backend(tmp_path):
    about = {"torch": "2", "backend": "b", "driver": "d", "options": ""}
    journal = Journal({"seed": 0}, tmp_path)
    journal.open(about, resume=False)
    for name in ("a", "b"):
        journal.add(Row("pass", case=Case("s", name)))
    journal.close()
    journal.path.write_text(journal.path.read_text()[:-20])
    rows = Journal({"seed": 0}, tmp_path).open(about, resume=True)
    assert [row.case for row in rows] == [Case("s", "a")]
    with pytest.raises(ConformanceError, match="options was '' and is 'devices=1' now"):
        Journal({"seed": 0}, tmp_path).open({**about, "options": "devices=1"}, resume=True)
    assert Journal({"seed": 1}, tmp_path).path != journal.path


@pytest.mark.long
def test_a_case_has_its_seed_in_any_order_and_shard(tmp_path):
    drawn = []
    for names, arguments in (
        ("draws", []),
        ("draws.2,good,draws", ["--shard", "2/2"]),
        ("good,draws,draws.2", ["--jobs", "2"]),
        ("draws", ["--seed", "1"]),
    ):
        run(tmp_path, *arguments, "--json", "r.json", FAKE_CASES=names)
        drawn.append(results(tmp_path / "r.json"))
    messages = [rows["fake/draws"]["message"] for rows in (drawn[0], drawn[2], drawn[3]) if "fake/draws" in rows]
    assert messages[0] == messages[1] != messages[2]
    assert drawn[2]["fake/draws"]["message"] != drawn[2]["fake/draws.2"]["message"]
    assert drawn[0]["fake/draws"]["seed"] == case_seed(0, Case("fake", "draws"))


@pytest.mark.long
def test_shards_are_disjoint_and_complete(tmp_path):
    shards = [run(tmp_path, "--list", "--shard", f"{i}/3")[1].split() for i in (1, 2, 3)]
    whole = run(tmp_path, "--list")[1].split()
    assert sorted(case for shard in shards for case in shard) == sorted(whole)
    assert [len(shard) for shard in shards] == [4, 4, 3]


@pytest.mark.long
def test_shards_are_merged_into_one_report(tmp_path):
    names = {"FAKE_CASES": "good,bad,skips"}
    for i in (1, 2):
        run(tmp_path, "--jobs", "1", "--shard", f"{i}/2", "--json", f"{i}.json", **names)
    words = [*COMMAND, "--merge", "1.json", "--merge", "2.json"]
    status, text = run(tmp_path, command=[*words, "--json", "all.json", "--html", "all.html"])
    assert status == 1
    assert "1 of 5 cases failed" in text
    merged = results(tmp_path / "all.json")
    assert merged == {**results(tmp_path / "1.json"), **results(tmp_path / "2.json")}
    assert merged["fake/bad"]["command"].startswith("torch-backplane conformance fake/bad")
    assert "torch-backplane conformance fake/bad" in (tmp_path / "all.html").read_text()

    status, text = run(tmp_path, command=[*words, "--seed", "1"])
    assert (status, "--seed beside it has no meaning" in " ".join(text.split())) == (2, True)
    document = json.loads((tmp_path / "2.json").read_text())
    document["about"]["torch"] = "1.0"
    (tmp_path / "2.json").write_text(json.dumps(document))
    status, text = run(tmp_path, command=words)
    assert (status, "and '1.0' in 2.json" in " ".join(text.split())) == (2, True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """``here(...)``: the command's exit status and text, in this process, which has torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_CASES", "good")
    before = signal.getsignal(signal.SIGTERM)

    def run_here(*arguments):
        done = CliRunner().invoke(conformance, [*FAKE, "--jobs", "0", *arguments])
        return done.exit_code, " ".join(done.output.split())

    yield run_here
    signal.signal(signal.SIGTERM, before)


def test_dtypes_names_and_globs_select(here):
    assert here("--list", "--dtype", "int8,int16", "--op", "typed") == (0, "fake/typed/int8 fake/typed/int16")
    assert here("--list", "fake/*/int64", "fake/good") == (0, "fake/good fake/typed/int64")


@pytest.mark.long
def test_a_worker_is_replaced_after_its_cases(tmp_path):
    log = tmp_path / "log"
    run(tmp_path, "--jobs", "1", "--recycle", "2", FAKE_CASES="good,last", FAKE_LOG=str(log))
    workers = [line.split()[1] for line in log.read_text().splitlines()]
    assert workers[0] == workers[1] != workers[2] == workers[3]


def test_a_device_that_faults_costs_one_row(tmp_path):
    log = tmp_path / "log"
    names = {"FAKE_CASES": "good,faults,last", "FAKE_LOG": str(log)}
    run(tmp_path, "--jobs", "1", "--json", "r.json", **names)
    rows = results(tmp_path / "r.json")
    found = {case_id: rows[f"fake/{case_id}"]["status"] for case_id in ("good", "faults", "last")}
    assert found == {"good": "pass", "faults": "fail", "last": "pass"}
    assert "the device has faulted" in rows["fake/faults"]["message"]
    workers = [line.split()[1] for line in log.read_text().splitlines()]
    assert workers[0] == workers[1] != workers[2] == workers[3]


@pytest.mark.long
def test_a_case_that_eats_memory_costs_its_row(tmp_path):
    names = {"FAKE_CASES": "leaks,last"}
    status, _ = run(tmp_path, "--jobs", "1", "--memory", "1", "--json", "r.json", **names)
    rows = results(tmp_path / "r.json")
    assert status == 1
    assert rows["fake/leaks"]["status"] == "crash"
    assert "--memory allows 1.0 GiB" in rows["fake/leaks"]["message"]
    assert rows["fake/last"]["status"] == "pass"


def test_jobs_0_runs_in_this_process(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import os; print(os.getpid(), flush=True); from backplane_tools.cli import main"]
    command[2] += f"; main({['conformance', *FAKE, '--jobs', '0']!r})"
    status, text = run(tmp_path, command=command, FAKE_CASES="good", FAKE_LOG=str(log))
    assert status == 0, text
    assert {line.split()[1] for line in log.read_text().splitlines()} == {text.split()[0]}


def expected(folder, *entries):
    lines = [f'[[expected]]\ncase = "{case}"\nreason = "{reason}"\n' for case, reason in entries]
    (folder / "conformance.toml").write_text("\n".join(lines))


@pytest.mark.long
def test_listed_failures_are_expected_and_listed_passes_are_errors(tmp_path):
    names = {"FAKE_CASES": "good,bad,crashes"}
    expected(tmp_path, ("fake/bad", "the sum is off"), ("fake/cra*", "known"))
    status, text = run(tmp_path, "--json", "r.json", "--junit", "r.xml", **names)
    rows = results(tmp_path / "r.json")
    assert status == 0, text
    assert rows["fake/bad"]["status"] == rows["fake/crashes"]["status"] == "xfail"
    assert rows["fake/bad"]["reason"] == "the sum is off"
    skipped = ET.parse(tmp_path / "r.xml").getroot().find(".//testcase[@name='bad']/skipped")
    assert skipped.get("message") == "expected: the sum is off"

    expected(tmp_path, ("fake/bad", "the sum is off"), ("fake/crashes", "known"), ("fake/good", "once"))
    status, text = run(tmp_path, "--json", "r.json", **names)
    assert status == 1
    assert results(tmp_path / "r.json")["fake/good"]["status"] == "xpass"
    assert "remove 'fake/good' from conformance.toml" in text


def test_an_entry_that_matches_no_case_is_an_error(tmp_path):
    expected(tmp_path, ("fake/<i>gone/*", "was there"))
    status, text = run(tmp_path, "fake/good", "--html", "r.html", FAKE_CASES="good")
    assert status == 1
    assert "'fake/<i>gone/*' matches no case: remove it" in text
    assert "fake/&lt;i&gt;gone/* matches no case" in (tmp_path / "r.html").read_text().replace("&#39;", "")


def test_an_entry_may_list_cases(tmp_path):
    path = tmp_path / "conformance.toml"
    path.write_text('[[expected]]\ncase = ["a/b", " c/* "]\nreason = "r"\n')
    assert Expected.read(path).entries == (Entry("a/b", "r"), Entry("c/*", "r"))


def test_only_the_suites_of_the_run_are_judged():
    entries = Expected((Entry("ops/gone", "r"), Entry("oops/add", "r"), Entry("*/x", "r")), "c.toml")
    known = ["ops", "modules"]
    assert [problem.split(": ", 1)[1] for problem in entries.stale(["modules/a"], ["modules"], known)] == [
        "'oops/add' names no suite; there are modules, ops"
    ]
    assert len(entries.stale(["modules/a", "ops/a"], known, known)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[expected]]\ncase = "a/b"\n', r"entry 1 \('a/b'\) needs reason"),
        ('[[expected]]\ncase = "a/b"\nreason = " "\n', "needs reason"),
        ('[[expected]]\nreason = "r"\n', "needs case"),
        ('[[expected]]\ncase = []\nreason = "r"\n', "needs case.* or a list"),
        ('[[expected]]\ncase = ["a", 1]\nreason = "r"\n', "needs case.* or a list"),
        ('[[expected]]\ncase = "a"\nreason = "r"\nuntil = "2"\n', "unknown key 'until'"),
        ('[expected]\ncase = "a"\n', "double brackets"),
        ("[[known]]\n", "unknown key 'known'"),
        ("expected =", "Invalid value"),
    ],
)
def test_a_malformed_list_is_refused(tmp_path, text, message):
    path = tmp_path / "conformance.toml"
    path.write_text(text)
    with pytest.raises(ConformanceError, match=message):
        Expected.read(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "3/2"], "1 <= i <= n"),
        (["--suite", "oops"], "no suite 'oops'"),
        (["--dtype", "float31"], "no dtype 'float31' in torch"),
        (["--dtype", "ones"], "no dtype 'ones' in torch"),
        (["fake/gone"], "matches none of"),
        (["--op", "gone"], "matches none of"),
        (["--expected", "gone.toml"], "gone.toml"),
        (["--html", "gone/r.html"], "there is no folder gone"),
        (["--baseline", "gone.json"], "gone.json"),
        (["--suite", "mine=no_such_module:Suite"], "cannot be imported as no_such_module:Suite"),
        (["--device", "nodevice"], "torch knows no device 'nodevice'"),
        (["--resume"], "no run of this selection"),
    ],
)
def test_wrong_usage_is_exit_status_2(here, arguments, message):
    status, text = here(*arguments)
    assert status == 2, text
    assert message in text


def test_a_missing_package_names_the_extra(tmp_path):
    (tmp_path / "needs.py").write_text("raise ModuleNotFoundError('no expecttest', name='expecttest')\n")
    command = [*COMMAND, "--device", "cpu", "--suite", "mine=needs:Suite"]
    status, text = run(tmp_path, command=command, PYTHONPATH=str(tmp_path))
    assert status == 2
    assert "pip install 'torch-backplane[conformance]'" in " ".join(text.split())


def test_the_parent_process_imports_no_torch(whole, tmp_path):
    """A crash at import is a worker's, and merged reports need no torch."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from backplane_tools.cli import main\n"
        f"main(['conformance', '--merge', {str(whole[0] / 'r.json')!r}, '--html', 'r.html', '--junit', 'r.xml'])"
    )
    status, text = run(tmp_path, command=[sys.executable, "-c", code])
    assert (status, "5 of 11 cases failed" in text) == (1, True), text
    assert (tmp_path / "r.html").is_file()


def timed(name, status, device=0.0, cpu=0.0):
    return Row(status, case=Case("ops", name), device_seconds=device, cpu_seconds=cpu)


def test_the_trend_lists_what_changed(tmp_path):
    before = [
        timed("breaks", "pass"),
        timed("heals", "fail"),
        timed("shrinks", "xfail"),
        timed("stays", "fail"),
        timed("slows", "pass", 2e-3, 1e-3),
        timed("speeds", "pass", 8e-3, 1e-3),
        timed("short", "pass", 2e-6, 1e-6),
        timed("gone", "pass"),
        timed("other", "pass"),
    ]
    after = [
        timed("breaks", "crash"),
        timed("heals", "pass"),
        timed("shrinks", "xpass"),
        timed("stays", "timeout"),
        timed("slows", "pass", 8e-3, 2e-3),
        timed("speeds", "pass", 2e-3, 1e-3),
        timed("short", "pass", 9e-6, 1e-6),
        timed("new", "pass"),
    ]
    path = tmp_path / "before.json"
    report = {"format": 1, "about": {}, "started": "then", "seconds": 0, "problems": []}
    path.write_text(json.dumps({**report, "cases": [row.to_json() for row in before]}))
    trend = Trend.between(path, after, {row.case.id for row in after} | {"ops/other"})
    assert trend.failing == ["ops/breaks"]
    assert trend.passing == ["ops/heals", "ops/shrinks"]
    assert trend.slower == {"ops/slows": 2.0}
    assert trend.faster == {"ops/speeds": 0.25}
    assert (list(trend.added), trend.gone) == (["ops/new"], ["ops/gone"])
    assert trend.word("ops/slows") == "slower"
    assert "  1 newly failing: ops/breaks" in trend.lines()


@pytest.mark.long
def test_a_baseline_shows_in_the_summary(whole, tmp_path):
    status, text = run(tmp_path, "fake/good", "fake/bad", "--baseline", str(whole[0] / "r.json"), "--html", "r.html")
    assert status == 1
    assert ": no change" in text
    assert "newly failing</button>" in (tmp_path / "r.html").read_text()
