"""A call as the page shows it: its input, why it waits, and what stands once it is decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from attrs import define

from toolloop._interface.calls import list_pending_calls
from toolloop._interface.heads import list_accepted_decisions
from toolloop._interface.progress import list_running_calls
from toolloop._journal.lease import read_progress
from toolloop._journal.store_access import call_store, read_with_row
from toolloop.errors import LoopNotFound, UnknownCall
from toolloop.inbox.shown.keys import from_key, key_of
from toolloop.inbox.shown.recent import read_recent, read_whole
from toolloop.inbox.shown.running import running_words
from toolloop.inbox.shown.story import CallStory, Said, Step, Story, read_story
from toolloop.inbox.shown.values import ShownInput, shown_input
from toolloop.inbox.shown.words import Need, Tag, count, duration, hints
from toolloop.machine.record.loop import Path
from toolloop.machine.values.calls import DecisionRecord, Outcome
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.names import Person, to_name_key
from toolloop.machine.values.setup import ToolFacts
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.tools.calls import ToolCall

NEWEST = 20  # steps of a long loop that its page shows
_SHORT = 300  # events: a page shows all steps of such a loop
_NEWEST = 120  # events that are read for the newest steps of a long loop

_DONE = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "run again"}
_NEVER_RAN = (Outcome.DENIED, Outcome.ANSWERED, Outcome.EXPIRED, Outcome.NOT_RUN)


@define(slots=False)
class Card:
    """A call as one person sees it.

    Attributes:
        key: its key in addresses.
        row: its loop.
        call: the call while it waits, else None.
        story: what has happened to it, `whole` to its loop.
        me: the person who looks, `now` when.
        allow: the decisions that a link or the rights of the person allow; None: all.

    """

    key: str
    row: StoredLoop
    call: ToolCall | None
    story: CallStory
    whole: Story
    me: Person
    now: float
    allow: frozenset[str] | None = None

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def loop_id(self) -> str:
        """The id of its loop."""
        return self.row.loop_id

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of its loop."""
        return self.row.metadata

    @property
    def name(self) -> str:
        """The tool."""
        return self.story.name

    @property
    def path(self) -> tuple[str, ...]:
        """The ids from the outermost call down to this one."""
        return self.story.path

    @property
    def names(self) -> tuple[str, ...]:
        """The tools of the calls along the path."""
        return tuple(self.whole.calls[self.path[:depth]].name for depth in range(1, len(self.path) + 1))

    @property
    def input_given(self) -> dict[str, JSON]:
        """The input that runs, with its secret values hidden."""
        return self.story.input

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the values that are hidden."""
        loop = self.whole.state.at(self.path[:-1])
        found = () if loop is None else loop.setup.secrets_of(self.name)
        return tuple(name for name in found if self.input_given.get(name) is not None)

    @property
    def _facts(self) -> ToolFacts | None:
        loop = self.whole.state.at(self.path[:-1])
        return None if loop is None else loop.setup.tool(self.name)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool; empty if it has none."""
        found: Mapping[str, Any] = decode((self._facts and self._facts.input_schema) or "{}")
        return found

    @cached_property
    def input(self) -> ShownInput:
        """The input that runs, as the page shows it."""
        given, facts = self.input_given, self._facts
        diff, path = ((), None) if facts is None else (facts.diff, facts.path)
        secret = {name: str(given[name]) for name in self.secrets}
        return shown_input(given, {**self.schema}, diff=diff, path=path, secret=secret)

    @property
    def odd(self) -> int:
        """How many characters of the input are invisible, imitate others or change the direction."""
        return sum(each.count for each in self.input.odd)

    @property
    def asked(self) -> str:
        """The request of the user that it belongs to."""
        return self.whole.calls[self.path[:1]].asked

    @property
    def said(self) -> str:
        """The model's last text before it."""
        return self.story.said

    @property
    def prompt(self) -> str:
        """For a call of a nested loop: what its agent was asked."""
        return self.story.asked if len(self.path) > 1 else ""

    @property
    def rules(self) -> list[tuple[str | None, str | None]]:
        """The rules that ask, each with its reason."""
        if self.call is None:
            return []
        found = [(each.rule, each.reason) for each in self.call.demands if each.rule or each.reason]
        return found or ([(None, self.call.reason)] if self.call.reason else [])

    @property
    def hints(self) -> str:
        """The hints of the server that has the tool, which are not checked; empty if no server has it."""
        facts = self._facts
        return "" if facts is None else hints(facts.annotations)

    @property
    def tokens(self) -> int:
        """The tokens of the loop so far."""
        return self.whole.state.root.total_usage.total_tokens

    @property
    def cost(self) -> str:
        """The cost of the loop so far; empty if no prices were set."""
        return str(self.whole.state.root.total_usage.cost or "")

    @property
    def since(self) -> float:
        """When it began to wait."""
        return self.story.since or self.story.made

    # --- what it waits for -------------------------------------------------------------------------------------------

    @property
    def is_expired(self) -> bool:
        """Whether its deadline has passed before it was decided."""
        if self.call is not None:
            return self.expires_at is not None and self.expires_at <= self.now
        return self.story.outcome is Outcome.EXPIRED

    @property
    def waits(self) -> bool:
        """Whether it can be decided."""
        return self.call is not None and not self.is_expired

    @property
    def expires_at(self) -> float | None:
        """Its deadline, in seconds since the epoch."""
        return self.story.expires_at

    @property
    def why(self) -> str:
        """Why it waits: `approval`, `external` or `uncertain`; empty if it does not."""
        return (self.call.why or "") if self.call is not None else ""

    @cached_property
    def need(self) -> Need:
        """The approvals that it demands and has; no demands if it does not wait."""
        demands, given = ((), ()) if self.call is None else (self.call.demands, self.call.approvals)
        return Need(demands, given, self.me)

    @property
    def takes(self) -> frozenset[str]:
        """The decisions that the page offers."""
        if self.call is None or not self.waits:
            return frozenset()
        found = {*list_accepted_decisions(self.call)}
        if not self.need.is_mine or self.input.too_long:
            found -= {"approve", "rerun"}
        if "approve" in found:
            found |= {"edit"} if self.need.is_special else {"edit", "grant"}
        return frozenset(found) if self.allow is None else self.allow & found

    @property
    def is_barred(self) -> bool:
        """Whether the person could approve it or let it run again, but may not."""
        kinds = {"approve", "rerun"} & {*list_accepted_decisions(self.call)} if self.call is not None else set[str]()
        return self.need.is_mine and self.allow is not None and bool(kinds) and not kinds & self.allow

    # --- what stands -------------------------------------------------------------------------------------------------

    @property
    def decision(self) -> tuple[DecisionRecord, float] | None:
        """The last decision, and its time."""
        return self.story.decisions[-1] if self.story.decisions else None

    @property
    def by(self) -> str:
        """Who decided it."""
        if self.decision is None:
            return ""
        record = self.decision[0]
        if record.grant is not None:
            return f"a grant of {record.by or 'a person'}"
        if record.rule is not None:
            return f"rule {record.rule}"
        if record.by_policy:
            return "a rule"
        if to_name_key(record.by) == to_name_key(self.me.name):
            return "you"
        return record.by or "a person without a name"

    @property
    def tag(self) -> Tag:
        """The state in a few words."""
        if self.is_expired:
            return Tag("no", "expired")
        if self.waits:
            return self.need.tag(self.why) or Tag("warn", "waits for you")
        if self.decision is None:
            return Tag("", "not decided" if self.story.outcome in (*_NEVER_RAN, None) else "ran without a question")
        kind = self.decision[0].kind
        return Tag("no" if kind == "deny" else "go", f"{_DONE[kind]} by {self.by}")

    @property
    def what_runs(self) -> str:
        """What the input below is: what runs, ran, or did not run."""
        if self.waits:
            return self._what_waits()
        if self.decision is not None and self.decision[0].kind in ("approve", "rerun"):
            return f"This is what {self.by} approved"
        return "This did not run"

    def _what_waits(self) -> str:
        if self.why == "external":
            return "No tool runs here. The model waits for your answer"
        if self.why == "uncertain":
            return "This has started once"
        if self.input.too_long:
            return "This is too long to approve here"
        if not self.need.is_mine or self.need.needs_others:
            return f"This runs {self.need.when}"
        return "This runs if another person approves" if self.is_barred else "This runs if you approve"

    @property
    def what_came(self) -> str:
        """What came of it, after the tag: "3 s ago. It is running."."""
        at = self.decision[1] if self.decision is not None else self.story.ended or self.now
        if self.is_expired:
            late = self.expires_at or at
            rest = "It did not run. The model gets a result that says so, and may ask again."
            return f"{duration(self.now - late)} ago. {rest}"
        return f"{duration(self.now - at)} ago. {self.fate}"

    @property
    def fate(self) -> str:
        """Whether it runs, ran or never runs."""
        story = self.story
        if self.is_expired or story.outcome in _NEVER_RAN:
            return "It did not run."
        if story.outcome is not None:
            lasted = story.ended - story.started if story.ended and story.started else 0.0
            took = f" It took {duration(lasted)}." if lasted >= 1 else ""
            return f"It ended{' with an error' if story.is_error else ''}.{took}"
        if self.decision is not None and self.decision[0].kind in ("deny", "answer"):
            return "It does not run."
        if self.has_started:
            return f"It is {running_words(self.whole.running.get(self.path), self.now)}."
        return "It has not run." if self.decision is None else self._start

    @property
    def has_started(self) -> bool:
        """Whether it has started; after a decision to run it again, whether it has started again."""
        started, decision = self.story.started, self.decision
        return started is not None and (decision is None or decision[0].kind != "rerun" or started >= decision[1])

    @property
    def _start(self) -> str:
        others = len(list_pending_calls(self.whole.state))
        if not others:
            return "It starts now."
        return f"It starts when {count(others, 'other call')} of this loop {'is' if others == 1 else 'are'} decided."


