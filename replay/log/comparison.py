"""A replay against the newest checkpoints of the running system, at the same position of the input.

The running system prunes its checkpoints meanwhile, so the needed ones are read before the replay begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kinstream.replay.log.pipeline import AgentReplay, state_digest
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.machine import Machine
from kinstream.streams.agents.space import learned_state, restore_space
from kinstream.streams.checkpoints.manifest import LastRecord, Manifest
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import DataFile, Restored, versions
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.identity import Position, read_identity
from kinstream.streams.records.message import Message


class Agreement(StrEnum):
    """How a space of a replay compares with its checkpoint."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ELSEWHERE = "at another offset"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class SpaceComparison:
    """One verdict. `space` is None for the state of a partition as a whole."""

    agent: str
    partition: int
    space: str | None
    verdict: Agreement
    offset: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """The newest whole checkpoint of one partition; without one, the agent is at its birth offset.

    Parameters
    ----------
    birth_offset : where learning of its state began.
    load : reads a data file that the manifest names.
    """

    partition: int
    birth_offset: int
    restored: Restored | None
    load: Callable[[DataFile], State]

    @property
    def offset(self) -> int:
        """Input offset that the agent reads next."""
        return self.birth_offset if self.restored is None else self.restored.manifest.offset


def newest_checkpoints(generation: Generation, partitions: Iterable[int]) -> dict[int, Goal]:
    """The newest checkpoint of each partition, with every file of it verified.

    Raises
    ------
    CheckpointError : there are checkpoints and none of them is complete.
    """
    goals = {}
    for p in partitions:
        store = generation.store(p)
        goals[p] = Goal(p, generation.birth_offset(p), store.restore(), store.load_space)
    return goals


def foreign_versions(goals: Iterable[Goal]) -> list[str]:
    """Versions and CPU targets of the checkpoints that differ from those of this process.

    Kinstream's own version is left out: the versions of algorithms and codec are part of the birth record.
    """
    here = versions()
    found = {
        f"{name} {theirs} there and {here.get(name, 'missing')} here"
        for goal in goals
        if goal.restored is not None
        for name, theirs in goal.restored.manifest.versions.items()
        if name != "kinstream" and theirs != here.get(name)
    }
    return sorted(found)


def compare_with_checkpoints(agent: AgentReplay, goals: Mapping[int, Goal]) -> list[SpaceComparison]:
    """Compare the current machines with the checkpoints of the same agent: all spaces, bit for bit.

    Parameters
    ----------
    agent : a replay of the agent's own input topic from its birth offset.
    """
    found: list[SpaceComparison] = []
    for goal in goals.values():
        machine = agent.machine(goal.partition)
        if goal.restored is None or machine.next_offset != goal.offset:
            found += _elsewhere(agent.name, goal, f"the replay is at {machine.next_offset}")
        else:
            found += _compared(agent.name, machine, goal, goal.restored)
    return found


class OffsetWatch:
    """Compares each machine with its checkpoint when the replay passes the checkpoint's offset.

    Parameters
    ----------
    starts : where the replay begins; a partition that does not begin at its birth offset cannot be compared.
    until : stop there.
    space : compare this space alone.
    """

    def __init__(
        self,
        agent: str,
        goals: Mapping[int, Goal],
        starts: Mapping[int, int],
        *,
        until: bool = False,
        space: str | None = None,
    ) -> None:
        self._agent = agent
        self._goals = goals
        self._starts = starts
        self._until = until
        self._space = space
        self._found: dict[int, list[SpaceComparison]] = {}

    def before(self, message: Message, machine: Machine) -> bool:
        goal = self._goals.get(message.partition)
        if goal is None or message.offset < goal.offset:
            return True
        self._reach(goal, machine)
        return not self._until

    def after(self, message: Message, machine: Machine) -> None:
        """Do nothing: the next message or the end of the range passes a checkpoint's offset."""

    def finish(self, agent: AgentReplay, ends: Mapping[int, int]) -> list[SpaceComparison]:
        """All verdicts, with the end of each partition's replayed range."""
        for p, goal in self._goals.items():
            if goal.offset <= ends.get(p, -1):
                self._reach(goal, agent.machine(p))
            elif p not in self._found and p in ends:
                self._found[p] = _elsewhere(self._agent, goal, f"the replay ended at {ends[p]}")
        found = [c for p in sorted(self._found) for c in self._found[p]]
        if self._space is not None:
            found = [c for c in found if c.space == self._space or c.verdict is Agreement.DAMAGED]
        return found

    def _reach(self, goal: Goal, machine: Machine) -> None:
        if goal.partition in self._found:
            return
        start = self._starts.get(goal.partition, 0)
        if start != goal.birth_offset:
            detail = f"the replay began at {start} and the agent at {goal.birth_offset}"
            self._found[goal.partition] = _elsewhere(self._agent, goal, detail)
        elif goal.restored is None:
            self._found[goal.partition] = _elsewhere(self._agent, goal, "")
        else:
            self._found[goal.partition] = _compared(self._agent, machine, goal, goal.restored)


