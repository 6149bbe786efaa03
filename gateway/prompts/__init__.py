"""One request for an answer: admitted, sent to an engine, streamed, billed."""
