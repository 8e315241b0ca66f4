"""Two drivers of one stored loop, for the explorer: each step that either of them can take next.

They are models of the handles: they follow the same protocol step by step (take the lease, read on, store
before it is done, do it, merge what came of it), and are written anew, for the real ones make several calls to a store
in one go, and everything is to be tried between any two of them. What they follow is real: the machine says what is
outstanding and what an event leads to, and a store says what it takes. Driver 0 may be slow: then driver 1 may judge
its lease to be over although it lives. Any of them may crash between any two steps, and is started again.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from tests.properties.explorer_scene import Broken, Protocol, Scene
from tests.properties.explorer_world import (
    Asked,
    Driver,
    Journals,
    Run,
    Shop,
    Staged,
    Told,
    World,
    is_in,
    less,
    oust,
    with_driver,
)
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
    Requested,
    Requesting,
    Result,
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


@define
class Drivers:
    """The steps that the drivers of a scene can take."""

    scene: Scene
    shop: Shop
    protocol: Protocol = field(factory=Protocol)
    asked: Asked | None = None  # what a store was asked in the step that was made last

    @property
    def journals(self) -> Journals:
        return self.shop.journals

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        for driver in world.drivers:
            name = f"driver {driver.name}"
            self.asked = None
            for label, after in self._steps(world, driver):
                yield f"{name} {label}", after
            self.asked = None
            if world.crashes and (driver.at not in ("open", "done") or driver.runs or driver.strays or driver.late):
                reborn = Driver(driver.name, driver.life + 1)
                left = [end for end in world.owed if not end.startswith(f"{driver.name}:")]
                yield (
                    f"{name} crashes",
                    with_driver(world, reborn)._replace(crashes=world.crashes - 1, owed=frozenset(left)),
                )

    def _steps(self, world: World, driver: Driver) -> Iterator[tuple[str, World]]:
        for run in driver.ready[:1]:  # threads are started in the order of calls
            yield f"begins to run {run.call_id}", self._begin(world, driver, run)
        for run in (*driver.runs, *driver.strays):
            yield f"has run {run.call_id}", self._finish(world, driver, run)
        if driver.late:
            yield f"merges {driver.late[0].entry_id}", self._merge(world, driver)
            self.asked = None
        match driver.at:
            case "open":
                _, world = self._ask(world, Asked("load"))
                yield "loads", with_driver(world, self._look(driver._replace(node=world.node, asleep=True)))
            case "take" | "seize":
                yield from self._take(world, driver)
            case "read" | "reread" | "redecide":
                _, world = self._ask(world, Asked("load", expected=self.journals.length(driver.node)))
                if self.journals.state(world.node) is None:
                    problem = audit(self.journals.whole(world.node)).problems[0]
                    raise Broken(f"the journal is spoiled: {problem}", f"driver {driver.name} reads on")
                yield "reads on", with_driver(world, self._read(driver, world.node))
            case "drive" | "decide" if driver.staged:
                yield from self._store(world, driver)
            case "ask":
                yield "is answered", with_driver(world, self._answered(driver))
            case "release":
                _, world = self._ask(world, Asked("release", driver.owner, holds=driver.token))
                yield "gives the lease back", with_driver(world, self._look(driver._replace(token=None)))

    def _ask(self, world: World, asked: Asked) -> tuple[Told, World]:
        self.asked = asked
        return self.shop.ask(world, asked)

    # --- the lease ---

    def _take(self, world: World, driver: Driver) -> Iterator[tuple[str, World]]:
        told, after = self._ask(world, Asked("take", driver.owner, instead=driver.instead))
        if told.said == "ok" and told.lease is not None:
            if driver.instead is not None:
                after = oust(after, world.lease)
            yield "takes the lease", with_driver(after, driver._replace(at="read", token=told.lease[1], instead=None))
            return
        waiting = driver._replace(at="take" if self.scene.patient else "done", instead=None)
        if told.lease is None:
            yield "finds the lease taken", with_driver(after, waiting)
            return
        name, life = (int(part) for part in told.lease[0].split("."))
        seizing = with_driver(after, driver._replace(at="seize", instead=told.lease[1]))
        if life < world.drivers[name].life:
            yield "finds that its owner is gone", seizing
            return
        yield "finds the lease taken", with_driver(after, waiting)
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
            yield label, self._owe_no_more(with_driver(world, self._plan(self._performs(stored, driver.staged))))
        elif told.said == "ok":
            yield f"{label}, after something else", self._owe_no_more(with_driver(world, rereads))
        elif told.said == "stale":
            yield f"{label}: refused, the journal went on", with_driver(world, rereads)
        else:
            yield f"{label}: refused, the lease is lost", with_driver(world, self._lose(driver))

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
        at = "open" if self.scene.patient else "done"
        return driver._replace(at=at, token=None, staged=(), late=late, ready=(), runs=(), strays=strays)

    def _read(self, driver: Driver, node: int) -> Driver:
        """Fold in what others stored, and look again at what is staged."""
        heard = self.journals.news(node, driver.node)
        foreign = [self.journals.events[entry_id] for entry_id in heard if not entry_id.startswith(f"{driver.name}/")]
        asleep = driver.asleep or any(isinstance(event, Woken | Requested) for event in foreign)
        moved = any(not isinstance(event, Decided | Ended) for event in foreign)
        known = tuple(item for item in driver.staged if item.entry_id in heard)
        if driver.at == "reread" and self.protocol.minds and any(isinstance(event, Woken) for event in foreign):
            return self._lose(driver._replace(staged=tuple(item for item in driver.staged if item not in known)))
        if driver.at == "reread" and not self.protocol.minds:
            known = tuple(item for item in driver.staged if item.kind == "intent")
        state, kept = self.journals.state(node), []
        assert state is not None
        place = node
        for item in driver.staged:
            ends = isinstance(self.journals.events[item.entry_id], Ended)
            if item.entry_id in heard or (item.kind == "firm" and moved) or (ends and not self.protocol.merges):
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
        return self._owe_no_more(with_driver(world, driver._replace(late=driver.late[1:])))

    # --- running ---

    def _begin(self, world: World, driver: Driver, run: Run) -> World:
        label = f"driver {driver.name} begins to run {run.call_id}"
        what = f"{run.iteration}/{run.call_id}"
        state = self.journals.state(world.node)
        round_ = getattr(state, "round", None)
        call = None if round_ is None else round_.find(run.call_id)
        if call is not None and call.result is not None and call.result.outcome is Outcome.DENIED:
            raise Broken("a denied call runs", label)
        if state is not None and not state.ledger.setup.repeatable(run.call_id):
            told = (self.journals.events[entry.id] for entry in self.journals.whole(world.node))
            decided = (ruling for event in told if isinstance(event, Decided) for ruling in event.rulings)
            reruns = sum(call_id == run.call_id and ruling.kind == "rerun" for call_id, ruling in decided)
            if world.ran.count(what) > reruns:
                raise Broken(f"the call {run.call_id} runs twice", label)
        for other in (each for one in world.drivers for each in (*one.runs, *one.strays)):
            if (other.iteration, other.call_id) == run[:2] and not (run.ousted or other.ousted):
                raise Broken(f"the call {run.call_id} runs twice at once", label)
        begun = driver._replace(ready=less(driver.ready, run), runs=(*driver.runs, run))
        return with_driver(world, begun)._replace(ran=tuple(sorted((*world.ran, what))))

    def _finish(self, world: World, driver: Driver, run: Run) -> World:
        """A tool is back: from here on its result may be stored, unless the driver crashes first."""
        ended = Ended(run.call_id, Result('"done"'), iteration=run.iteration, attempt=run.attempt)
        entry_id = self.journals.say(run.entry_id, ended)
        owed = world.owed | {f"{driver.name}:{entry_id}"}
        if run in driver.strays:
            late = (*driver.late, Staged(entry_id, "late")) if self.protocol.merges else ()
            after = driver._replace(strays=less(driver.strays, run), late=late)
            return self._owes(world, after, owed)
        driver = driver._replace(runs=less(driver.runs, run))
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
        return self._owe_no_more(with_driver(world, driver)._replace(owed=owed))

    def _owe_no_more(self, world: World) -> World:
        if not world.owed:
            return world
        stored = self.journals.places[world.node].ids
        return world._replace(owed=frozenset(end for end in world.owed if not is_in(end, stored)))
