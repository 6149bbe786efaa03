"""What is published, built from the files of the repository: for maintainers, not in the wheel."""
