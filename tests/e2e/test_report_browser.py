"""The report in a real browser: asks for nothing, complains of nothing, shows on a phone, in the dark and on paper."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ecobench.measurement import MeterAbsence
from ecobench.report import write_report
from ecobench.store import RunFolder
from records_for_tests import SPEECH, TARGET, but, run_record, run_spec, trial_end
from stored_runs import DRAM, ESTIMATE, PACKAGE_0, stored_run

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&\U0001f525 $$x^2$$ \u202eabc"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Open = Callable[..., Any]


class Watch:
    """What a page asked for and complained of."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []

    @property
    def requests_outside(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture(scope="module")
def browser(require: Callable[..., str]) -> Iterator[Any]:
    """One Chromium for all tests here."""
    executable = require("chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_report(browser: Any) -> Iterator[Open]:
    """Opens the report of a run, `width` pixels wide; the charts are drawn when it returns the page and its watch."""
    contexts = []

    def open_one(run: RunFolder, *, width: int = 1280, **options: Any) -> tuple[Any, Watch]:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page, watch = context.new_page(), Watch()
        page.on("request", lambda request: watch.requests.append(request.url))
        page.on("pageerror", lambda error: watch.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (watch.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "console",
            lambda message: watch.complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.goto(run.report.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-drawn]", timeout=20_000)
        return page, watch

    yield open_one
    for context in contexts:
        context.close()


def reported(root: Path, **options: Any) -> RunFolder:
    """A stored run with its report."""
    run = stored_run(root, **options)
    write_report(run, formats=("html",))
    return run


@pytest.fixture(scope="module")
def rapl_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two trials, two domains, a target."""
    return reported(
        tmp_path_factory.mktemp("rapl"),
        powers_w={PACKAGE_0: 60.0, DRAM: 8.0},
        speeches=(SPEECH, SPEECH),
        run=run_record(spec=run_spec(n_trials=2, target=TARGET)),
    )


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Names that would run, fetch, typeset or turn around, wherever a name can stand."""
    spec = run_spec(
        n_trials=1,
        workload=HOSTILE,
        preset=HOSTILE,
        token_rule=HOSTILE,
        parameters={HOSTILE: HOSTILE},
        target=but(TARGET, unit="nats/token"),
    )
    absence = MeterAbsence(interface=HOSTILE, domain=HOSTILE, reason=HOSTILE, remedy=HOSTILE)
    phase = HOSTILE.replace("\u202e", "")  # events carry printable text only
    return reported(
        tmp_path_factory.mktemp("hostile"),
        powers_w={but(ESTIMATE, domain=HOSTILE, counted=HOSTILE, basis=HOSTILE): 20.0},
        speeches=(tuple({**event, "phase": phase} if event.get("phase") == "warmup" else event for event in SPEECH),),
        ends={0: trial_end(exit_code=3, last_words=HOSTILE)},
        run=run_record(spec=spec, argv=("ecobench", "run", HOSTILE), absences=(absence,)),
    )


@contextmanager
def nothing_wrong(watch: Watch) -> Iterator[None]:
    """After the block the page has asked for nothing outside of itself and complained of nothing."""
    yield
    assert watch.requests_outside == []
    assert watch.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_page_fits_draws_and_stays_silent(open_report: Open, rapl_run: RunFolder, width: int, scheme: str) -> None:
    """Three charts, no sideways scrolling, no request and no complaint at phone, tablet and desktop width."""
    page, watch = open_report(rapl_run, width=width, color_scheme=scheme)

    with nothing_wrong(watch):
        assert page.get_attribute("html", "data-drawn") == "3"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_names_only_show(open_report: Open, hostile_run: RunFolder) -> None:
    """In Chromium, charts and hover fields included: no script, no request, no dialog, no image of theirs."""
    page, watch = open_report(hostile_run)

    with nothing_wrong(watch):
        assert page.get_attribute("html", "data-drawn") == "3"
        assert "document.title='owned'" in page.inner_text("h1")
        assert page.title() != "owned"
        assert page.locator("img:not(.twin)").count() == 0
        for chart in ("power", "energy", "loss"):
            page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
            box = page.locator(f"#chart-{chart}").bounding_box()
            for share in (0.2, 0.3, 0.4, 0.5):
                page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] * 0.2)
                page.wait_for_timeout(60)


def test_drag_zooms_a_chart_and_hover_tells_its_value(open_report: Open, rapl_run: RunFolder) -> None:
    """A drag over the middle of the timeline narrows its range in all panels; the pointer then shows a power."""
    page, watch = open_report(rapl_run)
    chart = page.locator("#chart-power")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    y = box["y"] + box["height"] * 0.3
    ranges = """() => Bokeh.documents.flatMap(doc => [...doc._all_models.values()])
        .filter(model => model.type === "Range1d" && model.bounds !== null).map(model => model.end - model.start)"""
    before = page.evaluate(ranges)
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    page.mouse.up()

    with nothing_wrong(watch):
        page.wait_for_timeout(200)
        (after_s,), (before_s,) = page.evaluate(ranges), before
        assert after_s < before_s / 2
        # The line of 60 W lies somewhere in the upper part of the first panel.
        for way in range(30, 90):
            page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + way)
            page.wait_for_timeout(15)
            if re.search(r"60\.0\s*W", shown_text(page)):
                return
        pytest.fail("no power under the pointer")


def test_pictures_stand_in_without_javascript(open_report: Open, rapl_run: RunFolder) -> None:
    """Each chart's PNG twin is visible, has its size, and says in words what it shows."""
    page, watch = open_report(rapl_run, java_script_enabled=False)

    with nothing_wrong(watch):
        twins = page.locator("img.twin")
        assert twins.count() == 3
        for place in range(3):
            assert twins.nth(place).is_visible()
            assert twins.nth(place).bounding_box()["height"] > 100
            assert len(twins.nth(place).get_attribute("alt")) > 20


def test_paper_gets_pictures_and_light_colours(open_report: Open, rapl_run: RunFolder) -> None:
    """Printed from a dark screen: twins in place of canvases, on white."""
    page, watch = open_report(rapl_run, color_scheme="dark")
    page.emulate_media(media="print")

    with nothing_wrong(watch):
        assert page.locator("img.twin").first.is_visible()
        assert not page.locator(".chart").first.is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_finger_scrolls_the_page_over_a_chart(open_report: Open, rapl_run: RunFolder) -> None:
    """Under a finger no drag tool is active: a swipe that begins on a chart moves the page."""
    page, watch = open_report(rapl_run, width=390, has_touch=True, is_mobile=True)
    top = page.locator("#chart-power").bounding_box()["y"]
    page.evaluate(f"scrollTo(0, {top} - 300)")
    page.wait_for_timeout(100)
    box, before = page.locator("#chart-power").bounding_box(), page.evaluate("scrollY")
    x, y = box["x"] + box["width"] / 2, box["y"] + 80
    session = page.context.new_cdp_session(page)
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for way in range(20, 201, 20):
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x, "y": y - way}]})
        page.wait_for_timeout(16)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(200)

    with nothing_wrong(watch):
        assert page.evaluate("scrollY") > before + 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_report: Open, hostile_run: RunFolder, scheme: str) -> None:
    """WCAG AA, 4.5 to 1, for every text of the page against what lies behind it."""
    page, watch = open_report(hostile_run, color_scheme=scheme)

    with nothing_wrong(watch):
        assert page.evaluate(TOO_FAINT) == []


def shown_text(page: Any) -> str:
    """All text on the page, tooltips in shadow trees included."""
    return str(
        page.evaluate(
            """() => { const texts = []; const walk = root => { for (const element of root.querySelectorAll("*")) {
            if (element.shadowRoot) { texts.push(element.shadowRoot.textContent); walk(element.shadowRoot); } } };
            walk(document); return texts.join(" "); }"""
        )
    )


# Texts whose contrast with the nearest background behind them is under 4.5, as strings.
TOO_FAINT = """() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].filter(node => node.nodeType === 3 && node.textContent.trim());
    if (!own.length || !element.getClientRects().length || element.tagName === "SCRIPT") continue;
    const a = light(parse(getComputedStyle(element).color)), b = light(behind(element));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${own[0].textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""
