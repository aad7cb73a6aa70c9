"""What a recipe says, after its file was read: frozen, complete, no I/O. `schema` reads it, `inherit` combines it."""

from msgspec import Struct

ROOT = "/opt/gpuaas/runtimes"
ARCHITECTURES = ("amd64", "arm64")
GPU_FAMILIES = ("any", "none", "nvidia", "amd")
SUPPORT = ("supported", "preview", "community", "custom", "deprecated")
TYPES = ("system", "bundle")
KINDS = ("pypi", "deb", "npm", "archive")


class Source(Struct, frozen=True):
    """Where files come from. `into` is below the root; wheels without it are installed, with it only unpacked."""

    kind: str
    items: tuple[str, ...]  # requirements, packages, name@version, or the one URL of an archive
    into: str = ""
    suite: str = ""  # deb: the Debian release
    index: str = ""  # pypi, deb: the name of an index or mirror that the site has configured, besides the default one
    sha256: str = ""  # archive
    strip: int = 0  # archive: leading directories to leave out
    build_only: bool = False  # deb: there for `run`, not in the result
    architectures: tuple[str, ...] = ()  # empty: all


class Mount(Struct, frozen=True):
    """What a job sees where. `selective` names the only entries of `source` that appear."""

    source: str
    target: str
    readonly: bool = True
    selective: tuple[str, ...] = ()


class Cache(Struct, frozen=True):
    """A volume that a package manager keeps its downloads in, and the variable that tells it so."""

    volume: str
    target: str
    variable: str = ""


class Check(Struct, frozen=True):
    """A command that must succeed in the finished runtime, and what it must print."""

    run: str
    expect: str = ""  # a regular expression, searched in the output


class Requirements(Struct, frozen=True):
    """What a machine must have. Nothing, 0 or "any" means that it does not matter."""

    architectures: tuple[str, ...] = ("amd64",)
    gpu_family: str = "any"
    min_driver: str = ""
    cuda: str = ""
    rocm: str = ""
    min_memory_bytes: int = 0
    recommended_memory_bytes: int = 0


class Recipe(Struct, frozen=True):
    name: str
    version: str
    product: str = ""  # what people call it: PyTorch Notebook
    description: str = ""
    type: str = "bundle"
    support: str = "supported"
    default: bool = False  # what the bare name means
    buildable: bool = True  # False: declared, but no public registry has what it needs; a site's own indexes may
    parents: tuple[str, ...] = ()  # `from:`
    python: str = ""  # the interpreter that wheels are installed for, below the root
    sources: tuple[Source, ...] = ()
    links: tuple[tuple[str, str], ...] = ()  # path below the root -> path below the root
    remove: tuple[str, ...] = ()  # globs below the root that are not in the result
    run: tuple[str, ...] = ()  # shell commands of the build, without network
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # ${root} is the version's directory
    path_prepend: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()
    requirements: Requirements = Requirements()
    verify: tuple[Check, ...] = ()
    file: str = ""  # where it was read, for messages

    @property
    def id(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def root(self) -> str:
        """Where it is on every machine, and while it is built."""
        return f"{ROOT}/{self.name}/{self.version}"
