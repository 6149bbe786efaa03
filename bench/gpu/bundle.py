"""Assemble what must travel to a GPU host without a network: one archive of at most 36 MiB.

.venv/bin/python -m bench.gpu.bundle build/gpu/bundle.tar.xz

site/       wheels for Python 3.12, unpacked and cut down, and our engine packages
checkout/   the stages, the benchmark and the engine's test rig
jit/        SGLang's kernels for a Hopper card, where `bench.gpu.jit_kernels` has built them
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

from coserve.setup.engine_env import engine_python
from coserve.setup.engine_link import ENTRY_POINTS, version_of, write_metadata

ROOT = Path(__file__).resolve().parents[2]
LIMIT_BYTES = 36 << 20
TRAVEL_BYTES = 60 << 20
"""The archive and the tracked files together: 64 MiB may travel."""
PYTHON = "3.12"
LIST = ROOT / "requirements/engine-cpu-0.5.16.txt"
"""Of the release whose kernels run beside the host's torch."""
GLIBC = (35, 34, 31, 28, 27, 24, 17)
# Only sm90/common_ops of sglang_kernel is loaded at import on a Hopper card; the rest of these are
# other architectures, attention kernels of other backends, sources, tests and static libraries.
LEFT_OUT = (
    "sgl_kernel/flash_ops*", "sgl_kernel/sm100/*", "sgl_kernel/infllm_ops*",
    "sgl_kernel/flashmla_ops*", "sgl_kernel/triton_kernels/*", "sgl_kernel/spatial_ops*",
    "flashinfer/data/*", "*.a", "*.pyi", "*/tests/*", "*/test/*",
    "sglang/multimodal_gen/*", "sglang/benchmark/*",
)  # fmt: skip
OUR_PACKAGES = ("engine_adapter", "api", "service", "lab", "kernels/coserve_kernels")
CHECKOUT = (*OUR_PACKAGES[:4], "kernels", "bench", "coserve", "tests/engine", "tests/fixtures")
JIT = ROOT / "build" / "gpu" / "jit"
DEFAULT = ROOT / "build" / "gpu" / "bundle.tar.xz"
NOTE = Path(__file__).with_name("bundle.json")
"""How large the archive was with which packages, so that a test can tell without building it."""


def pins() -> list[str]:
    """The list with every version filled in.

    Raises:
        ValueError: For a package without a version that the CPU engine does not pin either.
    """
    frozen = dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", LIST.read_text(), re.M))
    wanted = []
    for line in (Path(__file__).with_name("packages.txt")).read_text().splitlines():
        name = line.partition("#")[0].strip()
        if name and "==" not in name:
            if name not in frozen:
                raise ValueError(f"packages.txt: {name} needs a version")
            name = f"{name}=={frozen[name]}"
        if name:
            wanted.append(name)
    return wanted


def download(folder: Path) -> list[Path]:
    """Fetch the wheels with pip, as this host is configured to."""
    argv = [str(engine_python(ROOT)), "-m", "pip", "download", "--quiet", "--no-deps"]
    argv += ["--dest", str(folder)]
    argv += ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON]
    for platform in (
        *(f"manylinux_2_{minor}_x86_64" for minor in GLIBC),
        "manylinux2014_x86_64",
        "manylinux1_x86_64",
        "any",
    ):
        argv += ["--platform", platform]
    subprocess.run([*argv, *pins()], check=True)
    return sorted(folder.glob("*.whl"))


def unpack(wheels: list[Path], site: Path) -> None:
    """Unpack what is needed; the metadata stays, SGLang checks versions."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                if not any(fnmatch(name, pattern) for pattern in LEFT_OUT):
                    packed.extract(name, site)
    # SGLang imports IPython.display for a notebook helper that no server uses.
    (site / "IPython").mkdir()
    (site / "IPython" / "__init__.py").write_text("")
    (site / "IPython" / "display.py").write_text("HTML = display = None\n")
    for library in site.rglob("*.so*"):
        subprocess.run(["strip", "--strip-debug", str(library)], check=False, capture_output=True)


def add_our_code(folder: Path) -> None:
    """Our packages beside SGLang, with its plugin entry point; the benchmark in a tree of its own.

    The tree is never on the engine's path: its ``kernels`` folder would shadow a package.
    """
    site, checkout = folder / "site", folder / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", "results")
    for name in OUR_PACKAGES:
        shutil.copytree(ROOT / name, site / Path(name).name, ignore=ignore)
    write_metadata(site, version_of(ROOT), ENTRY_POINTS)
    for name in CHECKOUT:
        source, target = ROOT / name, checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy(source, target)
    if JIT.is_dir():
        shutil.copytree(JIT, folder / "jit")


def tracked_bytes() -> int:
    """Size of the files of this checkout that travel beside the archive."""
    told = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
    ).stdout
    files = [ROOT / name for name in told.decode().split("\0") if name]
    return sum(file.stat().st_size for file in files if file.is_file())


def pack(folder: Path, archive: Path) -> int:
    """Write the archive; returns its size in bytes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_name(f"{archive.name}.part")
    with (
        lzma.open(part, "wb", preset=9 | lzma.PRESET_EXTREME) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as packed,
    ):
        # Alike files beside each other: a third of the archive is text.
        files = (file for file in folder.rglob("*") if file.is_file())
        for file in sorted(files, key=lambda file: (file.suffix, str(file))):
            packed.add(file, file.relative_to(folder), filter=_nobodys)
    part.replace(archive)
    return archive.stat().st_size


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time: the same content is the same archive."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main() -> int:
    """Assemble; 1 if the archive is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("archive", type=Path, nargs="?", default=DEFAULT)
    parser.add_argument("--wheels", type=Path, help="folder to keep the wheels in")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coserve-bundle-") as work:
        wheels = args.wheels or Path(work) / "wheels"
        folder = Path(work) / "bundle"
        unpack(download(wheels), folder / "site")
        add_our_code(folder)
        size = pack(folder, args.archive)
    if args.archive == DEFAULT:
        note = {"bytes": size, "jit_modules": len(list(JIT.glob("*/*.so"))), "packages": pins()}
        NOTE.write_text(json.dumps(note, indent=1) + "\n")
    together = size + tracked_bytes()
    print(
        f"{args.archive}: {size / 2**20:.1f} MiB of {LIMIT_BYTES >> 20}, "
        f"with the tracked files {together / 2**20:.1f} of {TRAVEL_BYTES >> 20}"
    )
    if size > LIMIT_BYTES or together > TRAVEL_BYTES:
        print("too large: cut more (LEFT_OUT) or shorten packages.txt", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
