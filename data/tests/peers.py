"""Random tokenizers and texts, with the ids that the published libraries give.

    python data/tests/peers.py FOLDER --tokenizers 60 --texts 40 --seed 1

Each tokenizer becomes FOLDER/N.json (of Hugging Face) or FOLDER/N.model (of SentencePiece), its texts and their ids
FOLDER/N.jsonl. Needs the packages sentencepiece, protobuf and tokenizers.
"""
import argparse, io, json, os, random, sys, unicodedata
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

WORDS = ("the of and to in it is was he for 0 12 345 6789 2026 naïve Größe café don't WE'LL can't I'm ’s — “x” … ﬁne "
         "日本語 とかな 漢字 Привет мир مرحبا नमस्ते 한국어 ไทย 😀 👩‍👩‍👧 🇩🇪 e\u0301 A\u030a ＡＢＣ ① ½ x_y a-b (c) [d] {e} <f> "
         "#g @h $5 %6 &amp; a.b/c?d=e&f \\n /* */ == != += ▁ ▁▁ <s> </s> <0x41> ¿qué? İstanbul ſtraße ǅ ß").split(" ")
BLANKS = [" ", " ", " ", " ", "  ", "    ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\u2028", "\x0b", ""]
ATOMS = [r"\p{L}", r"\p{N}", r"\p{Lu}", r"\p{P}", r"\p{M}", r"\P{L}", r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\h", ".",
         r"[^\r\n\p{L}\p{N}]", r"[^\s\p{L}\p{N}]", r"[[:alpha:]]", r"[[:punct:]]", r"[[:space:]]", r"[[:digit:]]",
         r"[[:upper:]]", r"[^[:alnum:]]", r"[a-z&&[^aeiou]]", r"[a-z]", r"[A-Z]", r"[0-9]", r"[\r\n]", "a", "e", "the", " ", r"\n",
         r"\x20", r"\p{Han}", r"\p{Hiragana}", r"\p{Arabic}", r"\p{Script=Greek}", "é", "'s", r"\.", "_", r"\R", r"\X"]
QUANTIFIERS = ["", "", "", "?", "*", "+", "{1,3}", "{2}", "{,2}", "{2,}", "+?", "*?", "??", "++", "*+", "?+", "{1,2}?"]
ANCHORS = ["^", "$", r"\A", r"\Z", r"\z", r"\b", r"\B", r"\G", "", "", "", ""]

def pattern(draw, depth=0):
    parts = []
    for _ in range(draw.randint(1, 3)):
        kind = draw.random()
        if kind < 0.6 or depth > 1:
            part = draw.choice(ATOMS)
            if len(part) > 2 and not part.startswith(("\\", "[")): part = f"(?:{part})"
            parts.append(part + draw.choice(QUANTIFIERS))
        elif kind < 0.7: parts.append(draw.choice(ANCHORS))
        elif kind < 0.8: parts.append(draw.choice(["(?=", "(?!", "(?<=", "(?<!"]) + draw.choice(ATOMS) + ")")
        else: parts.append(draw.choice(["(?:", "(?i:", "(?m:", "(?>", "(", "(?x:", "(?s:"]) + pattern(draw, depth + 1) + ")" + draw.choice(["", "", "?", "{1,2}"]))
    text = "".join(parts)
    return text if draw.random() < 0.6 else text + "|" + pattern(draw, depth + 1) if depth < 3 else text

def text(draw, alphabet):
    if draw.random() < 0.15:  # any code points
        return "".join(chr(c) for c in (draw.randrange(1, 0x30000) for _ in range(draw.randint(1, 40))) if not 0xD800 <= c < 0xE000)
    return "".join(draw.choice(alphabet) + draw.choice(BLANKS) for _ in range(draw.randint(0, 25)))

def corpus(draw):
    return [text(draw, WORDS) for _ in range(300)]