def read_loop(
    store: Store, loop_id: str, paths: Collection[Path] | None = None, count: int = 0
) -> tuple[StoredLoop, Story]:
    """Return the row of a loop, and its story.

    Args:
        store: the store.
        loop_id: the loop.
        paths: read only what the story of these calls takes. None: read the whole journal.
        count: the number of the newest events to read, at least.

    Raises:
        LoopNotFound: the loop does not exist.

    """
    read = partial(read_whole, store, loop_id) if paths is None else partial(read_recent, store, loop_id, paths, count)
    row, recent = read_with_row(store, loop_id, read)
    story = read_story(recent, store.secret)
    story.driven, progress = read_progress(store, row)
    story.running = {tuple(call.id.split("/")): call for call in list_running_calls(story.state, progress.running)}
    return row, story


def read_newest_steps(store: Store, loop_id: str) -> tuple[StoredLoop, Story, bool]:
    """Return the row of a loop, its story, and whether only the newest steps are to be shown, because it is long.

    The story of a long loop may lack older steps, which nothing on its page needs. It raises as `read_loop`.
    """
    rev = call_store(loop_id, partial(store.head, loop_id)).rev
    is_long = rev > _SHORT
    row, story = read_loop(store, loop_id, (), _NEWEST if is_long else rev)
    said = {step.id for step in story.steps if isinstance(step, Said)}
    is_enough = len(story.steps) >= NEWEST and all(each.id in said for each in story.state.root.kept if each.id)
    return (row, story, is_long) if is_enough or not is_long else (*read_loop(store, loop_id), is_long)


