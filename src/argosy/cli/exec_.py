"""`argosy exec` and `argosy attach` run a command, or a shell, beside the processes of a running job."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from argosy.cli._job_numbers import JobArgument, number_of
from argosy.cli._live import ApiOption, HomeOption, connect
from argosy.errors import InputError

NOT_HERE = "log in to the machine of the daemon, and try it there"


def exec_(
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="what to run")],
    *,
    api: ApiOption = None,
    home: HomeOption = None,
) -> None:
    """Run a command in the environment of a running job: its folder, variables, GPUs and CPU cores, as its user.

    \b
    argosy exec 7 -- nvidia-smi
    argosy exec 7 -- py-spy dump --pid '$PID'      # $PID is the job's first process

    It ends when the job ends. It works on the machine on which the job runs. As another user than the job's it works
    only for root, who becomes that user.
    """
    _enter(job, command, api, home)


def attach(job: JobArgument, *, api: ApiOption = None, home: HomeOption = None) -> None:
    """Open a shell in the environment of a running job; the same as `argosy exec JOB -- $SHELL`.

    \b
    argosy attach 7
    """
    _enter(job, [os.environ.get("SHELL") or "/bin/sh"], api, home)


def _enter(job: str, command: list[str], api: str | None, home: Any) -> None:
    with connect(api, home) as daemon:
        found = daemon.get(f"/v1/jobs/{number_of(daemon, job)}/environment")
    from argosy.live.backends.local.inspection import boot_id
    from argosy.live.supervisor import process_table

    if not found["machine"] or found["machine"] != boot_id():
        raise InputError(f"job {found['job']} runs on another machine", hint=NOT_HERE)
    uid, pid = int(found["uid"]), int(found["pids"][0])
    if process_table.owner(pid) != uid:
        raise InputError(f"job {found['job']} has no process {pid} any more", hint="see argosy status")
    if os.geteuid() not in (0, uid):
        whose = found["user"] or f"the user with the number {uid}"
        raise InputError(
            f"job {found['job']} runs as {whose}, and you are another user", hint=f"become {whose}, or root"
        )
    env = {str(name): str(value) for name, value in found["env"].items()}
    env |= {name: os.environ[name] for name in ("TERM", "LINES", "COLUMNS") if name in os.environ}
    words = [word.replace("$PID", str(pid)) for word in command]
    if os.geteuid() != uid and sys.stdin.isatty():
        sys.exit(_in_a_terminal_of_its_own(found, uid, words, env))
    if os.geteuid() != uid:
        os.setsid()  # so that what the user's programs do cannot reach our terminal
    _run(found, uid, words, env)


def _run(found: dict[str, Any], uid: int, words: list[str], env: dict[str, str]) -> None:
    """Become the job's user, and run the command instead of this program."""
    if os.geteuid() != uid:
        import pwd

        from argosy.live.supervisor.detach import Identity

        try:
            Identity.of(pwd.getpwuid(uid).pw_name).take_on()
        except KeyError:
            raise InputError(f"this machine has no user with the number {uid}", hint=NOT_HERE) from None
    if found["cpus"]:
        os.sched_setaffinity(0, set(found["cpus"]) & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    try:
        os.chdir(found["cwd"])
        env["PWD"] = found["cwd"]
        os.execvpe(words[0], words, env)
    except OSError as problem:
        code = 127 if isinstance(problem, FileNotFoundError) else 126
        typer.echo(f"error: cannot run {words[0]} in {found['cwd']}: {problem.strerror}", err=True)
        sys.stderr.flush()
        os._exit(code)


def _in_a_terminal_of_its_own(found: dict[str, Any], uid: int, words: list[str], env: dict[str, str]) -> int:
    """Run the command of another user in a new terminal, and copy what is typed and shown; return its exit code.

    In root's own terminal, it could type commands for root.
    """
    import pty
    import select
    import termios
    import tty

    pid, terminal = pty.fork()
    if pid == 0:
        try:
            _run(found, uid, words, env)
        finally:
            os._exit(126)
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        while True:
            for source in select.select([0, terminal], [], [])[0]:
                try:
                    data = os.read(source, 1 << 16)
                except OSError:
                    data = b""
                if source == terminal and not data:
                    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF
                os.write(1 if source == terminal else terminal, data)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