def sentencepiece_model(draw):
    options = dict(model_type="bpe", byte_fallback=draw.random() < 0.5, character_coverage=draw.choice([0.9, 0.98, 1.0]),
        normalization_rule_name=draw.choice(["identity", "nfkc", "nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf"]),
        remove_extra_whitespaces=draw.random() < 0.5, add_dummy_prefix=draw.random() < 0.7,
        treat_whitespace_as_suffix=draw.random() < 0.2, split_digits=draw.random() < 0.5,
        split_by_whitespace=draw.random() < 0.7, split_by_unicode_script=draw.random() < 0.7,
        allow_whitespace_only_pieces=draw.random() < 0.5)
    symbols = [s for s in ["the", "th", "t", "\n\n", "\n", "[SEP]", "▁▁", "12", "日本", "日", "é", "the▁", " of"] if draw.random() < 0.3]
    draw.shuffle(symbols)
    if symbols: options["user_defined_symbols"] = symbols
    if draw.random() < 0.3: options["control_symbols"] = ["<pad0>", "the<s>", "<s2>"][:draw.randint(1, 3)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus(draw)), model_writer=model, vocab_size=2000,
        hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
    normal = [p for p in proto.pieces if p.type == Piece.NORMAL]
    if draw.random() < 0.4:
        for piece in draw.sample(normal, len(normal) // 3): piece.score = round(draw.uniform(-20, 0))
    if draw.random() < 0.2:
        for piece in draw.sample(normal, 5): piece.type = Piece.USER_DEFINED
    if draw.random() < 0.1: proto.normalizer_spec.escape_whitespaces = False
    file = proto.SerializeToString()
    processor = sentencepiece.SentencePieceProcessor(model_proto=file)
    return "model", file, processor.encode, symbols

def huggingface(draw):
    behaviours = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    def regex(): return Regex(pattern(draw))
    def split():
        return pre_tokenizers.Split(regex(), draw.choice(behaviours), invert=draw.random() < 0.3)
    kind = draw.choice(["bpe", "bpe", "bpe", "fallback", "unigram", "wordpiece", "wordlevel"])
    steps = []
    for _ in range(draw.randint(0, 2)):
        steps.append(draw.choice([split, split, split, lambda: pre_tokenizers.Digits(draw.random() < 0.5), pre_tokenizers.Whitespace,
            pre_tokenizers.WhitespaceSplit, pre_tokenizers.UnicodeScripts, pre_tokenizers.BertPreTokenizer,
            lambda: pre_tokenizers.Punctuation(draw.choice(behaviours)), lambda: pre_tokenizers.CharDelimiterSplit("e"),
            lambda: pre_tokenizers.Metaspace(prepend_scheme=draw.choice(["always", "first", "never"]), split=draw.random() < 0.5)])())
    if kind == "bpe": steps.append(pre_tokenizers.ByteLevel(add_prefix_space=draw.random() < 0.3, use_regex=draw.random() < 0.5))
    norms = []
    for _ in range(draw.randint(0, 2)):
        norms.append(draw.choice([normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase,
            normalizers.StripAccents, lambda: normalizers.Strip(draw.random() < 0.5, draw.random() < 0.5), normalizers.Nmt,
            lambda: normalizers.BertNormalizer(draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5),
            lambda: normalizers.Prepend("▁"), lambda: normalizers.Replace(" ", "▁"),
            lambda: normalizers.Replace(regex(), draw.choice(["", " ", "x"])), lambda: normalizers.Replace(regex(), "_")])())
    model, trainer = {
        "bpe": (models.BPE(ignore_merges=draw.random() < 0.3), lambda: trainers.BpeTrainer(vocab_size=600,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)),
        "fallback": (models.BPE(unk_token="<unk>", fuse_unk=draw.random() < 0.5, byte_fallback=True), lambda: trainers.BpeTrainer(vocab_size=700,
            special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False)),
        "unigram": (models.Unigram(), lambda: trainers.UnigramTrainer(vocab_size=500, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)),
        "wordpiece": (models.WordPiece(unk_token="<unk>"), lambda: trainers.WordPieceTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)),
        "wordlevel": (models.WordLevel(unk_token="<unk>"), lambda: trainers.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)),
    }[kind]
    tokenizer = Tokenizer(model)
    if norms: tokenizer.normalizer = normalizers.Sequence(norms)
    if steps: tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.train_from_iterator(corpus(draw), trainer())
    added = [s for s in ["[SEP]", "<s>", "the", "  ", "é", "12", "日本", "\n\n"] if draw.random() < 0.25]
    for s in added:
        flags = {flag: draw.random() < 0.3 for flag in ["single_word", "lstrip", "rstrip"]}
        tokenizer.add_tokens([AddedToken(s, normalized=draw.random() < 0.5, special=False, **flags)])
    # As transformers and canonc read it: from its text.
    file = tokenizer.to_str().encode()
    tokenizer = Tokenizer.from_str(file.decode())
    tokenizer.encode_special_tokens = True  # text that spells a special token is text
    return "json", file, lambda line: tokenizer.encode(line, add_special_tokens=False).ids, added

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--tokenizers", type=int, default=60)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--code-points", action="store_true", help="also every assigned code point, 64 in a text")
    options = parser.parse_args()
    written = skipped = 0
    every = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    every = ["".join(every[i:i + 64]) for i in range(0, len(every), 64)] if options.code_points else []
    seed = options.seed
    while written < options.tokenizers:
        seed += 1
        draw = random.Random(seed)
        try:
            suffix, file, encode, alphabet = (sentencepiece_model if draw.random() < 0.4 else huggingface)(draw)
            texts = ["", " ", "a\n b\n\n c\n", " " * 300, "x" * 300] + [text(draw, WORDS + alphabet * 5) for _ in range(options.texts)] + every
            rows = [{"text": line, "ids": encode(line)} for line in texts]
        except BaseException as error:  # what the library refuses, or panics at, is not compared
            if isinstance(error, KeyboardInterrupt): raise
            skipped += 1
            assert skipped < 20 + written, f"{seed}: {error!r}"
            continue
        name = os.path.join(options.folder, str(seed))
        with open(f"{name}.{suffix}", "wb") as out: out.write(file)
        with open(f"{name}.jsonl", "w") as out: out.writelines(json.dumps(row) + "\n" for row in rows)
        written += 1
    print(f"{written} tokenizers, {skipped} that the libraries refuse", file=sys.stderr)

main()
