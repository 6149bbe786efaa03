"""`make follow VERSION=0.5.24`: how far coserve is from another release of SGLang, in ten minutes.

    wheel         downloaded; what it needs otherwise than the signed release before it
    environment   .venv-engine-VERSION, from a list that follows the wheel's own pins
    promises      what is gone, takes other parameters or has another text, with the change
    tests         mechanisms, owed tokens, a random run, the gateway, the fields of requests

Everything it makes lies in `.tools/follow/VERSION`, so nothing of the checkout changes. With
`SIGN=1` it writes what signs the release, for a person to read and commit (CONTRIBUTING).
"""

from __future__ import annotations

import argparse
import sys

from engine_adapter.sglang.versions.promises import signed_versions
from release.follow.candidate import Candidate, Outcome, say
from release.follow.signature import sign, take_back
from release.follow.stages import (
    NEWEST,
    build_environment,
    compare_needs,
    compare_promises,
    download,
    run_tests,
)


def follow(version: str, *, tests: bool = True, signs: bool = False) -> int:
    """Do all of it, and print what is left.

    Args:
        version: A release, or `newest`.
        tests: Run the tests too.
        signs: A person has read what changed. The release is signed and then tested as signed; the
            signature is taken back if a test fails.

    Returns:
        The exit status: 0 where nothing stands in the way of a signature.
    """
    wheel = download(version)
    candidate = Candidate.of(wheel)
    held_to = candidate.near or "nothing: no release like it is signed"
    say(f"SGLang {candidate.version}, held to {held_to}")
    say("\nwhat it needs")
    outcomes = [compare_needs(candidate, wheel)]
    say("\nits environment")
    outcomes.append(build_environment(candidate))
    say("\nwhat the plugin uses of it")
    promises = compare_promises(candidate)
    outcomes.append(promises)
    failed = [] if promises.passed or signs else [promises]
    if signs:
        sign(candidate)
    if tests and not failed:
        say("\ntests")
        tried = list(run_tests(candidate))
        outcomes += tried
        failed = [one for one in tried if not one.passed]
    if signs and failed:
        take_back(candidate.version)
    say(f"\nSGLang {candidate.version}")
    for one in outcomes:
        say(f"  {one.stage:12} {one.words}")
    say(what_is_left(candidate.version, failed, signs=signs))
    return int(bool(failed))


def what_is_left(version: str, failed: list[Outcome], *, signs: bool) -> str:
    """What a person does next."""
    again = f"make follow VERSION={version} SIGN=1"
    stages = [one.stage for one in failed]
    if stages == ["promises"]:
        return (
            f"It would refuse to start. Read what is to be looked at, mend the seam, then {again}"
        )
    if failed:
        return f"Not signed: {', '.join(stages)}."
    if signs:
        return "Signed in files: run `make lock-engine`, then commit what git shows."
    if version in signed_versions():
        return "It is signed."
    return f"Nothing stands in the way of a signature: read the above, then {again}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help=f"a release, or {NEWEST!r}")
    parser.add_argument("--no-tests", action="store_true", help="compare only")
    parser.add_argument("--sign", action="store_true", help="write what signs it")
    options = parser.parse_args()
    return follow(options.version, tests=not options.no_tests, signs=options.sign)


if __name__ == "__main__":
    sys.exit(main())
