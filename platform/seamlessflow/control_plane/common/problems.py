"""x."""


def exception_handler(*a):
    return None
