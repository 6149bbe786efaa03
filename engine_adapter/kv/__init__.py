"""Which pages are where, and what moving them costs."""
