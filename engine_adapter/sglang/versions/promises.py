"""What a signed release of SGLang has of what the adapter uses, and what another one has not.

A tool writes it, a person reads what changed and signs it by committing the file::

    python -m engine_adapter.sglang.versions.promises --write     in the environment of a release
    python -m engine_adapter.sglang.versions.promises --texts NAME...

Each start compares all of it with the SGLang that is there, and tells every difference at once:

    gone        a name, method or attribute is not there               the engine refuses to start
    parameters  a function takes something else                        it refuses
    replaced    the text of a method changed that ours takes the       it refuses
                place of without calling it
    text        the text of a method changed that ours calls,          a warning in the log
                or whose order of work it relies on
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import inspect
import json
import pkgutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from engine_adapter.sglang.versions import FAMILIES, family_of, number
from engine_adapter.sglang.versions.uses import READ, REPLACED_ON_CPU, files, uses_of

SIGNED_DIR: Final = Path(__file__).with_name("signed")


@dataclass(frozen=True, slots=True)
class Promises:
    """Of one release.

    Attributes:
        sglang: The release.
        names: Names that are there; of functions and methods their parameters, else none.
        texts: Digests of functions.
        replaced: Those of them that ours takes the place of without calling them.
        attributes: Attributes by class.
        fixed: Digests of what is replaced on a CPU, which only the plugin for CPUs looks at.
    """

    sglang: str
    names: Mapping[str, list[str] | None]
    texts: Mapping[str, str]
    replaced: frozenset[str]
    attributes: Mapping[str, list[str]]
    fixed: Mapping[str, str]


@dataclass(slots=True)
class Differences:
    """One sentence each.

    Attributes:
        fatal: The engine must not start.
        texts: Something to read before the release is signed.
    """

    fatal: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def signed_versions() -> list[str]:
    """Releases that somebody has signed, oldest first."""
    return sorted((path.stem for path in SIGNED_DIR.glob("*.json")), key=number)


def promises_for(found: str) -> Promises | None:
    """Those of a release, or of the newest signed one of its family; None if there is none."""
    family = family_of(found)
    alike = [one for one in signed_versions() if family_of(one) == family]
    if not alike or number(found) < number(family):
        return None
    chosen = found if found in alike else alike[-1]
    plain = json.loads((SIGNED_DIR / f"{chosen}.json").read_text())
    return Promises(**{**plain, "replaced": frozenset(plain["replaced"])})


def differences(
    promised: Promises, real: Collection[str] = (), *, fixed: bool = False
) -> Differences:
    """All that the SGLang that is installed has otherwise.

    Args:
        promised: What was signed.
        real: Classes whose attributes are looked up on a real object instead (`missing_on`).
        fixed: Also what is replaced on a CPU, which elsewhere the plugin for CPUs looks at itself.
    """
    found = Differences()
    for symbol, wanted in promised.names.items():
        try:
            thing = _resolved(symbol)
        except (ImportError, AttributeError) as error:
            found.fatal.append(f"{symbol} is not there ({error})")
            continue
        have = _parameters(thing)
        if wanted is not None and have != wanted:
            found.fatal.append(f"{symbol} takes {have}, expected {wanted}")
    for owner, names in promised.attributes.items():
        if owner in real:
            continue
        try:
            have_names = _attributes(_resolved(owner))
        except (ImportError, AttributeError):
            continue  # told above
        if missing := sorted(set(names) - have_names):
            found.fatal.append(f"{owner} has no {', '.join(missing)}")
    for symbol in changed(promised.texts):
        is_fatal = symbol in promised.replaced
        told = found.fatal if is_fatal else found.texts
        told.append(f"the source of {symbol} changed: read it again")
    for symbol in changed(promised.fixed) if fixed else ():
        found.fatal.append(f"the source of {symbol} changed, which is replaced on a CPU")
    return found


def changed(texts: Mapping[str, str]) -> Iterator[str]:
    """Those of the functions whose text has another digest, or that are gone."""
    for symbol, digest in texts.items():
        try:
            if source_digest(symbol) != digest:
                yield symbol
        except (ImportError, AttributeError):
            yield symbol


def missing_on(thing: Any, names: Iterable[str]) -> list[str]:
    """Attributes that a real object does not have."""
    return sorted(name for name in names if not hasattr(thing, name))


def derive() -> Promises:
    """What the adapter uses, as it is in the SGLang that is installed."""
    release = version("sglang")
    uses = uses_of(files(FAMILIES[family_of(release)]))
    overridden = {symbol: calls for symbol, calls in uses.overridden.items() if _is_there(symbol)}
    read = [symbol for symbol in READ if _is_there(symbol)]
    named = uses.names - set(REPLACED_ON_CPU)
    names = named | overridden.keys() | uses.attributes.keys() | set(read)
    replaced = {symbol for symbol, calls in overridden.items() if not calls}
    attributes = {
        owner: sorted(have & _attributes(_resolved(owner)))
        for owner, have in uses.attributes.items()
    }
    return Promises(
        sglang=release,
        names={one: _parameters(_resolved(one)) for one in sorted(names) if _is_there(one)},
        texts={one: source_digest(one) for one in sorted({*read, *overridden})},
        replaced=frozenset(replaced),
        attributes=dict(sorted(attributes.items())),
        fixed={one: source_digest(one) for one in REPLACED_ON_CPU},
    )


def write(promised: Promises) -> Path:
    """Keep them as the signed ones of their release."""
    SIGNED_DIR.mkdir(exist_ok=True)
    path = SIGNED_DIR / f"{promised.sglang}.json"
    plain = {**dataclasses.asdict(promised), "replaced": sorted(promised.replaced)}
    path.write_text(json.dumps(plain, indent=1) + "\n")
    return path


def source_digest(symbol: str) -> str:
    """Digest of a function's source text: another one means, read it again."""
    return hashlib.sha256(source_text(symbol).encode()).hexdigest()[:16]


