"""What one tenant sees of another that loads the service in every way its limits allow."""
