"""Topics of other systems as they are: `[sources.NAME]` maps their records to events, in an agent of its own."""
