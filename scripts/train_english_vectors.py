"""Train the table of `holdfast-english-256`: a vector of 256 dimensions for each piece of an English word.

    python scripts/train_english_vectors.py TEXTS --minilm FOLDER --granite FOLDER --out FOLDER

It needs `torch` and `transformers`, which are not dependencies of the project. TEXTS is a UTF-8 file with one text a
line; " ⏎ " stands for a line break within a text. The teachers are two sentence models, each a folder in the layout of
sentence-transformers: `all-MiniLM-L6-v2` and `granite-embedding-30m-english`. A GPU takes about three minutes for 1.27
million texts. The result is similar to the table in the package, not the same: that one was made from weights of the
teachers that were rounded to 8 bits, and GPUs and versions of `torch` differ in rounding.

1. More texts are made of the given ones, since an archive holds more than tidy sentences. Spans of words, some in lower
   case without punctuation, are like questions typed in haste; two texts side by side are like passages about two
   subjects; key words are like searches. Openings of chats and notes teach that such an opening means little.
2. Both teachers embed all texts. The mean of a teacher's vectors is subtracted: it is what all texts have in common,
   and would make all similarities high. The target of a text is both vectors side by side, so that the cosine of two
   targets is the mean of both teachers' cosines.
3. The first 256 principal components of the targets are what a vector of 256 dimensions can hold of them.
4. The table is trained so that the mean of a text's rows comes near to these components, and so that the similarities
   within a batch come near to those of the whole targets. It starts with MiniLM's own table for the same pieces.
5. The rows are rounded to 8 bits with a scale for each. The rows of pieces that are not ASCII or in no text are zero.
"""

# ruff: noqa: PLR2004 - the shares and lengths of variants are plain in their place

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import torch
from safetensors.torch import save as encode
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

DIMENSION = 256
MAX_TOKENS = 128
MAX_CHARS = 600
MIN_CHARS = 7
OPENINGS = ("User: ", "Q: ", "Decided: ", "Note: ", "Why did we say that ", "Remind me: ", "What about ")

PAD = 0  # the number of [PAD] in the vocabulary of MiniLM
FIRST_WORD = 1000  # the pieces before it are special tokens or unused, but for one

ROWS = 1 << 17  # vectors that are converted to float32 at a time
PCA_TEXTS = 400_000
CLUSTERS = 1024
CLUSTERS_IN_BATCH = 16
KMEANS_ROUNDS = 6

LEARNING_RATE = 0.01
WARM_UP_STEPS = 200
TEMPERATURE = 0.05
SIMILARITY_WEIGHT = 0.3  # of the similarities within a batch, next to 1 for the distance from the target

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    """Read the texts, train the table and write the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="a file with one text a line")
    parser.add_argument("--minilm", type=Path, required=True, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--granite", type=Path, required=True, help="the folder of granite-embedding-30m-english")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the model")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")  # faster on a GPU, and exact enough for similarities

    texts = make_texts(read_texts(options.texts), seed=options.seed)
    print(f"{len(texts)} texts on {DEVICE}")
    targets = make_targets(texts, minilm=options.minilm, granite=options.granite)
    ids = tokenize(texts, options.minilm)
    table = train(ids, targets, start=load_start(options.minilm), steps=options.steps, batch_size=options.batch)
    save(table, ids, tokenizer=options.minilm / "tokenizer.json", out=options.out)


# --- texts -------------------------------------------------------------------


def read_texts(file: Path) -> list[str]:
    """Read the texts of a file, one a line."""
    lines = file.read_text(encoding="utf-8").split("\n")  # `splitlines` also splits at rare separators within a text
    return [line.replace(" ⏎ ", "\n") for line in lines if line.strip()]


def make_texts(texts: Sequence[str], *, seed: int) -> list[str]:
    """Return the texts and variants of about two thirds of them, in random order."""
    random = Random(seed)  # noqa: S311 - chance, not secrecy
    variants = [make_variant(text, texts=texts, random=random) for text in texts]
    result = list(texts)
    result += [variant for variant in variants if len(variant) >= MIN_CHARS]
    random.shuffle(result)
    return result


def make_variant(text: str, *, texts: Sequence[str], random: Random) -> str:
    """Return a variant of a text, or an empty string. A text too short for one kind is used for the next."""
    words = text.split(" ")
    draw = random.random()
    if draw < 0.35 and len(words) > 5:
        return cut_span(words, random=random)
    if draw < 0.5:
        return f"{text} {random.choice(texts)}"[:MAX_CHARS]
    if draw < 0.6 and len(words) > 8:
        return choose_key_words(words, random=random)
    if draw < 0.7 and len(words) > 6:
        return random.choice(OPENINGS) + text[:1].lower() + text[1:]
    return ""


def cut_span(words: Sequence[str], *, random: Random) -> str:
    """Return 3 to 16 consecutive words; two of five spans are in lower case and without punctuation."""
    length = random.randint(3, min(len(words), 16))
    start = random.randint(0, len(words) - length)
    span = " ".join(words[start : start + length])
    if random.random() < 0.4:
        span = re.sub(r"[^\w\s]", "", span).lower()
    return span


def choose_key_words(words: Sequence[str], *, random: Random) -> str:
    """Return 2 to 6 words of more than four letters, in random order."""
    long_words = [word.strip('.,;:()"`*') for word in words if len(word) > 4]
    random.shuffle(long_words)
    return " ".join(long_words[: random.randint(2, 6)])


def tokenize(texts: Sequence[str], folder: Path) -> Tensor:
    """Return the numbers of each text's pieces without special tokens, one text a row, filled up with `PAD`."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(length=MAX_TOKENS, pad_id=PAD)
    parts = []
    # All texts at once would take gigabytes: the tokenizer also keeps the place of each piece.
    for start in range(0, len(texts), 20_000):
        encodings = tokenizer.encode_batch(texts[start : start + 20_000], add_special_tokens=False)
        parts.append(torch.tensor([encoding.ids for encoding in encodings], dtype=torch.int32))
    return torch.cat(parts).to(DEVICE)


