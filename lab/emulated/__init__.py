"""A GPU that is not there, inside a real SGLang: passes take a table's time and compute nothing."""
