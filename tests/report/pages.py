"""What tests ask of an open page."""

from playwright.sync_api import expect

PATIENCE = 300_000
"""Milliseconds until a page that does not answer is given up: nothing waits so long but on a busy machine."""

expect.set_options(timeout=PATIENCE)

_DRAWN = """() => new Promise((done) => requestAnimationFrame(() =>
  requestAnimationFrame(() => done({...window.__view}))))"""


def state(page):
    """The state once what was asked for is drawn: drawing waits for one frame, however long that takes."""
    return page.evaluate(_DRAWN)


def once(page, holds, argument=None):
    """The state once a condition holds: input that the browser handles by itself may take many frames."""
    page.wait_for_function(holds, arg=argument)
    return state(page)


def says(place, text):
    """Waits until a place of the page shows a text."""
    expect(place).to_contain_text(text, use_inner_text=True)


def press(page, *keys):
    page.locator("#view-canvas").focus()
    for key in keys:
        page.keyboard.press(key)
    return state(page)


def colors(page):
    """How many different colours the canvas shows."""
    script = """() => { const c = document.getElementById("view-canvas");
      const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
      return new Set(new Uint32Array(d.buffer)).size; }"""
    return page.evaluate(script)
