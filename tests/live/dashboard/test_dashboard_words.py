"""What the screens say: in words, readable on every colour, and at addresses that can be kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from benchmarks.running_demo import RunningDemo

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from playwright.sync_api import Page, expect

from argosy.live.states import State
from argosy.mechanism.plan import Why

LABELS = """() => {
  const { fillText, fillRect } = CanvasRenderingContext2D.prototype;
  let under = null;
  window.labels = [];
  CanvasRenderingContext2D.prototype.fillRect = function (...given) {
    if (given[2] > 40) under = [this.fillStyle, this.globalAlpha]; // a bar, not the mark at its end
    fillRect.apply(this, given);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {
    if (/^\\d+ [a-z]/.test(text) && under[1] === 1) window.labels.push([text, this.fillStyle, under[0]]);
    fillText.call(this, text, ...given);
  };
}"""


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_labels_on_bars_can_be_read(demo: RunningDemo, open_as: Callable[..., Page], theme: str) -> None:
    numbers = [demo.submit("ann", name="labelled", resources={"gpus": 2}) for _ in range(16)]  # every colour
    for number in numbers:
        demo.wait_for(number, State.RUNNING)
    page = open_as("ann", viewport={"width": 1400, "height": 900}, color_scheme=theme)
    page.evaluate(LABELS)
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_role("button", name="10m").click()
    expect(page.get_by_role("button", name="10m")).to_have_attribute("aria-pressed", "true")
    page.wait_for_function("all => all.every((n) => labels.some(([text]) => parseInt(text) === n))", arg=numbers)
    labels: list[tuple[str, str, str]] = page.evaluate("labels")
    assert len({fill for _, _, fill in labels}) >= 8
    assert min(contrast(ink, fill) for _, ink, fill in labels) >= 4.5


def test_zoom_and_pan_are_in_the_address(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("ann", "/timeline?span=6h")

    def shown() -> tuple[int, int]:
        given = parse_qs(urlsplit(page.url).query)
        return int(given["from"][0]), int(given["to"][0])

    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url("**from=*")
    zoomed = shown()
    assert abs(zoomed[1] - zoomed[0] - 21600 / 1.6) < 2
    page.keyboard.press("ArrowLeft")
    moved = shown()
    assert abs(zoomed[0] - moved[0] - 0.2 * 21600 / 1.6) <= 2
    with page.expect_request("**/v1/timeline*") as asked:
        page.reload()
    given = parse_qs(urlsplit(asked.value.url).query)
    length = moved[1] - moved[0]
    assert int(given["until"][0]) == moved[1] + length and int(given["since"][0]) == moved[0] - length
    page.wait_for_selector(".link.live")
    assert shown() == moved
    page.get_by_role("button", name="Now").click()
    assert "from=" not in page.url and parse_qs(urlsplit(page.url).query)["span"] == [str(length)]
    page.get_by_role("button", name="1d").click()
    assert page.url.endswith("/timeline?span=1d")


def test_gains_are_told_in_words(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("olga", "/policy")
    between = "([low, high]) => import('/pages/js/views/shadow.js').then((module) => module.between(low, high))"
    for given, text in (
        ([-0.087, -0.033], "3.3–8.7% longer"),
        ([0.01, 0.134], "1.0–13.4% shorter"),
        ([-0.03, 0.021], "between 3.0% longer and 2.1% shorter"),
    ):
        assert page.evaluate(between, given) == text


def test_every_reason_has_words(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    demo.submit_waiting("ann", name="depends")
    page = open_as("olga", "/policy")
    known = page.evaluate("import('/pages/js/views/policy.js').then((module) => Object.keys(module.REASONS))")
    assert {why.name.lower().replace("_", "-") for why in Why} <= set(known)
    expect(page.locator("main")).to_contain_text("1 they wait for other jobs")
    expect(page.locator("main")).to_contain_text("1 they are held back until somebody releases them")


def test_figures_have_names_of_their_own(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("olga", "/cluster")
    expect(page.locator(".figures > div", has=page.get_by_text("Free", exact=True))).to_contain_text("32")
    page.goto(f"{demo.address}/health")
    errors = page.locator("section", has=page.get_by_role("heading", name="Errors since its last start"))
    for part in ("of the policy", "of the backend", "in writing to the disk", "of the daemon itself"):
        expect(errors).to_contain_text(part)


def test_ended_jobs_are_sorted(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("olga", "/finished", viewport={"width": 1400, "height": 900})
    expect(page.get_by_role("img", name="GPUs held in GPUs")).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile(r"On average [\d.]+ GPUs were held, \d+% of the 32 GPUs"))
    page.get_by_role("button", name="GPU-hours").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("GPU-hours")
    assert page.url.endswith("/finished?sort=-gpu_s")

    def hours() -> list[float]:
        return [float(text) for text in page.locator("tr.job:not([hidden]) td:nth-child(7)").all_inner_texts()]

    assert len(hours()) > 5 and hours() == sorted(hours(), reverse=True)
    page.reload()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("GPU-hours")
    page.get_by_role("button", name="GPU-hours").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("GPU-hours")
    assert hours() == sorted(hours())
    own = open_as("bob", "/finished")
    expect(own.get_by_role("heading", name="GPUs that you held")).to_be_visible()


def test_hours_and_cost_over_time(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("olga", "/people")
    expect(page.get_by_role("heading", name="GPU-hours used, by person")).to_be_visible()
    cost = page.locator("section", has=page.get_by_role("heading", name="Cost, by person"))
    expect(cost).to_contain_text("the currency of the cluster file")
    expect(cost).to_contain_text("the mean of the cluster file's prices")
    page.get_by_label("Price of a GPU-hour").fill("3.5")
    expect(cost).to_contain_text("at 3.5 for a GPU-hour, as typed above")
    page.get_by_label("Price of a GPU-hour").fill("0")
    expect(cost).to_be_hidden()
    added = (
        "import('/pages/js/views/people.js').then((m) => m.addedUp([{ points: [[1, 2], [3, 4]] }], [0, 7200, 14400]))"
    )
    assert page.evaluate(added) == [{"points": [[0, 0], [7200, 4], [14400, 12]]}]
