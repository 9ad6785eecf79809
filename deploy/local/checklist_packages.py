"""What the checklist on a GPU needs of our extras, and the tools of its suites.

Imports nothing: it is read on machines where nothing is installed, to say what is missing, and here, to pack it.
"""

WORKER_EXTRAS = ("rollout", "train")
OTHER_EXTRAS = ("control", "embedded", "data")  # for suites and whole jobs
TOOLS = (
    "hypothesis",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-django",
    "pytest-timeout",
    "pytest-xdist",
)
