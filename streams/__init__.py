"""Ground floor: records and their codec, topics, settings, checkpoints and the worker. It knows no algorithm."""
