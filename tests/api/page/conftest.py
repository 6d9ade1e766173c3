"""The server's page in Chromium, which may complain of nothing and ask nobody else."""

import pytest

from tests.report.conftest import browser  # noqa: F401 - a fixture
from tests.report.pages import PATIENCE


@pytest.fixture
def opened(browser):  # noqa: F811
    """Opens a page of a server."""
    complaints, contexts = [], []

    def show(server, path="/", **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((server, "blob:", "about:", "data:"))
                else complaints.append(asked.url)
            ),
        )
        page.complaints = complaints
        page.goto(server + path)
        return page

    yield show
    for context in contexts:
        context.close()
    assert complaints == []
