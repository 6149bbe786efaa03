"""One verdict on the service, which pages, commands and `/statusz` repeat.

facts.py    what it is made of: plain values
judge.py    facts in, verdict out; knows no HTTP and no SQL
reading.py  gathers the facts from the pool of engines and the database
"""
