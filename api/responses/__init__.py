"""The Responses resource on the wire: made of the engine's chat calls."""
