"""A hook of mkdocs: the Markdown files at the top of the repository are pages of the site, too.

Links between them and the pages of `docs/` lead to the page of the site. A page of the reference is plain Markdown for
readers of the repository; the site makes it from the docstrings instead, with links between names. It must show every
name that its module exports, once.
"""

from __future__ import annotations

import importlib
import os.path
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_REFERENCE = re.compile(r"<!-- generated: (?P<door>toolloop[\w.]*) -->.*<!-- end of generated part -->", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, page in TOP.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the places that the files have in the site."""
    here = page.file.src_uri
    back = {name: source for source, name in TOP.items()}
    source = Path(back[here]) if here in back else Path("docs", here)

    def moved(found: re.Match[str]) -> str:
        target = os.path.normpath(source.parent / found["path"])
        target = TOP.get(target, target.removeprefix("docs/"))
        return os.path.relpath(target, Path(here).parent) + (found["anchor"] or "")

    return _LINK.sub(moved, _REFERENCE.sub(r"::: \g<door>", markdown))


def on_page_content(html: str, page: Page, **_: object) -> None:
    """Check a page of the reference."""
    found = re.search(r"^::: (\S+)$", page.markdown or "", re.MULTILINE)
    if found:
        names = importlib.import_module(found[1]).__all__
        if wrong := [name for name in names if html.count(f'id="{found[1]}.{name}"') != 1]:
            raise PluginError(f"{page.file.src_uri} does not show once: {', '.join(wrong)}")
