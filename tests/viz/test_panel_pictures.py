"""Panels as pictures from the command line: each is a whole picture of its panel, and what cannot be drawn is refused in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from viz.export import main
from viz.panels import load_panels

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "viz" / "static" / "examples" / "smollm2.jsonl.gz"
NAMES = [spec.name for spec in load_panels()]
STEP = 40                      # where requests wait, run, are offloaded and have ended, so no panel has nothing to say
SVG, XHTML = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xhtml}"


def export(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: Playwright's event loop may already run in this one."""
    return subprocess.run([sys.executable, "-m", "viz.export", str(EXAMPLE), *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=200, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with every panel as SVG and as PNG."""
    folder = tmp_path_factory.mktemp("pictures")
    wanted = [part for name in NAMES for kind in ("svg", "png") for part in (f"--{kind}", name, str(folder / f"{name}.{kind}"))]
    done = export(*wanted, "--step", str(STEP))
    assert done.returncode == 0, done.stderr
    yield folder


def colours(picture: Image.Image) -> dict[tuple[int, int, int], int]:
    return {colour: count for count, colour in picture.convert("RGB").getcolors(picture.width * picture.height)}


@pytest.mark.parametrize("name", NAMES)
def test_a_png_shows_the_panel_and_not_an_empty_frame(drawn, name):
    """Its body, below the title, has many pixels that are not background; its ground is the light theme's, all over and opaque."""
    picture = Image.open(drawn / f"{name}.png")
    picture.load()
    assert picture.format == "PNG" and picture.width > 400 and picture.height > 300
    assert picture.convert("RGBA").getextrema()[3] == (255, 255), "a see-through ground looks broken on a dark page"
    body = picture.crop((20, 80, picture.width - 20, picture.height - 20 if name in ("lanes", "timeline") else picture.height - 110))
    found = colours(body)
    ground = max(found, key=found.get)
    assert min(ground) > 220
    assert sum(count for colour, count in found.items() if max(abs(a - b) for a, b in zip(colour, ground, strict=True)) > 40) > 600


@pytest.mark.parametrize("name", NAMES)
def test_an_svg_is_whole_and_holds_the_panel(drawn, name):
    """Well-formed, of the panel's size, with its title, without controls, and with nothing to fetch."""
    text = (drawn / f"{name}.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    png = Image.open(drawn / f"{name}.png")
    assert root.tag == f"{SVG}svg" and (2 * int(root.get("width")), 2 * int(root.get("height"))) == png.size
    assert not list(root.iter(f"{XHTML}button")) or name in ("timeline", "blocks", "lanes", "answers"), "only chips and labels stay"
    assert not list(root.iter(f"{XHTML}canvas")) and not list(root.iter(f"{XHTML}script"))
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.rpartition("}")[2] in ("href", "src"):
                assert value.startswith(("data:", "#")), value[:80]
    words = "".join(root.itertext())
    assert len(words) > 20 and "@media" not in words, "a picture is narrow: asked there, it would fold as on a phone"


@pytest.mark.parametrize("name", NAMES)
def test_an_svg_shows_its_picture_also_where_html_is_not_known(drawn, name):
    """Either drawn marks of SVG itself, or the panel's pixels beside its markup."""
    root = ET.parse(drawn / f"{name}.svg").getroot()
    switch = root.find(f"{SVG}switch")
    if switch is None:
        assert len(list(root.iter(f"{SVG}path"))) > 10 and len(list(root.iter(f"{SVG}text"))) > 5
        return
    html, image = list(switch)
    assert html.tag == f"{SVG}foreignObject" and html.get("requiredExtensions") == XHTML.strip("{}")
    address = image.get("{http://www.w3.org/1999/xlink}href")
    import base64
    pixels = Image.open(BytesIO(base64.b64decode(address.partition(",")[2])))
    assert pixels.size == Image.open(drawn / f"{name}.png").size and len(colours(pixels)) > 8


def test_words_of_the_moment_stand_in_the_pictures(drawn):
    """The step asked for and not the last one: what waits, what was decided, whose story."""
    def words(name: str) -> str:
        return "".join(ET.parse(drawn / f"{name}.svg").getroot().itertext())
    assert "no free block" in words("waiting") and "r8" in words("waiting")
    assert "steps 38–40" in words("decision_log") and "step 41" not in words("decision_log")
    assert "decoding" in words("request_story")
    assert "22 of 25" in words("blocks")


def test_the_end_is_drawn_when_no_step_is_named_and_a_request_can_be(tmp_path):
    done = export("--svg", "request_story", str(tmp_path / "story.svg"), "--svg", "lanes", str(tmp_path / "lanes.svg"), "--request", "r9")
    assert done.returncode == 0, done.stderr
    assert "r9 finishes: 72 tokens" in "".join(ET.parse(tmp_path / "story.svg").getroot().itertext())
    assert "and 2 more" in "".join(ET.parse(tmp_path / "lanes.svg").getroot().itertext())


def test_pictures_and_the_other_exports_come_from_one_call(tmp_path):
    done = export("--html", str(tmp_path / "a.html"), "--perfetto", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv"),
                  "--png", "throughput", str(tmp_path / "a.png"))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-requests.csv", "a-steps.csv", "a.html", "a.json", "a.png"]


# --- refusals ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("arguments", "sentence"), [
    (("--svg", "timelime", "OUT"), f"There is no panel named 'timelime'; there are {', '.join(NAMES)}."),
    (("--svg", "lanes", "OUT", "--step", "999"), "This recording goes from step 0 to step 124; it has no step 999."),
    (("--svg", "lanes", "OUT", "--request", "r99"), "There is no request named 'r99' in this recording."),
])
def test_what_is_not_there_is_refused_in_one_sentence_before_anything_is_written(tmp_path, capsys, arguments, sentence):
    out = tmp_path / "picture.svg"
    asked = [str(out) if part == "OUT" else part for part in arguments]
    assert main([str(EXAMPLE), "--html", str(tmp_path / "a.html"), *asked]) == 1
    assert capsys.readouterr().err.strip() == sentence
    assert list(tmp_path.iterdir()) == []


def test_a_missing_chromium_is_said_in_one_sentence(tmp_path):
    done = export("--svg", "lanes", str(tmp_path / "a.svg"), CHROMIUM="", PATH="/nonexistent", PLAYWRIGHT_BROWSERS_PATH=str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr.startswith("Drawing a panel needs Chromium") and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "a.svg").exists()


def test_a_missing_playwright_is_said_in_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    assert main([str(EXAMPLE), "--svg", "lanes", str(tmp_path / "a.svg")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Drawing a panel needs the package playwright") and len(said.strip().splitlines()) == 1
