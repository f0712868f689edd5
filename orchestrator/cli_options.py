"""Arguments and options that several commands have: one name, one meaning, one text."""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path)

run_argument = click.argument("run_dir", metavar="RUN", type=PATH)
json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Override a key of the scenario, e.g. measure.repeats=3.",
)  # fmt: skip
address_option = click.option(
    "--address", metavar="auto|local|HOST:PORT", help="Ray cluster; default: a running one, else embedded."
)
objective_option = click.option("--objective", metavar="NAME", help="Only this objective.")
host_class_option = click.option(
    "--host-class", metavar="TEXT", help="Which class of hosts, by a part of its name; needed if there are several."
)
out_option = click.option("--out", type=PATH, metavar="FILE", help="Write it there instead of printing it.")
yes_option = click.option("--yes", is_flag=True, help="With --evict: do not ask.")
