"""Similarity that is learned from events on Kafka.

The public names are imported when they are first used, so `import kinstream` costs next to nothing: every learner by
its class name, `TripletRule` to derive one of your own from, `MetricLearner` for scikit-learn, `ModelFollower`,
`ModelFeed` and `MapReplica` for services that use a model, and `open_source`, `LabelledLoad` and `BlockSettings` for
producers. Everything else lies in the packages `kinstream.streams`, `producers`, `processors`, `learners`, `search`,
`monitoring`, `replay`, `cli` and `testing`.

Examples
--------
>>> from kinstream import OPML
>>> OPML(gamma=0.01).algorithm
'opml/1'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kinstream.learners.adasors import AdaSORS as AdaSORS
    from kinstream.learners.euclidean import Euclidean as Euclidean
    from kinstream.learners.fusion import Fusion as Fusion
    from kinstream.learners.itml import ITML as ITML
    from kinstream.learners.itml_online import ITMLOnline as ITMLOnline
    from kinstream.learners.kernel_lego import KernelLEGO as KernelLEGO
    from kinstream.learners.lego import LEGO as LEGO
    from kinstream.learners.lmnn import LMNN as LMNN
    from kinstream.learners.lomdml import LOMDML as LOMDML
    from kinstream.learners.mahalanobis import Mahalanobis as Mahalanobis
    from kinstream.learners.mdml import MDML as MDML
    from kinstream.learners.oahu import OAHU as OAHU
    from kinstream.learners.oasis import OASIS as OASIS
    from kinstream.learners.omdl_lr import OMDLLR as OMDLLR
    from kinstream.learners.omdml import OMDML as OMDML
    from kinstream.learners.omks import OMKS as OMKS
    from kinstream.learners.opml import COPML as COPML
    from kinstream.learners.opml import OPML as OPML
    from kinstream.learners.pola import POLA as POLA
    from kinstream.learners.portfolio import Portfolio as Portfolio
    from kinstream.learners.rca import RCA as RCA
    from kinstream.learners.rdml import RDML as RDML
    from kinstream.learners.sklearn import MetricLearner as MetricLearner
    from kinstream.learners.softmax import Softmax as Softmax
    from kinstream.learners.soml_da import SOMLDA as SOMLDA
    from kinstream.learners.soml_tg import SOMLTG as SOMLTG
    from kinstream.learners.sors import SORS as SORS
    from kinstream.learners.triplet_rule import TripletRule as TripletRule
    from kinstream.producers.load import BlockSettings as BlockSettings
    from kinstream.producers.load import LabelledLoad as LabelledLoad
    from kinstream.producers.sources import open_source as open_source
    from kinstream.search.feed import ModelFeed as ModelFeed
    from kinstream.search.follower import ModelFollower as ModelFollower
    from kinstream.search.updates import MapReplica as MapReplica

__version__: str

#: Public name -> the module that defines it.
_MODULES: Final = {
    "AdaSORS": "learners.adasors",
    "BlockSettings": "producers.load",
    "COPML": "learners.opml",
    "Euclidean": "learners.euclidean",
    "Fusion": "learners.fusion",
    "ITML": "learners.itml",
    "ITMLOnline": "learners.itml_online",
    "KernelLEGO": "learners.kernel_lego",
    "LEGO": "learners.lego",
    "LMNN": "learners.lmnn",
    "LabelledLoad": "producers.load",
    "LOMDML": "learners.lomdml",
    "Mahalanobis": "learners.mahalanobis",
    "MapReplica": "search.updates",
    "MDML": "learners.mdml",
    "MetricLearner": "learners.sklearn",
    "ModelFeed": "search.feed",
    "ModelFollower": "search.follower",
    "OAHU": "learners.oahu",
    "OASIS": "learners.oasis",
    "OMDLLR": "learners.omdl_lr",
    "OMDML": "learners.omdml",
    "OMKS": "learners.omks",
    "open_source": "producers.sources",
    "OPML": "learners.opml",
    "POLA": "learners.pola",
    "Portfolio": "learners.portfolio",
    "RCA": "learners.rca",
    "RDML": "learners.rdml",
    "SOMLDA": "learners.soml_da",
    "SOMLTG": "learners.soml_tg",
    "SORS": "learners.sors",
    "Softmax": "learners.softmax",
    "TripletRule": "learners.triplet_rule",
}

__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("kinstream")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
