"""Imported language models: a sentence encoder and a decoder, compared with the software that
people use for them.

encoder    a sentence encoder of transformers in the folder --encoder, such as
           samples/classify/get_model prints: a training step of a classifier over it, batch 16 x
           128, AdamW, beside PyTorch; a training step of embeddings on pairs of texts, batch 32 x
           32, beside PyTorch with the loss of sentence-transformers; the embedding of one text of
           32 tokens beside PyTorch and ONNX Runtime
decoder    the shape of SmolLM2-135M with random weights: prompts of 256 tokens, and 128 tokens
           after a prompt of 32, compared with llama.cpp on the same files in bf16, q8_0 and q4_0; a
           LoRA step of rank
           8 over every matrix, batch 4 x 128, beside PyTorch with PEFT

The first losses of the training steps and the embeddings are compared before the times.
tools/interchange compares GGUF files.
"""

import json
import pathlib
import random
import statistics
import struct
import tempfile
import time

from sides import Bowline, Failure, Torch, in_turn, line, median_time, onnx_session, print_machine, time_training

TRAIN, PAIRS, EMBED, LORA = (16, 128), (32, 32), (1, 32), (4, 128)
CLASSES, RANK = 10, 8
PROMPT, BEHIND, TOKENS = 256, 32, 128
DECODER = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
           "num_key_value_heads": 3, "max_position_embeddings": 2048, "rope_theta": 100000.0, "tie_word_embeddings": True}
ENCODINGS = ("bf16", "q8_0", "q4_0")
# The peer's time over Bowline's.
AIM = {"train": 1 / 0.9, "pairs": 1 / 0.6, "embed torch": 1.5, "embed onnx": 1.0, "decode": 1.0, "prefill": 0.8, "lora": 1.0}
MOST_ERROR = 1e-3  # of a loss, and of an embedding of length 1


# ---------------------------------------------------------------------------------- the peers


def classifier_loss(encoder, head, tokens, labels):
    import torch

    hidden = encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
    return torch.nn.functional.cross_entropy(head(hidden.mean(1)), labels)


def load_encoder(task, options):
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    encoder = transformers.AutoModel.from_pretrained(task["folder"], add_pooling_layer=False)
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return encoder


def read_tokens(task, batch, seq):
    """Returns i64 [steps, batch, seq] of a token file whose rows have seq + 1 tokens."""
    import torch

    data = bytearray(pathlib.Path(task["tokens"]).read_bytes())
    return torch.frombuffer(data, dtype=torch.int32).reshape(-1, batch, seq + 1).long()


