"""How long an answer will be: predictors behind one seam."""
