"""The gateway: it maps query vectors by the newest model of their space, and asks the user's own store."""
