"""``kohort completion``: a script by which bash or zsh complete the commands and their options.

The script has no call of Python, so that Tab never waits. It knows commands, options, their fixed
values and files, but no names of a cluster.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Parsers = dict[str, argparse.ArgumentParser]

DESCRIPTION = """\
Print the script for the completion of kohort in a shell. For bash, ~/.bashrc evaluates it. For zsh,
~/.zshrc does so after compinit.
"""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print the completion for bash or zsh",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="bash or zsh")
    parser.set_defaults(run=partial(run, commands))


def run(commands: Commands, options: argparse.Namespace) -> int:
    """Print the script. Return 0."""
    helps = {each.dest: each.help or "" for each in commands._choices_actions}
    print(_SCRIPTS[options.shell](dict(commands.choices), helps))
    return 0


# -- what can be completed --------------------------------------------------------------------


def _choices(action: argparse.Action) -> list[str]:
    """Return the fixed values of an argument, or the actions before its names."""
    if action.choices is not None:
        return [str(each) for each in action.choices]
    actions = re.match(r"\[([\w|-]+)\] ", str(action.metavar or ""))
    return actions[1].split("|") if actions else []


def _is_file(action: argparse.Action) -> bool:
    return action.metavar == "FILE"


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (each for each in parser._actions if each.option_strings)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (each for each in parser._actions if not each.option_strings)


# -- bash -------------------------------------------------------------------------------------

_BASH = """\
_kohort() {
    local cur="${COMP_WORDS[COMP_CWORD]}" words="" files=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="%(commands)s --help --version"
    else
        case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in
%(values)s
        *)
            case "${COMP_WORDS[1]}" in
%(options)s
            esac
            ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    # Readline completes files if there is no word. It may do so only where a file can be.
    if [ -z "$files" ]; then compopt +o default 2>/dev/null; fi
}
complete -o default -F _kohort kohort"""


def _bash(commands: Parsers, _: dict[str, str]) -> str:
    values, options = [], []
    for name, parser in commands.items():
        words = [word for each in _arguments(parser) for word in _choices(each)]
        words += [word for each in _options(parser) for word in each.option_strings]
        files = " files=1" if any(map(_is_file, _arguments(parser))) else ""
        options.append(f'            {name}) words="{" ".join(words)}"{files} ;;')
        for each in _options(parser):
            if each.nargs is None:  # an optional value, as of --schema-registry, may be an option
                place = "|".join(f'"{name} {option}"' for option in each.option_strings)
                found = "files=1" if _is_file(each) else f'words="{" ".join(_choices(each))}"'
                values.append(f"        {place}) {found} ;;")
    return _BASH % {
        "commands": " ".join(commands),
        "values": "\n".join(values),
        "options": "\n".join(options),
    }


# -- zsh --------------------------------------------------------------------------------------

_ZSH = """\
#compdef kohort
_kohort() {
    local -a commands=(
%(commands)s
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        _arguments '--help[show the help]' '--version[show the version]'
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
%(options)s
    esac
}
if [ "$funcstack[1]" = _kohort ]; then _kohort "$@"; else compdef _kohort kohort; fi"""


def _zsh(commands: Parsers, helps: dict[str, str]) -> str:
    options = []
    for name, parser in commands.items():
        specs = [_quoted(each) for action in parser._actions for each in _specs(parser, action)]
        options.append(" \\\n            ".join([f"    {name}) _arguments", *specs]) + " ;;")
    return _ZSH % {
        "commands": "\n".join(f"        {_quoted(f'{each}:{helps[each]}')}" for each in commands),
        "options": "\n".join(options),
    }


def _specs(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    """Yield how zsh's _arguments names an argument or an option."""
    title = _escaped(str(action.metavar or action.dest).upper())
    names: Sequence[str] = action.option_strings
    # A title in place of words. Without the guard it would also stand for an option's beginning.
    nothing = " " if names else f'_guard "^-*" "{title}"'
    values = " ".join(_choices(action))
    value = f":{title}:{'_files' if _is_file(action) else f'({values})' if values else nothing}"
    if action.nargs == "?":
        value = f":{value}"
    if not names:
        yield f"*{value}" if action.nargs == "*" else value
        return
    text = re.sub(r"([\[\]])", r"\\\1", parser._get_formatter()._expand_help(action))
    repeatable = isinstance(action, argparse._AppendAction)
    for name in names:
        before = "*" if repeatable else f"({' '.join(names)})" if len(names) > 1 else ""
        yield f"{before}{name}[{text}]{'' if action.nargs == 0 else value}"


def _escaped(text: str) -> str:
    return text.replace(":", r"\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_SCRIPTS = {"bash": _bash, "zsh": _zsh}
