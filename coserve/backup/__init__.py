"""A state directory as one file, made while everything runs, and put back."""
