"""The continuation of the same prompt by `transformers`, for comparison with a system's tokens."""

from golden.llm.language_model import LanguageModel


def reference(model: LanguageModel, prompt: list[int], tokens: int) -> list[int]:
    """Return the most probable tokens, one after the other, in float32 with a full cache.

    Raises
    ------
    Exception
        Whatever `transformers` raises where it cannot load or run the model.
    """
    import torch

    from golden.llm.model import load_model

    decoder = load_model(model.file)
    text, past = torch.tensor([prompt]), None
    found: list[int] = []
    with torch.inference_mode():
        while len(found) < tokens and not (found and found[-1] in model.stop):
            result = decoder(input_ids=text, past_key_values=past, use_cache=True)
            past = result.past_key_values
            text = result.logits[:, -1:].argmax(-1)
            found.append(int(text[0, 0]))
    return found


def first_difference_of(ours: list[int], theirs: list[int]) -> int | None:
    """Return the index of the first token in which two texts differ, or None."""
    for place, (own, other) in enumerate(zip(ours, theirs, strict=False)):
        if own != other:
            return place
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
