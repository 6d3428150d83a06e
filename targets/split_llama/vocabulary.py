"""The tiny base's tokenizer: byte-level BPE of 2,048 tokens that spells a phrase the same wherever it stands.

Byte-pair merges (Sennrich et al., 2016) over bytes, so that every text can be written and read back. Two choices keep
samples short and let a small model match a question with its answer:

- What follows a line end or an opening bracket gets a blank in front, which decoding removes. So a phrase is the same
  tokens after a colon, a comma, a line end or a bracket.
- Merges may cross the blanks between words, not punctuation: "no answer" is one token.

A text may be tokenised in pieces that begin at line ends, or at the blank before an answer; the ids are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = PAD, BOS, EOS = "<pad>", "<s>", "</s>"
"""Their ids are 0, 1, 2. A text begins with BOS, as LLaMA's do."""

_WORD = r"\p{L}+(?:['-]\p{L}+)*"
_PARTS = rf" ?{_WORD}(?: {_WORD})*| ?\p{{N}}{{1,4}}(?:-\p{{N}}{{1,4}})?|\n| ?[^\s\p{{L}}\p{{N}}]+|\s+"
_BLANK_AFTER = ("\n", "(")


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """The same texts in the same order give the same tokenizer. vocabulary: tokens, special ones and bytes included."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(rf"\{mark}(?=[^\n])"), f"{mark} ") for mark in _BLANK_AFTER]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PARTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), *(decoders.Replace(f"{mark} ", mark) for mark in _BLANK_AFTER)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, SPECIAL.index(BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )


def token_ids(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Without the special tokens around a text."""
    encodings = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]
