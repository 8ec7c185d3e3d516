"""Drives `canonc serve` with the real `openai` client: openai_client.py URL."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)


def check(is_true, what):
    if not is_true:
        sys.exit("error: {}".format(what))


def main():
    models = client.models.list().data
    check([model.id for model in models] == ["llama"], models)
    name = models[0].id

    whole = client.completions.create(model=name, prompt="Once", max_tokens=12, seed=3, logprobs=2)
    choice = whole.choices[0]
    check(whole.usage.completion_tokens == 12 and choice.finish_reason == "length", whole)
    check(len(choice.logprobs.token_logprobs) == 12, choice)
    check(all(2 <= len(top) <= 3 for top in choice.logprobs.top_logprobs), choice)

    options = {"include_usage": True}
    pieces = list(
        client.completions.create(
            model=name, prompt="Once", max_tokens=12, seed=3, stream=True, stream_options=options
        )
    )
    text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
    check(text == choice.text, (text, choice.text))
    check(pieces[-1].usage == whole.usage, pieces[-1])

    several = client.completions.create(model=name, prompt=["Once", "upon"], n=2, max_tokens=4, seed=3, temperature=0.5)
    check([choice.index for choice in several.choices] == [0, 1, 2, 3], several)
    tokens = client.completions.create(model=name, prompt=[79, 110], max_tokens=0, echo=True, logprobs=0)
    check(tokens.choices[0].text == "On" and tokens.usage.completion_tokens == 0, tokens)

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    chat = client.chat.completions.create(
        model=name, messages=messages, max_completion_tokens=9, seed=5, logprobs=True, top_logprobs=2
    )
    message = chat.choices[0].message
    check(message.role == "assistant" and message.content is not None, chat)
    check(all(len(token.top_logprobs) == 2 for token in chat.choices[0].logprobs.content), chat)
    pieces = client.chat.completions.create(model=name, messages=messages, max_tokens=9, seed=5, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    check(text == message.content, (text, message.content))
    stop = message.content[1:2] or "x"
    cut = client.chat.completions.create(model=name, messages=messages, max_tokens=9, seed=5, stop=[stop])
    check(cut.choices[0].message.content == message.content.split(stop)[0], cut)

    for kind, ask in [
        (openai.BadRequestError, {"model": name, "prompt": "a", "temperature": -1}),
        (openai.BadRequestError, {"model": name, "prompt": "a", "max_tokens": 100000}),
        (openai.BadRequestError, {"model": name, "prompt": "a", "presence_penalty": 3}),
        (openai.NotFoundError, {"model": "other", "prompt": "a"}),
    ]:
        try:
            client.completions.create(**ask)
        except kind as error:
            check(error.body["message"] and error.body["type"] == "invalid_request_error", error.body)
        else:
            check(False, ask)

    # A client that stops reading.
    stream = client.completions.create(model=name, prompt="a", max_tokens=3000, stream=True)
    next(iter(stream))
    stream.close()
    print("all right")


main()
