"""A model checker: two drivers of one stored loop, in every order in which their steps can happen.

The drivers here are models of the handles: they follow the same protocol step by step (take the lease, read on, store
before it is done, do it, merge what came of it), and are written anew, for the real ones make several calls to a store
in one go, and everything is to be tried between any two of them. What they follow is real: the machine says what is
outstanding and what an event leads to, and a store says what it takes. Driver 0 may be slow: then driver 1 may judge
its lease to be over although it lives. Any of them may crash between any two steps, and is started again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

from tests.properties.explorer_world import Asked, Driver, Journals, Run, Shop, Staged, Told, World, normal
from toolloop.core.policy import digest_of
from toolloop.machine import (
    Continued,
    Decided,
    Deciding,
    Ended,
    EndTurn,
    Event,
    Executed,
    Failed,
    Finished,
    Judge,
    Judged,
    Judging,
    Outcome,
    Replied,
    Reply,
    Requested,
    Requesting,
    Result,
    Ruling,
    RunCall,
    Running,
    SendRequest,
    Started,
    State,
    TurnEnded,
    Wait,
    Why,
    Woken,
    outstanding,
    step,
)
from toolloop.stores import audit


class Broken(AssertionError):
    """A promise is broken; the trace says how it came to that."""


@frozen
class Scene:
    """What is to happen.

    Attributes:
        start: the events of the journal to begin with.
        goal: the state that ends it.
        asks: the calls that a policy asks about.
        words: what the person at each driver says to a call that waits; to an uncertain one under `"?" + its id`.
        replies: what the model answers, by iteration.
        crashes, slow: how many of these may happen.

    """

    start: tuple[Event, ...]
    goal: type[State]
    asks: frozenset[str] = frozenset()
    words: tuple[Mapping[str, Ruling], Mapping[str, Ruling]] = ({}, {})
    replies: Mapping[int, Reply] = field(factory=dict)
    crashes: int = 1
    slow: int = 1


@frozen
class Protocol:
    """What of the drivers' protocol is in place. `writes_ahead`: starts are stored first; `merges`: so are late ends."""

    writes_ahead: bool = True
    merges: bool = True


