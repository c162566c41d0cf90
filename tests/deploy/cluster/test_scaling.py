"""Replicas by lag: what the autoscalers are given, which agents may have one, and who sets the replicas."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.deploy.charts import PAGE, RELEASE, of_kind, refusal, rendered, values_of_the_page
from tests.deploy.cluster.release import Release
from tests.deploy.cluster.server import ApiServer, RefusedError
from tests.docs.pages import blocks

pytestmark = pytest.mark.timeout(1800)
HPA = ("--set", "autoscaling.kind=hpa,autoscaling.agents.learner-opml.lag=60000")
#: That of the page.
(KEDA,) = (
    ("--set-json", f"autoscaling={json.dumps(found['autoscaling'])}")
    for found in map(yaml.safe_load, values_of_the_page())
    if "autoscaling" in found
)
NAME = "blue-kinstream-learner-opml"


def test_no_autoscaler_unless_one_is_asked_for() -> None:
    kinds = {one["kind"] for name in ("minimal", "secured", "strimzi") for one in rendered(name)}
    assert not kinds & {"HorizontalPodAutoscaler", "ScaledObject"}


def test_an_autoscaler_of_kubernetes_is_stored_as_it_was_meant(cluster: ApiServer, release: Release) -> None:
    release.install("minimal", *HPA)
    spec = release.objects()["horizontalpodautoscalers", NAME]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 6)
    (metric,) = spec["metrics"]
    labels = {"job": f"kinstream-{release.namespace}-{RELEASE}", "agent": "learner-opml"}
    assert metric["external"] == {
        "metric": {"name": "kinstream_consumer_lag_records", "selector": {"matchLabels": labels}},
        # 60,000, as Kubernetes writes quantities.
        "target": {"type": "AverageValue", "averageValue": "60k"},
    }
    assert spec["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 300}]


def test_an_object_of_keda_is_stored_as_it_was_meant(operators: ApiServer, release: Release) -> None:
    release.install("minimal", *KEDA)
    spec = release.objects()["scaledobjects", NAME]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 6)
    (trigger,) = spec["triggers"]
    job = f"kinstream-{release.namespace}-{RELEASE}"
    assert trigger == {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": "http://prometheus.monitoring:9090",
            "query": "sum(max by (topic, partition) "
            f'(kinstream_consumer_lag_records{{job="{job}",agent="learner-opml"}}))',
            "threshold": "60000",
            "ignoreNullValues": "false",
        },
    }
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 600


def test_the_rule_of_the_page_for_an_adapter_asks_what_keda_asks() -> None:
    (text,) = (block.text for block in blocks(PAGE, "yaml") if "rules" in yaml.safe_load(block.text))
    (rule,) = yaml.safe_load(text)["rules"]["external"]
    (hpa,) = of_kind("HorizontalPodAutoscaler", rendered("minimal", *HPA)).values()
    metric = hpa["spec"]["metrics"][0]["external"]["metric"]
    assert rule["seriesQuery"] == metric["name"]
    # Autoscalers of all namespaces ask for it, and the series have the labels of Prometheus' job.
    assert rule["resources"] == {"namespaced": False}
    labels = ",".join(f'{key}="{metric["selector"]["matchLabels"][key]}"' for key in ("job", "agent"))
    asked = rule["metricsQuery"].replace("<<.Series>>", metric["name"]).replace("<<.LabelMatchers>>", labels)
    (keda,) = of_kind("ScaledObject", rendered("minimal", *KEDA)).values()
    assert keda["spec"]["triggers"][0]["metadata"]["query"] == asked


def test_the_definition_of_keda_refuses_what_is_wrong(operators: ApiServer, release: Release) -> None:
    (document,) = (one for one in release.rendered("minimal", *KEDA) if one["kind"] == "ScaledObject")
    operators.create(document, release.namespace, dry_run=True)
    document["spec"]["triggers"][0]["metadata"]["threshold"] = 60000
    with pytest.raises(RefusedError, match=r"threshold.*must be of type string"):
        operators.create(document, release.namespace, dry_run=True)


def test_an_upgrade_leaves_the_replicas_to_the_autoscaler(cluster: ApiServer, release: Release) -> None:
    release.install("minimal", *HPA)
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/{NAME}"
    assert cluster.request("GET", path)["spec"]["replicas"] == 1
    # What the controller of the autoscaler does.
    cluster.request("PATCH", f"{path}/scale", {"spec": {"replicas": 4}})
    release.upgrade("minimal", *HPA, "--set", "learners.opml.settings.gamma=0.01")
    assert cluster.request("GET", path)["spec"]["replicas"] == 4


def test_an_agent_without_replicas_is_stopped_and_has_no_autoscaler(release: Release) -> None:
    release.install("minimal", *HPA)
    release.upgrade("minimal", *HPA, "--set", "learners.opml.replicas=0")
    assert release.one("deployments", "learner-opml")["spec"]["replicas"] == 0
    assert ("horizontalpodautoscalers", NAME) not in release.objects()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("autoscaling.agents.learner-opml.lag=1", "autoscaling.kind: set keda or hpa"),
        ("autoscaling.kind=keda,autoscaling.agents.learner-opml.lag=1", "autoscaling.prometheus"),
        ("autoscaling.kind=hpa,autoscaling.agents.learner-opml.maxReplicas=2", "missing property 'lag'"),
        ("autoscaling.kind=hpa,autoscaling.agents.learner-opml.lag=0", "lag"),
        ("autoscaling.kind=vpa", "kind"),
        (
            "autoscaling.kind=hpa,autoscaling.agents.metrics.lag=9,autoscaling.agents.metrics.maxReplicas=7",
            "autoscaling.agents.metrics.maxReplicas: 7 is more than settings.topics.partitions, 6",
        ),
        (
            "autoscaling.kind=hpa,autoscaling.agents.metrics.lag=9,autoscaling.agents.metrics.minReplicas=7",
            "autoscaling.agents.metrics.minReplicas: 7 is more than maxReplicas, 6",
        ),
        ("autoscaling.kind=hpa,autoscaling.agents.source-web.lag=9", "the partitions of web.clicks"),
        # Who answers queries shares no partitions, and a second one that orders versions would order them twice.
        *(
            (
                f"autoscaling.kind=hpa,autoscaling.agents.{name}.lag=9",
                f"there is no {name} that shares partitions",
            )
            for name in ("serve", "vectors-watch", "learner-x")
        ),
    ],
)
def test_what_cannot_scale_is_refused(values: str, reason: str) -> None:
    assert reason in refusal("--set", values, name="secured")


def test_every_agent_that_shares_partitions_may_scale() -> None:
    agents = ("source-web", "builder-clicks", "learner-opml", "metrics", "gate", "vectors", "sink-main")
    values = [f"autoscaling.agents.{name}.lag=9,autoscaling.agents.{name}.maxReplicas=3" for name in agents]
    documents = rendered("secured", "--set", ",".join(["autoscaling.kind=hpa", *values]))
    found = of_kind("HorizontalPodAutoscaler", documents)
    assert found.keys() == {f"blue-kinstream-{name}" for name in agents}
    for name, one in of_kind("Deployment", documents).items():
        assert ("replicas" in one["spec"]) is (name not in found)
