"""What the service did, kept in the database for charts, whether or not anybody looks."""
