"""The start of the command line: signals, environment, then the verb."""

import signal
from collections.abc import Sequence


def start(arguments: Sequence[str] | None = None, program: str | None = None) -> None:
    """Run the command line.

    Parameters
    ----------
    arguments : Sequence[str], optional
        A verb and its options; by default the arguments of the process.
    program : str, optional
        Command name for messages; by default the one that started the process.
    """
    # During imports, Ctrl-C ends the process immediately and without a traceback.
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import sys

    from systola.environment import keep_inside_checkout, let_threads_sleep, require_plain_path

    require_plain_path()
    keep_inside_checkout()
    let_threads_sleep()
    from systola.cli import main
    from systola.termination import Terminated, end_children_too

    signal.signal(signal.SIGINT, interrupt)
    end_children_too()
    try:
        main(arguments, prog_name=program)
    except Terminated as end:
        sys.exit(end.status)
