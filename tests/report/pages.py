"""What tests ask of an open page."""

from playwright.sync_api import expect

# A page is asked until it answers: what a click leads to comes when it comes, and a busy machine takes long.
expect.set_options(timeout=30_000)

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
