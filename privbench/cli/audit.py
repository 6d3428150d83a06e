"""`privbench audit`: from options and a TOML file to a record on disk."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from privbench.cli.console import note, plain_console
from privbench.errors import OK, InputError, unknown
from privbench.gate import gate
from privbench.options import RECORDED, AuditOptions, RecordingFiles, parse_number
from privbench.record import check_writable, write
from privbench.registry import default_registry
from privbench.report.pages import PAGES, render
from privbench.report.terminal import show
from privbench.report.words import headline
from privbench.runner import Prepared, prepare, run_prepared
from privbench.target import Progress as Report

DEFAULT_OUT = "privbench-audit"

SWEEP_LISTS = ("eps", "noise_multiplier", "sigma")
"""Numbers of which a sweep takes several."""
_LISTS = ("defense", "set")
_TEXTS = ("target", "party", "data", "model", "out", "eps_for", "transcript", "secrets", "oracle")
_KEYS = (
    "target", "eps", "noise_multiplier", "sigma", "eps_for", "delta", "party", "data", "model", "attacks", "defense",
    "seed", "jobs", "set", "out", "format", "transcript", "secrets", "oracle",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What to run and where to put it."""

    options: AuditOptions
    out: Path
    pages: tuple[str, ...]
    jobs: int

    @classmethod
    def build(cls, given: Mapping[str, Any], file: Path | None) -> Request:
        """Command line over TOML over defaults; every value is checked here."""
        values = {key: value for key, value in given.items() if value is not None}
        if file is not None:
            values = {**read_toml(file), **values}
        recording = _recording(values)
        if "target" not in values and recording is None:
            raise InputError("--target is missing; see `privbench list targets`. For a recording give --transcript.")
        number = {
            key: parse_number(_flag(key), str(values[key]))
            for key in ("eps", "noise_multiplier", "sigma", "delta")
            if key in values
        }
        whole = {
            key: int(parse_number(_flag(key), str(values[key]), whole=True))
            for key in ("seed", "jobs")
            if key in values
        }
        if whole.get("jobs", 1) < 1:
            raise InputError(f"--jobs must be at least 1, got {whole['jobs']}.")
        options = AuditOptions(
            target=str(values.get("target", RECORDED)),
            eps=number.get("eps"),
            noise_multiplier=number.get("noise_multiplier"),
            sigma=number.get("sigma"),
            eps_for=str(values.get("eps_for", "nominal")),
            delta=number.get("delta", 1e-5),
            party=values.get("party"),
            data=values.get("data"),
            model=values.get("model"),
            attacks=split_list(values.get("attacks", "all")),
            defenses=tuple(values.get("defense", ())),
            seed=whole.get("seed", 0),
            settings=_settings(values.get("set", ())),
            recording=recording,
        )
        out = Path(str(values.get("out", DEFAULT_OUT)))
        if "\0" in str(out) or not str(values.get("out", DEFAULT_OUT)).strip():
            raise InputError("--out must name a folder.")
        return cls(options, out, _pages(values.get("format", "html,md")), whole.get("jobs", os.cpu_count() or 1))


def run_request(request: Request, *, strict: bool, exit_zero: bool, quiet: bool) -> int:
    """Run, print, write; the exit code is the gate's."""
    registry = default_registry()
    prepared = prepare(request.options, registry)
    if not quiet:
        _announce(prepared)
    with _folder(request.out), _progress(quiet) as report:
        result = run_prepared(prepared, registry, parallel=request.jobs, progress=report)
        write(result.audit, result.scores, render(result.audit, request.pages), request.out)
    console = plain_console()
    if quiet:
        console.print(headline(result.audit), markup=False)
    else:
        show(result.audit, console)
        console.print(f"Record: {request.out}", markup=False, style="dim")
    return OK if exit_zero else gate(result.audit, strict=strict).code


@contextmanager
def _folder(out: Path) -> Iterator[None]:
    """Make sure of the folder before anything is computed; a refused run leaves none that was not there."""
    fresh = check_writable(out)
    try:
        yield
    except BaseException:
        if fresh:
            with suppress(OSError):  # something is in it by now: it stays
                out.rmdir()
        raise


def _announce(prepared: Prepared) -> None:
    """What a run will need, on stderr: nobody should find out at its end."""
    needed, seconds = prepared.disk_bytes, prepared.target.expected_seconds(prepared.config)
    if needed:
        place = tempfile.gettempdir()
        free = shutil.disk_usage(place).free
        note(f"privbench: the recordings take about {needed / 1e6:,.0f} MB in {place} ({free / 1e9:,.0f} GB free).")
    if seconds:
        note(f"privbench: about {max(round(seconds / 60), 1):,} minutes on one quiet core, for the tuning alone.")


def _recording(values: Mapping[str, Any]) -> RecordingFiles | None:
    """--transcript with --secrets, and --oracle where there is one."""
    files = {key: Path(str(values[key])) for key in ("transcript", "secrets", "oracle") if key in values}
    if not files:
        return None
    for key in ("transcript", "secrets"):
        if key not in files:
            raise InputError(f"a recording needs --transcript and --secrets; --{key} is missing.")
    return RecordingFiles(**files)


@contextmanager
def _progress(quiet: bool) -> Iterator[Report]:
    """Bars on stderr, one per run; nothing where stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, share: float) -> None:
            name = stage.partition(":")[0]
            if name not in tasks:
                tasks[name] = bars.add_task(stage, total=1.0)
            bars.update(tasks[name], description=stage, completed=share)

        yield report


def read_toml(file: Path, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """Options from a file, by the names of the command line; `extra`: names that only this command knows."""
    try:
        with file.open("rb") as handle:
            data = tomllib.load(handle)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"--config {file} cannot be read: {error}") from error
    values = {key.replace("-", "_"): value for key, value in data.items()}
    for key in values:
        if key not in (*_KEYS, *extra):
            raise unknown(f"key in {file.name}", key, (*_KEYS, *extra))
    if isinstance(values.get("set"), dict):
        values["set"] = [f"{key}={_listed(value)}" for key, value in values["set"].items()]
    for key, value in values.items():
        if key in _LISTS and isinstance(value, str):
            values[key] = [value]
        elif key in _LISTS and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise InputError(f"{key} in {file.name} must be a text or a list of texts.")
        elif key in _TEXTS and not isinstance(value, str):
            raise InputError(f"{key} in {file.name} must be a text, got {value!r}.")
        elif isinstance(value, bool) or not isinstance(value, str | int | float | list):
            raise InputError(f"{key} in {file.name} is {value!r}; a text or a number is needed.")
    return values


def _listed(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _settings(items: Any) -> dict[str, str]:
    settings: dict[str, str] = {}
    for item in items:
        key, separator, value = str(item).partition("=")
        key = key.strip().replace("-", "_")
        if not separator or not key:
            raise InputError(f"--set takes key=value, got '{item}'.")
        if key in settings:
            raise InputError(f"--set {key} is given twice: {settings[key]} and {value}.")
        settings[key] = value
    return settings


def split_list(value: Any) -> tuple[str, ...]:
    """Items by commas, or of a list."""
    items = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(item).strip() for item in items if str(item).strip())


def _pages(value: Any) -> tuple[str, ...]:
    if not split_list(value):
        raise InputError("--format is empty; leave it out for html and md.")
    names = tuple(name for name in split_list(value) if name != "json")  # the record itself is always written
    for name in names:
        if name not in PAGES:
            raise unknown("format", name, (*PAGES, "json"))
    return names


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")
