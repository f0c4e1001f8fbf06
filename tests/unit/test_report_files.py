"""The files of a report: which there are, that they are whole, and that names only show."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ecobench.errors import StoreError
from ecobench.measurement import MeterAbsence
from ecobench.report import write_report
from ecobench.store import as_plain
from records_for_tests import SPEECH, TARGET, S, but, metric, run_record, run_spec
from stored_runs import ESTIMATE, embedded_json, stored_run

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = "</script><script>alert(1)</script>\"'&\U0001f525 $$x^2$$ \u202eabc"


class _Page(HTMLParser):
    """Elements and the `<data>` values of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.numbers: list[tuple[str, float]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        if tag == "data" and "data-key" in named:
            self.numbers.append((str(named["data-key"]), float(str(named["value"]))))


def test_report_is_one_page_and_three_pictures(tmp_path: Path) -> None:
    """Nothing else lies in the folder afterwards."""
    run = stored_run(tmp_path)
    before = {path.name for path in run.path.iterdir()}
    paths = write_report(run, formats=("html", "png"))

    assert [path.name for path in paths] == ["report.html", "loss.png", "power.png", "energy.png"]
    assert {path.name for path in run.path.iterdir()} - before == {path.name for path in paths}
    assert all(path.read_bytes().startswith(PNG) for path in paths[1:])


def test_run_without_a_meter_has_a_picture_of_time_and_none_of_energy(tmp_path: Path) -> None:
    """A time is never called an energy."""
    run = stored_run(tmp_path, powers_w={}, run=run_record(spec=run_spec(meter="none", n_trials=1)))

    assert [path.name for path in write_report(run, formats=("png",))] == ["loss.png", "time.png"]


def test_run_that_never_started_has_a_page_that_says_so(tmp_path: Path) -> None:
    """No charts, and the reason in the headline."""
    run = stored_run(tmp_path, powers_w={}, never_started=(0,))
    (page,) = write_report(run, formats=("html", "png"))

    assert "no program `missing`" in page.read_text(encoding="utf-8")


def test_every_number_of_the_page_is_the_summarys(tmp_path: Path) -> None:
    """Read back from the page, to the last bit: figures of the run and of each phase, and the whole summary."""
    spec = run_spec(target=TARGET, n_trials=2)
    run = stored_run(tmp_path, powers_w={ESTIMATE: 20.0}, speeches=(SPEECH, SPEECH), run=run_record(spec=spec))
    write_report(run, formats=("html",))
    page = run.report.read_text(encoding="utf-8")
    summary = run.read_summary()

    assert summary is not None
    shown = _Page(page).numbers
    figures = [figure for figure in summary.figures if figure.value is not None]
    energies = [figure for phase in summary.phases for figure in phase.figures if figure.value is not None]
    assert sorted(shown) == sorted((figure.key, figure.value) for figure in (*figures, *energies))
    assert embedded_json(page, "summary") == _as_json(as_plain(summary))


def test_hostile_names_only_show(tmp_path: Path) -> None:
    """The same elements as in a harmless report, and no letter that turns the direction of a line."""
    workload = run_spec(n_trials=1, workload=HOSTILE, preset=HOSTILE, token_rule=HOSTILE, parameters={"p": HOSTILE})
    absence = MeterAbsence(interface=HOSTILE, domain=HOSTILE, reason=HOSTILE, remedy=HOSTILE)
    hostile = run_record(spec=workload, argv=("ecobench", "run", HOSTILE), absences=(absence,))
    tame = but(hostile, spec=but(workload, workload="w", preset="p", token_rule="t", parameters={"p": "v"}))
    tame = but(tame, absences=(but(absence, interface="i", domain="d", reason="r", remedy="m"),))
    meter = but(ESTIMATE, domain=HOSTILE, counted=HOSTILE, basis=HOSTILE)
    renamed = tuple({**event, "phase": HOSTILE[:40]} if event.get("phase") == "warmup" else event for event in SPEECH)
    pages = []
    for name, run, meters, speech in (
        ("hostile", hostile, {meter: 20.0}, (*renamed[:-2], metric(7 * S, HOSTILE[:40], 1.0, 2), *renamed[-2:])),
        ("tame", tame, {ESTIMATE: 20.0}, (*SPEECH[:-2], metric(7 * S, "other", 1.0, 2), *SPEECH[-2:])),
    ):
        folder = stored_run(tmp_path / name, run=run, powers_w=meters, speeches=(speech,))
        write_report(folder, formats=("html", "png"))
        pages.append(folder.report.read_text(encoding="utf-8"))

    assert _Page(pages[0]).tags == _Page(pages[1]).tags
    assert "\u202e" not in pages[0]
    assert "&lt;script&gt;alert(1)" in pages[0]


def test_page_names_no_address(tmp_path: Path) -> None:
    """Beside Bokeh's own code no attribute or style points anywhere but into the page."""
    run = stored_run(tmp_path)
    write_report(run, formats=("html",))
    page = run.report.read_text(encoding="utf-8")
    outside_of_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)

    assert "Content-Security-Policy" in page
    assert not re.search(r"(?:src|href)=[\"'](?!data:|#)", outside_of_scripts)
    assert "url(" not in outside_of_scripts
    assert "http" not in outside_of_scripts.replace("http-equiv", "")


def test_full_disk_is_a_store_error_and_leaves_the_old_report(tmp_path: Path) -> None:
    """/dev/full in place of the file beside: the first write fails as on a full disk."""
    run = stored_run(tmp_path)
    run.report.write_text("the old report", encoding="utf-8")
    beside = run.path / f".report.html.{os.getpid()}"
    beside.symlink_to("/dev/full")

    with pytest.raises(StoreError, match="No space left on device"):
        write_report(run, formats=("html",))

    assert run.report.read_text(encoding="utf-8") == "the old report"
    assert not beside.is_symlink()


def test_importing_the_report_draws_nothing() -> None:
    """The result block comes without a drawing library, numpy or pyarrow."""
    program = (
        "import sys, ecobench.report, ecobench.report.tables;"
        "print(sorted({'bokeh', 'matplotlib', 'pandas', 'numpy', 'pyarrow', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def _as_json(value: object) -> object:
    """Tuples as the lists that JSON knows, enumerations as their text."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return str(value) if isinstance(value, str) else value
