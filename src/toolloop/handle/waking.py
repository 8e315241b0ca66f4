"""Sleep, wake, copy: a handle from a snapshot, and a handle from another."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.binding import same_beginning, unbind
from toolloop.core.errors import Drift
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, canonical, decode, encode
from toolloop.core.machine import step, under_way
from toolloop.core.moves import set_up
from toolloop.core.setup import Setup
from toolloop.core.states import State
from toolloop.handle.beginning import all_params, check_request
from toolloop.handle.commanding import Commanding
from toolloop.handle.config import DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.decisions import refuse_invalid
from toolloop.handle.editing import outgoing
from toolloop.handle.making import registry_of
from toolloop.handle.params import Secrets, check_params, split
from toolloop.handle.tooling import changed_parts, facts_in_order
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry

_ON_DRIFT = ("raise", "accept")


@frozen
class Awake:
    """What a loop wakes up with."""

    tools: ToolRegistry
    config: LoopConfig
    context: LoopContext | ToolContext
    setup: Setup
    secrets: Secrets

    def parts(self) -> dict[str, Any]:
        """What of it a handle is made of."""
        return {"tools": self.tools, "config": self.config, "context": self.context, "secrets": self.secrets}


class Waking(Commanding):
    """Snapshots and copies of both handles."""

    def snapshot(self) -> dict[str, JSON]:
        """The loop as JSON, at any moment. It holds no callable, no client, no key, and no object of the caller.

        Keep it where only you can write: a digest in it catches damage, not attackers.
        """
        from toolloop.stores.codec import dump  # noqa: PLC0415 - cattrs is loaded when it is first needed

        return dump(self._state)

    def _as_woken(self, state: State) -> State:
        """A state as it will be once this handle has taken the loop up: with other tools and parameters, it may be."""
        setup = state.ledger.setup
        changes = {name: new for name, (old, new) in self._drifted.items() if getattr(setup, name) == old}
        if not changes:
            return state
        woken = set_up(state, **changes)
        return woken if same_beginning(setup, woken.ledger.setup, state.ledger.unbound) else unbind(woken)

    @classmethod
    def restore(  # noqa: PLR0913 - the parts of a loop that no snapshot can hold
        cls,
        snapshot: Mapping[str, JSON],
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        store: Store | None = None,
        on_drift: str = "raise",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """A loop from its snapshot, in this process or another. The next request has the very same bytes.

        Args:
            snapshot: what `snapshot()` returned.
            provider: as for a new handle.
            tools: as for a new handle.
            params: brings back what a snapshot leaves out (headers, timeouts, tokens); what else it holds is compared.
            config: None takes the stored limits. Callables are in no snapshot: give them again.
            context: as for a new handle; its depth is the stored one.
            store: where it is kept from now on, as a new loop there: two copies of one snapshot are two loops.
            on_drift: `raise` if tools, callables or parameters are others than they were; `accept` to go on with these.
            clock: as for a new handle.

        Raises:
            UnreadableSnapshot: it is damaged, foreign, or of a newer format.
            Drift: what changed.
            BadTool: two tools of one name.
            InvalidHistory: the API would refuse the history with these parameters.

        """
        from toolloop.stores.codec import load  # noqa: PLC0415 - likewise

        state = load(snapshot)
        awake = cls._wakes(
            state, tools=tools, params=params, config=config, context=context, on_drift=on_drift, asked="restore()"
        )
        if awake.setup != state.ledger.setup or under_way(state):
            state = step(state, ev.Woken(setup=awake.setup, at=clock()))
        first = None if store is None else ev.Adopted(state)
        handle = cls._made(provider, state, **awake.parts(), clock=clock, store=store, first=first)
        handle._asleep = True  # noqa: SLF001 - its own class
        return handle

    @classmethod
    def _wakes(  # noqa: PLR0913 - the parts of a loop that nothing stored can hold
        cls,
        state: State,
        *,
        tools: Any,
        params: Mapping[str, Any] | None,
        config: LoopConfig | None,
        context: LoopContext | ToolContext | None,
        on_drift: str,
        asked: str,
    ) -> Awake:
        """What a loop wakes up with, compared with what it fell asleep with."""
        if on_drift not in _ON_DRIFT:
            raise ValueError(f"on_drift is {on_drift!r}; give one of {', '.join(_ON_DRIFT)}")
        registry = registry_of(tools, is_async=cls._is_async)
        given = LoopConfig() if config is None else config
        context = DEFAULT_CONTEXT if context is None else context
        check_parts(given, context)
        if given.has_async() and not cls._is_async:
            raise TypeError("a callable of the config is async, and ToolLoopHandle is not: use AsyncToolLoopHandle")
        stored, secrets = split({} if params is None else _without_messages(params, asked))
        old = state.ledger.setup
        new = _setup_now(old, registry, config, stored if params is not None else None)
        if (changes := _changes(old, new, given)) and on_drift == "raise":
            raise Drift(
                f"the loop fell asleep with other things than it wakes up with: {'; '.join(changes)}. "
                'Bring them back, or pass on_drift="accept" to go on with what there is now',
                changes=changes,
            )
        if new != old:
            merged = decode(new.params)
            check_request(merged, registry, asked=asked)
            judged = outgoing(state, list(state.ledger.messages))
            refuse_invalid(judged, all_params(merged, registry), asked=asked)
        return Awake(registry, given, context, new, secrets)

    def fork(self, loop_id: str | None = None) -> Self:
        """An independent copy: every started call is uncertain in it, and every open call asks again."""
        forked = step(self._state, ev.Forked(loop_id or uuid.uuid4().hex, at=self._recorder.now()))
        stored = self._stored
        copy = self._made(
            self._provider,
            forked,
            tools=self._tools,
            config=self._config,
            context=self._context,
            secrets=Secrets(dict(self._secrets.options), dict(self._secrets.mcp_tokens)),
            clock=self._recorder.clock,
            store=None if stored is None else stored.store,
            first=None if stored is None else ev.Adopted(forked),
        )
        copy._asleep, copy._drifted = self._asleep, dict(self._drifted)  # noqa: SLF001 - its own class
        return copy

    @classmethod
    def _made(cls, provider: Any, state: State, **parts: Any) -> Self:
        handle = cls.__new__(cls)
        handle._make_bell()  # noqa: SLF001 - its own class
        taken = provider_for(provider, is_async=True) if cls._is_async else provider_for(provider, is_async=False)
        handle._assemble(taken, state, **parts)  # noqa: SLF001 - its own class
        return handle

    def _make_bell(self) -> None:
        """What a driver waits with; each kind of handle has its own."""


def _without_messages(params: Mapping[str, Any], asked: str) -> dict[str, Any]:
    return {name: value for name, value in check_params(params, asked=asked).items() if name != "messages"}


def _setup_now(
    old: Setup, registry: ToolRegistry, config: LoopConfig | None, stored: Mapping[str, JSON] | None
) -> Setup:
    """The set-up that a loop wakes up with."""
    had = {facts.name for facts in old.tools} | old.gone
    new = evolve(old, tools=facts_in_order(old, registry), gone=frozenset(had) - set(registry.names))
    before = decode(old.params)
    # Parameters with a model are those of a whole request; others only bring back what is not stored.
    after = before if stored is None else dict(stored) if "model" in stored else {**before, **stored}
    if "compaction" not in before:
        after.pop("compaction", None)  # it is a wish for once, and done
    if canonical(after) != canonical(before):
        new = evolve(new, params=encode(after))
    if config is not None:
        return evolve(new, **config.parts())
    return evolve(new, callables=frozenset())


def _changes(old: Setup, new: Setup, config: LoopConfig) -> tuple[str, ...]:
    """What is another than it was, in words."""
    changes = []
    then, now = ({facts.name: facts for facts in setup.tools} for setup in (old, new))
    changes += [f"the tool {name!r} is gone" for name in then if name not in now]
    changes += [f"the tool {name!r} is new" for name in now if name not in then]
    for name in (name for name in then if name in now):
        changes += [f"the {part} of the tool {name!r} changed" for part in changed_parts(then[name], now[name])]
        if then[name].approval != now[name].approval:
            changes.append(f"the approval of the tool {name!r} was {then[name].approval}, and is {now[name].approval}")
        if then[name].effect != now[name].effect:
            changes.append(f"the effect of the tool {name!r} was {then[name].effect}, and is {now[name].effect}")
    changes += [f"config.{name} was set, and is missing" for name in sorted(old.callables - config.callables())]
    changes += [f"config.{name} was not set, and is" for name in sorted(config.callables() - old.callables)]
    if new.params is not old.params:
        before, after = decode(old.params), decode(new.params)
        changes += [f"the parameter {name!r} is missing" for name in sorted(before.keys() - after.keys())]
        changes += [f"the parameter {name!r} is new" for name in sorted(after.keys() - before.keys())]
        both = sorted(before.keys() & after.keys())
        changes += [f"the parameter {name!r} changed" for name in both if _differ(before[name], after[name])]
    return tuple(changes)


def _differ(one: JSON, other: JSON) -> bool:
    """Whether two values are other JSON: 1 is not true, and not 1.0."""
    return canonical(one) != canonical(other)
