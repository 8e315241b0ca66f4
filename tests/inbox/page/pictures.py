"""The pictures of the approval page that the docs show: `python -m tests.inbox.page.pictures FOLDER` writes them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.inbox.page.browser import Office, chromium, office
from tests.inbox.page.day import fill

DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
# The name of each picture, the address, and how the browser is.
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "page": ("/?call=deploy-01..i1", DESK),
    "page-diff": ("/?call=migrate-handlers-0..c1", DESK),
    "page-edit": ("/?call=deploy-01..i1&do=edit", DESK),
    "page-group": ("/group?of=monthly-refunds..r0&one=1", DESK),
    "page-loop": ("/loop?id=cleanup", DESK),
    "page-phone": ("/?call=deploy-01..i1", PHONE),
    "page-dark": ("/?call=k8s-0..e1", {**DESK, "color_scheme": "dark"}),
    "page-odd": ("/?call=invoice-123..d1", DESK),
}


def take(browser: Browser, here: Office, name: str, folder: Path) -> Path:
    """Write a picture into a folder."""
    path, more = PICTURES[name]
    context = browser.new_context(**more)
    page = context.new_page()
    page.goto(here.address + path)
    if name == "page-edit":
        page.fill("#field-2", "600")
        page.wait_for_timeout(600)
        page.get_by_role("button", name="Show my changes").click()
        page.locator("#change").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / f"{name}.png")
    context.close()
    return folder / f"{name}.png"


def main(folder: Path) -> None:
    """Write all pictures."""
    with office() as here, chromium() as browser:
        fill(here, time.time())
        for name in PICTURES:
            take(browser, here, name, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
