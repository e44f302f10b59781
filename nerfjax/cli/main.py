"""``nerfjax VERB …``: finds the verb, parses its arguments, turns errors into exit codes.

Exit codes: 0 done; 2 the input is wrong (one message, no traceback); 3 training diverged; 75 stopped by a preemption
signal with a checkpoint written. Nothing heavy is imported before a verb runs.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import sys
from typing import NoReturn

from nerfjax.cli.compilation_cache import keep_compiled_programs
from nerfjax.errors import NerfjaxError, UserError, did_you_mean

VERBS = {
    "inspect": "say what a capture is and what is wrong with it",
    "prepare": "write a capture as a fingerprinted data set",
    "train": "train a radiance field, evaluate it and write its report",
    "eval": "render the test views and measure them",
    "render": "render a camera path to a video",
    "status": "say where a run stands",
    "compare": "set runs side by side and rank what is comparable",
    "bench": "measure the speed of a part",
}
COMPILING = ("train", "eval", "render")  # not bench, which may be asked how long that takes
HELP = f"""usage: nerfjax VERB ...   (nerfjax VERB --help explains a verb)

Radiance fields in JAX, built around the ray-sampling problem.

verbs:
{chr(10).join(f"  {verb:<9} {line}" for verb, line in VERBS.items())}

  --help     show this
  --version  show the version

example:
  nerfjax train --config=nerfjax --config.scene.source=captures/fox \\
                --workdir=runs/fox
"""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are ``UserError``s."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the usage and exiting."""
        raise UserError(f"{self.prog}: {message}.", fix=f"{self.prog} --help shows the arguments")


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
      argv: the arguments without the program's name; ``sys.argv[1:]`` by default.
    """
    try:
        return _dispatch(sys.argv[1:] if argv is None else list(argv))
    except NerfjaxError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        print(UserError("The disk refused.", file=error.filename, found=error.strerror), file=sys.stderr)
        return UserError.exit_code


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        from nerfjax import __version__

        print(f"nerfjax {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        raise UserError("Unknown verb.", found=verb, fix=did_you_mean(verb, VERBS))
    if verb in COMPILING:
        keep_compiled_programs()
    module = importlib.import_module(f"nerfjax.cli.{verb}")
    parser = Parser(prog=f"nerfjax {verb}", description=f"{VERBS[verb].capitalize()}.", epilog=module.EPILOG)
    module.add_arguments(parser)
    # Orbax narrates its options there, and shows each of its threads' tracebacks when the disk is full; what a user
    # should know we say ourselves.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    try:
        return module.run(_parse(parser, rest))
    except SystemExit as stop:  # argparse's --help
        return int(stop.code or 0)


def _parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parses a verb's arguments; ``--config.KEY=VALUE`` are kept as they are in ``config_flags``, all in ``given``."""
    plain, config_flags = split_config_flags(arguments)
    parsed, unknown = parser.parse_known_args(plain)
    if unknown:
        name = unknown[0].split("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        fix = did_you_mean(name, known) if name.startswith("-") else f"{parser.prog} --help shows the arguments"
        raise UserError(f"{parser.prog} does not know an argument.", found=unknown[0], fix=fix)
    if config_flags and not hasattr(parsed, "config"):
        raise UserError(
            f"{parser.prog} takes no config: a run keeps the one that it was trained with.", found=config_flags[0]
        )
    parsed.config_flags, parsed.given = config_flags, arguments
    return parsed


def split_config_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Separates ``--config.KEY=VALUE`` (also ``--config.KEY VALUE`` and ``--noconfig.KEY``) from the rest."""
    plain, config_flags, waiting = [], [], iter(arguments)
    for argument in waiting:
        if argument.startswith("--noconfig."):
            config_flags.append(f"--config.{argument.removeprefix('--noconfig.')}=false")
        elif not argument.startswith("--config."):
            plain.append(argument)
        elif "=" in argument:
            config_flags.append(argument)
        else:
            value = next(waiting, None)
            if value is None or value.startswith("--"):
                raise UserError("A config key has no value.", field=argument, expected=f"{argument}=VALUE")
            config_flags.append(f"{argument}={value}")
    return plain, config_flags


if __name__ == "__main__":
    sys.exit(main())
