"""From a batch's last line to its owner's receiver, with the processes that users run."""

from __future__ import annotations

import pytest
from openai import AsyncOpenAI

from tests.fixtures.batches import line
from tests.fixtures.installation import Installation
from tests.fixtures.receiver import receiving

pytestmark = pytest.mark.thorough


async def test_a_completed_batch_is_heard_of_even_if_the_receiver_fails_first(
    installation: Installation,
) -> None:
    async with (
        receiving(statuses=[500]) as receiver,
        AsyncOpenAI(base_url=f"{installation.url}/v1", api_key=installation.admin_key) as client,
    ):
        endpoint = await client.webhooks.create(
            name="e2e", url=receiver.url, event_types=["batch.completed"]
        )
        file = await client.files.create(file=("in.jsonl", line("a")), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        # The first wait is 5 s at most; the sweep looks every 3 s.
        first, second = await receiver.until(2, limit_s=60)
        event = second.unwrap(endpoint.signing_secret)
        assert event.type == "batch.completed"
        assert event.data.id == batch.id
        assert first.webhook_id == second.webhook_id
        assert (await client.batches.retrieve(batch.id)).status == "completed"