def work_train(task, options):
    """Measures a training step of a classifier. Also returns the first loss with the head weights
    in `head`."""
    import torch

    encoder = load_encoder(task, options)
    weight, bias = (torch.frombuffer(bytearray(pathlib.Path(path).read_bytes()), dtype=torch.float32) for path in task["head"])
    head = torch.nn.Linear(weight.numel() // bias.numel(), bias.numel())
    head.weight.data, head.bias.data = weight.reshape(head.weight.shape), bias
    encoder.train()
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    labels = torch.zeros(TRAIN[0], dtype=torch.long)
    return time_training(optimizer, lambda rows: classifier_loss(encoder, head, rows[:, :-1], labels), read_tokens(task, *TRAIN))


def embedding_of(encoder, tokens):
    import torch

    return torch.nn.functional.normalize(encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state.mean(1))


def work_pairs(task, options):
    """Measures a training step of embeddings. The second text of a pair is the first, moved by a
    token. Returns {"missing": reason} if sentence-transformers is not installed."""
    import torch

    try:
        from sentence_transformers import losses
    except ImportError as error:
        return {"missing": f"{error.name} is not installed ({error}); pip install sentence-transformers"}
    encoder = load_encoder(task, options).train()
    loss = losses.MultipleNegativesRankingLoss(None)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    return time_training(optimizer, lambda rows: loss.compute_loss_from_embeddings(
        [embedding_of(encoder, rows[:, :-1]), embedding_of(encoder, rows[:, 1:])], None), read_tokens(task, *PAIRS))


def tokens_to_embed(task):
    import torch

    return torch.tensor([task["ids"]])


def work_embed(task, options):
    import torch

    encoder, tokens = load_encoder(task, options).eval(), tokens_to_embed(task)
    with torch.inference_mode():
        time_ms = median_time(lambda _: embedding_of(encoder, tokens), 50)
        return {"time_ms": time_ms, "embedding": embedding_of(encoder, tokens)[0].tolist()}


def work_embed_onnx(task, options):
    """Runs the embedding in ONNX Runtime. Returns {"missing": reason} if it is not installed."""
    import warnings

    import torch

    try:
        import onnxruntime
        import onnxscript  # noqa: F401  what the exporter of PyTorch needs
    except ImportError as error:
        return {"missing": f"{error.name} is not installed ({error}); pip install onnxruntime onnxscript"}

    class Embedding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = load_encoder(task, options).eval()

        def forward(self, tokens):
            return embedding_of(self.encoder, tokens)

    tokens = tokens_to_embed(task)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = pathlib.Path(folder) / "encoder.onnx"
        torch.onnx.export(Embedding(), (tokens,), path, input_names=["tokens"], output_names=["result"], dynamo=True, verbose=False)
        session = onnx_session(path, options)
        feed = {"tokens": tokens.numpy()}
        return {"time_ms": median_time(lambda _: session.run(None, feed), 50), "version": onnxruntime.__version__,
                "embedding": session.run(None, feed)[0][0].tolist()}


def work_make_decoder(task, options):
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, bos_token_id=None, eos_token_id=None))
    model.to(torch.bfloat16).save_pretrained(task["folder"])
    return {}


def work_lora(task, options):
    import peft
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    dtype = torch.bfloat16 if task["dtype"] == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(task["folder"], dtype=dtype)
    model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def loss(rows):
        logits = model(input_ids=rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())

    return {**time_training(optimizer, loss, read_tokens(task, *LORA)), "version": peft.__version__}


def work_llama(task, options):
    """Measures prompts and tokens in llama.cpp. Returns {"missing": reason} if it is not
    installed."""
    try:
        import ctypes

        import llama_cpp
    except ImportError as error:
        return {"missing": f"llama-cpp-python is not installed ({error}); pip install llama-cpp-python compiles it"}
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    settings = llama_cpp.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(task["file"].encode(), settings)
    if not model:
        raise Failure(f"llama.cpp cannot load {task['file']}.")
    sizes = llama_cpp.llama_context_default_params()
    sizes.n_ctx, sizes.n_batch, sizes.n_ubatch = max(PROMPT, BEHIND + TOKENS), PROMPT, PROMPT
    sizes.n_threads = sizes.n_threads_batch = options.threads
    context = llama_cpp.llama_init_from_model(model, sizes)
    memory, vocabulary = llama_cpp.llama_get_memory(context), DECODER["vocab_size"]

    def feed(tokens):
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise Failure("llama.cpp cannot decode.")
        llama_cpp.llama_synchronize(context)

    def greedy():
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        import numpy
        return int(numpy.ctypeslib.as_array(logits, shape=(vocabulary,)).argmax())

    def prompt(_):
        llama_cpp.llama_memory_clear(memory, True)
        feed(task["prompt"])

    prompt_ms = median_time(prompt)
    llama_cpp.llama_memory_clear(memory, True)
    feed(task["prompt"][:BEHIND])
    times = []
    for _ in range(TOKENS):
        token, start = greedy(), time.perf_counter()
        feed([token])
        times.append(time.perf_counter() - start)
    return {"prompt_ms": prompt_ms, "token_ms": 1e3 * statistics.median(times), "version": llama_cpp.__version__}


