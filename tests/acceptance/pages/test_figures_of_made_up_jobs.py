"""Checks figures on pages against arithmetic on their rows: each figure of an invented job has one
correct value."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.acceptance.made_up_job import (
    JOB_ID,
    MINUTE_MS,
    PATIENCE_MS,
    MadeUpJob,
    interval_row,
    phase_row,
    reward_row,
)

pytestmark = pytest.mark.browser

NOW = 1_790_000_000_000
JOB = f"/jobs/{JOB_ID}"
USUAL_MS = 5000
WIDTHS = (820, 400, 1280, 1920)
TABS = ("", "/groups", "/evaluations", "/versions", "/phases", "/logs", "/events", "/spec", "/compare")


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """Allow more time, because other programs may be running."""
    expect.set_options(timeout=PATIENCE_MS)
    yield
    expect.set_options(timeout=USUAL_MS)


def chart(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator(".chart-card", has=heading)


def number_in(locator: Locator) -> float:
    expect(locator).to_have_text(re.compile(r"\d"))
    return float(locator.inner_text().replace(",", ""))


def with_loss(steps: range) -> MadeUpJob:
    """Return a job whose loss at each step is the number of the step."""
    return MadeUpJob(now=NOW, metrics={"train/loss": {step: float(step) for step in steps}})


def test_trained_tokens_per_second_are_tokens_divided_by_wall_time(browser: Browser) -> None:
    """Updates come in bursts of four, 50 ms apart, followed by 10 s without any."""
    at = [NOW - 20 * MINUTE_MS + burst * 10_000 + i * 50 for burst in range(30) for i in range(4)]
    tokens = {step: 1000.0 + 10 * (step % 7) for step in range(1, len(at) + 1)}
    job = MadeUpJob(now=NOW, metrics={"train/num_trained_tokens": tokens})
    job.rewards = [reward_row(step, at=moment) for step, moment in enumerate(at, start=1)]
    expected = sum(tokens[step] for step in range(2, len(at) + 1)) / ((at[-1] - at[0]) / 1000)
    with job.open(browser, JOB) as page:
        shown = number_in(chart(page, "Trained tokens per second").locator(".series-value"))
    assert shown == pytest.approx(expected, rel=0.01)


def test_a_zoom_and_a_hidden_line_stay_while_points_arrive(browser: Browser) -> None:
    job = with_loss(range(1, 101))
    with job.open(browser, JOB) as page:
        plot = chart(page, "Loss").locator(".u-over")
        box = plot.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.4, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        job.tell(metrics=[{"name": "train/loss", "step": 101, "value": 101.0}])
        expect(page.get_by_role("img", name=re.compile("^Loss: .* to 101"))).to_be_visible()
        page.mouse.move(box["x"] + 3, middle)
        leftmost = number_in(chart(page, "Loss").locator(".series-value"))
        assert 38 <= leftmost <= 43

        page.get_by_role("button", name="Reset zoom").first.click()
        page.mouse.move(box["x"] + 3, middle)
        assert number_in(chart(page, "Loss").locator(".series-value")) <= 3
        line = chart(page, "Loss").locator(".series-key")
        line.click()
        job.tell(metrics=[{"name": "train/loss", "step": 102, "value": 102.0}])
        expect(page.get_by_role("img", name=re.compile("^Loss: .* to 102"))).to_be_visible()
        expect(line).to_have_attribute("aria-pressed", "false")
        assert coloured(chart(page, "Loss").locator("canvas"), "--series-1", 0.5) == 0


def test_no_line_is_drawn_across_updates_without_data(browser: Browser) -> None:
    job = MadeUpJob(now=NOW)
    job.metrics["train/loss"] = {step: float(step % 2) for step in (*range(1, 41), *range(61, 101))}
    with job.open(browser, JOB) as page:
        canvas = chart(page, "Loss").locator("canvas")
        expect(canvas).to_be_visible()
        assert coloured(canvas, "--series-1", 0.25) > 0
        assert coloured(canvas, "--series-1", 0.52) == 0


def coloured(canvas: Locator, colour: str, place: float) -> int:
    """Count the pixels near a colour of the page's style, in the five columns at a fraction of the
    plot's width."""
    return int(
        canvas.evaluate(
            """(canvas, [name, place]) => {
                const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
                const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
                const over = canvas.parentElement.querySelector(".u-over").getBoundingClientRect();
                const left = over.left - canvas.getBoundingClientRect().left;
                const x = Math.round((left + over.width * place) * devicePixelRatio);
                const { data } = canvas.getContext("2d").getImageData(x - 2, 0, 5, canvas.height);
                let count = 0;
                for (let i = 0; i < data.length; i += 4)
                    if (data[i + 3] > 100 && wanted.every((one, c) => Math.abs(one - data[i + c]) < 48)) count++;
                return count;
            }""",
            [colour, place],
        )
    )


