"""The stores that hold a user's own vectors, as the gateway asks them. It knows no model."""
