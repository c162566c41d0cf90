"""What builders of more than one kind stand on: the base, the catalogue, packing into blocks, draws, tables of ids,
remembered keys, checks of settings. No builder is here.
"""
