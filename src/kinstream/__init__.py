"""Similarity that is learned from events on Kafka.

The public names are imported when they are first used, so `import kinstream` costs next to nothing: every learner by
its class name, `TripletRule` to derive one of your own from, `MetricLearner` for scikit-learn, `ModelFollower`,
`ModelFeed`, `QueryAdapter`, `QueryModel` and `MapReplica` for services that use a model, `SearchClient` for those that
ask `kinstream serve`, and `open_source`, `LabelledLoad` and `BlockSettings` for producers. Everything else lies in the
packages `kinstream.streams`, `producers`, `processors`, `learners`, `search`, `monitoring`, `replay`, `cli` and
`testing`.

Examples
--------
>>> from kinstream import OPML
>>> OPML(gamma=0.01).algorithm
'opml/7'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kinstream.learners.adapter.learner import Adapter as Adapter
    from kinstream.learners.baselines.euclidean import Euclidean as Euclidean
    from kinstream.learners.baselines.itml import ITML as ITML
    from kinstream.learners.baselines.lmnn import LMNN as LMNN
    from kinstream.learners.baselines.mahalanobis import Mahalanobis as Mahalanobis
    from kinstream.learners.baselines.rca import RCA as RCA
    from kinstream.learners.forms.triplet_rule import TripletRule as TripletRule
    from kinstream.learners.mixture.learner import Mixture as Mixture
    from kinstream.learners.oahu.learner import OAHU as OAHU
    from kinstream.learners.one_modality.adasors import AdaSORS as AdaSORS
    from kinstream.learners.one_modality.itml_online import ITMLOnline as ITMLOnline
    from kinstream.learners.one_modality.kernel_lego import KernelLEGO as KernelLEGO
    from kinstream.learners.one_modality.lda import LDA as LDA
    from kinstream.learners.one_modality.lego import LEGO as LEGO
    from kinstream.learners.one_modality.mdml import MDML as MDML
    from kinstream.learners.one_modality.oasis import OASIS as OASIS
    from kinstream.learners.one_modality.opml import COPML as COPML
    from kinstream.learners.one_modality.opml import OPML as OPML
    from kinstream.learners.one_modality.pola import POLA as POLA
    from kinstream.learners.one_modality.rdml import RDML as RDML
    from kinstream.learners.one_modality.softmax import Softmax as Softmax
    from kinstream.learners.one_modality.soml_da import SOMLDA as SOMLDA
    from kinstream.learners.one_modality.soml_tg import SOMLTG as SOMLTG
    from kinstream.learners.one_modality.sors import SORS as SORS
    from kinstream.learners.ranking.learner import Ranking as Ranking
    from kinstream.learners.several_modalities.fusion import Fusion as Fusion
    from kinstream.learners.several_modalities.lomdml import LOMDML as LOMDML
    from kinstream.learners.several_modalities.omdl_lr import OMDLLR as OMDLLR
    from kinstream.learners.several_modalities.omdml import OMDML as OMDML
    from kinstream.learners.several_modalities.omks import OMKS as OMKS
    from kinstream.learners.sklearn import MetricLearner as MetricLearner
    from kinstream.producers.labelled.load import BlockSettings as BlockSettings
    from kinstream.producers.labelled.load import LabelledLoad as LabelledLoad
    from kinstream.producers.labelled.sources import open_source as open_source
    from kinstream.search.client.client import SearchClient as SearchClient
    from kinstream.search.models.feed import ModelFeed as ModelFeed
    from kinstream.search.models.follower import ModelFollower as ModelFollower
    from kinstream.search.queries.adapter import QueryAdapter as QueryAdapter
    from kinstream.search.queries.model import QueryModel as QueryModel
    from kinstream.search.updates.replica import MapReplica as MapReplica

__version__: str

#: Public name -> the module that defines it.
_MODULES: Final = {
    "Adapter": "learners.adapter.learner",
    "AdaSORS": "learners.one_modality.adasors",
    "BlockSettings": "producers.labelled.load",
    "COPML": "learners.one_modality.opml",
    "Euclidean": "learners.baselines.euclidean",
    "Fusion": "learners.several_modalities.fusion",
    "ITML": "learners.baselines.itml",
    "ITMLOnline": "learners.one_modality.itml_online",
    "KernelLEGO": "learners.one_modality.kernel_lego",
    "LDA": "learners.one_modality.lda",
    "LEGO": "learners.one_modality.lego",
    "LMNN": "learners.baselines.lmnn",
    "LabelledLoad": "producers.labelled.load",
    "LOMDML": "learners.several_modalities.lomdml",
    "Mahalanobis": "learners.baselines.mahalanobis",
    "MapReplica": "search.updates.replica",
    "MDML": "learners.one_modality.mdml",
    "MetricLearner": "learners.sklearn",
    "Mixture": "learners.mixture.learner",
    "ModelFeed": "search.models.feed",
    "ModelFollower": "search.models.follower",
    "OAHU": "learners.oahu.learner",
    "OASIS": "learners.one_modality.oasis",
    "OMDLLR": "learners.several_modalities.omdl_lr",
    "OMDML": "learners.several_modalities.omdml",
    "OMKS": "learners.several_modalities.omks",
    "open_source": "producers.labelled.sources",
    "OPML": "learners.one_modality.opml",
    "POLA": "learners.one_modality.pola",
    "QueryAdapter": "search.queries.adapter",
    "QueryModel": "search.queries.model",
    "RCA": "learners.baselines.rca",
    "RDML": "learners.one_modality.rdml",
    "Ranking": "learners.ranking.learner",
    "SearchClient": "search.client.client",
    "SOMLDA": "learners.one_modality.soml_da",
    "SOMLTG": "learners.one_modality.soml_tg",
    "SORS": "learners.one_modality.sors",
    "Softmax": "learners.one_modality.softmax",
    "TripletRule": "learners.forms.triplet_rule",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        # For `from kinstream import *`: without the names that need a package which is not installed.
        return [name for name in __dir__() if _is_there(name)]
    if name == "__version__":
        from importlib.metadata import version

        return version("kinstream")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kinstream.streams.extras import importing

    with importing(name):
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_MODULES, "__version__"])


def _is_there(name: str) -> bool:
    from kinstream.streams.errors import PackageMissing

    try:
        __getattr__(name)
    except PackageMissing:
        return False
    return True
