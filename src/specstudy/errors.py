"""The one exception whose message is meant for the person at the keyboard."""


class UserError(Exception):
    """Something the user can mend: the message is one line saying what is wrong, where, and what would be right."""
