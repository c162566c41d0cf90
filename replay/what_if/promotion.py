"""A saved what-if as the beginning of a learner's next generation: everything is checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kinstream.learners.agent import learner_spec
from kinstream.replay.what_if.saved_state import SavedState, StateFolder
from kinstream.replay.what_if.settings import as_toml
from kinstream.streams.agents.generations.birth import (
    Birth,
    BirthFacts,
    Promotion,
    cluster_differences,
    read_birth,
    settings_differences,
)
from kinstream.streams.agents.generations.ending import emitted_past, what_to_do
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.generations.open_generation import (
    birth_at,
    generations_that_ran,
    refuse_members,
    view_of,
)
from kinstream.streams.agents.generations.recreated import refuse_old_outputs
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.manifest import Manifest
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import versions
from kinstream.streams.errors import CheckpointError, GenerationMismatch, SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.operations import promotion
from kinstream.streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of the new generation on one partition.

    Parameters
    ----------
    offset : input offset that it reads next.
    spaces : in its state.
    ended : the offset of the generation before, or None if there is none.
    clean : whether it ended there cleanly, with nothing emitted past its checkpoint.
    """

    partition: int
    offset: int
    spaces: int
    ended: int | None
    clean: bool

    @property
    def again(self) -> int:
        """Number of records for which both the generation before and the new one write outcomes."""
        return 0 if self.ended is None else max(0, self.ended - self.offset)

    @property
    def never(self) -> int:
        """Number of records in the state for which no generation writes outcomes."""
        return 0 if self.ended is None else max(0, self.offset - self.ended)


@dataclass(frozen=True, slots=True)
class PlannedPromotion:
    """A promotion that has passed all checks.

    Parameters
    ----------
    number : of the new generation.
    before : of the one that it follows, or None.
    done : the newest generation has begun with this very state: there is nothing to write.
    resumed : an earlier promotion of the same state was killed, and is completed.
    foreign : versions of the state's computation that differ from this process's.
    """

    learner: str
    number: int
    before: int | None
    beginnings: tuple[Beginning, ...]
    taken_over: tuple[str, ...]
    done: bool
    resumed: bool
    foreign: tuple[str, ...]
    spec: AgentSpec = field(repr=False)
    settings: Settings = field(repr=False)
    birth: Birth = field(repr=False)
    starts: tuple[promotion.Start, ...] = field(repr=False)

    def carry_out(self) -> Generation:
        """Write the generation. If it is killed, the generation has not begun, and planning and writing again
        completes it.

        Raises
        ------
        GenerationMismatch : another process has taken the number meanwhile.
        CheckpointError : the store refuses.
        """
        if self.done:
            return Generation(self.spec, self.settings, self.birth)
        return promotion.begin(self.settings, self.spec, self.birth, self.starts)


def plan(
    folder: StateFolder,
    learner: str | None,
    settings: Settings,
    cluster: Cluster,
    *,
    allow_missing_spaces: bool = False,
) -> PlannedPromotion:
    """Check everything that a promotion needs. Nothing is written.

    Parameters
    ----------
    learner : the learner that gets the generation; None for the replayed one.
    settings : of the running system, with the section that was replayed.
    allow_missing_spaces : start spaces that the state lacks with their declaration and nothing learned.

    Raises
    ------
    SettingsError : no such learner, or it is another than the replay's.
    GenerationMismatch : settings, cluster, log, partitions or spaces are not those of the state, or workers run.
    CheckpointError : the saved state is incomplete.
    """
    saved = folder.read()
    name = learner or saved.learner
    spec = learner_spec(settings, name)
    if name != saved.learner:
        raise SettingsError(
            f"{folder.url} was replayed as learner {saved.learner!r}, and operators' redrives and skips name "
            f"learners. Replay it as {name!r}: kinstream replay --learner {name} --section {saved.learner} --save ..."
        )
    view = view_of(spec, settings, cluster)
    _check_same(folder, saved, view)
    manifests = _checkpoints(folder, saved, view.input_partitions)
    before = newest_generation(settings, spec.application)
    if before is None and (lost := generations_that_ran(spec, settings, cluster)):
        raise GenerationMismatch(
            f"{spec.application} has no birth record under {settings.checkpoints.shown}, and its group "
            f"{spec.group(lost)} has read this topic before: this is not the store of its workers, or it is lost. "
            "Bring it back"
        )
    done = None if before is None else read_birth(settings.checkpoints.url, spec.application, before)
    if before is not None and done is not None and done.promotion and done.promotion.state == saved.digest:
        return PlannedPromotion(
            learner=name,
            number=before,
            before=before - 1 or None,
            beginnings=(),
            taken_over=done.promotion.taken_over,
            done=True,
            resumed=False,
            foreign=(),
            spec=spec,
            settings=settings,
            birth=done,
            starts=(),
        )
    number = 1 if before is None else before + 1
    if spec.pinned is not None and spec.pinned != number:
        raise GenerationMismatch(
            f"[learners.{name}] generation = {spec.pinned} pins the learner, so no worker would open "
            f"generation {number}: leave it out, or set it to {number}"
        )
    old = None if before is None else _generation(spec, settings, before, view)
    for running in (before, number):
        if running is not None:
            refuse_members(spec, running, cluster)
    if done is not None:
        refuse_old_outputs(spec, settings, cluster, done, view)
    begun = promotion.unfinished(settings, spec, number, saved.digest)
    taken = None if begun is None or begun.promotion is None else begun.promotion.taken_over
    missing = _missing(old, saved, manifests, taken, allow_missing_spaces)
    made = Promotion(saved.digest, dict(saved.learned_from), saved.inherited, tuple(sorted(missing)))
    offsets = dict(saved.birth.start_offsets)
    birth = birth_at(spec, view, number, offsets, saved.birth.inherits, made)
    _check_log(Generation(spec, settings, birth), cluster, manifests)
    return PlannedPromotion(
        learner=name,
        number=number,
        before=before,
        beginnings=tuple(_beginnings(old, cluster, manifests, missing)),
        taken_over=tuple(sorted(missing)),
        done=False,
        resumed=begun is not None,
        foreign=tuple(_foreign(saved)),
        spec=spec,
        settings=settings,
        birth=birth,
        starts=tuple(_start(folder, saved, spec, old, manifest, missing) for manifest in manifests.values()),
    )


