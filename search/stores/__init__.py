"""The stores that hold a user's own vectors, as the service asks them. It knows no model."""