def source_text(symbol: str) -> str:
    """The source of a function."""
    return inspect.getsource(inspect.unwrap(_resolved(symbol)))


def _resolved(symbol: str) -> Any:
    return pkgutil.resolve_name(symbol)


def _is_there(symbol: str) -> bool:
    try:
        _resolved(symbol)
    except (ImportError, AttributeError):
        return False
    return True


def _parameters(thing: Any) -> list[str] | None:
    """Of a function; a class is called with keywords, which its attributes tell."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    return list(inspect.signature(thing).parameters) if inspect.isfunction(thing) else None


def _attributes(owner: Any) -> set[str]:
    """Of objects of a class: what the class has, and what its methods write to `self`."""
    found = set(dir(owner)) | set(getattr(owner, "__dataclass_fields__", ()))
    for kind in inspect.getmro(owner):
        if not kind.__module__.startswith("sglang"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and getattr(node.value, "id", "") == "self"
            ):
                found.add(node.attr)
    return found


def main() -> int:
    """Print what differs from the signed release, write the signed file, or print functions."""
    importlib.import_module("sglang.srt.managers.scheduler")
    if sys.argv[1:] == ["--write"]:
        sys.stdout.write(f"{write(derive())}\n")
        return 0
    if sys.argv[1:2] == ["--texts"]:
        there = {one: source_text(one) for one in sys.argv[2:] if _is_there(one)}
        sys.stdout.write(json.dumps(there) + "\n")
        return 0
    promised = promises_for(version("sglang"))
    if promised is None:
        sys.stdout.write("no release of this family is signed\n")
        return 1
    found = differences(promised, fixed=True)
    for sentence in found.fatal:
        sys.stdout.write(f"must be looked at: {sentence}\n")
    for sentence in found.texts:
        sys.stdout.write(f"read: {sentence}\n")
    return int(bool(found.fatal))


if __name__ == "__main__":
    sys.exit(main())
