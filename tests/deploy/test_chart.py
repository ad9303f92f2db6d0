"""The chart makes manifests that Kubernetes accepts: no rights, one volume, probes, a slow end."""

import os
import re
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART, HERE = ROOT / "deploy/helm/headwater", Path(__file__).parent
KUBERNETES = "1.34.0"
RENDERINGS = {
    "chart_defaults.yaml": (),
    "chart_rendered.yaml": ("chart_values.yaml",),
    "chart_cluster.yaml": ("chart_cluster_values.yaml",),
}
"""What `helm template` makes of the chart, by the files with values."""
RANDOM = re.compile(r"^(  (?:(?:ca|tls)\.crt|tls\.key|cluster\.secret|token): ).*$", re.MULTILINE)
USER = 10_001


def digest_of_chart() -> str:
    files = sorted(
        [*CHART.rglob("*.*"), *(HERE / each for names in RENDERINGS.values() for each in names)]
    )
    return sha256(b"\0".join(each.read_bytes() for each in files if each.is_file())).hexdigest()


def rendered(values: tuple[str, ...], helm: Path) -> str:
    """The manifests as they are kept: with the digest of the chart, and without secrets."""
    options = [word for name in values for word in ("--values", str(HERE / name))]
    made = subprocess.run(
        [helm, "template", "shop", str(CHART), "--namespace", "data", *options],
        check=True,
        capture_output=True,
        text=True,
    )
    head = f"# helm template; written by HEADWATER_GOLDEN=write. Chart: {digest_of_chart()}\n"
    return head + RANDOM.sub(r"\1c2VjcmV0", made.stdout)


def manifests(name: str) -> Iterator[dict[str, Any]]:
    yield from filter(None, yaml.safe_load_all((HERE / name).read_text()))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    [found] = [each for each in manifests(name) if each["kind"] == kind]
    return found


@pytest.mark.parametrize("name", RENDERINGS)
def test_the_rendering_is_of_this_chart(name: str) -> None:
    assert (HERE / name).read_text().partition("\n")[0].endswith(digest_of_chart())


@pytest.mark.parametrize("name", RENDERINGS)
def test_kubernetes_accepts_every_manifest(name: str) -> None:
    for manifest in manifests(name):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("name", "kind", "replicas"),
    [
        ("chart_defaults.yaml", "StatefulSet", 1),
        ("chart_rendered.yaml", "StatefulSet", 1),
        ("chart_cluster.yaml", "StatefulSet", 3),
        ("chart_cluster.yaml", "Deployment", 2),
    ],
)
def test_a_pod_has_no_rights_one_volume_and_time_to_drain(
    name: str, kind: str, replicas: int
) -> None:
    found = of_kind(name, kind)["spec"]
    pod = found["template"]["spec"]
    [container] = pod["containers"]

    assert found["replicas"] == replicas
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER == pod["securityContext"]["fsGroup"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] >= 60
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = [each["name"] for each in container["volumeMounts"] if not each.get("readOnly")]
    assert writable == ["data", "tmp"]
    claims = [each["metadata"]["name"] for each in found.get("volumeClaimTemplates", ())]
    assert claims == (["data"] if kind == "StatefulSet" else [])
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        asked = container[f"{probe}Probe"]["httpGet"]
        assert (asked["path"], asked["scheme"], asked["port"]) == (path, "HTTPS", "https")


def test_the_service_and_the_pod_agree_on_names_and_port() -> None:
    service = of_kind("chart_rendered.yaml", "Service")["spec"]
    template = of_kind("chart_rendered.yaml", "StatefulSet")["spec"]["template"]
    [container] = template["spec"]["containers"]

    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"] == "https"
    assert service["ports"][0]["port"] == container["ports"][0]["containerPort"] == 9443
    assert "--http=0.0.0.0:9443" in container["args"]
    assert {"--http-host=shop.data.svc", "--http-host=headwater.example.org"} <= {
        *container["args"]
    }


def test_brokers_have_names_of_their_own_and_at_most_one_is_taken_away() -> None:
    name = "chart_cluster.yaml"
    brokers = of_kind(name, "StatefulSet")
    labels = brokers["spec"]["template"]["metadata"]["labels"]
    services = {
        each["metadata"]["name"]: each["spec"]
        for each in manifests(name)
        if each["kind"] == "Service"
    }
    headless = services[brokers["spec"]["serviceName"]]
    budget = of_kind(name, "PodDisruptionBudget")["spec"]
    [worker] = of_kind(name, "Deployment")["spec"]["template"]["spec"]["containers"]
    [broker] = brokers["spec"]["template"]["spec"]["containers"]
    [addresses] = [each["value"] for each in worker["env"] if each["name"] == "BROKERS"]

    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"]
    assert headless["selector"] == labels == budget["selector"]["matchLabels"]
    assert budget["maxUnavailable"] == 1
    assert not services["shop"]["selector"].items() <= labels.items()
    assert addresses.split(",") == [
        f"shop-brokers-{number}.shop-brokers.data.svc.cluster.local:9092" for number in range(3)
    ]
    assert f"--join={addresses}" in broker["args"]


def test_secrets_of_ones_own_are_used_instead_of_those_that_are_made() -> None:
    kinds = [each["kind"] for each in manifests("chart_rendered.yaml")]
    volumes = of_kind("chart_rendered.yaml", "StatefulSet")["spec"]["template"]["spec"]["volumes"]

    assert kinds == ["ConfigMap", "Service", "StatefulSet"]
    assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == {
        "shop-tls",
        "shop-token",
        "shop-files",
    }


@pytest.mark.compat
def test_helm_accepts_the_chart_and_makes_the_renderings(request: pytest.FixtureRequest) -> None:
    """HEADWATER_GOLDEN=write writes them again after an edit of the chart."""
    found = subprocess.run(
        [ROOT / "scripts/fetch_helm.sh"], check=True, capture_output=True, text=True
    )
    helm = Path(found.stdout.strip()) / "helm"

    linted = subprocess.run(
        [helm, "lint", "--strict", CHART, "--values", HERE / "chart_values.yaml"],
        capture_output=True,
        text=True,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
    unused = [str(helm), "template", "shop", str(CHART), "--set", "brokers.replicas=3"]
    refused = subprocess.run(unused, capture_output=True, text=True)
    assert "the pipeline does not use the brokers" in refused.stderr
    for name, values in RENDERINGS.items():
        made = rendered(values, helm)
        if os.environ.get("HEADWATER_GOLDEN") == "write":
            (HERE / name).write_text(made)
        assert (HERE / name).read_text() == made
