"""The half that both handles share: set-up, results of turns, who drives. It performs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod

from toolloop.core import events as ev
from toolloop.core.errors import IllegalCommand, MaxDepthExceeded
from toolloop.core.jsontext import decode
from toolloop.core.machine import begin, step
from toolloop.core.splicing import spliced, splices_between
from toolloop.core.states import Deciding, Executed, Failed, Finished, Paused, Proposed, State, TooDeep
from toolloop.core.tree import everywhere, loop_at
from toolloop.handle.beginning import all_params, begin_with, missing
from toolloop.handle.config import LoopConfig, LoopContext
from toolloop.handle.decisions import refuse_invalid, refuse_last_word, refuse_unclosed, to_texts
from toolloop.handle.editing import WorkingList, outgoing, refuse_lost_pause
from toolloop.handle.failing import error_of, is_driven
from toolloop.handle.kits import Kit, Kits
from toolloop.handle.making import refuse_unopened, registry_of
from toolloop.handle.params import Secrets
from toolloop.handle.recording import Path, Recorder, read_clock
from toolloop.handle.storing import StoringRecorder
from toolloop.handle.tooling import Flight, Job, Stopwatch
from toolloop.handle.turns import Completed, Error, Moves, Yielded, text_of
from toolloop.handle.writers import refuse_misfits
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry

_WAITING = (Proposed, Deciding, Executed, Paused)
_ENDED = (Finished, Failed, TooDeep)

# What others may say without ending the wait that a handle shows, and what leaves the closed history as it is.
_AS_IT_STANDS = (
    ev.Decided,
    ev.Ticked,
    ev.GrantRevoked,
    ev.Ended,
    ev.Spent,
    ev.ParamsChanged,
    ev.HistoryEdited,
    ev.Compacted,
    ev.Woken,
)
_CLOSING = (
    ev.HistoryEdited,
    ev.Compacted,
    ev.Requested,
    ev.Continued,
    ev.TurnEnded,
    ev.FollowedUp,
    ev.Stopped,
    ev.Replied,
)
_DRIVING = (ev.Woken, ev.Requested, ev.Started, ev.Opened)


class HandleCore:
    """What a handle is made of. Not public: see `ToolLoopHandle` and `AsyncToolLoopHandle`."""

    _is_async = False
    _shows_replies = False  # a runner's does
    _called = "ToolLoopHandle(...)"

    # What a `Yielded` may ask for; made anew for each, so that handle and moves keep no circle alive.
    _moves: Callable[[], Moves]

    _config: LoopConfig
    _context: LoopContext | ToolContext
    _provider: Any
    _recorder: Recorder
    _secrets: Secrets
    _tools: ToolRegistry

    def _open(  # noqa: PLR0913 - everything a loop is made of
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Any,
        config: LoopConfig,
        context: Any,
        loop_id: str,
        clock: Any,
        store: Store | None,
    ) -> None:
        """Set a new loop up; no I/O happens and no clock starts."""
        registry = registry_of(tools, is_async=self._is_async)
        begins = begin_with(params, registry, asked=self._called)
        if begins.messages is None:
            raise missing("messages")
        begins.refuse_invalid(begins.messages, registry, asked=self._called)
        depth, shown = context.depth, self._shows_replies
        setup = begins.setup(registry, config, loop_id=loop_id, depth=depth, shows_replies=shown)
        opened = ev.Opened(setup=setup, messages=begins.messages, at=read_clock(clock, otherwise=0.0))
        self._assemble(
            provider,
            begin(opened),
            tools=registry,
            config=config,
            context=context,
            secrets=begins.secrets,
            clock=clock,
            store=store,
            first=opened,
        )

    def _assemble(  # noqa: PLR0913 - likewise
        self,
        provider: Any,
        state: State,
        *,
        tools: ToolRegistry,
        config: LoopConfig,
        context: Any,
        secrets: Secrets,
        clock: Any,
        store: Store | None = None,
        rev: int = 0,
        first: ev.Event | None = None,
    ) -> None:
        refuse_misfits(config.strategies(), is_async=self._is_async)
        self._provider = provider
        self._tools = tools
        self._config = config
        self._context = context
        self._secrets = secrets
        root = Kit.of(state.ledger.setup, tools, config, caller_state=context.state, secrets=secrets)
        self._kits = Kits(root, context.state)
        for path, _ in everywhere(state):
            self._kits.at(state, path)  # so that their observers are told from the first event on
        self._recorder: Recorder = Recorder(state, clock, self._kits.audience)
        self._stored: StoringRecorder | None = None
        if store is not None:
            self._recorder = self._stored = StoringRecorder(
                state, clock, self._kits.audience, store=store, rev=rev, first=first, keeps_words=self._is_async
            )
            self._stored.listener = WeakMethod(self._heard_elsewhere)  # no circle that keeps a handle alive
        self._driver = threading.Lock()
        self._opened: Any = None  # an exit stack, inside `with handle:`
        self._owner: str | None = None  # of the lease of a stored loop
        self._take_over = False
        self._lease_lock = threading.Lock()
        self._leased = False  # a driver needs the lease
        self._tasks = 0  # of an async driver, that run now
        self._stays, self._is_abandoned = False, False  # `run()` keeps the lease; its event loop went away under it
        self._drifted: dict[str, tuple[Any, Any]] = {}  # what of the set-up is to be another when the loop wakes up
        self._asleep, self._watch = False, Stopwatch()
        self._jobs: dict[Path, Job] = {}  # the run of each call that this process started last
        self._flights: dict[Path, Flight] = {}  # the requests that this driver has under way, by their loops
        self._abort: BaseException | None = None
        self._working: WorkingList | None = None
        self._yielded: Yielded | None = None
        self._terminal: Completed | Error | None = None
        self._live_errors: dict[Path, Exception] = {}  # by the loop whose request failed

    @property
    def _state(self) -> State:
        return self._recorder.state

    def _kit(self, path: Path) -> Kit | None:
        """What a driver needs for a loop of the tree; None if it is not there, or the tool of its call is gone."""
        if not path:
            return self._kits.root
        with self._recorder.lock:
            return self._kits.at(self._state, path)

    def _tools_at(self, path: tuple[str, ...]) -> ToolRegistry:
        """The tools of a loop of the tree."""
        if not path:
            return self._tools
        kit = self._kit(path)
        return ToolRegistry() if kit is None else kit.tools

    def _known_tools(self, path: Path = ()) -> Collection[str] | None:
        """The names of all tools that a result may refer to; None where they cannot all be known."""
        loop, kit = loop_at(self._state, path), self._kit(path)
        return None if loop is None or kit is None else kit.known_tools(loop.ledger)

    def _record(self, event: ev.Event) -> State:
        """Record an event, and let the waiting `Yielded` show what it changed."""
        with self._recorder.lock:
            known = len(self._state.ledger.usage_log) if isinstance(self._context, ToolContext) else None
            state = self._recorder.record(event)
            if self._yielded is not None:
                self._show()
            if known is not None and isinstance(self._context, ToolContext):
                for usage in state.ledger.usage_log[known:]:
                    self._context._spent(usage)  # noqa: SLF001 - for this it is there
            return state

    def _show(self) -> None:
        state = self._state
        if self._yielded is not None and isinstance(state, Deciding):
            self._yielded._show(state)  # noqa: SLF001 - a Yielded is its handle's own

    def _heard_elsewhere(self, events: Sequence[ev.Event]) -> None:
        """Others changed the stored loop, or a store refused what was said: what a handle shows is to be true."""
        if any(not isinstance(event, _AS_IT_STANDS) for event in events):
            self._move_on()
        if any(isinstance(event, _CLOSING) for event in events) and self._working is not None:
            self._working.spent = True  # it is a list of an earlier wait now
            self._working = None
        if any(isinstance(event, _DRIVING) for event in events):
            self._asleep = True
        self._show()

    # --- turns ---

    @contextmanager
    def _driving(self, asked: str) -> Iterator[None]:
        """One caller drives; a second one is told so at once. A turn does the same, written out: it is quicker."""
        if not self._driver.acquire(blocking=False):
            raise is_driven(self._state, asked)
        try:
            yield
        finally:
            self._driver.release()

    def _refuse_open(self) -> None:
        """Refuse to open twice what the tools open."""
        if self._opened is not None:
            raise IllegalCommand(
                "`with handle:` inside `with handle:`: what its tools open is open already",
                state=type(self._state).__name__,
                asked="with handle",
                allowed=("next_turn()", "run()"),
            )

    def _ready_to_drive(self) -> Yielded | Completed | Error | None:
        """What others drove the loop to meanwhile, if it is over or waits; else None, and all is in place to drive."""
        with self._recorder.lock:
            if (waiting := self._wait()) is not None:
                return waiting
            if (over := self._nothing_to_drive()) is None:
                self._get_ready()
            return over

    def _nothing_to_drive(self) -> Completed | Error | None:
        """The terminal result, if the loop has one; else None, and it is not the caller who has the word."""
        if isinstance(self._state, _ENDED):
            with self._recorder.saying():
                self._adopt("next_turn()")
            return self._finish()
        if isinstance(self._state, _WAITING):
            raise IllegalCommand(
                "next_turn(): a Yielded waits for a command. Give it one (it is handle.pending_turn), then go on",
                state=type(self._state).__name__,
                asked="next_turn()",
                allowed=("continue_loop()", "inject_and_continue()", "stop()"),
            )
        return None

    def _get_ready(self) -> None:
        if self._opened is None:
            refuse_unopened(self._tools)
        if self._working is not None:
            with self._recorder.saying():
                self._adopt("next_turn()")
        self._wake_up()
        self._watch.lap()

    def _adopt(self, asked: str, injected: Sequence[str] = (), *, ends: bool = False) -> None:
        """Take the edited history over, if there is one and it differs. `ends`: the loop ends then.

        Raises:
            InvalidHistory: the API would refuse what would go out next; the list stays to be mended.

        """
        if self._working is None:
            return
        edit = self._edit()
        if edit is not None:
            closed = spliced(self._state.ledger.messages, edit.splices)
            self._refuse_next(self._state, closed, asked, injected)
        self._take_edit(edit, asked, ends=ends)

    def _refuse_next(self, state: State, closed: Sequence[str], asked: str, injected: Sequence[str] = ()) -> None:
        """Refuse an edited history for what would go out next in a state."""
        texts = outgoing(state, closed, injected)
        self._refuse(texts, asked)
        if not getattr(state, "tail", ()):
            ledger = self._state.ledger
            refuse_last_word(texts, list(ledger.messages), decode(ledger.setup.params), asked=asked)

    def _refuse(self, texts: Sequence[str], asked: str) -> None:
        """Refuse messages that the API would refuse with the present parameters."""
        refuse_invalid(texts, all_params(decode(self._state.ledger.setup.params), self._tools), asked=asked)

    def _edit(self) -> ev.HistoryEdited | None:
        """What the caller made of the closed history, if that is another."""
        if self._working is None:
            return None
        closed = list(self._state.ledger.messages)
        splices = splices_between(closed, to_texts(self._working, known=frozenset(closed)))
        return ev.HistoryEdited(splices=splices, at=self._recorder.now()) if splices else None

    def _take_edit(self, edit: ev.HistoryEdited | None, asked: str, *, ends: bool = False) -> None:
        """Take over what the caller made of the closed history. `ends`: the loop ends, and with it a pause.

        Raises:
            InvalidHistory: it is none that a user message could follow.
            IllegalCommand: what stands beside it needs it as it is.

        """
        if edit is not None:
            closed = list(self._state.ledger.messages)
            refuse_unclosed(spliced(closed, edit.splices), closed, asked=asked)
            if not ends:
                refuse_lost_pause(step(self._state, edit), asked=asked)
            self._record(edit)
        if self._working is not None:
            self._working.spent = True
            self._working = None

    def _wake_up(self) -> None:
        """Take the loop up as it stands; the driver knows what of it is still being done."""

    def _waking(self) -> ev.Woken:
        """What is to be recorded when this handle takes the loop up."""
        return ev.Woken(at=self._recorder.now())

    def _result(self) -> Yielded | Completed | Error | None:
        """What the turn that has just ended gives the caller; None if somebody let the loop go on already."""
        with self._recorder.lock:
            if (waiting := self._wait()) is not None:
                return waiting
            return self._finish() if isinstance(self._state, _ENDED) else None

    def _waits(self) -> bool:
        """Whether the caller has the word, as far as this handle knows."""
        return isinstance(self._state, _WAITING)

    def _wait(self) -> Yielded | None:
        state = self._state
        if not isinstance(state, _WAITING):
            return None
        if self._yielded is None:
            self._yielded = Yielded(state, self._moves(), self._recorder.drain())
        return self._yielded

    def _finish(self) -> Completed | Error:
        with self._recorder.lock:
            if self._terminal is None:
                self._terminal = self._make_terminal()
            return self._terminal

    def _make_terminal(self) -> Completed | Error:
        state, ledger, seen = self._state, self._state.ledger, self._recorder.drain()
        if isinstance(state, Finished):
            response = None if ledger.response is None else decode(ledger.response)
            return Completed(
                termination=state.termination,
                response=response,
                text=None if response is None else text_of(response["content"]),
                iterations=ledger.iterations,
                total_usage=ledger.total_usage,
                usage_log=tuple(ledger.usage_log),
                events=seen,
            )
        error = self._error()
        return Error(
            error=error,
            retryable=bool(getattr(error, "retryable", False)),
            retry_after=getattr(error, "retry_after", None),
            iterations=ledger.iterations,
            total_usage=ledger.total_usage,
            events=seen,
            path=state.failure.path if isinstance(state, Failed) else (),
            partial_text=getattr(error, "partial_text", None),
        )

    def _error(self) -> Exception:
        state = self._state
        if isinstance(state, Failed):
            return self._live_errors.get(state.failure.path) or error_of(state.failure)
        setup = state.ledger.setup
        return MaxDepthExceeded(setup.depth, setup.limits.max_depth or 0)

    def _move_on(self) -> None:
        """A command was given: what the last turn returned is over."""
        if self._yielded is not None:
            self._yielded._spend()  # noqa: SLF001 - likewise
            self._yielded = None
        self._terminal = None
        self._live_errors = {}

    def __repr__(self) -> str:
        ledger = self._state.ledger
        return (
            f"<{type(self).__name__} {type(self._state).__name__}: "
            f"{ledger.iterations} iterations, id {ledger.setup.loop_id}>"
        )