# --- teachers ----------------------------------------------------------------


def make_targets(texts: Sequence[str], *, minilm: Path, granite: Path) -> Tensor:
    """Return the vectors of both teachers side by side, at length 1. Float16, which takes 3 GB for 2 million texts."""
    parts = [center(embed(texts, minilm, pooling="mean")), center(embed(texts, granite, pooling="first"))]
    return torch.cat(parts, dim=1) * math.sqrt(1 / len(parts))


@torch.no_grad()
def embed(texts: Sequence[str], folder: Path, *, pooling: Literal["mean", "first"]) -> Tensor:
    """Return the vectors that a sentence model gives the texts: the mean of all tokens, or the first token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    precision = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    model = AutoModel.from_pretrained(folder).to(DEVICE, precision).eval()
    vectors = torch.empty(len(texts), model.config.hidden_size, dtype=torch.float16, device=DEVICE)
    # Texts of similar length together need little padding.
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    for start in range(0, len(order), 1024):
        numbers = order[start : start + 1024]
        batch = [texts[number] for number in numbers]
        inputs = tokenizer(batch, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(DEVICE)
        states = model(**inputs).last_hidden_state.float()
        if pooling == "mean":
            # The sum has the same direction as the mean, and only the direction counts.
            rows = (states * inputs["attention_mask"][:, :, None]).sum(dim=1)
        else:
            rows = states[:, 0]
        vectors[numbers] = functional.normalize(rows, dim=1).half()
    return vectors


def center(vectors: Tensor) -> Tensor:
    """Subtract the mean of all vectors from each, in place, and return them at length 1."""
    mean = vectors.mean(dim=0, dtype=torch.float32)
    for part in vectors.split(ROWS):
        part.copy_(functional.normalize(part.float() - mean, dim=1))
    return vectors


def load_start(folder: Path) -> Tensor:
    """Return the principal components of a model's own table: similar pieces begin with similar rows."""
    table = AutoModel.from_pretrained(folder).get_input_embeddings().weight.detach().float()
    table = table - table.mean(dim=0)
    table = table @ find_components(table[FIRST_WORD:])
    return (0.5 * table / table.std()).to(DEVICE)


def find_components(rows: Tensor) -> Tensor:
    """Return the first principal components of rows whose mean is about zero, as columns."""
    _, vectors = torch.linalg.eigh(rows.T @ rows)  # in ascending order
    return vectors[:, -DIMENSION:]


# --- training ----------------------------------------------------------------


