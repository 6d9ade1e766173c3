"""What tests ask of an open page."""


def state(page):
    page.wait_for_timeout(60)  # a frame or two
    return page.evaluate("({...window.__view})")


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