WORK = {"language_train": work_train, "language_pairs": work_pairs, "language_embed": work_embed, "language_embed_onnx": work_embed_onnx,
        "make_decoder": work_make_decoder, "language_lora": work_lora, "llama": work_llama}

# ----------------------------------------------------------------------------------- both sides


def make_tokens(path, batch, seq, most):
    """Writes rows of seq + 1 random tokens, i32 little endian."""
    pick = random.Random(f"{batch} {seq}")
    count = 8 * batch * (seq + 1)
    path.write_bytes(struct.pack(f"<{count}i", *(pick.randrange(most) for _ in range(count))))
    return path


def expect_close(what, ours, theirs):
    apart = abs(ours - theirs) / max(1.0, abs(theirs))
    print(f"agreement, {what}: {apart:.1e}", flush=True)
    if not apart <= MOST_ERROR:
        raise Failure(f"{what}: {ours:.9g} in Bowline and {theirs:.9g} in the peer.")


def compare_encoder(options, bowline, torch, work):
    folder = str(options.encoder)
    labels, model, encoder = work / "labels.txt", work / "classifier.bowline", work / "encoder.bowline"
    labels.write_text("".join(f"class{i}\n" for i in range(CLASSES)))
    bowline("import", folder, "--task", "classify", "--labels", labels, "--out", model)
    bowline("import", folder, "--out", encoder)
    weights = bowline.export(model, work / "weights")
    ties = {row["name"]: row["tie"] for row in json.loads((weights / "parameters.json").read_text())}
    head = [str(weights / f"storage_{ties[f'classifier.{part}']}.bin") for part in ("weight", "bias")]
    tokens = make_tokens(work / "tokens.bin", *TRAIN, 20000)

    def train():
        result, peak = bowline.bench("train", model, "--batch", TRAIN[0], "--seq", TRAIN[1], "--device", "cpu", "--tokens", tokens,
                                     "--no-floor")
        return {"time_ms": result["time_ms"], "loss": result["losses"][0]}, peak

    results = in_turn(options.runs, {"Bowline": train, "PyTorch": lambda: torch("language_train", folder=folder, head=head,
                                                                                 tokens=str(tokens))})
    expect_close("first loss of the classifier", results["Bowline"]["loss"], results["PyTorch"]["loss"])
    line(f"training step {TRAIN[0]} x {TRAIN[1]}", results, "time_ms", "PyTorch", AIM["train"])

    pairs = make_tokens(work / "pairs.bin", *PAIRS, 20000)

    def train_pairs():
        result, peak = bowline.bench("train", encoder, "--batch", PAIRS[0], "--seq", PAIRS[1], "--device", "cpu", "--tokens", pairs, "--no-floor")
        return {"time_ms": result["time_ms"], "loss": result["losses"][0]}, peak

    results = in_turn(options.runs, {"Bowline": train_pairs, "sentence-transformers": lambda: torch("language_pairs", folder=folder,
                                                                                                     tokens=str(pairs))})
    if results["sentence-transformers"] is not None:
        expect_close("first loss of the pairs", results["Bowline"]["loss"], results["sentence-transformers"]["loss"])
        line(f"pairs, a training step {PAIRS[0]} x {PAIRS[1]}", results, "time_ms", "sentence-transformers", AIM["pairs"])

    ids = [random.Random(1).randrange(1000, 20000) for _ in range(EMBED[1])]
    given = ["--input", "tokens=" + ",".join(map(str, ids)), "--input", f"lengths={EMBED[1]}"]
    dims = ["--entry", "embed", "--batch", EMBED[0], "--seq", EMBED[1], *given, "--device", "cpu"]
    output = work / "embedding.txt"
    bowline("run", encoder, *dims, "--output", f"embedding=@{output}")
    ours = [float(word) for word in output.read_text().split()]

    def embed():
        result, peak = bowline.bench("run", encoder, *dims, "--runs", 200)
        return {"time_ms": result["time_ms"]}, peak

    peers = {"PyTorch": "language_embed", "ONNX Runtime": "language_embed_onnx"}
    results = in_turn(options.runs, {"Bowline": embed,
                                     **{name: lambda kind=kind: torch(kind, folder=folder, ids=ids) for name, kind in peers.items()}})
    for name, aim in (("PyTorch", AIM["embed torch"]), ("ONNX Runtime", AIM["embed onnx"])):
        if results[name] is not None:
            worst = max(abs(a - b) for a, b in zip(ours, results[name]["embedding"], strict=True))
            expect_close(f"embedding, {name}", worst, 0.0)
            line(f"embedding {EMBED[0]} x {EMBED[1]}", results, "time_ms", name, aim)


