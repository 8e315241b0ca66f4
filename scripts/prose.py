"""A small house style for prose: phrases that a reader has to translate, and the plain ones.

    python -m scripts.prose          the docs: exit 1 if one has a finding
    python -m scripts.prose --code   the docstrings and texts of src and tests, and the names of tests, too

It reads Markdown without code. Of Python, it reads docstrings, string literals of two words or more, and the names of
test functions. `PHRASES` is the whole style: an expression and what to write instead. A line that needs a phrase for
another reason ends in `<!-- prose: ok -->`; in Python, the last line of such a string ends in `# prose: ok`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 32  # words in a sentence; aim at 25
PHRASES = {
    # "not" before the verb, instead of "no" before the noun; "there is no ..." is English
    r"(?<!\bthere)(?<!\s) (?:is|are|was|were) no (?!longer|more|less|fewer|better|worse|need)\w+": (
        "'is not a ...': negate the verb"
    ),
    r"has no word|have no word": "'has nothing to say', or name the command",
    r"is not possible": "'cannot'",
    # whose turn it is
    r"(?:has|have|had|with) the word\b": "'it is your turn'",
    r"your word\b|a policy's word": "'your decision', or 'your command'",
    # clauses as nouns
    r"what (?:of|in) (?:it|them)\b": "name the thing: 'results that cannot join'",
    r"what becomes of": "'what happens to'",
    r"what befell|befell?\b": "'whatever happened'",
    r"\bwho (?:reads|writes|clicks|wants|asks|sets|knows)\b(?=[^.?!]*,)": "name the subject: 'a program that ...'",
    r"whoever|whosoever": "name the subject",
    r"whatever it is": "name the thing",
    r"\bnobody\b|\beverybody\b": "'no approval is needed', 'the result is unknown', 'every person'",
    # idioms and foreign words
    r"slow and dear|\bdear(?:er)? (?:to|than|and)|gets? dear": "'expensive'",
    r"\banew\b": "'again'",
    r"\bin (?:the )?place of": "'instead of'",
    r"a joining of": "'assembled from'",
    r"fe(?:ll|lls) asleep|\basleep\b": "'was stored', 'is stored'",
    r"woken with|wakes? up (?:with|among)": "'is restored with'",
    r"spell(?:ed|s)? out": "'write in full', 'give'",
    r"\b(?:by heart|at hand|in hand)\b": "'available', 'without'",
    r"\ball the same\b|\bnone the less\b": "'still'",
    r"\bas it (?:came|stands)\b": "'unchanged'",
    r"the very same": "'the same'",
    r"\b(?:is|are|was|were) told(?! apart)": "'gets', 'receives'",
    r"\bup to you\b": "'you decide'",
    r"what is so\b": "'the current state'",
    r"by a hair|on the fly|out of the box|under the hood": "the plain phrase",
    r"a loop of hundreds": "'after hundreds of rounds'",
    r"comes? to its end": "'ends'",
    r"so many times": "'a number of times'",
    r"anybody|somebody\b": "'a person', 'another program'",
    r"\b(?:hear|hears|heard) of\b": "'is notified'",
}
_PHRASES = [(re.compile(pattern, re.IGNORECASE), remedy) for pattern, remedy in PHRASES.items()]
_CODE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|`[^`\n]+`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_OK = "<!-- prose: ok -->"
_OK_IN_CODE = "# prose: ok"
_SENTENCE = re.compile(r"(?<=[.?!:;])[*_)]*\s+|\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.))|\|")


def findings(text: str) -> Iterator[tuple[int, str]]:
    """The phrases in a text, each with the number of its line, counted from 0."""
    for pattern, remedy in _PHRASES:
        # A phrase may go over the end of a line.
        for found in re.finditer(pattern.pattern.replace(" ", r"\s+"), text, pattern.flags):
            start = found.end() - len(found[0].lstrip())
            yield text.count("\n", 0, start), f"{' '.join(found[0].split())!r}: write {remedy}"


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a text that have too many words. A list item or a cell of a table counts as a sentence."""
    start = 0
    for end, following in [*(found.span() for found in _SENTENCE.finditer(text)), (len(text), len(text))]:
        words = re.findall(r"[\w'@/.-]*\w", text[start:end])
        if len(words) > LONGEST:
            yield text.count("\n", 0, start), f"a sentence of {len(words)} words: '{' '.join(words[:6])} ...'"
        start = following


def of_page(page: Path) -> Iterator[tuple[int, str]]:
    """The findings of a Markdown file, without code, comments and the targets of links."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    plain = _CODE.sub(lambda found: "code" + "\n" * found[0].count("\n"), text)
    for line, finding in [*findings(plain), *long_sentences(plain)]:
        if not lines[line].endswith(_OK):
            yield line + 1, finding


def of_module(file: Path) -> Iterator[tuple[int, str]]:
    """The findings of a Python file: its docstrings, its strings of several words, and the names of its tests."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        match node:
            # A single word is a value, not prose.
            case ast.Constant(value=str(value), end_lineno=int(end)) if len(value.split()) > 1:
                prose = "" if lines[end - 1].endswith(_OK_IN_CODE) else re.sub(r"`[^`]+`", "code", value)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                prose = name.replace("_", " ")
            case _:
                continue
        for line, finding in findings(prose):
            yield node.lineno + line, finding


def main() -> int:
    """Print the findings, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Find phrases that are hard to read.")
    parser.add_argument("--code", action="store_true", help="read docstrings, texts and names of tests, too")
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    found = [(page, *each) for page in pages for each in of_page(page)]
    if parser.parse_args().code:
        modules = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
        found += [(file, *each) for file in modules for each in of_module(file)]
    for file, line, finding in found:
        print(f"{file.relative_to(ROOT)}:{line}: {finding}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
