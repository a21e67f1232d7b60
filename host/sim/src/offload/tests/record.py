"""Records what vLLM's own CPU offload manager returns for random sequences of calls.

    python3 record.py FOLDER > recorded.txt
    python3 record.py FOLDER CLASSES > ../../../../plugin/src/export/vllm/recorded.txt

The second form takes policies that `blis export vllm-cache-policy` has written, instead of vLLM's own: CLASSES is a folder with
their files. Their clock is that of the lines `now`.

FOLDER: an unzipped wheel of vLLM 0.33.0 (`pip download --no-deps vllm==0.33.0`). What the manager imports and does not use (torch,
numpy, the rest of vLLM) is replaced by empty modules, so nothing else has to be installed but typing_extensions.
"""

import importlib
import pathlib
import random
import sys
import types

FOLDER = sys.argv[1]
CLASSES = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
SEQUENCES = 200
STEPS = 45


class Anything:
    """Takes the part of every class and function that is imported and not used."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, _):
        return (object,)

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __getitem__(self, _):
        return self


def empty_module(name):
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: Anything()
    sys.modules[name] = module


for name in ("torch", "numpy", "vllm.logger", "vllm.utils", "vllm.utils.math_utils", "vllm.v1.kv_hints", "vllm.v1.metrics",
             "vllm.v1.metrics.cache_hit_source", "vllm.distributed", "vllm.distributed.kv_transfer",
             "vllm.distributed.kv_transfer.kv_connector", "vllm.distributed.kv_transfer.kv_connector.v1",
             "vllm.distributed.kv_transfer.kv_connector.v1.offloading",
             "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"):
    empty_module(name)
for name in ("vllm", "vllm.v1"):
    module = types.ModuleType(name)
    module.__path__ = [f"{FOLDER}/{name.replace('.', '/')}"]
    sys.modules[name] = module

base = importlib.import_module("vllm.v1.kv_offload.base")
manager_of = importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager
LETTERS = {base.LookupResult.MISS: "M", base.LookupResult.HIT: "H", base.LookupResult.HIT_PENDING: "P"}



class Clock:
    now = 0


def exported(file):
    """The class in `file`, with the clock of the record."""
    module = importlib.import_module(file.stem)
    (name,) = (name for name in vars(module) if name.endswith("CachePolicy") and name != "CachePolicy")
    getattr(module, name).clock = staticmethod(lambda: float(Clock.now))
    return file.stem, name


EXPORTED = []
if CLASSES is not None:
    sys.path.insert(0, str(CLASSES))
    EXPORTED = [exported(file) for file in sorted(CLASSES.glob("*.py"))]


def key(number):
    return base.make_offload_key(number.to_bytes(8, "big"), 0)


def number(one):
    return int.from_bytes(base.get_offload_block_hash(one), "big")


def listed(keys):
    return ",".join(str(number(one)) for one in keys) or "-"


class Request:
    """A prompt of `length` chunks of document `document`, and where it is."""

    def __init__(self, name, document, length, positions):
        self.context = base.ReqContext(req_id=str(name))
        self.name, self.keys = name, [key(100 * document + at) for at in range(length)]
        self.offered, self.loading, self.writing = 0, [], []
        if positions:
            for at, one in enumerate(self.keys):
                self.context.set_offload_key_position(one, 16 * (at + 1))


def sequence(seed):
    draw, clock = random.Random(seed), random.Random(seed + 1_000_000)
    module, policy = draw.choice(EXPORTED) if EXPORTED else (None, draw.choice(["lru", "arc"]))
    chunks = draw.randint(3, 24)
    threshold, tracked = draw.choice([0, 0, 1, 2, 3]), draw.choice([6, 20, 64_000])
    positions, documents = draw.random() < 0.5, draw.randint(2, 8)
    print(f"tier {module or policy} {chunks} {threshold} {tracked}")
    manager = manager_of(chunks, policy, cache_policy_module_path=module, store_threshold=threshold, max_tracker_size=tracked)
    live, started = [], 0
    for _ in range(STEPS):
        if EXPORTED:
            Clock.now += clock.choice([0, 1, 250, 10_000])
            print(f"now {Clock.now}")
        if not live or (len(live) < 4 and draw.random() < 0.3):
            request = Request(started, draw.randrange(documents), draw.randint(1, 8), positions)
            manager.on_new_request(request.context)
            live.append(request)
            started += 1
            print(f"new {request.name} {'positions' if positions else 'order'}")
            results = [manager.lookup(one, request.context) for one in request.keys]
            print(f"lookup {listed(request.keys)} {''.join(LETTERS[result] for result in results)}")
            hits = 0
            while hits < len(results) and results[hits] is base.LookupResult.HIT:
                hits += 1
            if hits:
                request.loading = request.keys[:hits]
                manager.prepare_load(request.loading, request.context)
                print(f"load {request.name} {listed(request.loading)}")
            continue
        request = draw.choice(live)
        if request.loading and draw.random() < 0.7:
            manager.complete_load(request.loading, request.context)
            print(f"loaded {listed(request.loading)}")
            request.loading = []
        elif request.writing and draw.random() < 0.7:
            success = draw.random() < 0.9
            manager.complete_store(request.writing, request.context, success)
            print(f"{'written' if success else 'failed'} {listed(request.writing)}")
            request.writing = []
        elif request.offered < len(request.keys) and not request.writing:
            until = draw.randint(request.offered + 1, len(request.keys))
            offer, request.offered = request.keys[request.offered:until], until
            stored = manager.prepare_store(offer, request.context)
            if stored is None:
                print(f"store {request.name} {listed(offer)} refused")
            else:
                request.writing = list(stored.keys_to_store)
                print(f"store {request.name} {listed(offer)} {listed(stored.keys_to_store)} {listed(stored.evicted_keys)}")
        elif not request.loading and not request.writing:
            manager.on_request_finished(request.context)
            live.remove(request)
            print(f"end {request.name}")


print(f"# vLLM 0.33.0, CPUOffloadingManager, {SEQUENCES} sequences of {STEPS} steps; record.py")
for seed in range(SEQUENCES):
    sequence(seed)