def list_newest(story: Story) -> list[Step]:
    """Return the newest steps of a long loop, and the calls before them that run."""
    earlier = [each for each in story.steps[:-NEWEST] if isinstance(each, CallStory) and each.path in story.running]
    return [*earlier, *story.steps[-NEWEST:]]


def card_of(store: Store, key: str, me: Person, now: float) -> Card:
    """Return a call for the page.

    Raises:
        ValueError: `key` is not a key.
        LoopNotFound, UnknownCall: the loop or the call does not exist.

    """
    loop_id, path = from_key(key)
    return _card(*read_loop(store, loop_id, [path]), path, me, now)


def cards_of(store: Store, keys: Iterable[str], me: Person, now: float) -> list[Card]:
    """Return calls for the page, without those that do not exist. Each loop is read once."""
    calls: list[tuple[str, Path]] = []
    for key in keys:
        with suppress(ValueError):
            calls.append(from_key(key))
    read: dict[str, tuple[StoredLoop, Story]] = {}
    for loop_id in dict(calls):
        with suppress(LoopNotFound):
            read[loop_id] = read_loop(store, loop_id, [path for of, path in calls if of == loop_id])
    cards: list[Card] = []
    for loop_id, path in calls:
        with suppress(UnknownCall):
            cards += [_card(*read[loop_id], path, me, now)] if loop_id in read else []
    return cards


def waiting_cards(row: StoredLoop, story: Story, me: Person, now: float) -> list[Card]:
    """Return the calls of a loop that wait."""
    return [_card(row, story, call.path, me, now) for call in list_pending_calls(story.state)]


def _card(row: StoredLoop, story: Story, path: tuple[str, ...], me: Person, now: float) -> Card:
    if (found := story.calls.get(path)) is None:
        raise UnknownCall(f"the loop {row.loop_id!r} has no call {'/'.join(path)!r}", call="/".join(path), known=())
    call = next((each for each in list_pending_calls(story.state) if each.path == path), None)
    return Card(key_of(row.loop_id, path), row, call, found, story, me, now)
