"""The Lessons tab in a real browser: a whole lesson in each language, and a class of four that goes through one together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import App
from tests.e2e.test_accessibility import AXE, RUN

LESSON = "03-a-batch-rebuilt-every-step"
WORDS = {"en": {"title": "A batch rebuilt every step", "steps": "8 steps", "right": "Right.", "reached": "Goal reached."},
         "ko": {"title": "매 스텝 다시 꾸리는 배치", "steps": "8스텝", "right": "맞았습니다.", "reached": "목표를 이루었습니다."}}


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The page over a simulated device: the course needs no weights to be looked at. Nobody is host but by the link."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHSCOPE_DATA", str(tmp_path_factory.mktemp("board")))
        patch.setenv("BATCHSCOPE_HOST_SECRET", "the-lecturer")
        started = App("--device", "simulated:h100", "--public").until_ready()
    yield started
    started.stop()


def open_lesson(open_page: Any, school: App, language: str = "en", host: bool = False, step: int | None = None, **options: Any) -> Page:
    page = open_page(f"{school.url}?lang={language}" + ("&host=the-lecturer" if host else ""), **options)
    to_tab(page)
    if step is not None:
        page.evaluate("([name, step]) => batchscope.lessons.open(name, step)", [LESSON, step])
        at_step(page, step)
    return page


def to_tab(page: Page) -> None:
    page.evaluate("import(new URL('viz/show_tab.js', document.baseURI)).then((tab) => tab.showTab('lessons'))")
    page.wait_for_function("window.batchscope.lessons && document.querySelector('.bs-lesson-card, .bs-lesson-section')", timeout=30000)


def current(page: Page) -> Any:
    return page.locator('.bs-lesson-section[data-current="true"]')


def play_to_end(page: Page) -> None:
    """Let the recorded run go, as fast as frames come."""
    page.locator("#bs-lesson-speed").select_option("0")
    page.locator(".bs-lesson-transport [data-do=play]").click()
    page.wait_for_function("batchscope.lessons.view.stage.transport.atEnd", timeout=60000)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_learner_completes_a_whole_lesson(school: App, open_page: Any, language: str) -> None:
    words = WORDS[language]
    page = open_lesson(open_page, school, language)
    expect(page.locator(".bs-lesson-card")).to_have_count(16)
    page.locator(f'[data-open="{LESSON}"]').click()
    expect(page.locator("#bs-lesson-title")).to_have_text(words["title"])

    # Predict: the answer is judged by the run.
    current(page).locator("input[type=number]").fill("8")
    current(page).locator("button[type=submit]").click()
    expect(current(page).locator(".bs-lesson-verdict")).to_contain_text(words["right"])
    expect(current(page).locator(".bs-lesson-result")).to_contain_text(words["steps"])
    page.locator('[data-go="next"]').click()

    # Run: the text goes on when the engine gets there, not before.
    expect(page.locator('.bs-panel.bs-pointed')).to_have_attribute("data-panel", "timeline")
    assert page.locator(".bs-lesson-section").count() == 2
    play_to_end(page)
    expect(page.locator(".bs-lesson-section")).to_have_count(3)
    expect(current(page)).to_contain_text("11")
    page.locator('[data-go="next"]').click()
    page.wait_for_function("batchscope.lessons.view.stage.name === 'continuous'")

    # The same on the engine, in a room of one's own; afterwards the numbers are the learner's.
    page.locator("[data-live=open]").click()
    page.wait_for_function("batchscope.lessons.view.stage.own.continuous?.steps === 8", timeout=60000)
    expect(current(page)).to_contain_text("8")
    page.locator('[data-go="next"]').click()

    # Explain, by keyboard; a term explains itself.
    page.wait_for_function("batchscope.lessons.view.current === 3")
    current(page).locator("h3").press("n")
    page.wait_for_function("batchscope.lessons.view.current === 4")
    current(page).locator("input[type=radio]").nth(0).check()
    current(page).locator("button[type=submit]").click()
    expect(current(page).locator('.bs-lesson-choice[data-state="right"]')).to_have_count(1)
    expect(current(page).locator('.bs-lesson-choice[data-state="wrong"]')).to_have_count(1)
    page.locator('[data-go="next"]').click()

    # Challenge: missed at first, met with the right knobs.
    current(page).locator("select[name=max_requests_per_batch]").select_option("1")
    current(page).locator("select[name=scheduler_type]").select_option('"fifo"')
    current(page).locator("button[type=submit]").click()
    expect(current(page).locator(".bs-lesson-verdict")).to_have_text(words["reached"], timeout=60000)

    # It is remembered in this browser, and printable.
    page.reload()
    page.wait_for_function("window.batchscope?.screen?.mounted", timeout=60000)
    to_tab(page)
    page.evaluate("batchscope.lessons.open(null)")
    expect(page.locator(f'[data-open="{LESSON}"] .bs-badge')).to_contain_text("✓")
    handout = page.request.get(f"{school.url}api/lessons/{LESSON}/handout?lang={language}")
    assert handout.ok and words["title"] in handout.text() and "<svg" in handout.text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_open_lesson_has_no_serious_violation(school: App, open_page: Any, theme: str) -> None:
    page = open_page(f"{school.url}?theme={theme}&host=the-lecturer", reduced_motion="reduce")
    to_tab(page)
    page.evaluate("batchscope.lessons.open('16-capstone', 4)")
    page.wait_for_function("batchscope.lessons.view?.current === 4")
    current_page = page.locator(".bs-lesson-section").first
    current_page.locator("input[type=number]").fill("50")
    current_page.locator("button[type=submit]").click()
    page.evaluate("batchscope.lessons.view.stage.store.seekStep(100)")
    expect(current_page.locator(".bs-lesson-verdict")).to_be_visible()
    # Every panel beside the text stands there and says its sentence, which it does when it has been drawn.
    page.wait_for_function("""[...document.querySelectorAll('.bs-lesson-panels [data-panel]')].length > 0
        && [...document.querySelectorAll('.bs-lesson-panels .bs-panel-body')].every((body) => body.childElementCount > 0)""")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []


def test_a_lesson_fits_a_phone(school: App, open_page: Any) -> None:
    page = open_lesson(open_page, school, step=0, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("[data-go=next]")).to_be_visible()


def at_step(page: Page, step: int) -> None:
    page.wait_for_function("([name, step]) => batchscope.lessons?.view?.lesson.name === name && batchscope.lessons.view.current === step",
                           arg=[LESSON, step], timeout=30000)


def test_a_host_and_three_viewers_go_through_a_lesson_together(school: App, open_page: Any) -> None:
    host = open_lesson(open_page, school, host=True, step=0)
    host.locator("[data-class-do=lead]").click()
    host.wait_for_function("batchscope.classLink.leading")

    # Two are there from the beginning: the host's lead brings them to the lesson, wherever they were.
    first, second = open_page(school.url), open_page(school.url)
    at_step(first, 0)
    at_step(second, 0)
    expect(first.locator("[data-class-do=lead]")).to_be_hidden()

    # They vote; everybody sees the distribution, and nobody the answer before the host shows it.
    for page, guess in ((first, "8"), (second, "9")):
        current(page).locator("input[type=number]").fill(guess)
        current(page).locator("button[type=submit]").click()
    expect(current(host).locator(".bs-lesson-question > .bs-small")).to_contain_text("2")
    for page in (first, second):
        assert current(page).locator(".bs-lesson-verdict").count() == 0
    host.locator(".bs-lesson-reveal").first.click()
    expect(current(first).locator('.bs-lesson-verdict[data-state="right"]')).to_have_count(1)
    expect(current(second).locator('.bs-lesson-verdict[data-state="wrong"]')).to_have_count(1)

    # Next on the host's screen is next on all screens.
    host.locator('[data-go="next"]').click()
    at_step(first, 1)
    at_step(second, 1)

    # One loses its connection while the class goes on, and is where the class is when it comes back.
    second.evaluate("() => { batchscope.socket.wait = 3000; batchscope.socket.socket.close(); }")
    host.locator('[data-go="next"]').click()
    at_step(first, 2)
    at_step(second, 2)

    # One joins late.
    third = open_page(school.url)
    at_step(third, 2)

    # One looks around on its own, and snaps back.
    first.locator('[data-go="back"]').click()
    at_step(first, 1)
    host.locator('[data-go="next"]').click()
    at_step(third, 3)
    at_step(first, 1)
    first.locator("[data-class-do=back]").click()
    at_step(first, 3)

    # A viewer cannot lead, whatever its page sends.
    refused = first.evaluate("(lesson) => batchscope.socket.command('class_lead', { lesson, step: 'guess', leading: true })"
                             ".then(() => null, (error) => error.code)", LESSON)
    assert refused == "host_only"
    host.locator("[data-class-do=lead]").click()
    third.wait_for_function("!batchscope.classLink.state.leading")


def test_the_board_shows_names_as_text_only(school: App, open_page: Any) -> None:
    page = open_page(school.url)
    to_tab(page)
    page.evaluate("batchscope.lessons.open('16-capstone', 4)")
    page.wait_for_function("batchscope.lessons.view?.current === 4")
    page.locator(".bs-lesson-score input").fill("<b>x</b>")
    page.locator(".bs-lesson-score button").click()
    expect(page.locator("[data-score]")).to_have_attribute("data-kind", "error")
    page.locator(".bs-lesson-score input").fill("배치 장인")
    page.locator(".bs-lesson-score button").click()
    expect(page.locator(".bs-lesson-board li")).to_contain_text("배치 장인", timeout=90000)
