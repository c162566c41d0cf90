"""The learner agent: constraint blocks in, outcomes out. It decodes, calls the learner, encodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.adapter.prior import files_digest
from kinstream.learners.announcements import ModelAnnouncer, withholds
from kinstream.learners.base.learner import Learner, Outcomes
from kinstream.learners.base.scaler import PUBLISHED
from kinstream.learners.held_out.compiling import compile_held_out
from kinstream.learners.held_out.judge import VERSION, Judge
from kinstream.learners.memory import space_bytes
from kinstream.learners.registry import create, create_in
from kinstream.learners.steps import KINDS, as_stepped
from kinstream.learners.updates import Before, UpdateOrigin
from kinstream.learners.warm_up import warm_up
from kinstream.processors import registry as builders
from kinstream.processors.base.builder import FromLists
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.agents.space import Space, Status
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.compute.memory import check_space, most_of_a_space
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import CODEC_VERSION, decode_constraints, encode
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.identity import Identity, read_identity
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import (
    LIST_RULE,
    Action,
    ConstraintBlock,
    Control,
    Counts,
    Declaration,
    Kind,
    Outcome,
)
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant

_LOG: Final = logging.getLogger(__name__)
#: The kind that learns nothing.
UNLEARNED: Final = "euclidean"
_NO_RULES: Final[NDArray[np.uint8]] = np.empty(0, np.uint8)


def learner_spec(settings: Settings, name: str) -> AgentSpec:
    """The agent of `[learners.NAME]`.

    Raises
    ------
    SettingsError : there is no such learner, or its constructor refuses the settings.
    """
    section = settings.learners.get(name)
    if section is None:
        raise SettingsError(
            f"no [learners.{name}] in the settings; there are: {', '.join(settings.learners) or 'none'}"
            f"{meant([name], settings.learners)}"
        )
    arguments = section.arguments()
    learner = create(section.kind, **arguments)
    _check_lists(settings, name, learner)
    _check_kinds(settings, name, learner)
    if section.publish_updates and as_stepped(learner) is None:
        raise SettingsError(
            f"[learners.{name}] publish_updates: the changes of {section.kind} have no form with few directions; it "
            f"can be set for {', '.join(KINDS)}. Readers of {section.kind} follow its announced models"
        )
    updates = settings.topic("updates") if section.publish_updates else None

    def make(declaration: Declaration | None) -> Learner:
        return create_in(None if declaration is None else declaration.scaler, section.kind, **arguments)

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        follows = frozenset(section.follows)
        return LearnerMachine(
            place,
            make,
            follows=follows,
            held_out=section.held_out,
            load_space=load_space,
            updates=updates,
            needs=partial(space_bytes, section.kind),
            most_bytes=most_of_a_space(settings.worker.max_resident_bytes),
        )

    def compile_kernels() -> None:
        warm_up(section.kind, arguments)
        compile_held_out()

    shaping: dict[str, Any] = {
        "kind": section.kind,
        "algorithm": learner.algorithm,
        # The version of an algorithm shows whether its unit is the published one.
        "arguments": {k: v for k, v in arguments.items() if (k, v) != ("unit", PUBLISHED)},
        "from": sorted(section.follows),
        "codec": CODEC_VERSION,
    }
    if section.held_out:
        # Generations older than this setting hold nothing out, and have no such entry.
        shaping["held_out"] = section.held_out
        shaping["judge"] = VERSION
    if isinstance(learner, Adapter) and learner.prior is not None:
        # The path is one of the arguments; what spaces begin with is in the files.
        shaping["prior"] = files_digest(learner.prior)
    return AgentSpec(
        application=f"learner-{name}",
        name=name,
        prefix=settings.topics.prefix,
        input_role="constraints",
        output_role="outcomes",
        shaping=shaping,
        make_machine=machine,
        pinned=section.generation,
        announce=lambda store: ModelAnnouncer(
            store, name, learner.algorithm, settings.topic("models"), withholds=withholds(settings, name)
        ),
        warm_up=compile_kernels,
        also_writes=("models", "updates") if section.publish_updates else ("models",),
    )


def _check_lists(settings: Settings, name: str, learner: Learner) -> None:
    """Refuse a learner that would take the order of ranked lists for what users want."""
    section = settings.learners[name]
    if section.unranked_lists or UNLEARNED in (section.kind, section.arguments().get("base")):
        return
    whole = getattr(learner, "lists", False)
    for followed in section.follows:
        builder = settings.builders[followed]
        made = builders.create(builder.kind, **builder.arguments())
        stated = getattr(made, "lists", None)
        if stated is None or (whole and stated is FromLists.WHOLE):
            continue
        if stated is FromLists.WHOLE:
            reason = (
                "state whole lists, and this learner would take what users passed over for what is unwanted"
            )
        else:
            reason = (
                "compare items of one list. A list is ranked by the metric that is to be improved, so they show which "
                "item stood where"
            )
        rules = ", ".join(getattr(made, "rules", ()))
        whole_lists = (
            "" if stated is FromLists.WHOLE else f' rules = ["{LIST_RULE}"] in [builders.{followed}]'
        )
        adapter = "" if whole else f' kind = "ranking" in [learners.{name}]'
        raise SettingsError(
            f"[learners.{name}] ({section.kind}) follows [builders.{followed}], whose rules ({rules}) {reason}: what "
            f"is learned ranks worse than no learning. Set{whole_lists}{' and' if whole_lists and adapter else ''}"
            f"{adapter}; where their order was random, or for research, unranked_lists = true in [learners.{name}]"
        )


def _check_kinds(settings: Settings, name: str, learner: Learner) -> None:
    """Refuse a learner that follows a builder without any constraints that it can use."""
    section = settings.learners[name]
    usable = frozenset({learner.form, Kind.TRIPLET})
    for followed in section.follows:
        builder = settings.builders[followed]
        emits = builders.create(builder.kind, **builder.arguments()).emits
        if emits & usable:
            continue
        others = [kind for kind in builders.names() if builders.create(kind).emits & usable]
        raise SettingsError(
            f"[learners.{name}] ({section.kind}) learns from {learner.form}s, and [builders.{followed}] "
            f"({builder.kind}) emits {' and '.join(f'{kind}s' for kind in sorted(emits))} as it is set; triplets can "
            f"be taken for pairs, but pairs not for triplets. It could follow: {', '.join(others)}"
        )


def has_begun(learner: Learner) -> bool:
    """Whether a learner has the arrays of its model."""
    return getattr(learner, "dimension", None) is not None or bool(getattr(learner, "modalities", ()))


def _features(record: ConstraintBlock) -> str:
    return " + ".join(str(table.vectors.shape[1]) for table in record.tables)


LearnerFactory = Callable[[Declaration | None], Learner]


class ClippedSteps:
    """Detects a guard that shortens more than one in twenty steps, and reports it once until it shortens fewer."""

    WINDOW: Final = 1000
    MOST: Final = 0.05

    def __init__(self) -> None:
        self._steps = self._clipped = 0
        self._many = False

    def take(self, counts: Counts) -> float | None:
        """The share of shortened steps in a window, when it becomes too large; None otherwise."""
        self._steps += counts.utilised
        self._clipped += counts.clipped
        if self._steps < self.WINDOW:
            return None
        share, many = self._clipped / self._steps, self._many
        self._steps = self._clipped = 0
        self._many = share > self.MOST
        return share if self._many and not many else None


class LearnerMachine(Machine):
    """One partition of `constraints` under one learner.

    Parameters
    ----------
    make : learner of a space, from the space's declaration.
    follows : names of the builders whose blocks are learned.
    held_out : share of the events that are judged and never learned.
    updates : topic of update records; None for a learner that publishes none.
    needs : bytes of a space, from a fresh learner and the numbers of features.
    most_bytes : that a space may take; None for no limit.
    """

    def __init__(
        self,
        place: Place,
        make: LearnerFactory,
        *,
        follows: frozenset[str],
        held_out: float = 0.0,
        load_space: Callable[[str], State] | None = None,
        updates: str | None = None,
        needs: Callable[[Learner, Sequence[int]], int] | None = None,
        most_bytes: int | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self._needs = needs
        self._most_bytes = most_bytes
        self._make = make
        self._follows = follows
        self._held_out = held_out
        self._updates = updates
        self._clipped: dict[str, ClippedSteps] = {}

    def make_core(self, name: str, space: Space) -> Learner:
        return self._make(space.declaration)

    def make_judge(self, name: str) -> Judge:
        return Judge(self._held_out, name)

    def apply(self, message: Message) -> None:
        identity = read_identity(message.headers)
        if identity.emitter not in self._follows:
            self.counts["not_followed"] += 1
            return
        name = self.space_name(message)
        received = self.receive(message, name, identity)
        if received is not None:
            self._apply(message, name, received)

    def apply_again(self, message: Message, rows: Rows) -> None:
        name = self.space_name(message)
        identity = read_identity(message.headers)
        space = self.find(name)
        if space is not None and identity.position.epoch < space.epoch:
            self.counts["stale_epoch"] += 1
            return
        self._apply(message, name, identity)

    def pass_over(self, message: Message) -> bool:
        followed = read_identity(message.headers).emitter in self._follows
        return followed and self.receive(message, self.space_name(message)) is not None

    def _apply(self, message: Message, name: str, identity: Identity) -> None:
        record = decode_constraints(message.value)
        self.check_key(record, name)
        epoch = identity.position.epoch
        if record.epoch != epoch:
            raise BadRecord(
                Reason.BAD_IDENTITY, f"the headers have epoch {epoch} and the record has {record.epoch}"
            )
        if isinstance(record, Control):
            self._control(name, record, epoch)
            return
        found = self.find(name)
        current = found if found is not None and epoch == found.epoch else None
        if current is not None and current.status is Status.DELETED:
            raise BadRecord(Reason.SPACE_DELETED, f"space {name!r} was deleted in this epoch")
        declaration = None if current is None else current.declaration
        core = None if current is None else cast(Learner | None, current.core)
        if core is None:
            core = self._fresh(declaration)
        begun = has_begun(core)
        kept_state = None if begun else core.state()
        if not begun:
            self._check_memory(name, core, record)
        try:
            before, judge, report, learned, kept, renewals, outcomes = self._learned(
                name, record, current, core
            )
        except MemoryError as error:
            if kept_state is None:
                # The model may be half changed: only a checkpoint has it whole.
                raise
            if current is not None and current.core is not None:
                current.core = self._fresh(declaration)
                current.core.restore(kept_state)
            raise BadRecord(
                Reason.TOO_LARGE,
                f"space {name!r}: there is no memory for a model of {_features(record)} features",
            ) from error
        space = self.open(name)
        if current is None:
            space.begin(epoch, None)
        space.core, space.judge = core, judge
        counts, by_rule = count(learned, outcomes, kept)
        self.counts["scaler_renewals"] += getattr(core, "renewals", 0) - renewals
        self._log_clipped(name, counts)
        base_step = space.step
        space.step += counts.seen
        outcome = Outcome(
            space=name,
            learner=self.place.name,
            generation=self.place.generation,
            epoch=epoch,
            emitter=identity.emitter,
            emitter_generation=identity.position.generation,
            step=space.step,
            counts=counts,
            time_ms=record.time_ms,
            by_rule=by_rule,
            weights=dict(getattr(core, "weights", {})),
            kind=record.kind.value,
            held_out=report,
        )
        self.emit(name, space, encode(outcome))
        self.counts["applied"] += 1
        if before is not None:
            place = self.place
            at = (message.topic, message.partition, message.offset)
            steps = (base_step, space.step, record.time_ms)
            origin = UpdateOrigin(name, place.name, place.generation, epoch, *at, *steps)
            self._publish([encode(update) for update in before.updates(origin, learned, outcomes)], name)

    def _check_memory(self, name: str, core: Learner, record: ConstraintBlock) -> None:
        """Refuse the first block of a space whose model would take more than a space may, before any is taken."""
        if self._needs is not None:
            needed = self._needs(core, [table.vectors.shape[1] for table in record.tables])
            what = f"{core.algorithm} takes for {_features(record)} features"
            check_space(name, what, needed, self._most_bytes)

    def _learned(
        self, name: str, record: ConstraintBlock, current: Space | None, core: Learner
    ) -> tuple[
        Before | None,
        Judge | None,
        HeldOut | None,
        ConstraintBlock,
        NDArray[np.uint8],
        int,
        Outcomes | None,
    ]:
        """Judge the block's held-out rows, and learn the others."""
        before = None if self._updates is None else Before(core)
        judge = None if current is None else cast(Judge | None, current.judge)
        if judge is None and self._held_out:
            judge = self.make_judge(name)
        whole: bool = getattr(core, "whole_lists", False)
        learned, report, kept = record if whole else record.without_lists(), None, _NO_RULES
        if judge is not None and record.kind in core.accepts:
            held = judge.rows(record)
            if judge.watches(record, held):
                if not judge.knows(record):
                    # A block that does not fit is refused, even if all of it is held out.
                    core.learn(record.take(slice(0, 0)))
                judge, report = judge.after(core, record, held)
            if held.any():
                lists = None if learned.lists is None else learned.lists.take(~judge.lists(learned))
                learned = replace(learned.take(np.flatnonzero(~held)), lists=lists)
                kept = record.rule[held]
        renewals = getattr(core, "renewals", 0)
        outcomes = core.learn(learned) if record.kind in core.accepts else None
        return before, judge, report, learned, kept, renewals, outcomes

    def _log_clipped(self, name: str, counts: Counts) -> None:
        share = self._clipped.setdefault(name, ClippedSteps()).take(counts)
        if share is not None:
            _LOG.warning(
                "%s: the guard shortens %.0f %% of the steps in space %r: the step size does not fit the features",
                self.place.name,
                100.0 * share,
                name,
            )

    def _fresh(self, declaration: Declaration | None) -> Learner:
        try:
            return self._make(declaration)
        except SettingsError as error:
            # The settings were checked at the start: only the space's declaration can be wrong.
            raise BadRecord(Reason.BAD_SHAPE, f"the space's declaration does not fit: {error}") from error

    def _publish(self, values: Iterable[bytes], name: str) -> None:
        # Readers use only the space, so the key decides the partition, as it does for models.
        if self._updates is not None:
            self._outputs += [Output(self._updates, name.encode(), value, ()) for value in values]

    def _control(self, name: str, control: Control, epoch: int) -> None:
        space = self.open(name)
        if epoch <= space.epoch:
            return
        deleted = control.action is Action.DELETE
        space.begin(epoch, control.declaration, Status.DELETED if deleted else Status.ACTIVE)
        if deleted:
            self.emit(name, space, encode(control))


def count(
    block: ConstraintBlock, outcomes: Outcomes | None, held_out: NDArray[np.uint8] = _NO_RULES
) -> tuple[Counts, dict[str, Counts]]:
    """Sum the outcomes of a block, in total and by rule. None if the learner does not accept that kind.

    Parameters
    ----------
    held_out : numbers of the rules of the constraints that were left out of the block.
    """
    if outcomes is None:
        outcomes = Outcomes.blank(len(block), ignored=True)
    total = outcomes.counts()
    if len(block.rules) == 1:
        by_rule = {block.rules[0]: total}
    else:
        present = {int(number) for number in np.unique(block.rule)}
        by_rule = {
            rule: outcomes.counts(block.rule == n) for n, rule in enumerate(block.rules) if n in present
        }
    if len(held_out):
        total = replace(total, held_out=len(held_out))
        for n, number in enumerate(np.bincount(held_out).tolist()):
            if number:
                rule = block.rules[n]
                by_rule[rule] = replace(by_rule.get(rule, Counts()), held_out=number)
    return total, by_rule
