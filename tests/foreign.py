"""What the scripts about programs of others share: environments in target/foreign, a tokenizer, servers, `blis observe`."""

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "target/foreign"


def program():
    """The first argument, else the release build."""
    return str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/blis").resolve())


def environment(name, packages, least=(3, 10), without_dependencies=()):
    """The folder of the executables of a virtual environment with `packages`; None, and a line that says why, if the registry
    lacks them or no Python of version `least` is here. `without_dependencies`: packages without the dependencies that they list.
    """
    folder, wanted = FOLDER / name, " ".join([*without_dependencies, *packages])
    installed = folder / "installed"
    if installed.exists() and installed.read_text() == wanted:
        return folder / "bin"
    base = interpreter(least)
    if base is None:
        print(f"skipped: {name}: no Python {least[0]}.{least[1]} or later")
        return None
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([base, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    steps = [[*pip, *packages], [*pip, "--no-deps", *without_dependencies]] if without_dependencies else [[*pip, *packages]]
    for step in steps:
        if subprocess.run(step, check=False).returncode != 0:
            print(f"skipped: {name}: the registry lacks {wanted}")
            return None
    installed.write_text(wanted)
    return folder / "bin"


def interpreter(least):
    """A Python of version `least` or later."""
    names = [sys.executable, *(shutil.which(f"python3.{minor}") for minor in (12, 13, 11, 10))]
    pyenv = sorted(pathlib.Path.home().glob(".pyenv/versions/3.1*/bin/python"))
    for candidate in filter(None, [*names, *map(str, pyenv)]):
        test = f"import sys; sys.exit(not {least} <= sys.version_info[:2] < (3, 14))"
        if subprocess.run([candidate, "-c", test], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    return None


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(commands, log, **options):
    """Runs processes, with their output in a file, until the end of the block."""
    with open(log, "wb") as out, contextlib.ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **options)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield


def wait_for_model(url, seconds=120):
    """The name of the first model of `/v1/models`, once the server has one."""
    for _ in range(10 * seconds):
        with contextlib.suppress(OSError, ValueError):
            models = json.load(urllib.request.urlopen(f"{url}/v1/models", timeout=5))["data"]
            if models:
                return models[0]["id"]
        time.sleep(0.1)
    sys.exit(f"no model at {url} within {seconds} s")


def observe(url, model, folder, requests, flags):
    """The report of `blis observe`; all requests completed."""
    command = [program(), "observe", "--model", model, "--server-url", url, "--trace-output", str(folder / "observed"),
               "--output", "json", *flags]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert report["unaccounted_requests"] == 0 and report["ends"] == {"completed": requests}, report
    return report


def constant_load(requests, rate, prompt, output):
    """Flags: requests of equal lengths at constant inter-arrival times."""
    return ["--num-requests", str(requests), "--rate", str(rate), "--arrival-process", "constant", "--prompt-tokens", str(prompt),
            "--prompt-tokens-stdev", "0", "--prompt-tokens-max", "100000", "--output-tokens", str(output),
            "--output-tokens-stdev", "0"]


def write_tokenizer(folder, words=0):
    """Writes a tokenizer in the form of Hugging Face: a token for each printable ASCII character, and `words` invented words
    that no text is split into, but which token ids up to that number become."""
    folder.mkdir(parents=True, exist_ok=True)
    # Bytes as the byte-level form writes them: a space is U+0120, a line end U+010A.
    tokens = [*map(chr, range(33, 127)), "\u0120", "\u010a", *(f"\u0120w{number}" for number in range(words))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    end = len(vocabulary)
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": end, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {**vocabulary, "</s>": end},
             "merges": []}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
                 "pre_tokenizer": bytes_, "post_processor": None, "decoder": bytes_, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "model_max_length": 100000,
              "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return end + 1
