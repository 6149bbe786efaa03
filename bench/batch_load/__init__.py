"""Load of the whole batch service: 50,000 lines from upload to download, and 20 owners at once."""
