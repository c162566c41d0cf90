"""The loops of models that weigh several metrics: OAHU and the mixture."""
