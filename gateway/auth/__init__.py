"""Who is asking: keys, principals and what they used."""
