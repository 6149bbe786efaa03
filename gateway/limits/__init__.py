"""Rate limits: how many requests and tokens a key and its project may use per minute."""