def test_intervals_shorter_than_a_pixel_take_their_share_of_a_lane(browser: Browser) -> None:
    """In every 160 ms the machine serves for 150 ms and idles for 10 ms; a pixel of the lane is
    about as long."""
    begin = NOW - 119_000
    job = MadeUpJob(now=NOW)
    job.phases = [phase_row(1, leased_at=begin, is_over=False)]
    for i in range(740):
        start = begin + i * 160
        job.intervals.append(interval_row(2 * i + 1, "serving", "", start, start + 150))
        job.intervals.append(interval_row(2 * i + 2, "idle", "no_requests", start + 150, start + 160))
    with job.open(browser, JOB) as page:
        canvas = page.get_by_role("img", name=re.compile("^The last two minutes"))
        expect(canvas).to_be_visible()
        page.wait_for_timeout(600)
        share = canvas.evaluate(
            """(canvas) => {
                const style = getComputedStyle(document.documentElement);
                const red = (name) => parseInt(style.getPropertyValue(name).trim().slice(1, 3), 16);
                const [serving, idle] = [red("--serving"), red("--idle")];
                const from = Math.round(canvas.width * 0.1), to = Math.round(canvas.width * 0.9);
                const { data } = canvas.getContext("2d").getImageData(from, 10, to - from, 20);
                let sum = 0;
                for (let i = 0; i < data.length; i += 4) sum += (data[i] - idle) / (serving - idle);
                return sum / (data.length / 4);
            }"""
        )
    assert share == pytest.approx(150 / 160, abs=0.05)


def test_the_productive_share_comes_first_and_the_rest_by_cause_in_one_order(browser: Browser) -> None:
    seconds = {
        ("idle", "awaiting_orders"): 30.0, ("syncing", ""): 20.0, ("serving", ""): 25.0, ("training", ""): 15.0,
        ("switching", ""): 10.0,
    }  # fmt: skip
    job = MadeUpJob(now=NOW)
    job.ledger = [
        {
            "name": "alpha", "machine_id": "mac_1", "since": "", "until": "", "intervals": [], "num_intervals": 0,
            "is_computing": True,
            "totals": [
                {"state": state, "cause": cause, "duration_s": s, "share": s / 100, "mean_in_flight": None}
                for (state, cause), s in seconds.items()
            ],
        }
    ]  # fmt: skip
    with job.open(browser, JOB) as page:
        words = page.locator(".ledger-words").first
        expect(words).to_be_visible()
        said = [
            words.inner_text().find(word) for word in ("serving", "training", "switching", "syncing", "idle")
        ]
        assert said == sorted(said), words.inner_text()
        expect(words).to_contain_text("productive 40%")
        expect(page.get_by_test_id("productive")).to_contain_text("productive 40%")


