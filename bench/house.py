"""The size of each part: files, lines by kind, fragments, import circles, words, tests.

    python -m bench.house > bench/results/house.txt

Nothing is run: everything is read from the text of the files that git knows. A fragment is a module
of less than 100 lines that one other module imports. Modules are in a circle when each of them
leads to the others by imports: those that run when the module is imported, or all of them, inside
functions and for types too.

Quoted in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bench.paths import ROOT

PRODUCT = (
    *("api", "service", "gateway", "batch", "store", "engine_adapter"),
    *("kernels", "coserve", "migrations"),
)
DEEP = ("batch", "gateway", "engine_adapter", "lab", "tests", "bench")
"""Folders whose subfolders are told apart."""
SMALL_LINES = 100


@dataclass
class Lines:
    """Lines of some files."""

    files: int = 0
    code: int = 0
    docstring: int = 0
    comment: int = 0
    blank: int = 0

    @property
    def total(self) -> int:
        return self.code + self.docstring + self.comment + self.blank

    def add(self, other: Lines) -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Module:
    """A Python file.

    Attributes:
        imports: Modules that importing it imports.
        uses: Those and what its functions import.
    """

    path: str
    lines: Lines
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)


def _docstrings(tree: ast.Module) -> Iterator[range]:
    """Lines of texts that stand as statements: docstrings, and those behind a name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count(text: str, tree: ast.Module) -> Lines:
    """Each line once: as docstring, blank, comment or code."""
    prose = {line for lines in _docstrings(tree) for line in lines}
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }
    found = Lines(files=1)
    for number, line in enumerate(text.splitlines(), start=1):
        if number in prose:
            found.docstring += 1
        elif not line.strip():
            found.blank += 1
        elif number in comments:
            found.comment += 1
        else:
            found.code += 1
    return found


def tracked(*patterns: str) -> list[str]:
    """Files that git knows."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in set(told.splitlines()) if (ROOT / path).is_file())


def module_name(path: str) -> str:
    """As it is imported."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name.removeprefix("kernels.")


def modules(*patterns: str) -> dict[str, Module]:
    """Every module whose path matches one, or all; with what each imports of the others."""
    found: dict[str, Module] = {}
    for path in tracked(*(patterns or ("*.py",))):
        text = (ROOT / path).read_text()
        tree = ast.parse(text)
        found[module_name(path)] = Module(path, count(text, tree), tree)
    for name, module in found.items():
        module.imports = set(_imports(module.tree.body, found)) - {name}
        every = (node for node in ast.walk(module.tree) if isinstance(node, ast.stmt))
        module.uses = set(_named(every, found)) - {name}
    return found


def _imports(body: list[ast.stmt], known: Mapping[str, object]) -> Iterator[str]:
    """Of the module's own level; `if TYPE_CHECKING` is left out."""
    yield from _named(iter(body), known)
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from _imports(node.body + node.orelse, known)
        elif isinstance(node, ast.Try):
            yield from _imports(node.body, known)


def _named(nodes: Iterator[ast.stmt], known: Mapping[str, object]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                if whole in known:
                    yield whole
                elif node.module in known:
                    yield node.module


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that lead to each other, the largest first (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            groups.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(edges):
        if name not in order:
            visit(name)
    return sorted((one for one in groups if len(one) > 1), key=len, reverse=True)


def fragments(found: Mapping[str, Module]) -> dict[str, str]:
    """Small modules of the product and their only importer in it."""
    importers: dict[str, set[str]] = defaultdict(set)
    ours = {name: one for name, one in found.items() if one.path.split("/")[0] in PRODUCT}
    for name, module in ours.items():
        for other in module.uses:
            importers[other].add(name)
    return {
        name: next(iter(importers[name]))
        for name, module in sorted(ours.items())
        if module.lines.total < SMALL_LINES
        and len(importers[name]) == 1
        and not module.path.endswith(("__init__.py", "__main__.py"))
    }


def room_of(path: str) -> str:
    """The folder a file counts to."""
    first, *rest = path.split("/")
    if not rest:
        return "(top)"
    return f"{first}/{rest[0]}" if first in DEEP and len(rest) > 1 else first


def table(found: Mapping[str, Module]) -> list[str]:
    """Lines by room."""
    rooms: dict[str, Lines] = defaultdict(Lines)
    product, tests = Lines(), Lines()
    for module in found.values():
        rooms[room_of(module.path)].add(module.lines)
        first = module.path.split("/")[0]
        if first in PRODUCT:
            product.add(module.lines)
        if first == "tests":
            tests.add(module.lines)
    head = f"{'room':<32}{'files':>7}{'lines':>8}{'code':>8}{'docstr':>8}{'comment':>9}{'blank':>8}"
    rows = [*sorted(rooms.items()), ("the product", product), ("the tests", tests)]
    return [
        head,
        *(
            f"{name:<32}{one.files:>7}{one.total:>8}{one.code:>8}"
            f"{one.docstring:>8}{one.comment:>9}{one.blank:>8}"
            for name, one in rows
        ),
    ]


def words() -> list[str]:
    """Words of each page; of the decisions, their sum."""
    pages = {path: len((ROOT / path).read_text().split()) for path in tracked("*.md")}
    decisions = [path for path in pages if path.startswith("docs/decisions/")]
    shown = {path: num for path, num in pages.items() if path not in decisions}
    lines = [f"{num:>8}  {path}" for path, num in sorted(shown.items(), key=lambda it: -it[1])]
    lines.append(f"{sum(pages[path] for path in decisions):>8}  {len(decisions)} decisions")
    return [*lines, f"{sum(pages.values()):>8}  {len(pages)} pages"]


def tests_by_kind(found: Mapping[str, Module]) -> list[str]:
    """Test functions, each once however many parameters it has."""
    kinds: Counter[str] = Counter()
    for module in found.values():
        first, *rest = module.path.split("/")
        if first == "tests" and len(rest) > 1:
            kinds[rest[0]] += sum(
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name.startswith("test_")
                for node in ast.walk(module.tree)
            )
    counted = [f"{num:>8}  {kind}" for kind, num in kinds.most_common() if num]
    return [*counted, f"{kinds.total():>8}  test functions"]


def tables() -> str:
    """All of it, as text."""
    found = modules()
    ours = {name: one for name, one in found.items() if one.path.split("/")[0] in PRODUCT}
    small = [name for name, one in ours.items() if one.lines.total <= SMALL_LINES]
    parts = fragments(found)
    at_import = circles({name: one.imports & ours.keys() for name, one in ours.items()})
    by_any = circles({name: one.uses & ours.keys() for name, one in ours.items()})
    return "\n".join(
        [
            "## Lines",
            *table(found),
            "",
            f"## Modules of the product: {len(ours)}, of at most {SMALL_LINES} lines: {len(small)}",
            "",
            f"## Fragments: {len(parts)} of less than {SMALL_LINES} lines with one importer",
            *(f"  {name} <- {importer}" for name, importer in parts.items()),
            "",
            f"## Import circles: {len(at_import)} when imported; "
            f"{len(by_any)} of {sum(map(len, by_any))} modules by every import",
            *(f"  {len(group)}: {' '.join(group)}" for group in by_any),
            "",
            "## Words by page",
            *words(),
            "",
            "## Tests by kind",
            *tests_by_kind(found),
        ]
    )


def main() -> int:
    """Print the tables; nothing can fail."""
    print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
