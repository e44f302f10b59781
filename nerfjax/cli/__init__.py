"""The command line: ``main`` dispatches, one short file per verb."""