class Batches:
    """Draws batches: half of a batch are random texts, half come from a few clusters of similar ones.

    Random texts have almost nothing in common. Only texts about the same subject show which of them is nearer.
    """

    def __init__(self, targets: Tensor) -> None:
        clusters = find_clusters(targets)
        self._numbers = torch.argsort(clusters)  # the texts of the first cluster, of the second, ...
        self._sizes = torch.bincount(clusters)
        self._starts = torch.cumsum(self._sizes, dim=0) - self._sizes

    def draw(self, size: int) -> Tensor:
        """Return the numbers of the texts of one batch. A large cluster is drawn more often."""
        similar = size // 2 // CLUSTERS_IN_BATCH
        anywhere = torch.randint(len(self._numbers), (size - similar * CLUSTERS_IN_BATCH,), device=DEVICE)
        clusters = torch.multinomial(self._sizes.float(), CLUSTERS_IN_BATCH)[:, None]
        shares = torch.rand(CLUSTERS_IN_BATCH, similar, device=DEVICE, dtype=torch.float64)
        places = self._starts[clusters] + (shares * self._sizes[clusters]).long()
        return torch.cat([anywhere, self._numbers[places.flatten()]])


def find_clusters(targets: Tensor) -> Tensor:
    """Return the number of each text's cluster, by k-means with cosines."""
    centers = targets[:CLUSTERS].float()  # the texts are in random order
    for _ in range(KMEANS_ROUNDS):
        clusters = find_nearest(targets, centers)
        sums = torch.zeros_like(centers)
        for part, numbers in zip(targets.split(ROWS), clusters.split(ROWS), strict=True):
            sums.index_add_(0, numbers, part.float())
        centers = functional.normalize(sums, dim=1)
    return find_nearest(targets, centers)


def find_nearest(targets: Tensor, centers: Tensor) -> Tensor:
    """Return the number of the center that is nearest to each target."""
    return torch.cat([(part.float() @ centers.T).argmax(dim=1) for part in targets.split(ROWS)])


def train(ids: Tensor, targets: Tensor, *, start: Tensor, steps: int, batch_size: int) -> Tensor:
    """Return the trained table."""
    batches = Batches(targets)
    components = find_components(targets[:PCA_TEXTS].float())  # the texts are in random order
    table = start.clone().requires_grad_()
    optimizer = torch.optim.AdamW([table], betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(steps):
        numbers = batches.draw(batch_size)
        means = functional.embedding_bag(ids[numbers], table, mode="mean", padding_idx=PAD)  # without padding
        vectors = functional.normalize(means, dim=1)
        batch_targets = targets[numbers].float()
        distance = 1 - functional.cosine_similarity(vectors, batch_targets @ components).mean()
        divergence = compare_similarities(vectors, batch_targets)
        loss = distance + SIMILARITY_WEIGHT * divergence
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([table], 1.0)
        optimizer.param_groups[0]["lr"] = get_learning_rate(step, steps=steps)
        optimizer.step()
        if (step + 1) % 500 == 0 or step + 1 == steps:
            print(f"step {step + 1}: distance {distance.item():.4f}, divergence {divergence.item():.4f}", flush=True)
    return table.detach()


def compare_similarities(vectors: Tensor, targets: Tensor) -> Tensor:
    """Return the divergence of a batch's similarities from those of the targets. A text is not compared with itself."""
    itself = torch.eye(len(vectors), dtype=torch.bool, device=DEVICE)
    found = (vectors @ vectors.T / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(dim=1)
    wanted = (targets @ targets.T / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(dim=1)
    return functional.kl_div(found, wanted, log_target=True, reduction="batchmean")


def get_learning_rate(step: int, *, steps: int) -> float:
    """Return the rate of a step: it rises during the first steps, and falls along half a cosine to a hundredth."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    fall = 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.01
    return LEARNING_RATE * warm_up * fall


# --- the model ---------------------------------------------------------------


def save(table: Tensor, ids: Tensor, *, tokenizer: Path, out: Path) -> None:
    """Write the table with 8 bits a number, and the tokenizer without the teacher's padding and special tokens."""
    settings = json.loads(tokenizer.read_text(encoding="utf-8"))
    settings |= {"truncation": None, "padding": None, "post_processor": None}
    table = table.cpu()
    counts = torch.bincount(ids.flatten().cpu(), minlength=len(table))
    for piece, number in settings["model"]["vocab"].items():
        is_special = piece.startswith("[") and len(piece) > 1
        # A few foreign names do not train the rows of other scripts: no vector is better than a bad one.
        if counts[number] == 0 or is_special or not piece.isascii():
            table[number] = 0
    scales = table.abs().amax(dim=1).clamp(min=1e-12) / 127
    rows = torch.round(table / scales[:, None]).to(torch.int8)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.safetensors").write_bytes(encode({"embeddings": rows, "weights": scales}))
    content = json.dumps(settings, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(content, encoding="utf-8")
    print(f"{out}: {int(rows.any(dim=1).sum())} of {len(rows)} pieces have a vector")


if __name__ == "__main__":
    main()
