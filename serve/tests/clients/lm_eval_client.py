"""lm-evaluation-harness as a client: python lm_eval_client.py SERVE DEMO. Multiple choice, generated texts and rolling likelihood of
its own `hf` model on an F32 copy of the folder DEMO, beside those of the server SERVE. Ends with an error where they differ."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}
import lm_eval
import torch
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, AutoTokenizer

serve, demo = sys.argv[1:]
CONTEXT = 512
WHO = ["a fox", "a cat", "a dog", "a boy named Tim", "a girl named Lily", "a big bear", "an old man", "a little bird"]
DID = ["went to the park.", "saw a red ball.", "was very happy.", "wanted to play.", "said hello to the tree.",
       "found a box of toys.", "ate a cake.", "ran away from home."]
# By sums of F32 in another order, as a share of the log-likelihood: they were found to differ by up to 1e-6.
RELATIVE = 1e-5


def write_tasks(folder):
    random.seed(1)
    choices = lambda: {"choices": random.sample([" " + did for did in DID], 4), "answer": random.randrange(4)}
    shots = " ".join(f"Once upon a time there was {who} who {did}" for who in WHO[:4] for did in DID[:3])
    asked = [{"text": f"Once upon a time there was {random.choice(WHO)}. It"} | choices() for _ in range(30)]
    asked += [{"text": f"{shots} Then {who}"} | choices() for who in WHO]
    begun = [{"text": f"Once upon a time there was {who}. {who.capitalize()} {did}"} for who in WHO for did in DID[:3]]
    told = [{"text": " ".join(f"There was {random.choice(WHO)} who {random.choice(DID)}" for _ in range(n))} for n in (1, 8, 90)]
    tasks = {
        "choice": (asked, {"output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{choices}}",
                           "doc_to_target": "{{answer}}", "target_delimiter": "", "metric_list": [{"metric": "acc"}]}),
        "text": (begun, {"output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "", "generation_kwargs":
                         {"until": ["\n", "."], "max_gen_toks": 24, "do_sample": False, "temperature": 0},
                         "metric_list": [{"metric": "exact_match"}]}),
        "rolling": (told, {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
                           "metric_list": [{"metric": "byte_perplexity"}]}),
    }
    for name, (documents, task) in tasks.items():
        data = folder / f"{name}.jsonl"
        data.write_text("\n".join(map(json.dumps, documents)))
        task |= {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps(task))  # JSON is YAML
    return list(tasks)


def answers(tasks, folder, model, options, **more):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = lm_eval.simple_evaluate(model=model, model_args=options, tasks=tasks, task_manager=manager, **more)
    return {task: [sample["resps"] for sample in sorted(found["samples"][task], key=lambda sample: sample["doc_id"])] for task in tasks}


def flat(value):
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (list, tuple)) else [value]


with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    os.environ["HF_HOME"] = str(folder / "home")
    path = str(folder / "f32")
    AutoModelForCausalLM.from_pretrained(demo, dtype=torch.float32).save_pretrained(path)
    AutoTokenizer.from_pretrained(demo).save_pretrained(path)
    tasks = write_tasks(folder)
    # The harness keeps two tokens of the context of an API for itself.
    local = dict(pretrained=path, dtype="float32", max_length=CONTEXT - 2)
    expected = answers(tasks, folder, "hf", local, device="cpu", batch_size=1)
    server = subprocess.Popen([serve, path, "--name", "f32", "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        url = next(line.split(" at ")[1].strip() for line in server.stderr if " at http" in line)
        remote = dict(model="f32", base_url=f"{url}/v1/completions", tokenizer=path, tokenizer_backend="huggingface",
                      max_length=CONTEXT, add_bos_token=True)
        alone = answers(tasks, folder, "local-completions", remote | dict(num_concurrent=1), batch_size=1)
        together = answers(tasks, folder, "local-completions", remote | dict(num_concurrent=4), batch_size=8)
    finally:
        server.kill()

assert alone == together, "answers depend on company"
for task in tasks:
    pairs = list(zip(flat(expected[task]), flat(alone[task]), strict=True))
    differences = [abs(float(a) - float(b)) / max(abs(float(a)), 1) for a, b in pairs if isinstance(a, float)]
    assert all(a == b for a, b in pairs if not isinstance(a, float)), (task, pairs)
    worst = max(differences, default=0)
    print(f"lm_eval: {task}: {len(pairs)} answers as the harness's own model, log-likelihoods within {worst:.1e} of their size")
    assert worst < RELATIVE, (task, worst)
