"""The command line: verbs, their options, and what the project needs of a machine."""
