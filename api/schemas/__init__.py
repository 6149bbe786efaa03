"""The form that an answer must have: JSON of a schema, a regular expression, or a grammar.

An engine compiles each of them to a grammar with xgrammar. A file answers one question:

    forms.py      which form does a request ask for, and may it?
    validity.py   is this a JSON schema at all?
    held.py       what of a schema does the compiled grammar hold? `KEYWORDS` is the table
    patterns.py   the same question for `pattern` and `format`
    integers.py   the same question for the bounds of integers
    limits.py     would compiling it take too long?
"""
