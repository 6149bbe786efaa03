"""All tables; importing this registers every one with `Base.metadata`."""

from store.models.audit import AuditEntry
from store.models.base import Base
from store.models.batch import Batch
from store.models.dispatch_count import DispatchCount
from store.models.dispatcher import Dispatcher
from store.models.engine import Engine
from store.models.event import BatchEvent
from store.models.file import File
from store.models.idempotency import IdempotencyKey
from store.models.key import ApiKey
from store.models.organization import DEFAULT_ORGANIZATION_ID, Organization
from store.models.project import DEFAULT_PROJECT_ID, Project
from store.models.result import RowResult
from store.models.row import BatchRow
from store.models.usage import Usage
from store.models.webhook import WebhookDelivery, WebhookEndpoint

__all__ = [
    "DEFAULT_ORGANIZATION_ID",
    "DEFAULT_PROJECT_ID",
    "ApiKey",
    "AuditEntry",
    "Base",
    "Batch",
    "BatchEvent",
    "BatchRow",
    "DispatchCount",
    "Dispatcher",
    "Engine",
    "File",
    "IdempotencyKey",
    "Organization",
    "Project",
    "RowResult",
    "Usage",
    "WebhookDelivery",
    "WebhookEndpoint",
]
