"""Nothing that is read can run code, and nothing listens where nobody said so: looked up in the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from kinstream.cli.demo.search import page
from tests.support.packages import PACKAGES, ROOT

#: `testing` runs checks in other processes, which get what they check as pickles of their own.
FILES = sorted(path for name in PACKAGES if name != "testing" for path in (ROOT / name).rglob("*.py"))

#: Modules that make objects of bytes by running what the bytes say, or that load YAML.
MODULES = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "marshal",
        "shelve",
        "dill",
        "cloudpickle",
        "joblib",
        "yaml",
        "ruamel",
        "dbm",
    }
)
CALLS = frozenset({"eval", "exec", "compile", "__import__", "execfile"})
#: Methods that run code, a shell, or give up on certificates; by their dotted ends.
ENDS = frozenset(
    {
        "os.system",
        "os.popen",
        "ssl._create_unverified_context",
        "torch.load",
        "numpy.load_pickle",
        "runpy.run_path",
        "runpy.run_module",
    }
)
#: What listens on a port.
SERVERS = frozenset({"http.server", "socketserver", "aiohttp", "xmlrpc.server", "wsgiref.simple_server"})


@cache
def trees() -> dict[str, ast.Module]:
    """The source, parsed once, and not by each process that only collects tests."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in FILES}


def name_of(node: ast.expr) -> str:
    """`a.b.c` of an expression; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def faults(tree: ast.AST, place: str) -> Iterator[str]:
    """What a source file does that it must not."""
    for node in ast.walk(tree):
        where = f"{place}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Import():
                yield from (
                    f"{where}: imports {a.name}" for a in node.names if a.name.split(".")[0] in MODULES
                )
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield f"{where}: imports {module}"
            case ast.Call():
                yield from (f"{where}: {what}" for what in _of_call(node))
            case ast.Attribute() if node.attr in ("CERT_NONE", "_create_unverified_context"):
                yield f"{where}: {node.attr}"
            case ast.Assign() if any(
                isinstance(t, ast.Attribute) and t.attr == "check_hostname" for t in node.targets
            ):
                yield f"{where}: sets check_hostname"


def _of_call(node: ast.Call) -> Iterator[str]:
    name = name_of(node.func)
    options = {k.arg: k.value for k in node.keywords}
    if name in CALLS or any(name.endswith(end) for end in ENDS):
        yield f"calls {name}"
    if name in ("np.load", "numpy.load"):
        allowed = options.get("allow_pickle")
        if not (isinstance(allowed, ast.Constant) and allowed.value is False):
            yield f"{name} without allow_pickle=False"
    elif "allow_pickle" in options:
        yield f"{name} with allow_pickle"
    shell = options.get("shell")
    if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
        yield f"{name} through a shell"


@pytest.mark.long
def test_no_package_can_run_what_it_reads() -> None:
    assert len(FILES) > 200
    found = [line for place, tree in trees().items() for line in faults(tree, place)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import joblib.numpy_pickle",
        "import yaml",
        "eval('1')",
        "exec(compile(text, 'f', 'exec'))",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "numpy.load(path, allow_pickle=flag)",
        "np.lib.format.read_array(f, allow_pickle=True)",
        "torch.load(path)",
        "subprocess.run(line, shell=True)",
        "os.system('x')",
        "ssl._create_unverified_context()",
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
    ],
)
def test_the_search_finds_what_it_is_for(text: str) -> None:
    assert list(faults(ast.parse(text), "here"))


def test_the_search_lets_the_rest_be() -> None:
    text = "np.load(p, allow_pickle=False)\nsubprocess.run([a], shell=False)\nre.compile('x')\nmodel.eval()\n"
    assert not list(faults(ast.parse(text), "here"))


def test_two_modules_listen_by_default_or_only_on_loopback() -> None:
    servers = []
    for place, tree in trees().items():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if SERVERS & set(names):
                servers.append(place)
            if isinstance(node, ast.Constant) and node.value == "0.0.0.0":
                servers.append(f"{place}:{node.lineno}: {node.value}")
    assert set(servers) == {"streams/worker/page/server.py", "cli/demo/search/page.py"}
    # The page of a demonstration has no setting for its address.
    assert page.HOST == "127.0.0.1"
