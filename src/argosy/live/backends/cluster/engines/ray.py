"""Ray as an engine: one detached actor for each node holds its GPUs, and runs the agent as its own child.

So the agent dies with the actor, and the actor with its node's raylet. Ray ends a process that has lost the head of its
cluster, so what speaks with Ray is a process of its own (`python -m` this module), which is started again as needed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from argosy.cluster.cluster import Node
from argosy.live.backends.cluster.engines.base import AgentOrder, AgentState, EngineError

ANSWER_S, PING_S, END_S = 45.0, 2.0, 10.0


class Ray:
    """Starts agents on the nodes of the Ray cluster at `address`, as actors in the namespace `mark`."""

    name = "ray"

    def __init__(self, mark: str, address: str, *, count: int | None = None, slots: int | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise EngineError("Ray is not installed here", hint="pip install 'argosy[ray]'")
        self._mark, self._address, self._count, self._slots = mark, address, count, slots
        self._names: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def nodes(self) -> Sequence[Node]:
        rows = self._ask("nodes")
        rows = [row for row in rows if row["gpus"]] or [row for row in rows if row["cpus"]]
        names = [row["name"] for row in rows]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            hint = "start them with ray start --node-name, each with another name"
            raise EngineError(f"nodes of Ray have the same name: {', '.join(twice)}", hint=hint)
        if not rows or len(rows) < (self._count or 0):
            what = f"the Ray cluster at {self._address} has {len(rows)} nodes, not {self._count or 1}"
            raise EngineError(what, where="--nodes", hint="give a smaller --nodes, or add nodes: ray start --address …")
        found, self._names = [], names[: self._count]
        for row in rows[: self._count]:
            count = self._slots or int(row["gpus"]) or 2
            if row["gpus"] and count > row["gpus"]:
                what = f"the node {row['name']} of Ray has {row['gpus']:g} GPUs, not {count}"
                raise EngineError(what, where="--slots", hint="leave --slots out")
            kind = row["kind"] if row["gpus"] else "cpu"
            found.append(Node(row["name"], kind, count, row["cpus"], row["memory_gib"]))
        return found

    def ensure_agents(self, orders: Sequence[AgentOrder]) -> None:
        self._ask("ensure", orders=[asdict(order) for order in orders])

    def agent_states(self) -> Mapping[str, AgentState]:
        found = self._ask("states", nodes=self._names)
        return {name: AgentState(phase, why) for name, (phase, why) in found.items()}

    def release(self, nodes: Sequence[str]) -> None:
        self._ask("release", nodes=list(nodes))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, do: str, **more: Any) -> Any:
        """Ask the process that speaks with Ray, which is started if it does not run."""
        if self._process is None:
            words = [sys.executable, "-m", "argosy.live.backends.cluster.engines.ray", self._address, self._mark]
            pipe, env = subprocess.PIPE, {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
            self._process = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=env
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
            line = self._process.stdout.readline() if ready else ""
        except OSError:
            line = ""
        if not line:
            self.close()
            hint = f"is there a Ray cluster at {self._address}, and is this machine one of its nodes? See ray status"
            raise EngineError(f"the Ray cluster at {self._address} does not answer", hint=hint)
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"Ray has refused: {answer['error']}", hint="see ray status")
        return answer["result"]


class Holder:
    """The actor on a node. It runs in a process of Ray's."""

    def __init__(self, argv: list[str], stdin: str) -> None:
        parent = os.getpid()

        def die_with_actor() -> None:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)

        self.agent = subprocess.Popen(argv, stdin=subprocess.PIPE, preexec_fn=die_with_actor)
        assert self.agent.stdin is not None
        self.agent.stdin.write(stdin.encode())
        self.agent.stdin.close()

    def alive(self) -> bool:
        return self.agent.poll() is None

    def stop(self) -> None:
        self.agent.terminate()
        self.agent.wait()


def serve(address: str, mark: str) -> None:
    """Answer questions, one in each line of standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    import ray

    ray.init(address=address, namespace=mark, log_to_driver=False, configure_logging=False)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            result: Any = {"result": _answer(ray, question)}
        except Exception as problem:
            result = {"error": " ".join(str(problem).split())[:500] or type(problem).__name__}
        print(json.dumps(result), file=answers, flush=True)


def _answer(ray: Any, question: Mapping[str, Any]) -> Any:
    living = {node["NodeName"]: node for node in ray.nodes() if node["Alive"]}
    if question["do"] == "nodes":
        return [_describe(node) for node in sorted(ray.nodes(), key=lambda n: str(n["NodeName"])) if node["Alive"]]
    actors = {name: ray.get_actor(name) for name in ray.util.list_named_actors()}
    pings = {name: actor.alive.remote() for name, actor in actors.items()}
    ready, _ = ray.wait(list(pings.values()), num_returns=len(pings), timeout=PING_S) if pings else ([], [])
    states = {name: _state(ray, ping, ping in ready) for name, ping in pings.items()}
    if question["do"] == "states":
        gone = [name for name in question["nodes"] if name not in living and states.get(name, ("",))[0] != "running"]
        return states | {name: ("waiting", f"Ray has no living node {name}") for name in gone}
    if question["do"] == "ensure":
        for order in question["orders"]:
            name, node = order["node"], living.get(order["node"])
            if states.get(name, ("absent",))[0] != "absent":
                continue
            if name in actors:
                ray.kill(actors[name])
            if node is not None:
                _start(ray, node, order)
    elif question["do"] == "release":
        mine = [actors[name] for name in question["nodes"] if name in actors]
        ends = [actor.stop.remote() for actor in mine]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=END_S)
        for actor in mine:
            ray.kill(actor)
    return None


def _start(ray: Any, node: Mapping[str, Any], order: Mapping[str, Any]) -> None:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    holds = {"num_cpus": 0, "num_gpus": node["Resources"].get("GPU", 0), "scheduling_strategy": there}
    holder = ray.remote(Holder).options(name=order["node"], lifetime="detached", max_restarts=0, **holds)
    holder.remote(order["argv"], order["stdin"])


def _state(ray: Any, ping: Any, ready: bool) -> tuple[str, str]:
    if not ready:
        return "waiting", "its actor in Ray has not answered yet"
    try:
        return ("running" if ray.get(ping) else "absent"), ""
    except ray.exceptions.RayError:
        return "absent", ""


def _describe(node: Mapping[str, Any]) -> dict[str, Any]:
    has = node["Resources"]
    kinds = [name.partition(":")[2].lower() for name in has if name.startswith("accelerator_type:")]
    memory_gib = round(has.get("memory", 2**30) / 2**30, 1)
    about = {"gpus": has.get("GPU", 0), "cpus": has.get("CPU", 0.0), "memory_gib": memory_gib}
    return {"name": node["NodeName"], "kind": (kinds or ["gpu"])[0], **about}


if __name__ == "__main__":
    serve(*sys.argv[1:])
