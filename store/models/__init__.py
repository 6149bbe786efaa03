"""All tables; importing this registers every one with `Base.metadata`."""

from store.models.arrival import Arrival
from store.models.audit import AuditEntry
from store.models.base import Base
from store.models.batch import Batch
from store.models.chat_report import ChatReport
from store.models.dispatch_count import DispatchCount
from store.models.dispatcher import Dispatcher
from store.models.ended_session import EndedSession
from store.models.engine import Engine
from store.models.event import BatchEvent
from store.models.file import File
from store.models.full_store import FullStore
from store.models.history import HistoryPoint, HistoryWriter
from store.models.idempotency import IdempotencyKey
from store.models.key import ApiKey
from store.models.organization import DEFAULT_ORGANIZATION_ID, Organization
from store.models.output_part import OutputPart
from store.models.parted_upload import PartedUpload, UploadedPart
from store.models.project import DEFAULT_PROJECT_ID, Project
from store.models.receipt import WriteReceipt
from store.models.response import Conversation, ConversationItem, StoredResponse
from store.models.result import RowResult
from store.models.row import BatchRow
from store.models.stage_count import StageCount
from store.models.suspect import Suspect
from store.models.usage import Usage
from store.models.webhook import WebhookDelivery, WebhookEndpoint

__all__ = [
    "DEFAULT_ORGANIZATION_ID",
    "DEFAULT_PROJECT_ID",
    "ApiKey",
    "Arrival",
    "AuditEntry",
    "Base",
    "Batch",
    "BatchEvent",
    "BatchRow",
    "ChatReport",
    "Conversation",
    "ConversationItem",
    "DispatchCount",
    "Dispatcher",
    "EndedSession",
    "Engine",
    "File",
    "FullStore",
    "HistoryPoint",
    "HistoryWriter",
    "IdempotencyKey",
    "Organization",
    "OutputPart",
    "PartedUpload",
    "Project",
    "RowResult",
    "StageCount",
    "StoredResponse",
    "Suspect",
    "UploadedPart",
    "Usage",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WriteReceipt",
]
