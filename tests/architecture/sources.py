"""The project's own files, read once, for the tests that look at code and not at behaviour."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("core_log", "connectors", "sinks", "pipelines", "config")
"""The packages that are shipped."""
CODE = (*PRODUCT, "tests", "benchmarks", "scripts", "examples")


def python_files(*folders: str) -> list[str]:
    """Paths below these folders, relative to the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def text_files() -> list[str]:
    """Everything that git knows or would take: code, pages, scripts, data in words."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    suffixes = {".py", ".md", ".sh", ".toml", ".xml", ".yaml", ".yml", ".txt", ".java", ""}
    paths = (Path(line) for line in listed.stdout.splitlines())
    return sorted(
        path.as_posix() for path in paths if path.suffix in suffixes and (ROOT / path).is_file()
    )


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text(errors="replace")


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse(text_of(path), path)


@cache
def nodes_of(path: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def forget_trees() -> None:
    """A million nodes, which every later collection of garbage would go through."""
    tree_of.cache_clear()
    nodes_of.cache_clear()


@cache
def imports_of(path: str) -> frozenset[str]:
    """Dotted names of the modules it imports, wherever in the file; `from a import b` gives a and
    a.b, because b may be a module."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def module_of(path: str) -> str:
    """Its name: what is shipped lies below `headwater`, by a link."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"headwater.{name}" if path.split("/")[0] in PRODUCT else name
