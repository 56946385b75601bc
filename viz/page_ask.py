"""The prompt form: Gradio components whose ``js=`` handlers hand their values to the browser module, with no round trip."""

from __future__ import annotations

import gradio as gr

from engine.sampling_params import SamplingParams

#: The order in which the handler receives the fields; ``viz/static/ask.js`` names them the same way.
FIELDS = ("prompt", "mode", "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "n", "seed", "ignore_eos")


def build_ask_form(text: dict[str, str]) -> dict[str, gr.components.Component]:
    """Prompt, examples, Send, Send 8, and how the tokens are chosen. Returns the components by field name."""
    plain = SamplingParams()
    with gr.Column(elem_id="bs-ask", min_width=0):
        prompt = gr.Textbox(label=text["ask.prompt"], placeholder=text["ask.placeholder"], lines=2, max_lines=6, elem_id="bs-prompt")
        gr.HTML('<div class="bs-root" id="bs-examples"></div>', padding=False, apply_default_css=False, elem_id="bs-host-examples",
                js_on_load="import(new URL('viz/main.js', document.baseURI)).then((page) => page.attach('examples', element));")
        with gr.Row(elem_id="bs-send-row"):
            send = gr.Button(text["ask.send"], variant="primary", elem_id="bs-send", min_width=60)
            send_eight = gr.Button(text["ask.send8"], elem_id="bs-send8", min_width=60)
        gr.HTML('<p class="bs-sentence" id="bs-ask-message" role="status" aria-live="polite"></p>', padding=False,
                apply_default_css=False, elem_id="bs-host-ask-message")
        mode = gr.Radio([(text["ask.chat"], "chat"), (text["ask.raw"], "raw")], value="chat", label=text["ask.mode"], elem_id="bs-mode")
        length = gr.Slider(0, 512, value=plain.max_new_tokens, step=1, label=text["ask.max_new_tokens"], elem_id="bs-max_new_tokens")
        temperature = gr.Slider(0, 2, value=plain.temperature, step=0.05, label=text["ask.temperature"], elem_id="bs-temperature")
        with gr.Accordion(text["ask.more"], open=False, elem_id="bs-ask-more"):
            top_k = gr.Number(plain.top_k, precision=0, label=text["ask.top_k"], elem_id="bs-top_k", min_width=80)
            top_p = gr.Slider(0.05, 1, value=plain.top_p, step=0.05, label=text["ask.top_p"], elem_id="bs-top_p")
            min_p = gr.Slider(0, 1, value=plain.min_p, step=0.01, label=text["ask.min_p"], elem_id="bs-min_p")
            penalty = gr.Slider(0.5, 2, value=plain.repetition_penalty, step=0.05, label=text["ask.repetition_penalty"],
                                elem_id="bs-repetition_penalty")
            samples = gr.Number(plain.n, precision=0, label=text["ask.n"], elem_id="bs-n", min_width=80)
            seed = gr.Textbox("", label=text["ask.seed"], placeholder=text["ask.seed_auto"], elem_id="bs-seed", min_width=80)
            ignore_eos = gr.Checkbox(plain.ignore_eos, label=text["ask.ignore_eos"], elem_id="bs-ignore_eos")
    fields = dict(zip(FIELDS, (prompt, mode, length, temperature, top_k, top_p, min_p, penalty, samples, seed, ignore_eos), strict=True))
    values = list(fields.values())
    for button, count in ((send, 1), (send_eight, 8)):
        button.click(fn=None, inputs=values, js=f"(...values) => {{ window.batchscope.ask(values, {count}); }}", queue=False)
    prompt.submit(fn=None, inputs=values, js="(...values) => { window.batchscope.ask(values, 1); }", queue=False)
    return fields