def test_two_causes_of_idle_time_look_different(browser: Browser) -> None:
    job = MadeUpJob(now=NOW)
    totals = [
        {"state": "idle", "cause": cause, "duration_s": 50.0, "share": 0.5, "mean_in_flight": None}
        for cause in ("no_requests", "no_batch")
    ]
    job.ledger = [
        {
            "name": "alpha", "machine_id": "mac_1", "since": "", "until": "", "intervals": [], "num_intervals": 0,
            "is_computing": True,
            "totals": totals,
        }
    ]  # fmt: skip
    with job.open(browser, JOB) as page:
        bar = page.locator(".ledger-bar").first
        expect(bar).to_be_visible()
        looks = bar.evaluate(
            """(bar) => [...bar.children].map((piece) => {
                const { backgroundColor, backgroundImage, fill } = getComputedStyle(piece);
                return [backgroundColor, backgroundImage, fill].join();
            })"""
        )
    assert len(set(looks)) == len(looks) == 2


def test_the_list_shows_the_reward_of_the_newest_update(browser: Browser) -> None:
    """The curve beside it is thinned out: its last point is a mean over several updates."""
    job = MadeUpJob(now=NOW, reward_mean=0.75, reward_curve=[(50, 0.25), (100, 0.5)])
    with job.open(browser, "/") as page:
        expect(page.locator(".reward-cell .figures")).to_have_text("0.75")


def test_phases_and_logs_are_paged_and_counted(browser: Browser) -> None:
    job = MadeUpJob(now=NOW)
    job.phases = [phase_row(n, leased_at=NOW - MINUTE_MS - (230 - n) * 1000) for n in range(230, 0, -1)]
    oldest = job.phases[-1]["id"]
    job.logs[oldest] = "the first line that it wrote\n"
    with job.open(browser, f"{JOB}/phases") as page:
        rows = page.locator("tbody tr")
        expect(rows.first).to_be_visible()
        for _ in range(10):
            older = page.get_by_role("button", name="Older")
            if not (older.count() and older.is_enabled()):
                break
            older.click()
            page.wait_for_timeout(100)
        links = page.locator("a[href*='logs?phase=']")
        assert oldest in (links.last.get_attribute("href") or "")
        links.last.click()
        expect(page.get_by_test_id("log")).to_contain_text("the first line that it wrote")
        expect(page.get_by_test_id("num-phases")).to_have_text("230 phases")


def test_the_form_keeps_what_was_typed_for_each_kind_of_job(browser: Browser) -> None:
    with MadeUpJob(now=NOW).open(browser, "/jobs/new") as page:
        source = page.locator("[data-field='model.source']").get_by_role("textbox")
        source.fill("hub://my-model")
        kinds = page.get_by_role("group", name="Kind of job")
        kinds.get_by_text("SFT on an offline dataset").click()
        page.locator("[data-field='data.jobs']").get_by_role("textbox").fill("job_1")
        kinds.get_by_text("Reinforcement learning").click()
        expect(source).to_have_value("hub://my-model")
        kinds.get_by_text("SFT on an offline dataset").click()
        expect(page.locator("[data-field='data.jobs']").get_by_role("textbox")).to_have_value("job_1")


def test_no_page_is_wider_than_the_window(browser: Browser) -> None:
    job = with_loss(range(1, 101))
    job.rewards = [reward_row(step, at=NOW - 200_000 + step * 1000) for step in range(1, 101)]
    job.phases = [phase_row(1, leased_at=NOW - MINUTE_MS, is_over=False)]
    job.intervals = [interval_row(1, "serving", "", NOW - MINUTE_MS, NOW)]
    with job.open(browser, JOB) as page:
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        for path in (*(JOB + tab for tab in TABS), "/", "/jobs/new", "/machines", "/tokens"):
            page.evaluate(
                "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }",
                path,
            )
            expect(page.locator("h1")).to_be_visible()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.wait_for_timeout(50)
                excess = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert excess <= 0, f"{path} is {excess} pixels wider than a window of {width}"