# ---- checks of the system -------------------------------------------------------------------------------------------


def _check_same(folder: StateFolder, saved: SavedState, view: BirthFacts) -> None:
    cluster = list(cluster_differences(saved.birth, view))
    settings = list(settings_differences(saved.birth, view))
    if not cluster and not settings:
        return
    listed = "".join(f"\n  - {difference}" for difference in cluster + settings)
    advice = ""
    if cluster:
        advice += "\n  If this is the wrong cluster, correct KAFKA_BOOTSTRAP_SERVERS; else replay the log of this one."
    if settings:
        section = as_toml(saved.learner, saved.section)
        advice += f"\n  To promote it, put the replayed settings into the settings file:\n\n{section}"
    raise GenerationMismatch(
        f"{folder.url} was replayed from another log or with other settings:{listed}{advice}"
    )


def _checkpoints(folder: StateFolder, saved: SavedState, partitions: int) -> dict[int, Manifest]:
    missing = [p for p in range(partitions) if p not in saved.manifests]
    if missing:
        raise GenerationMismatch(
            f"{folder.url} lacks partition{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of "
            f"{saved.birth.input_topic}: a generation begins on all of them. Replay without --partition"
        )
    return {p: folder.checkpoint(saved, p) for p in range(partitions)}


def _generation(spec: AgentSpec, settings: Settings, number: int, view: BirthFacts) -> Generation | None:
    """The generation before, which may have other settings; None if it began on another log."""
    birth = read_birth(settings.checkpoints.url, spec.application, number)
    if birth is None:
        raise GenerationMismatch(
            f"{spec.application} has no birth record of generation {number} under {settings.checkpoints.shown}: bring "
            "the file back from a copy"
        )
    began = (birth.cluster_id, birth.input_topic, birth.input_topic_id, birth.input_partitions)
    now = (view.cluster_id, view.input_topic, view.input_topic_id, view.input_partitions)
    return Generation(spec, settings, birth) if began == now else None


def _check_log(begun: Generation, cluster: Cluster, manifests: Mapping[int, Manifest]) -> None:
    topic = begun.birth.input_topic
    for p, manifest in manifests.items():
        start, end = cluster.bounds(topic, p)
        where = f"{topic} partition {p}"
        if start > manifest.offset:
            raise GenerationMismatch(
                f"{where}: the state needs offset {manifest.offset}, and the log now starts at {start}: "
                f"{start - manifest.offset} records are gone, and it has not learned from them. Replay again"
            )
        if end < manifest.offset:
            raise GenerationMismatch(
                f"{where}: the state has read up to offset {manifest.offset} and the log ends at {end}: this is "
                "another log. Restore the topic, or replay this one"
            )
        begun.verify_last_record(manifest, cluster, start)


def _foreign(saved: SavedState) -> Iterator[str]:
    here = versions()
    for name, there in sorted(saved.versions.items()):
        if there != here.get(name):
            yield f"{name} {there} then, {here.get(name, 'missing')} now"


