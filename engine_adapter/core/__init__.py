"""The vocabulary of co-serving: plain data, standard library only."""