@dataclass(frozen=True, slots=True)
class _ModelGoal:
    goal: Goal
    marks: dict[str, Position]
    epoch: int
    step: int
    digest: str


class ChainWatch:
    """Compares each model of a learner that is fed by replayed builders with its checkpoint.

    Offsets of the virtual log are not those of `constraints`. Both have the last output of the builder that the model
    has learned from, so a model is compared when its marks equal those of the checkpoint.

    Parameters
    ----------
    until : the end of the comparison.
    wanted : which spaces to compare.
    """

    def __init__(
        self,
        agent: str,
        goals: Iterable[Goal],
        *,
        until: bool = False,
        wanted: Callable[[str], bool] = lambda space: True,
    ) -> None:
        self._agent = agent
        self._goals = list(goals)
        self._until = until
        self._models: dict[str, _ModelGoal] = {}
        self._found: dict[str, SpaceComparison] = {}
        for goal in self._goals:
            files = {} if goal.restored is None else goal.restored.manifest.spaces
            for name, file in files.items():
                if wanted(name):
                    self._models[name] = _model_goal(goal, goal.load(file))

    def needed(self, emitter: str, generation: int) -> dict[str, int]:
        """By space, the offset after the last event behind the checkpoints, for a builder of that generation."""
        needed = {}
        for name, model in self._models.items():
            position = model.marks.get(emitter)
            if position is not None and position.generation == generation:
                needed[name] = position.offset + 1
        return needed

    def exceptions(self) -> list[str]:
        """Operations of a learner on its topic that the events cannot show."""
        words = {
            "count.adopted": "joined chains in their middle",
            "count.redriven": "received redriven constraints",
            "dead.skipped": "skipped constraints on an operator's decision",
        }
        return [
            f"{self._agent} {text} on partition {goal.partition}"
            for goal in self._goals
            for name, text in words.items()
            if goal.restored is not None and int(goal.restored.partition.get(name, 0))
        ]

    def before(self, message: Message, machine: Machine) -> bool:
        if not self._until:
            return True
        model = self._models.get((message.key or b"").decode())
        identity = read_identity(message.headers)
        mark = None if model is None else model.marks.get(identity.emitter)
        return mark is not None and identity.position <= mark

    def after(self, message: Message, machine: Machine) -> None:
        name = (message.key or b"").decode()
        model = self._models.get(name)
        space = machine.find(name)
        if model is None or space is None or name in self._found:
            return
        if {emitter: mark.position for emitter, mark in space.marks.items()} != model.marks:
            return
        here = (space.epoch, space.step, state_digest(space.learned()))
        equal = here == (model.epoch, model.step, model.digest)
        detail = ""
        if not equal:
            detail = f"epoch {here[0]}, step {here[1]} here; epoch {model.epoch}, step {model.step} there"
        self._found[name] = SpaceComparison(
            self._agent,
            model.goal.partition,
            name,
            Agreement.EQUAL if equal else Agreement.DIFFERS,
            model.goal.offset,
            detail,
        )

    def finish(self) -> list[SpaceComparison]:
        """All verdicts, by partition and space."""
        found = [c for goal in self._goals for c in _damaged(self._agent, goal)]
        for name, model in sorted(self._models.items(), key=lambda pair: (pair[1].goal.partition, pair[0])):
            there = ", ".join(
                f"{emitter} {position.text()}" for emitter, position in sorted(model.marks.items())
            )
            missed = SpaceComparison(
                self._agent,
                model.goal.partition,
                name,
                Agreement.ELSEWHERE,
                model.goal.offset,
                f"the replay never reached the position of the checkpoint, after {there or 'nothing'}",
            )
            found.append(self._found.get(name, missed))
        return found


