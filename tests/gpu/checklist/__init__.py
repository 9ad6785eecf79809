"""What is to be seen on a GPU, as a list of items that end by themselves: `python -m tests.gpu.checklist`.

`plan` is the list, pure data. The process that runs it needs only the standard library, so it starts on a machine that
has nothing but Python and torch; each item is a process of its own with a time limit.
"""
