"""`privbench`: commands, errors and exit codes (README).

0 every check ran and held, 1 a bound was exceeded, 2 usage or bad input, 3 incomplete. Errors are one or two lines on
stderr: what was given, what is wrong, what to do; a traceback only with --debug.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import privbench
from privbench.cli.data import Debug, data_app
from privbench.cli.ending import INTERRUPTED, explain

app = typer.Typer(
    name="privbench",
    help="Audit what split-learning systems really leak.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(data_app, name="data")

EpsFor = Annotated[str | None, typer.Option(help="Whom --eps speaks for: nominal or site.")]
Delta = Annotated[str | None, typer.Option(help="delta of the budget (default 1e-5).")]
PartyName = Annotated[str | None, typer.Option(help="The curious site (prism: default the holder of ihm).")]
Model = Annotated[
    str | None, typer.Option(help="split-llama, fedavg: tiny (default), smollm2 or path:DIR, a LLaMA on disk.")
]
Attacks = Annotated[str | None, typer.Option(help="all, a family (label) or names, by commas.")]
Seed = Annotated[str | None, typer.Option(help="Seed of everything random (default 0).")]
Config = Annotated[str | None, typer.Option(help="TOML file with these options; the command line wins.")]
Strict = Annotated[bool, typer.Option("--strict", help="INCONCLUSIVE exits 3.")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdicts.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the headline only.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"privbench {privbench.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Audit what split-learning systems really leak."""