def compare_decoder(options, bowline, torch, work):
    folder = work / "hf"
    torch("make_decoder", folder=str(folder))
    prompt = [random.Random(2).randrange(DECODER["vocab_size"]) for _ in range(PROMPT)]
    plain = work / "bf16.bowline"
    bowline("import", folder, "--out", plain)
    for encoding in ENCODINGS:
        model, file = work / f"{encoding}.bowline", work / f"{encoding}.gguf"
        if encoding != "bf16":
            bowline("quantize", plain, "--encoding", encoding, "--out", model)
        bowline("export", model, "--to", "gguf", "--out", file)

        def decode(model=model):
            tokens, _ = bowline.bench("decode", model, "--prompt", BEHIND, "--tokens", TOKENS, "--device", "cpu")
            # Measuring the floor would add memory.
            long, peak = bowline.bench("decode", model, "--prompt", PROMPT, "--tokens", 1, "--device", "cpu", "--no-floor")
            return {"token_ms": tokens["ms_median"], "percent_of_floor": tokens["percent_of_floor"],
                    "prompt_ms": 1e3 * PROMPT / long["prompt_tokens_per_second"]}, peak

        results = in_turn(options.runs, {"Bowline": decode, "llama.cpp": lambda file=file: torch("llama", file=str(file), prompt=prompt)})
        print(f"{encoding}: a token at {results['Bowline']['percent_of_floor']:.1f} percent of the floor", flush=True)
        line(f"{encoding}, a token", results, "token_ms", "llama.cpp", AIM["decode"])
        line(f"{encoding}, a prompt of {PROMPT}", results, "prompt_ms", "llama.cpp", AIM["prefill"])

    tokens = make_tokens(work / "tokens.bin", *LORA, DECODER["vocab_size"])
    for dtype in ("f32", "bf16"):
        model = work / f"{dtype}_lora.bowline"
        bowline("import", folder, "--dtype", dtype, "--out", model)

        def step(model=model, dtype=dtype):
            result, peak = bowline.bench("train", model, "--batch", LORA[0], "--seq", LORA[1], "--device", "cpu", "--tokens", tokens,
                                         "--no-floor", "--lora-rank", RANK, "--lora-target", "*proj.weight", "--compute", dtype)
            return {"time_ms": result["time_ms"], "loss": result["losses"][0]}, peak

        results = in_turn(options.runs, {"Bowline": step, "PEFT": lambda dtype=dtype: torch("language_lora", folder=str(folder), dtype=dtype,
                                                                                             tokens=str(tokens))})
        if dtype == "f32":
            expect_close("first loss with LoRA", results["Bowline"]["loss"], results["PEFT"]["loss"])
        line(f"LoRA step {LORA[0]} x {LORA[1]} in {dtype}", results, "time_ms", "PEFT", AIM["lora"])


def compare(options, net):
    torch, bowline = Torch(options), Bowline(options)
    print_machine(torch)
    with tempfile.TemporaryDirectory(prefix="compare_torch_") as name:
        (compare_encoder if net == "encoder" else compare_decoder)(options, bowline, torch, pathlib.Path(name))
