"""`python -m systola`: the verbs behind the Makefile."""

import signal


def start() -> None:
    """Run the command line; an installation's `systola` calls this."""
    # While modules are imported, Ctrl-C ends the process at once and without a traceback.
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
        main()
    except Terminated as end:
        sys.exit(end.status)


if __name__ == "__main__":
    start()
