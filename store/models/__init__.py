"""All tables; importing this registers every one with `Base.metadata`."""

from store.models.base import Base
from store.models.batch import Batch, BatchEvent, IdempotencyKey
from store.models.chat_report import ChatReport
from store.models.dispatcher import DispatchCount, Dispatcher, StageCount
from store.models.engine import Engine
from store.models.file import Arrival, File, FullStore, PartedUpload, UploadedPart
from store.models.history import HistoryPoint, HistoryWriter
from store.models.key import ApiKey, EndedSession
from store.models.organization import DEFAULT_ORGANIZATION_ID, Organization
from store.models.project import DEFAULT_PROJECT_ID, AuditEntry, Project, Usage
from store.models.response import Conversation, ConversationItem, StoredResponse
from store.models.row import BatchRow, OutputPart, RowResult, Suspect, WriteReceipt
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
