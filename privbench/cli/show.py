"""`privbench gate`, `report` and `list`: everything that only reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.table import Table

from privbench.cli.console import plain_console
from privbench.errors import InputError, RecordError, unknown
from privbench.gate import gate
from privbench.options import AuditOptions, Setting, settings_of
from privbench.record import AUDIT_FILE, SWEEP_FILE, Audit, holds_sweep, read
from privbench.recording import Secrets
from privbench.registry import GROUPS, Registry, default_registry
from privbench.report.words import headline
from privbench.sweep.record import read_sweep


def run_gate(path: Path, *, strict: bool) -> int:
    """Print why the gate fails, or that it holds; the exit code is its result."""
    audit = read(path)
    result = gate(audit, strict=strict)
    console = plain_console()
    for reason in result.reasons:
        console.print(reason, markup=False, soft_wrap=True)
    if not result.reasons:
        console.print(headline(audit), markup=False)
    return result.code


def run_verify(record: Path, secrets: Path | None) -> int:
    """Print every difference, of a sweep one line for each cell that differs; 1 when there is one."""
    from privbench.verify import RECOMPUTED, covered_by_hash, verify

    folder = _folder(record)
    if holds_sweep(folder):
        if secrets is not None:
            raise InputError(f"--secrets are of one audit: give it the folder of a cell, {folder / 'cells' / 'HASH'}.")
        return _verify_sweep(folder)
    held = None if secrets is None else Secrets.load(secrets)
    differences = verify(folder, default_registry(), held)
    console = plain_console()
    for line in differences:
        console.print(line, markup=False, soft_wrap=True)
    if not differences:
        audit = read(folder)
        hashed = f"Covered by the record's own hash only: {covered_by_hash(audit)}"
        console.print(f"Recomputed, and all agrees: {RECOMPUTED}.", markup=False)
        console.print(f"{_coins_checked(audit, held)}. {hashed}.", markup=False)
    return 1 if differences else 0


def _coins_checked(audit: Audit, secrets: Secrets | None) -> str:
    """Which of a record's coins were held against the secrets."""
    held = {
        "label coins": (audit.secret is not None, secrets is not None and bool(secrets.coined)),
        "coins of membership": (audit.members is not None, secrets is not None and secrets.asks_membership),
    }
    done = [name for name, (there, known) in held.items() if there and known]
    left = [name for name, (there, known) in held.items() if there and not known]
    said = [f"Held against the secrets: the {' and the '.join(done)}"] if done else []
    without = "" if secrets else ", without --secrets"
    said += [f"Not checked{without}: the {' and the '.join(left)}"] if left else []
    return ". ".join(said) or "No coin is in this record"


def _verify_sweep(folder: Path) -> int:
    from privbench.sweep.verify import verify_sweep
    from privbench.verify import COVERED_BY_HASH, RECOMPUTED

    found = verify_sweep(folder, default_registry())
    console = plain_console()
    for line in (*found.differing, *found.files):
        console.print(line, markup=False, soft_wrap=True)
    count = f"{found.cells:,} cell{'s' if found.cells > 1 else ''}"
    if found.outside:
        are, alone = ("is", "itself") if found.outside == 1 else ("are", "themselves")
        console.print(f"{found.outside:,} of {count} {are} in no row of {SWEEP_FILE}: verified by {alone} alone.")
    if found.differing or found.files:
        own = f"; {SWEEP_FILE} or its pages differ in {len(found.files):,}" if found.files else ""
        console.print(f"{len(found.differing):,} of {count} differ{own}.", markup=False)
        return 1
    hashed = f"Covered by the records' own hashes only: {COVERED_BY_HASH}"
    console.print(f"Recomputed, and all agrees: of {count} {RECOMPUTED}; {SWEEP_FILE} and its pages.", markup=False)
    console.print(f"Not checked: the coins, the figure. {hashed}.", markup=False)
    return 0


def _folder(record: Path) -> Path:
    """The folder of a record or a sweep that is given by its folder, its audit.json or its sweep.json."""
    folder = record.parent if record.name in (AUDIT_FILE, SWEEP_FILE) else record
    if not folder.is_dir():
        raise RecordError(f"{record} is not a folder; give the folder that holds {AUDIT_FILE}, or that file.")
    return folder


def run_report(record: Path) -> None:
    """Render all pages again from audit.json or sweep.json, and print what they say."""
    from privbench.report.pages import PAGES, render, write_pages
    from privbench.report.terminal import show

    folder = _folder(record)
    if holds_sweep(folder):
        from privbench.report import sweep_pages, sweep_terminal

        sweep = read_sweep(folder)
        write_pages(sweep_pages.pages(sweep), folder)
        sweep_terminal.show(sweep, plain_console())
        return
    audit = read(folder)
    write_pages({name: text.encode() for name, text in render(audit, PAGES).items()}, folder)
    show(audit, plain_console())


def run_list(what: str, target: str | None, *, as_json: bool) -> None:
    """A table of cards, or what --set may change of each target or of one; or the same as JSON."""
    if what == "settings":
        _list_settings(target, as_json)
        return
    if target is not None:
        raise InputError(f"--target belongs to `privbench list settings`; leave it out of `list {what}`.")
    rows = _rows(what)
    if as_json:
        print_json(rows)
        return
    columns = [key for key in ("name", "summary", "channels", "channel", "guarantee", "paper") if key in rows[0]]
    plain_console().print(_table(columns, ([_cell(row[column]) for column in columns] for row in rows)))


def _list_settings(target: str | None, as_json: bool) -> None:
    registry = default_registry()
    found = {name: _settings(name, registry) for name in (registry.names("targets") if target is None else (target,))}
    if target is not None and not found[target][1]:
        raise InputError(f"target {target} has no settings: nothing of it can be changed by --set.")
    if as_json:
        print_json([{"target": name, **asdict(item)} for name, (_, settings) in found.items() for item in settings])
        return
    console = plain_console()
    for name, (said, settings) in found.items():
        if settings:
            console.print(name, style="bold")
            console.print(said, markup=False, soft_wrap=True)
            rows = ([item.name, item.kind, str(item.default) or "(empty)"] for item in settings)
            console.print(Padding(_table(["--set", "takes", "default"], rows), (1, 0, 1, 2), expand=False))


def _settings(name: str, registry: Registry) -> tuple[str, tuple[Setting, ...]]:
    """Of a target as it is without any option: with no noise, which none refuses."""
    target = registry.get("targets", name)()
    try:
        return settings_of(target.configure(AuditOptions(name, eps=math.inf), registry))
    except InputError:  # a recording, or another target that is nothing without its files
        return "", ()


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*row)
    return table


def print_json(rows: list[dict[str, Any]]) -> None:
    """Plain JSON on stdout, never wrapped to a terminal's width."""
    import typer

    typer.echo(json.dumps(rows, indent=1, default=sorted))


def _rows(what: str) -> list[dict[str, Any]]:
    if what == "datasets":
        from privbench.data.catalogue import READERS, SURVEYS

        return [{"name": name, "summary": summary} for name, summary in {**READERS, **SURVEYS}.items()]
    if what not in GROUPS:
        raise unknown("list", what, (*GROUPS, "datasets", "settings"))
    registry = default_registry()
    cards = [registry.get(what, name).card for name in registry.names(what)]
    return [asdict(card) for card in cards if is_dataclass(card) and not isinstance(card, type)]


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
