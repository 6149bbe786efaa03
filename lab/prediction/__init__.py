"""How long an answer will be: predictors to compare."""
