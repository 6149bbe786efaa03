"""What one part found, read from the reports that the runners write."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET


@dataclass
class Result:
    """Counts of one part.

    Attributes:
        name: The part.
        passed: Cases that passed.
        failed: Cases that failed, or ended in an error.
        skipped: Cases that were not run, or not judged.
        seconds: How long it took.
        measured_at: When it ended.
        failures: What failed, one line each.
        notes: Further counts of the part's own.
    """

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    measured_at: str = ""
    failures: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Something ran, and nothing failed."""
        return self.passed > 0 and self.failed == 0

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
        return {**asdict(self), "seconds": round(self.seconds, 1), "ok": self.ok}


def read_junit(name: str, report: Path, exit_code: int) -> Result:
    """Counts out of a JUnit report; a missing or empty report is a failure."""
    result = Result(name)
    if report.exists():
        for case in ET.parse(report).getroot().iter("testcase"):
            title = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
            wrong = [one for kind in ("failure", "error") for one in case.findall(kind)]
            if wrong:
                result.failed += 1
                why = (wrong[0].get("message") or wrong[0].text or "").strip().splitlines()
                result.failures.append(f"{title}: {why[0][:200] if why else 'failed'}")
            elif case.find("skipped") is not None:
                result.skipped += 1
            else:
                result.passed += 1
    if exit_code and not result.failed:
        result.failed += 1
        result.failures.append(f"the runner ended with exit status {exit_code}")
    return result