def _model_goal(goal: Goal, state: State) -> _ModelGoal:
    space = restore_space(state)
    marks = {emitter: mark.position for emitter, mark in space.marks.items()}
    return _ModelGoal(goal, marks, space.epoch, space.step, state_digest(learned_state(state)))


def _damaged(agent: str, goal: Goal) -> Iterator[SpaceComparison]:
    for note in () if goal.restored is None else goal.restored.notes:
        yield SpaceComparison(agent, goal.partition, None, Agreement.DAMAGED, goal.offset, note)


def _elsewhere(agent: str, goal: Goal, detail: str) -> list[SpaceComparison]:
    if goal.restored is None:
        return [
            SpaceComparison(
                agent, goal.partition, None, Agreement.ELSEWHERE, goal.offset, "no checkpoint yet"
            )
        ]
    names = [None, *sorted(goal.restored.manifest.spaces)]
    verdicts = [
        SpaceComparison(agent, goal.partition, name, Agreement.ELSEWHERE, goal.offset, detail)
        for name in names
    ]
    return [*_damaged(agent, goal), *verdicts]


def _compared(agent: str, machine: Machine, goal: Goal, restored: Restored) -> list[SpaceComparison]:
    manifest = restored.manifest
    found = list(_damaged(agent, goal))

    def add(space: str | None, detail: str | None) -> None:
        verdict = Agreement.EQUAL if detail is None else Agreement.DIFFERS
        found.append(SpaceComparison(agent, goal.partition, space, verdict, goal.offset, detail or ""))

    own = None if machine.last_record is None else LastRecord(*machine.last_record)
    if own != manifest.last_record:
        add(None, f"the last record was {manifest.last_record} there and {own} here: another log")
    else:
        add(None, _difference(machine.partition_state(), manifest.partition_state, goal.load))
    for name in sorted({*machine.names(), *manifest.spaces}):
        space = machine.find(name)
        file = manifest.spaces.get(name)
        if space is None or file is None:
            add(name, "only in the checkpoint" if space is None else "only in the replay")
        else:
            add(name, _difference(space.state(), file, goal.load) or _segments(machine, name, manifest))
    return found


def _segments(machine: Machine, name: str, manifest: Manifest) -> str | None:
    """The segments of a space that differ; None if all are equal."""
    here = {
        segment: state_digest(machine.segment(name, segment))
        for segment in machine.segments([name]).get(name, ())
    }
    there = {segment: file.sha256 for segment, file in manifest.segments.get(name, {}).items()}
    differing = sorted(s for s in here.keys() | there.keys() if here.get(s) != there.get(s))
    return f"differs in segments {', '.join(differing[:8])}" if differing else None


def _difference(here: State, file: DataFile, load: Callable[[DataFile], State]) -> str | None:
    """The entries that differ; None if the bytes are equal."""
    if state_digest(here) == file.sha256:
        return None
    try:
        there = load(file)
    except CheckpointError as error:
        return f"other bytes than the checkpoint had; its file cannot be read now: {error}"
    names = sorted(name for name in here.keys() | there.keys() if _entry(here, name) != _entry(there, name))
    return f"differs in {', '.join(names[:8])}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _entry(state: State, name: str) -> str | None:
    return state_digest({name: state[name]}) if name in state else None
