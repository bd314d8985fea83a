"""The error that a user can mend."""


class UserError(Exception):
    """What the user asked for cannot be done; the command line prints it and exits with 2."""