@define
class Explorer:
    """Explores a scene. `seen`: each world, with the one before it and the step between."""

    scene: Scene
    shop: Shop
    protocol: Protocol = Protocol()
    seen: dict[World, tuple[World | None, str, Asked | None]] = field(factory=dict)
    finals: set[World] = field(factory=set)
    _clean: dict[int, bool] = field(factory=dict)
    _asked: Asked | None = None

    @property
    def journals(self) -> Journals:
        return self.shop.journals

    def explore(self) -> int:
        """Every world that can be; how many there are.

        Raises:
            Broken: a promise is broken in one of them, or one of them has no way out.

        """
        node = self.journals.start(*self.scene.start)
        first = World(node, None, 0, (Driver(0), Driver(1)), self.scene.crashes, self.scene.slow)
        self.seen[first] = None, "", None
        back: dict[World, list[World]] = {}
        todo = deque([first])
        while todo:
            world = todo.popleft()
            moves = 0
            for label, moved in self._moves(world):
                after = normal(moved)
                if after == world:
                    continue
                crashed = label.endswith("crashes")
                moves += not crashed
                if not crashed:
                    back.setdefault(after, []).append(world)
                if after not in self.seen:
                    self.seen[after] = world, label, self._asked
                    todo.append(after)
            if not moves:
                self._check_final(world)
        self._check_ways_out(back)
        return len(self.seen)

    def trace(self, world: World) -> list[str]:
        """How it came to a world."""
        steps = []
        at: World | None = world
        while at is not None:
            before, label, _ = self.seen[at]
            steps.append(label)
            at = before
        return steps[-2::-1]

    def questions(self, world: World) -> list[Asked]:
        """What stores were asked on the way to a world."""
        asked = []
        at: World | None = world
        while at is not None:
            before, _, question = self.seen[at]
            asked += [question] if question is not None else []
            at = before
        return asked[::-1]

    def _broken(self, world: World, label: str, why: str) -> Broken:
        steps = "\n  ".join([*self.trace(world), label])
        return Broken(f"{why}, after {len(self.seen)} worlds:\n  {steps}")

    # --- what may happen next ---

    def _moves(self, world: World) -> Iterator[tuple[str, World]]:
        for driver in world.drivers:
            name = f"driver {driver.name}"
            for label, after in self._steps(world, driver):
                yield f"{name} {label}", after
                self._asked = None
            if world.crashes and (driver.at not in ("open", "done") or driver.runs or driver.strays or driver.late):
                reborn = Driver(driver.name, driver.life + 1)
                left = [end for end in world.owed if not end.startswith(f"{driver.name}:")]
                yield (
                    f"{name} crashes",
                    _with(world, reborn)._replace(crashes=world.crashes - 1, owed=frozenset(left)),
                )

    def _steps(self, world: World, driver: Driver) -> Iterator[tuple[str, World]]:
        for run in driver.ready[:1]:  # threads are started in the order of calls
            yield f"begins to run {run.call_id}", self._begin(world, driver, run)
        for run in (*driver.runs, *driver.strays):
            yield f"has run {run.call_id}", self._finish(world, driver, run)
        if driver.late:
            yield f"merges {driver.late[0].entry_id}", self._merge(world, driver)
        match driver.at:
            case "open":
                told, world = self._ask(world, Asked("load"))
                yield "loads", _with(world, self._look(driver._replace(node=world.node, asleep=True)))
            case "take" | "seize":
                yield from self._take(world, driver)
            case "read" | "reread" | "redecide":
                told, world = self._ask(world, Asked("load", expected=self.journals.length(driver.node)))
                yield "reads on", _with(world, self._read(driver, world.node))
            case "drive" | "decide" if driver.staged:
                yield from self._store(world, driver)
            case "ask":
                yield "is answered", _with(world, self._answered(driver))
            case "release":
                told, world = self._ask(world, Asked("release", driver.owner, holds=driver.token))
                yield "gives the lease back", _with(world, self._look(driver._replace(token=None)))

    def _ask(self, world: World, asked: Asked) -> tuple[Told, World]:
        self._asked = asked
        return self.shop.ask(world, asked)

    # --- the lease ---

    def _take(self, world: World, driver: Driver) -> Iterator[tuple[str, World]]:
        told, after = self._ask(world, Asked("take", driver.owner, instead=driver.instead))
        if told.said == "ok" and told.lease is not None:
            if driver.instead is not None:
                after = _oust(after, world.lease)
            yield "takes the lease", _with(after, driver._replace(at="read", token=told.lease[1], instead=None))
            return
        waiting = driver._replace(at="take", instead=None)
        if told.lease is None:
            yield "finds the lease taken", _with(after, waiting)
            return
        name, life = (int(part) for part in told.lease[0].split("."))
        seizing = _with(after, driver._replace(at="seize", instead=told.lease[1]))
        if life < world.drivers[name].life:
            yield "finds that its owner is gone", seizing
            return
        yield "finds the lease taken", _with(after, waiting)
        if name == 0 and driver.name == 1 and world.slow:
            yield "judges the lease of driver 0 to be over", seizing._replace(slow=world.slow - 1)

    # --- driving ---

    def _believed(self, driver: Driver) -> State:
        node = self.journals.extend(driver.node, *(item.entry_id for item in driver.staged))
        state = self.journals.state(node)
        assert state is not None
        return state

    def _look(self, driver: Driver) -> Driver:
        """What a program does that does not drive: drive, decide, or be done."""
        state = self._believed(driver)
        if isinstance(state, self.scene.goal):
            return driver._replace(at="done")
        return self._plan(driver._replace(at="decide" if isinstance(state, Deciding | Executed) else "take"))

    def _plan(self, driver: Driver) -> Driver:
        """What is to be stored next, where that follows from the state."""
        if driver.staged or driver.at not in ("drive", "decide"):
            return driver
        state = self._believed(driver)
        if driver.at == "decide":
            return self._decide(driver, state)
        effects = outstanding(state)
        match effects:
            case (SendRequest(),):
                return self._stage(driver, "intent", "requests", Requested())
            case (Judge(calls=calls),) if isinstance(state, Judging):
                verdicts = tuple((call_id, Wait(Why.APPROVAL)) for call_id in calls if call_id in self.scene.asks)
                judged = Judged(verdicts)
                then = () if verdicts else outstanding(step(state, judged))
                if any(isinstance(effect, RunCall) for effect in then):
                    return self._start(driver, state, then)
                return self._stage(driver, "fact", f"judged/{len(verdicts)}", judged)
            case (EndTurn(),):
                return self._stage(driver, "fact", "turn ended", TurnEnded())
            case (RunCall(), *_):
                return self._start(driver, state, effects)
        if isinstance(state, Deciding | Executed | Finished | Failed):
            return driver._replace(at="release")
        return driver

    def _start(self, driver: Driver, state: State, effects: tuple[object, ...]) -> Driver:
        assert isinstance(state, Judging | Running)
        if not self.protocol.writes_ahead and (driver.ready or driver.runs):
            return driver
        for call in state.round.calls:
            if RunCall(call.id) not in effects:
                continue
            run = Run(state.round.iteration, call.id, call.attempts + 1)
            if self.protocol.writes_ahead:
                started = Started(call.id, digest_of(state.ledger.setup, state.round.iteration, call))
                driver = self._stage(driver, "intent", f"starts/{run.entry_id}", started)
            else:
                driver = driver._replace(ready=(*driver.ready, run))
        return driver

    def _stage(self, driver: Driver, kind: str, what: str, event: Event) -> Driver:
        place = self.journals.length(driver.node) + len(driver.staged)
        item = Staged(self.journals.say(f"{driver.name}/{what}@{place}", event), kind)
        return driver._replace(staged=(*driver.staged, item))

    def _answered(self, driver: Driver) -> Driver:
        state = self._believed(driver)
        reply = self.scene.replies[state.ledger.iterations + 1]
        driver = driver._replace(at="drive")
        return self._stage(driver, "fact", f"replied/{state.ledger.iterations + 1}", Replied(reply))

    # --- deciding ---

    def _decide(self, driver: Driver, state: State) -> Driver:
        if isinstance(state, self.scene.goal) or not isinstance(state, Deciding | Executed):
            return driver._replace(at="open")
        waiting = [call for call in state.round.calls if call.status == "waiting" and isinstance(state, Deciding)]
        if not waiting:
            return self._stage(driver, "firm", "continues", Continued())
        call = waiting[0]
        ruling = self.scene.words[driver.name][f"?{call.id}" if call.why is Why.UNCERTAIN else call.id]
        return self._stage(driver, "word", f"decides/{call.id}/{ruling.kind}", Decided(((call.id, ruling),)))

    # --- storing ---

    def _store(self, world: World, driver: Driver) -> Iterator[tuple[str, World]]:
        ids = tuple(item.entry_id for item in driver.staged)
        holds = driver.token if any(item.kind in ("fact", "intent") for item in driver.staged) else None
        length = self.journals.length(driver.node)
        told, world = self._ask(world, Asked("append", driver.owner, ids, expected=length, holds=holds))
        label = f"stores {', '.join(ids)}"
        rereads = driver._replace(at="redecide" if driver.at == "decide" else "reread")
        if told.said == "ok" and told.rev == length + len(ids):
            stored = driver._replace(node=self.journals.extend(driver.node, *ids), staged=())
            yield label, self._owe_no_more(_with(world, self._plan(self._performs(stored, driver.staged))))
        elif told.said == "ok":
            yield f"{label}, after something else", self._owe_no_more(_with(world, rereads))
        elif told.said == "stale":
            yield f"{label}: refused, the journal went on", _with(world, rereads)
        else:
            yield f"{label}: refused, the lease is lost", _with(world, self._lose(driver))

    def _performs(self, driver: Driver, stored: tuple[Staged, ...]) -> Driver:
        """What was only about to be done is done from here on."""
        state = self._believed(driver)
        for item in stored:
            event = self.journals.events[item.entry_id]
            if isinstance(event, Started) and item.kind == "intent" and isinstance(state, Running):
                call = state.round.find(event.call_id)
                assert call is not None
                if call.status == "running":
                    run = Run(state.round.iteration, call.id, call.attempts)
                    driver = driver._replace(ready=(*driver.ready, run))
            elif isinstance(event, Requested) and isinstance(state, Requesting):
                driver = driver._replace(at="ask")
            elif isinstance(event, Continued):
                driver = driver._replace(at="take")
        return driver

    def _lose(self, driver: Driver) -> Driver:
        """Somebody took the lease: of what was done here, the ends still count."""
        ends = tuple(item for item in driver.staged if isinstance(self.journals.events[item.entry_id], Ended))
        late = (*driver.late, *ends) if self.protocol.merges else ()
        strays = (*driver.strays, *driver.runs)
        return driver._replace(at="open", token=None, staged=(), late=late, ready=(), runs=(), strays=strays)

    def _read(self, driver: Driver, node: int) -> Driver:
        """Fold in what others stored, and look again at what is staged."""
        heard = self.journals.news(node, driver.node)
        foreign = [self.journals.events[entry_id] for entry_id in heard if not entry_id.startswith(f"{driver.name}/")]
        asleep = driver.asleep or any(isinstance(event, Woken | Requested) for event in foreign)
        moved = any(not isinstance(event, Decided | Ended) for event in foreign)
        known = tuple(item for item in driver.staged if item.entry_id in heard)
        state, kept = self.journals.state(node), []
        if state is None:
            raise Broken("unreadable")
        place = node
        for item in driver.staged:
            ends = isinstance(self.journals.events[item.entry_id], Ended)
            if item in known or (item.kind == "firm" and moved) or (ends and not self.protocol.merges):
                continue
            then = self.journals.extend(place, item.entry_id)
            if self.journals.state(then) is not None:
                kept.append(item)
                place = then
        at = {"read": "drive", "reread": "drive", "redecide": "decide"}[driver.at]
        fresh = driver.at == "read"
        driver = driver._replace(at=at, node=node, staged=tuple(kept), asleep=asleep)
        driver = self._performs(driver, known)
        if fresh and isinstance(state, Deciding | Executed | Finished | Failed):
            return driver._replace(at="release")
        if fresh and driver.asleep:
            woken = self._stage(driver, "fact", "wakes", Woken(driver=str(driver.name)))
            return woken._replace(asleep=False)
        return self._plan(driver)

    def _merge(self, world: World, driver: Driver) -> World:
        ids = (driver.late[0].entry_id,)
        _, world = self._ask(world, Asked("append", driver.owner, ids))
        return self._owe_no_more(_with(world, driver._replace(late=driver.late[1:])))

    # --- running ---

    def _begin(self, world: World, driver: Driver, run: Run) -> World:
        label = f"driver {driver.name} begins to run {run.call_id}"
        what = f"{run.iteration}/{run.call_id}"
        state = self.journals.state(world.node)
        round_ = getattr(state, "round", None)
        call = None if round_ is None else round_.find(run.call_id)
        if call is not None and call.result is not None and call.result.outcome is Outcome.DENIED:
            raise self._broken(world, label, "a denied call runs")
        if state is not None and not state.ledger.setup.repeatable(run.call_id):
            told = (self.journals.events[entry.id] for entry in self.journals.whole(world.node))
            decided = (ruling for event in told if isinstance(event, Decided) for ruling in event.rulings)
            reruns = sum(call_id == run.call_id and ruling.kind == "rerun" for call_id, ruling in decided)
            if world.ran.count(what) > reruns:
                raise self._broken(world, label, f"the call {run.call_id} runs twice")
        for other in (each for one in world.drivers for each in (*one.runs, *one.strays)):
            if (other.iteration, other.call_id) == run[:2] and not (run.ousted or other.ousted):
                raise self._broken(world, label, f"the call {run.call_id} runs twice at once")
        begun = driver._replace(ready=_less(driver.ready, run), runs=(*driver.runs, run))
        return _with(world, begun)._replace(ran=tuple(sorted((*world.ran, what))))

    def _finish(self, world: World, driver: Driver, run: Run) -> World:
        """A tool is back: from here on its result may be stored, unless the driver crashes first."""
        ended = Ended(run.call_id, Result('"done"'), iteration=run.iteration, attempt=run.attempt)
        entry_id = self.journals.say(run.entry_id, ended)
        owed = world.owed | {f"{driver.name}:{entry_id}"}
        if run in driver.strays:
            late = (*driver.late, Staged(entry_id, "late")) if self.protocol.merges else ()
            after = driver._replace(strays=_less(driver.strays, run), late=late)
            return self._owes(world, after, owed)
        driver = driver._replace(runs=_less(driver.runs, run))
        state = self._believed(driver)
        if not self.protocol.writes_ahead:
            driver = self._stage(driver, "fact", f"starts/{run.entry_id}", Started(run.call_id))
            if self.journals.state(self.journals.extend(driver.node, *(i.entry_id for i in driver.staged))) is None:
                return self._owes(world, driver._replace(staged=driver.staged[:-1]), owed)
            state = self._believed(driver)
        call = state.round.find(run.call_id) if isinstance(state, Running) else None
        if call is None or call.status != "running" or call.attempts != run.attempt:
            late_id = self.journals.say(f"late/{entry_id}", ended)
            driver = driver._replace(late=(*driver.late, Staged(late_id, "late")))
        else:
            driver = driver._replace(staged=(*driver.staged, Staged(entry_id, "fact")))
        return self._owes(world, self._plan(driver), owed)

    def _owes(self, world: World, driver: Driver, owed: frozenset[str]) -> World:
        return self._owe_no_more(_with(world, driver)._replace(owed=owed))

    def _owe_no_more(self, world: World) -> World:
        if not world.owed:
            return world
        stored = self.journals.places[world.node].ids
        return world._replace(owed=frozenset(end for end in world.owed if not _is_in(end, stored)))

    # --- how it ends ---

    def _check_final(self, world: World) -> None:
        """Where nothing can happen any more, all is done, and the journal tells all of it."""
        if any(driver.at != "done" for driver in world.drivers):
            raise self._broken(world, "", "nobody can go on")
        if world.owed:
            raise self._broken(world, "", f"a finished result is lost ({', '.join(sorted(world.owed))})")
        if world.node not in self._clean:
            problems = audit(self.journals.whole(world.node)).problems
            if problems:
                raise self._broken(world, "", f"the audit finds {problems[0]}")
            self._clean[world.node] = True
        self.finals.add(world)

    def _check_ways_out(self, back: Mapping[World, list[World]]) -> None:
        """From every world there is a way to the end without a crash."""
        out, todo = set(self.finals), list(self.finals)
        while todo:
            for world in back.get(todo.pop(), ()):
                if world not in out:
                    out.add(world)
                    todo.append(world)
        for world in self.seen:
            if world not in out:
                raise self._broken(world, "", "there is no way to the end")


def _with(world: World, driver: Driver) -> World:
    drivers = (driver, world.drivers[1]) if driver.name == 0 else (world.drivers[0], driver)
    return world._replace(drivers=drivers)


def _oust(world: World, lease: tuple[str, int] | None) -> World:
    """The lease of a driver that may live was rightly taken over: it no longer counts as at work."""
    for driver in world.drivers:
        if lease is not None and driver.owner == lease[0]:
            ready, runs, strays = (
                tuple(run._replace(ousted=True) for run in each) for each in (driver.ready, driver.runs, driver.strays)
            )
            world = _with(world, driver._replace(ready=ready, runs=runs, strays=strays))
    return world


def _less(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    return tuple(each for each in runs if each != run)


def _is_in(owed: str, stored: frozenset[str]) -> bool:
    entry_id = owed.partition(":")[2]
    return entry_id in stored or f"late/{entry_id}" in stored
