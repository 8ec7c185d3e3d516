"""Makes the tokenizer files of this folder and cases.json, the ids that the published libraries give.

    python3 -m venv v && v/bin/pip install sentencepiece tiktoken tokenizers
    v/bin/python tests/golden/tokenizers/make.py       # from the repository's root

The files are trained on this repository's own documents and the lines below, so they are ours to give; they are as
Llama-2's and Llama-3's in everything but size. Versions are written into cases.json.
"""
import base64, json, os, random, tempfile
import sentencepiece, tiktoken, tokenizers
from tokenizers import Tokenizer, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = os.path.dirname(os.path.abspath(__file__)) + "/"
TMP = tempfile.mkdtemp() + "/"
EXTRA = [
    "Größe, naïve café — “quotes” … déjà vu façade", "日本語の文章です。漢字とかな。", "Привет, мир! Это тест.",
    "مرحبا بالعالم", "😀 😃 👩‍👩‍👧 🇩🇪 ✨", "    indented    text\twith tabs", "1234567890 3.14159 2026-11-21",
    "the quick brown fox jumps over the lazy dog 12 345 6789",
]
lines = [line for name in ["README.md", "ARCHITECTURE.md", "dsl/LANGUAGE.md"]
         for line in open(name, encoding="utf8").read().split("\n") if line.strip()][:700]
open(TMP + "corpus", "w", encoding="utf8").write("\n".join(lines + EXTRA * 8) + "\n")

# 1. As Llama-2's: bytes for what is unknown, nothing normalised, a blank before each text.
def sentencepiece_model(name, **how):
    sentencepiece.SentencePieceTrainer.train(
        input=TMP + "corpus", model_prefix=TMP + name, vocab_size=560, model_type="bpe", character_coverage=0.999,
        split_digits=True, num_threads=1, minloglevel=2, **how)
    os.replace(TMP + name + ".model", OUT + name + ".model")
sentencepiece_model("llama2", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                    allow_whitespace_only_pieces=True)
# 2. With a table of characters, blanks collapsed, a symbol of its own and an unknown token.
rules = [("ﬁ", "fi"), ("Ａ", "A"), ("Ｂ", "B"), ("\u3000", " "), ("\u00a0", " "), ("\t", " "), ("\n", " "), ("\r", " "),
         ("e\u0301", "\u00e9"), ("\u200b", ""), ("①", "1"), ("…", "...")]
with open(TMP + "rules.tsv", "w", encoding="utf8") as f:
    for source, target in rules:
        f.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)) + "\n")
sentencepiece_model("table", normalization_rule_tsv=TMP + "rules.tsv", user_defined_symbols=["[SEP]"])

# 3. As Llama-3's, in Hugging Face's form and as tiktoken's ranks.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
hf = Tokenizer(models.BPE(ignore_merges=True))
hf.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
hf.decoder = decoders.ByteLevel()
hf.train([TMP + "corpus"], trainers.BpeTrainer(
    vocab_size=560, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
hf.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
hf.post_processor = processors.TemplateProcessing(
    single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", 560)])
hf.save(OUT + "llama3.json")
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
hidden = [byte for byte in range(256) if byte not in printable]
bytes_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}
ranks = {bytes(bytes_of[c] for c in token): rank for token, rank in hf.get_vocab(with_added_tokens=False).items()}
with open(OUT + "llama3.model", "w") as f:
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        f.write(base64.b64encode(token).decode() + f" {rank}\n")
# 4. Hugging Face's form of the first.
sp = sentencepiece.SentencePieceProcessor(model_file=OUT + "llama2.model")
vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
own = {piece: i for piece, i in vocab.items() if i >= 259}
merges = [(piece[:cut], piece[cut:]) for piece in own for cut in range(1, len(piece))
          if piece[:cut] in own and piece[cut:] in own]
llama2 = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
llama2.add_special_tokens(["<unk>", "<s>", "</s>"])
llama2.post_processor = processors.TemplateProcessing(
    single="<s> $A </s>", pair="<s> $A $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
llama2.save(OUT + "llama2.json")

# What is encoded: what goes wrong first, then drawn texts.
texts = ["", "a", " ", "  ", "   a", "a   ", "a  b", "\n", "\n\n\t x\r\n", "Hello, world!", "don't WE'LL it's",
         "1234567890 12 3.14", "日本語とかな", "Größe café ﬁ…", "😀👩‍👩‍👧🇩🇪", "a\u0301e\u0301 \u200b\u3000x\u00a0", "<s>",
         "</s> <unk> <0x41>", "<|begin_of_text|>hello<|end_of_text|>", "<|reserved_special_token_0|>", "[SEP]a[SEP] b",
         "▁a ▁▁b", "\u0000\u0001\u007f", "x" * 500, "the " * 100, " " * 600, " " * 500 + "x", "9" * 200, "!?" * 100,
         "👍" * 50, "ａｂｃ Ａ①", "\u0378\ue000\uffff"]
draw = random.Random(1)
alphabet = list("aeiou rstn  lmThe<>[]0123456789\n\t_-.,äéﬁ①日本語Привет😀👩\u200d👧\u00a0\u3000\u200b▁\u0301ＡＢ")
alphabet += ["<s>", "[SEP]", "<0x41>", "the ", "  ", "    ", " \n", "'s", "<|end_of_text|>"]
texts += ["".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 60))) for _ in range(90)]
table = sentencepiece.SentencePieceProcessor(model_file=OUT + "table.model")
ranked = tiktoken.Encoding("x", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|begin_of_text|>": 560})
# "encode_special_tokens" is that text which spells a special token is text.
hf.encode_special_tokens = llama2.encode_special_tokens = True
def with_hf(tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
encoders = {"llama2.model": sp.encode, "table.model": table.encode, "llama3.model": ranked.encode_ordinary,
            "llama3.json": with_hf(hf), "llama2.json": with_hf(llama2)}
info = {"llama2.model": ["sentencepiece", 560, 1, 2], "table.model": ["sentencepiece", 560, 1, 2],
        "llama3.model": ["tiktoken", 560 + 256, 560, 561], "llama3.json": ["huggingface", 562, 560, None],
        "llama2.json": ["huggingface", 560, 1, 2]}
versions = {"sentencepiece": sentencepiece.__version__, "tiktoken": tiktoken.__version__,
            "tokenizers": tokenizers.__version__}
cases = {"versions": versions, "texts": texts,
         "tokenizers": {name: {"info": info[name], "ids": [list(encode(text)) for text in texts]}
                        for name, encode in encoders.items()}}
with open(OUT + "cases.json", "w") as f:
    f.write(json.dumps(cases, separators=(",", ":")).replace('"ids":', '\n"ids":').replace("]],", "]],\n") + "\n")
