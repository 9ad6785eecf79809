"""A machine's variables: what each means, accepts and defaults to. Most are the default of a flag of the supervisor."""

from seamlessflow.core.sizing.gpu_memory import USUAL_SHARE
from seamlessflow.runtime.variables import fraction, one_of, secret, text, whole_number
from seamlessflow_workers.process.settings import LOOPBACK, MEMORY_SHARE_VARIABLE, USUAL_MEMORY_SHARE

MIN_SECRET_LENGTH = 32

JOIN_TOKEN = secret(
    "SEAMLESSFLOW_JOIN_TOKEN",
    "lets this host register itself; without it, the machine's own token is needed",
    min_length=MIN_SECRET_LENGTH,
    default_note="none",
)
BROKER_URL = text(
    "BROKER_URL", "carries doorbells; without it, orders come with the answers to heartbeats", default=""
)
HOME = text(
    "SEAMLESSFLOW_HOME", "where this host keeps its state", accepted="a folder", default=".seamlessflow"
)
LISTEN_HOST = text(
    "SEAMLESSFLOW_LISTEN_HOST",
    "the address on which engines and the trainers of a gang listen; `0.0.0.0` for all",
    default=LOOPBACK,
)
ADVERTISED_HOST = text(
    "SEAMLESSFLOW_ADVERTISED_HOST",
    "the name or address under which gateways and other machines reach this one",
    default="",
    default_note="where it listens",
)
HOST_NAME = text(
    "SEAMLESSFLOW_HOST_NAME",
    "the name of the host, for the label `host=…`. Set it in containers, whose names say nothing "
    "(the chart does; for Compose, in `.env`)",
    default="",
    default_note="its own name",
)
DEVICE = one_of(
    "SEAMLESSFLOW_DEVICE",
    "the kind of device",
    choices=("cpu", "cuda"),
    default="",
    default_note="cuda if there is a GPU",
)
DEVICES = text(
    "SEAMLESSFLOW_DEVICES",
    "the devices on which the machine computes",
    accepted="GPUs (`0-5`, `0,1`, UUIDs) or sets of cores (`cpu:0,cpu:1`)",
    default="",
    default_note="all visible GPUs; on a CPU one device of all cores",
)
GPU_MEMORY_SHARE = fraction(
    "SEAMLESSFLOW_GPU_MEMORY_SHARE",
    "how much a vLLM engine takes of what the other processes of its machine leave of a GPU; set less if something "
    "else uses the GPU too",
    default=USUAL_SHARE,
)
MEMORY_SHARE = fraction(
    MEMORY_SHARE_VARIABLE,
    "how much of the host's memory, or of the container's, one engine or trainer may use; one that takes more is "
    "killed, and its phase says so",
    default=USUAL_MEMORY_SHARE,
)
FORK_SERVER = one_of(
    "SEAMLESSFLOW_FORK_SERVER",
    "`off`: children are started from scratch, which takes seconds each but saves an idle process of up to 0.5 GB",
    choices=("on", "off"),
    default="on",
)
ENGINE_PYTHON = text(
    "ENGINE_PYTHON",
    "the interpreter of engines",
    default="",
    default_note="our own; for vLLM the environment beside it",
)
AGENT_VARIABLES = text(
    "SEAMLESSFLOW_AGENT_VARIABLES",
    "more variables of the machine that agents may see",
    accepted="names joined by ','",
    default="",
)
AGENT_TMP_MB = whole_number(
    "SEAMLESSFLOW_AGENT_TMP_MB",
    "the size of the private `/tmp` of each session",
    default=1024,
    minimum=1,
)
VARIABLES = (
    JOIN_TOKEN, BROKER_URL, HOME, HOST_NAME, LISTEN_HOST, ADVERTISED_HOST, DEVICE, DEVICES, GPU_MEMORY_SHARE,
    MEMORY_SHARE, FORK_SERVER, ENGINE_PYTHON, AGENT_VARIABLES, AGENT_TMP_MB,
)  # fmt: skip
