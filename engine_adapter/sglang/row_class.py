"""Which class a request belongs to, read from the fields that survive SGLang's IPC.

The gateway sets them and strips whatever a client sent:

    priority        >= 0 or absent: online      < 0: flex or offline
    custom_params   {"coserve": {"class": "flex", "deadline_in_s": 3600.0, "batch": "batch_..."}}
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine_adapter.scheduling.request import RequestClass

FLEX_PRIORITY = -1


@dataclass(frozen=True, slots=True)
class RowClass:
    """Class, deadline and batch of one request.

    Attributes:
        request_class: Online, flex or offline.
        deadline_in_s: Seconds from arrival to the end of the completion window.
        batch_id: Batch the row belongs to; empty for online.
    """

    request_class: RequestClass
    deadline_in_s: float = math.inf
    batch_id: str = ""


def classify(priority: int | None, custom_params: Any) -> RowClass:
    """Read class, deadline and batch.

    The sign of ``priority`` decides between online and the rest even if the detail is missing or
    malformed: a request must never become online by sending garbage.
    """
    if priority is None or priority >= 0:
        return RowClass(RequestClass.ONLINE)
    detail = custom_params.get("coserve") if isinstance(custom_params, dict) else None
    if not isinstance(detail, dict):
        detail = {}
    flex = priority == FLEX_PRIORITY or detail.get("class") == "flex"
    deadline = detail.get("deadline_in_s", math.inf)
    if not isinstance(deadline, int | float) or math.isnan(deadline):
        deadline = math.inf
    return RowClass(
        RequestClass.FLEX if flex else RequestClass.OFFLINE,
        float(deadline),
        str(detail.get("batch", "")),
    )