# ---- spaces that the state lacks -------------------------------------------------------------------------------------


def _missing(
    old: Generation | None,
    saved: SavedState,
    manifests: Mapping[int, Manifest],
    taken: tuple[str, ...] | None,
    allowed: bool,
) -> dict[str, int]:
    """Spaces of the generation before that the state lacks, with their partitions.

    Parameters
    ----------
    taken : spaces that an earlier promotion of the same state has taken over.
    """
    if old is None:
        return {}
    found: dict[str, int] = {}
    for p, manifest in manifests.items():
        restored = old.store(p).restore()
        if restored is not None:
            found |= {name: p for name in restored.manifest.spaces if name not in manifest.spaces}
    if taken is not None:
        return {name: p for name, p in found.items() if name in taken}
    if found and not allowed:
        names = sorted(found)
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        where = ", ".join(
            f"{saved.learned_from[p]} to {manifests[p].offset} of partition {p}"
            for p in sorted(set(found.values()))
        )
        raise GenerationMismatch(
            f"the state lacks {len(names)} space{'s' if len(names) > 1 else ''} that {old.spec.application} "
            f"generation {old.number} has: {listed}. The replay met none of their constraints (offsets {where}). "
            "Replay from further back with --start, or up to the end; or start them with their declaration and "
            "nothing learned: --allow-missing-spaces"
        )
    return found


def _start(
    folder: StateFolder,
    saved: SavedState,
    spec: AgentSpec,
    old: Generation | None,
    manifest: Manifest,
    missing: Mapping[str, int],
) -> promotion.Start:
    p, offset = manifest.partition, manifest.offset
    decided = saved.decisions[p]
    skipped, gaps = set(decided.skipped), set(decided.accepted_gaps)
    if old is not None:
        # Decisions about records that the state has not reached stay valid.
        skipped |= {at for at in old.parking.skipped(old.birth.input_topic, p) if at >= offset}
        gaps |= {at for at in old.accepted_gaps(p) if at >= offset}
    added, labels = _taken_over(spec, old, p, offset, [name for name, at in missing.items() if at == p])
    return promotion.Start(
        manifest,
        lambda file: folder.load(saved, p, file),
        added,
        labels,
        frozenset(skipped),
        frozenset(gaps),
    )


def _taken_over(
    spec: AgentSpec, old: Generation | None, partition: int, offset: int, names: list[str]
) -> tuple[dict[str, State], dict[str, str]]:
    """Spaces of the generation before as a new one inherits them, and the labels of their files."""
    if old is None or not names:
        return {}, {}
    store = old.store(partition)
    restored = store.restore()
    if restored is None:
        raise CheckpointError(f"{store.url}: the checkpoints were removed meanwhile")
    machine = spec.make_machine(old.place(partition), lambda name: {})
    machine.inherit(None, {name: store.load_space(restored.manifest.spaces[name]) for name in names})
    for name in names:
        space = machine.find(name)
        if space is not None:
            # Records at this offset or later are not read yet.
            space.marks = {emitter: mark for emitter, mark in space.marks.items() if mark.at < offset}
    return machine.space_states(), machine.labels(names)


def _beginnings(
    old: Generation | None, cluster: Cluster, manifests: Mapping[int, Manifest], missing: Mapping[str, int]
) -> Iterator[Beginning]:
    """The start of the new generation on each partition, and the end of the one before.

    Raises
    ------
    GenerationMismatch : that one did not end cleanly, and has outcomes of records that the new one learns again.
    """
    finals = {} if old is None else {p: old.final_offset(p) for p in manifests}
    covered = {} if old is None else {p: old.covered_offset(p) for p in manifests}
    reached = covered if old is None else {**covered, **emitted_past(old, cluster, covered)}
    listed = []
    for p, manifest in manifests.items():
        spaces = len(manifest.spaces) + sum(at == p for at in missing.values())
        if old is None:
            yield Beginning(p, manifest.offset, spaces, None, True)
            continue
        begun = Beginning(p, manifest.offset, spaces, reached[p], finals[p] == reached[p])
        if begun.again and not begun.clean:
            listed.append(
                f"{old.spec.application} generation {old.number} did not end cleanly on partition {p}: it may have "
                f"emitted outcomes of records up to offset {begun.ended}, its last checkpoint is at offset "
                f"{covered[p]}, and the state continues at {begun.offset}: {begun.again:,} records would count twice"
            )
        yield begun
    if listed and old is not None:
        raise GenerationMismatch(
            "\n".join(listed)
            + f"\n{what_to_do(old)}; then replay with --until-checkpoint --save and promote that. Or "
            "replay to the end of the log and promote that"
        )
