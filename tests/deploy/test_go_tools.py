"""A program whose module has folders in place of modules is built from a module that has the published ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.deploy.go_tools import write_module

_MOD = """\
module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.130.1
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""


def test_the_published_modules_are_of_the_same_release(tmp_path: Path) -> None:
    (tmp_path / "their.mod").write_text(_MOD)
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{json.dumps({'GoMod': str(tmp_path / 'their.mod')})}'\n")
    go.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    write_module(tmp_path, environment)
    assert (tmp_path / "go.mod").read_text().splitlines() == [
        "module kinstream",
        "go 1.24.0",
        "godebug default=go1.24",
        "require helm.sh/helm/v3 v3.19.2",
        "require github.com/compose-spec/compose-go/v2 v2.16.2",
        "require k8s.io/kubernetes v1.34.4",
        "replace k8s.io/api => k8s.io/api v0.34.4",
        "replace k8s.io/kubectl => k8s.io/kubectl v0.34.4",
    ]
