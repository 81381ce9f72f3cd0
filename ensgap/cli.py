"""Command lines made from configuration dataclasses, and how a study script ends."""

import argparse
import shlex
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ensgap.errors import UserError
from ensgap.secrets import mask

Config = TypeVar("Config")


class _Parser(argparse.ArgumentParser):
    """argparse, with an error of one line instead of the whole usage."""

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}; --help lists the flags.\n")


def parse(config_class: type[Config], arguments: Sequence[str] | None = None) -> Config:
    """A configuration from command-line arguments; a field's type and `help` metadata make its flag."""
    parser = _Parser(description=config_class.__doc__, allow_abbrev=False)
    types_of = get_type_hints(config_class)
    for field in fields(config_class):  # type: ignore[arg-type]
        if field.init:
            _add_flag(parser, field.name, types_of[field.name], field.metadata, field.default)
    values = vars(parser.parse_args(arguments))
    return config_class(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def _add_flag(parser: argparse.ArgumentParser, name: str, kind: Any, metadata: Mapping[str, Any], default: Any) -> None:
    text = metadata["help"]
    flag = "--" + name.rstrip("_").replace("_", "-")
    if get_origin(kind) in (Union, types.UnionType):  # `X | None`
        kind = next(option for option in get_args(kind) if option is not type(None))
    omitted = metadata.get("omitted")  # what the flag means when its value is left out
    if default is not None and default is not False and default is not MISSING:
        text = f"{text} (default: {default})"
    if kind is bool:
        parser.add_argument(flag, action="store_true", help=text, dest=name)
    elif get_origin(kind) is Literal:
        parser.add_argument(flag, choices=get_args(kind), default=default, help=text, dest=name)
    elif get_origin(kind) is tuple:
        element = get_args(kind)[0]
        options = get_args(element) if get_origin(element) is Literal else None
        several: Any = {"type": str if options else element, "choices": options, "nargs": "+", "metavar": "X"}
        parser.add_argument(flag, default=default, help=text, dest=name, **several)
    else:
        optional: Any = {"nargs": "?", "const": omitted} if omitted else {}
        shown = kind.__name__.upper()
        parser.add_argument(flag, type=kind, default=default, help=text, dest=name, metavar=shown, **optional)


def command_line() -> str:
    """The command as a user would type it again, without passwords and paths of this machine."""
    script = Path(sys.argv[0])
    if script.is_absolute():
        script = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else Path(script.name)
    return shlex.join(["python", str(script), *map(mask, sys.argv[1:])])


def main(config_class: type[Config], run: Callable[[Config], None]) -> None:
    """Run a study from the command line: bad input ends it with one sentence and status 2, Ctrl-C with 130."""
    try:
        run(parse(config_class))
    except UserError as error:
        print(f"{Path(sys.argv[0]).name}: {mask(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        resume = "" if "--resume" in sys.argv else " --resume"
        print(f"\nInterrupted; finished trials are kept. Continue with:\n  {command_line()}{resume}", file=sys.stderr)
        sys.exit(130)
