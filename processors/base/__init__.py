"""Shared parts of the builders: the base, the catalogue, packing into blocks, draws, tables of ids, remembered keys,
checks of settings. It contains no builder.
"""