@app.command()
def audit(
    target: Annotated[str | None, typer.Option(help="System to audit; see `privbench list targets`.")] = None,
    eps: Annotated[str | None, typer.Option(help="Privacy budget; inf means no noise and no clip.")] = None,
    noise_multiplier: Annotated[str | None, typer.Option(help="sigma / C instead of --eps.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Absolute noise instead of --eps.")] = None,
    eps_for: EpsFor = None,
    delta: Delta = None,
    party: PartyName = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="prism: synthetic or physionet2012:DIR; split-llama, fedavg: synthetic or a survey; gaussian: a "
            "folder for the files. See `privbench list datasets`."
        ),
    ] = None,
    model: Model = None,
    transcript: Annotated[
        str | None, typer.Option(help="A recording instead of a target: what parties exchanged (safetensors).")
    ] = None,
    secrets: Annotated[str | None, typer.Option(help="With --transcript: the labels and coins to be guessed.")] = None,
    oracle: Annotated[
        str | None, typer.Option(help="With --transcript: the noise-free releases under either label, where known.")
    ] = None,
    attacks: Attacks = None,
    defense: Annotated[list[str] | None, typer.Option(help="NAME[:key=value,...]; default by target.")] = None,
    seed: Seed = None,
    jobs: Annotated[str | None, typer.Option(help="Processes for the target's runs (default: cores).")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value of the target, repeatable; see `privbench list settings`."),
    ] = None,
    config: Config = None,
    out: Annotated[str | None, typer.Option(help="Folder for the record (default privbench-audit).")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Pages beside the record: html,md (default both).")
    ] = None,
    strict: Strict = False,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a target, let a curious party attack it, hold the leakage against its bounds."""
    from privbench.cli.audit import Request, run_request

    given: dict[str, Any] = {
        "target": target, "eps": eps, "noise_multiplier": noise_multiplier, "sigma": sigma, "eps_for": eps_for,
        "delta": delta, "party": party, "data": data, "model": model, "attacks": attacks, "defense": defense,
        "seed": seed, "jobs": jobs, "set": set_, "out": out, "format": format_, "transcript": transcript,
        "secrets": secrets, "oracle": oracle,
    }  # fmt: skip
    request = Request.build(given, Path(config) if config else None)
    raise typer.Exit(run_request(request, strict=strict, exit_zero=exit_zero, quiet=quiet))


@app.command()
def sweep(
    target: Annotated[list[str] | None, typer.Option(help="System to audit; repeatable.")] = None,
    eps: Annotated[str | None, typer.Option(help="Budgets by commas, or start:stop:count; inf means no noise.")] = None,
    noise_multiplier: Annotated[str | None, typer.Option(help="sigma / C instead of --eps; a list likewise.")] = None,
    sigma: Annotated[str | None, typer.Option(help="Absolute noise instead of --eps; a list likewise.")] = None,
    eps_for: EpsFor = None,
    delta: Delta = None,
    party: PartyName = None,
    data: Annotated[list[str] | None, typer.Option(help="A data set, as in `privbench audit`; repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model, as in `privbench audit`; repeatable.")] = None,
    attacks: Attacks = None,
    defense: Annotated[list[str] | None, typer.Option(help="NAME[:key=value,...]; each one is a column.")] = None,
    seed: Seed = None,
    seeds: Annotated[str | None, typer.Option(help="So many seeds from --seed on (default 1).")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value,value,... of the target, likewise.")
    ] = None,
    jobs: Annotated[str | None, typer.Option(help="Cells at once, one thread each (default: cores).")] = None,
    backend: Annotated[str | None, typer.Option(help="loky (processes on this machine).")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed cells again.")] = False,
    config: Config = None,
    out: Annotated[str | None, typer.Option(help="Folder of the sweep (default privbench-sweep).")] = None,
    strict: Strict = False,
    exit_zero: ExitZero = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Audit every combination of the listed values; resumable, judged together."""
    from privbench.cli.sweep import run_sweep

    given: dict[str, Any] = {
        "target": target, "eps": eps, "noise_multiplier": noise_multiplier, "sigma": sigma, "eps_for": eps_for,
        "delta": delta, "party": party, "data": data, "model": model, "attacks": attacks, "defense": defense,
        "seed": seed, "seeds": seeds, "set": set_, "jobs": jobs, "out": out,
    }  # fmt: skip
    code = run_sweep(
        given, Path(config) if config else None,
        retry=retry, backend=backend, strict=strict, exit_zero=exit_zero, quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def gate(
    record: Annotated[str, typer.Argument(help="Folder of an audit, or its audit.json.")],
    strict: Annotated[bool, typer.Option("--strict", help="INCONCLUSIVE exits 3.")] = False,
    debug: Debug = False,
) -> None:
    """Exit code from a record alone: fails on EXCEEDED, FAILED and missing checks."""
    from privbench.cli.show import run_gate

    raise typer.Exit(run_gate(Path(record), strict=strict))


@app.command()
def report(
    record: Annotated[str, typer.Argument(help="Folder of an audit or of a sweep.")],
    debug: Debug = False,
) -> None:
    """Render the pages again from the record, and print it: audit.html and audit.md, or those of a sweep."""
    from privbench.cli.show import run_report

    run_report(Path(record))


@app.command()
def verify(
    record: Annotated[str, typer.Argument(help="Folder of an audit or of a sweep.")],
    secrets: Annotated[
        str | None,
        typer.Option(
            help="Check the coins too: a recording's secrets file, or the one that target gaussian --data kept."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Recompute everything that follows from a record's scores, or from every cell's; exit 1 on any difference."""
    from privbench.cli.show import run_verify

    raise typer.Exit(run_verify(Path(record), Path(secrets) if secrets else None))


@app.command()
def bounds(
    sigma: Annotated[str | None, typer.Option(help="Noise std per task, absolute.")] = None,
    noise_multiplier: Annotated[str | None, typer.Option(help="sigma / C instead of --sigma.")] = None,
    clip: Annotated[str | None, typer.Option(help="Clip norm C (default 1).")] = None,
    rho: Annotated[
        str | None,
        typer.Option(help="Cosine between the moves (default 0): the mean; in mu and tpr@F the largest of any record."),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="K, tasks summed (default 2).")] = None,
    moved: Annotated[str | None, typer.Option(help="J, tasks whose labels the coin moves (default 2).")] = None,
    releases: Annotated[str | None, typer.Option(help="T, releases of a record (default 1).")] = None,
    mechanism: Annotated[str | None, typer.Option(help="sum, once, clipped-sum or separate (default sum).")] = None,
    unit: Annotated[str | None, typer.Option(help="accuracy, auc, advantage, mu or tpr@F.")] = None,
    batch: Annotated[
        str | None, typer.Option(help="With --records: add what a nominal claim over T epochs allows.")
    ] = None,
    records: Annotated[str | None, typer.Option(help="Training records of the nominal claim.")] = None,
    delta: Annotated[str | None, typer.Option(help="delta of the nominal claim (default 1e-5).")] = None,
    plot: Annotated[
        str | None,
        typer.Option(help="FILE.svg or FILE.png: the bounds over noise multipliers, so the noise must be a range."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Every bound at given parameters; each number may be a range start:stop:count."""
    from privbench.cli.numbers import run_bounds

    given = {
        "sigma": sigma, "noise_multiplier": noise_multiplier, "clip": clip, "rho": rho, "tasks": tasks, "moved": moved,
        "releases": releases, "mechanism": mechanism, "unit": unit, "batch": batch, "records": records, "delta": delta,
        "plot": plot,
    }  # fmt: skip
    run_bounds(given, as_json=json_)


@app.command()
def accounting(
    eps: Annotated[str | None, typer.Option(help="Budget; the noise for it is found, nominal and site's.")] = None,
    noise_multiplier: Annotated[str | None, typer.Option(help="sigma / C instead of --eps.")] = None,
    delta: Annotated[str | None, typer.Option(help="default 1e-5")] = None,
    batch: Annotated[str | None, typer.Option(help="default 64")] = None,
    records: Annotated[str | None, typer.Option(help="Training records (default 2000).")] = None,
    epochs: Annotated[str | None, typer.Option(help="Releases of a record (default 20).")] = None,
    tasks: Annotated[str | None, typer.Option(help="K (default 3).")] = None,
    moved: Annotated[str | None, typer.Option(help="J, labels that the site does not hold (default 2).")] = None,
    sites: Annotated[str | None, typer.Option(help="Encoders that an outsider sees (default 3).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Every epsilon by name: nominal, the site's, the outsider's."""
    from privbench.cli.numbers import run_accounting

    given = {
        "eps": eps, "noise_multiplier": noise_multiplier, "delta": delta, "batch": batch, "records": records,
        "epochs": epochs, "tasks": tasks, "moved": moved, "sites": sites,
    }  # fmt: skip
    run_accounting(given, as_json=json_)


@app.command()
def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds instead of minutes.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """The audit of the auditor: every estimator and verdict on mechanisms whose answer is known."""
    from privbench.cli.selftest import run_selftest_command

    raise typer.Exit(run_selftest_command(quick=quick, as_json=json_))


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="targets, attacks, defenses, bounds, datasets or settings.")],
    target: Annotated[str | None, typer.Option(help="Settings of this target alone.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """What is there: built in and from plugins; `settings`: what --set may change, with its defaults."""
    from privbench.cli.show import run_list

    run_list(what, target, as_json=json_)


def run() -> None:
    """Entry point: turns exceptions into one or two lines and an exit code."""
    debug = "--debug" in sys.argv
    # Parallel over runs, never over kernels: a second thread per product of small matrices costs far more than it
    # brings as soon as another process is busy. Before numpy is imported; who sets them keeps what was set.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # A cancelled CI job gets SIGTERM: end as after Ctrl-C, with workers and temporary files gone.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            code = explain(KeyboardInterrupt())
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        code = explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    run()
