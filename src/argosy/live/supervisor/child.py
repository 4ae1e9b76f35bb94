"""Turns a freshly forked child into a worker.

It uses only the standard library, because the user's interpreter runs it. A worker has a session of its own, writes its
output to a pipe of the supervisor, and dies with the process that forked it. A Python program runs in this process, as
`python` would run it, and finds modules already imported; for any other command the process calls exec. SIGTERM keeps
its default action until the program itself changes it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import types

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "prctl")


def become_worker(request: dict, output: int, parent: int) -> None:  # type: ignore[type-arg]  # plain JSON
    """Set up the child as `request` says, then run the command. Returns when a Python program has ended."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN if request["how"] in ("script", "module", "code") else signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the death signal was set
        os._exit(1)
    _connect_output(output)
    os.umask(request.get("umask", 0o022))
    if request.get("cpus"):
        os.sched_setaffinity(0, request["cpus"])
    for name, value in request.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.environ.clear()
    os.environ.update(request["env"])
    try:
        os.chdir(request["cwd"])
    except OSError as problem:
        print(f"argosy: cannot enter the folder {request['cwd']}: {problem.strerror}", file=sys.stderr, flush=True)
        sys.exit(1)
    os.environ["PWD"] = request["cwd"]
    if request["how"] == "exec":
        _execute(request["argv"])
    _run_python(request["how"], request["argv"])


def _connect_output(output: int) -> None:
    """Connect standard output and error to the pipe and input to /dev/null; close all other descriptors."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 4096)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # so that the log shows each line at once


def _execute(argv: list) -> None:  # type: ignore[type-arg]
    try:
        os.execvpe(argv[0], argv, dict(os.environ))
    except OSError as problem:
        print(f"argosy: cannot run {argv[0]}: {problem.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(problem, FileNotFoundError) else 126)


def _run_python(how: str, argv: list) -> None:  # type: ignore[type-arg]
    """Run a script, `-m module` or `-c code` in this process, as `python argv…` would."""
    _reseed_numpy()
    _set_threads()
    sys.argv = list(argv)
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if how == "module":
        import runpy

        sys.argv[0] = "-m"
        sys.path.insert(0, os.getcwd())
        sys.modules["__main__"] = main
        runpy._run_module_as_main(argv[0], alter_argv=True)  # type: ignore[attr-defined]  # python itself calls it too
        return
    if how == "code":
        text, sys.argv, name = argv[0], ["-c", *argv[1:]], "<string>"
        sys.path.insert(0, "")
    else:
        name = argv[0]
        try:
            with open(name, "rb") as file:
                text = file.read()
        except OSError as problem:
            print(f"argosy: cannot open {name}: {problem.strerror}", file=sys.stderr, flush=True)
            sys.exit(2)
        sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
        main.__file__ = os.path.abspath(name)
    sys.modules["__main__"] = main
    exec(compile(text, name, "exec"), main.__dict__)


def _reseed_numpy() -> None:
    """Seed NumPy anew after the fork; `random` does so itself, and torch starts from a fixed seed anyway."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _set_threads() -> None:
    """Set torch's threads by the worker's OMP_NUM_THREADS: torch read the zygote's value when it was imported."""
    torch, threads = sys.modules.get("torch"), os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and threads.isdigit() and int(threads) > 0 and torch.get_num_threads() != int(threads):
        torch.set_num_threads(int(threads))
