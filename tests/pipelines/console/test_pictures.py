"""A page looks as its picture in git does, by recorded answers; its tree says the words first.

`HEADWATER_GOLDEN=write` writes pictures and trees again, `HEADWATER_GOLDEN=record` also the
answers: `HEADWATER_GOLDEN=write pytest -n 0 tests/pipelines/console/test_[ap]*s.py`.
"""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pixelmatch.contrib.PIL import pixelmatch
from playwright.sync_api import Browser, Page, expect

from tests.pipelines.console.browser_pages import ShownConsole, console_of
from tests.pipelines.console.recorded_answers import (
    IS_WRITING,
    PAGES,
    Answers,
    answered,
    answers_for,
    fixed_clock,
)
from tests.served_log import served_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PICTURES = Path(__file__).parent / "pictures"
VERSION = PICTURES / "chromium.txt"
SHOWN = ("overview", "pipeline", "machine", "topic", "verification", "audit")
SCHEMES = ("light", "dark")
SIZE = {"width": 1120, "height": 700}
DIFFERING_MAX = 0.001
"""Of all pixels; pixels of smooth edges that are drawn a little differently do not count."""
FONTS = {"Inter", "Inter Variable", "JetBrains Mono", "JetBrains Mono Variable"}
FONTS_OF_TEXT = """() => [...document.querySelectorAll("body *")].filter((each) =>
  [...each.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim()))
  .map((each, i) => { each.setAttribute("data-text", i); return i; })"""


@pytest.fixture(scope="module")
def answers(browser: Browser) -> Answers:
    return answers_for(browser)


def test_each_page_looks_as_its_picture(browser: Browser, answers: Answers, tmp_path: Path) -> None:
    major = browser.version.split(".")[0]
    different: dict[str, str] = {}
    with served_log(tmp_path / "data") as served, console_of(served) as console:
        for scheme in SCHEMES:
            page = page_in(browser, answers, scheme)
            with answered(page, answers):
                for name in SHOWN:
                    picture = picture_of(page, console, PAGES[name])
                    compare(picture, f"{name}-{scheme}", different, tmp_path)
            page.context.close()
    if IS_WRITING:
        VERSION.write_text(f"{major}\n")
    if (drawn_by := VERSION.read_text().strip()) != major:
        pytest.skip(f"pictures were drawn by Chromium {drawn_by}, this is {major}: see {tmp_path}")
    assert different == {}


def page_in(browser: Browser, answers: Answers, scheme: Any) -> Page:
    context = browser.new_context(
        viewport={"width": SIZE["width"], "height": SIZE["height"]},
        device_scale_factor=1,
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-US",
        color_scheme=scheme,
    )
    page = context.new_page()
    page.add_init_script(fixed_clock(answers))
    return page


def picture_of(page: Page, console: ShownConsole, path: str) -> Image.Image:
    """Without the foot of the rail, which says whether the stream is connected."""
    page.goto("about:blank")
    page.goto(console.link(path))
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator("main").get_by_text("Reading")).to_have_count(0)
    page.evaluate("() => document.fonts.ready.then(() => null)")
    page.wait_for_timeout(500)
    shot = page.screenshot(
        animations="disabled", caret="hide", mask=[page.locator(".foot")], mask_color="#0d2b2b"
    )
    found: Image.Image = Image.open(io.BytesIO(shot)).convert("RGB")
    return found


def compare(picture: Image.Image, name: str, different: dict[str, str], directory: Path) -> None:
    kept = PICTURES / f"{name}.png"
    if IS_WRITING:
        PICTURES.mkdir(exist_ok=True)
        own = picture.quantize(method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        in_colours_of(own, picture).save(kept, optimize=True)
    with Image.open(kept) as palette:
        wanted = palette.convert("RGBA")
        found = in_colours_of(palette, picture).convert("RGBA")
    if wanted.size != found.size:
        different[name] = f"{found.size} where {wanted.size} is expected"
        return
    marked = Image.new("RGBA", found.size)
    count = 0 if wanted == found else pixelmatch(wanted, found, marked, threshold=0.1)
    if count > DIFFERING_MAX * found.width * found.height:
        picture.save(directory / f"{name}.png")
        marked.save(directory / f"{name}.differences.png")
        different[name] = f"{count} pixels differ: {directory / name}.differences.png"


def in_colours_of(palette: Image.Image, picture: Image.Image) -> Image.Image:
    """With 256 colours a file has a third of the size; none is off by more than 13 of 255."""
    found: Image.Image = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    return found


def test_no_text_is_drawn_by_a_font_of_the_machine(
    browser: Browser, answers: Answers, tmp_path: Path
) -> None:
    """So that pages look the same on every machine."""
    foreign: dict[str, set[str]] = {}
    own = set[str]()
    with served_log(tmp_path / "data") as served, console_of(served) as console:
        page = page_in(browser, answers, "light")
        client = page.context.new_cdp_session(page)
        with answered(page, answers):
            for name in SHOWN:
                picture_of(page, console, PAGES[name])
                page.evaluate(FONTS_OF_TEXT)
                client.send("DOM.enable")
                client.send("CSS.enable")
                root = client.send("DOM.getDocument")["root"]["nodeId"]
                found = client.send(
                    "DOM.querySelectorAll", {"nodeId": root, "selector": "[data-text]"}
                )
                for node in found["nodeIds"]:
                    used = client.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
                    for font in used:
                        own |= {font["familyName"]} & FONTS
                        if font["familyName"] not in FONTS:
                            text = client.send("DOM.getOuterHTML", {"nodeId": node})["outerHTML"]
                            foreign.setdefault(font["familyName"], set()).add(text[:160])
        page.context.close()
    assert foreign == {} and len(own) == 2
