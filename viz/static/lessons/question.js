// A question of a step: choices or a number, judged by the run it speaks of, with the distribution of the class beneath.

import { evaluate } from "./expression.js";
import { formatValue } from "./values.js";

export class Question {
  // step: its machinery; words: {question, choices, reveal} of the language; view: TextView; metrics: () => by run; saved: earlier answer or
  // undefined; onAnswer(value); held: () => whether the class waits for the host to show the answer.
  constructor(root, { step, words, view, metrics, saved, onAnswer, held, t }) {
    Object.assign(this, { root, step, words, view, metrics, onAnswer, held, t });
    this.given = saved;
    this.poll = null;
    root.className = "bs-lesson-question";
    this.#build();
    this.#draw();
  }

  get answered() { return this.given !== undefined; }
  get #choices() { return this.step.question.type === "choice"; }

  #build() {
    const { root, t, step, words } = this;
    const id = `bs-question-${step.id}`;
    this.form = document.createElement("form");
    const box = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.append(...this.view.inline(words.question));
    box.append(legend);
    if (this.#choices) {
      this.labels = words.choices.map((choice, index) => {
        const label = document.createElement("label");
        label.className = "bs-lesson-choice";
        const input = Object.assign(document.createElement("input"), { type: "radio", name: id, value: String(index) });
        const text = document.createElement("span");
        text.append(...this.view.inline(choice));
        const bar = Object.assign(document.createElement("span"), { className: "bs-lesson-poll" });
        label.append(input, text, bar);
        box.append(label);
        return label;
      });
    } else {
      const label = document.createElement("label");
      label.className = "bs-lesson-number";
      this.input = Object.assign(document.createElement("input"), { type: "number", step: "any", className: "bs-input", required: true });
      this.input.setAttribute("aria-label", t("lessons.your_number"));
      label.append(this.input, ` ${step.question.unit ?? ""}`);
      box.append(label);
    }
    this.button = Object.assign(document.createElement("button"), { type: "submit", className: "bs-button bs-primary" });
    this.button.textContent = t("lessons.answer");
    this.form.append(box, this.button);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#submit(); });
    this.result = Object.assign(document.createElement("div"), { className: "bs-lesson-result" });
    this.result.setAttribute("role", "status");
    this.crowd = Object.assign(document.createElement("p"), { className: "bs-soft bs-small" });
    root.replaceChildren(this.form, this.result, this.crowd);
  }

  #submit() {
    const value = this.#choices ? Number(new FormData(this.form).get(`bs-question-${this.step.id}`) ?? NaN) : this.input.valueAsNumber;
    if (Number.isNaN(value)) return;
    this.given = value;
    this.onAnswer(value);
    this.#draw();
  }

  // The right answer, from the run itself: the number, or the index of the one choice that the run made true; null while unknown.
  get right() {
    try {
      const { question } = this.step;
      if (!this.#choices) return evaluate(question.answer, this.metrics());
      const index = question.choices.findIndex((choice) => evaluate(choice, this.metrics()) === true);
      return index < 0 ? null : index;
    } catch { return null; }
  }

  get correct() {
    const { right } = this;
    if (this.#choices) return this.given === right;
    return Math.abs(this.given - right) <= Math.max((this.step.question.tolerance ?? 0) * Math.abs(right), Math.abs(right) < 1000 ? 0.5 : 0) + 1e-9;
  }

  setPoll(poll) { this.poll = poll; this.#draw(); }
  refresh() { this.#draw(); }

  #draw() {
    const { t, answered, poll } = this;
    const open = answered && !this.held();
    for (const input of this.form.querySelectorAll("input")) input.disabled = answered;
    this.button.hidden = answered;
    if (answered && this.input) this.input.value = this.given;
    const { right } = this;
    this.labels?.forEach((label, index) => {
      if (index === this.given) label.querySelector("input").checked = true;
      label.dataset.state = open ? (index === right ? "right" : index === this.given ? "wrong" : "") : "";
      const votes = poll?.counts[String(index)] ?? 0;
      const share = poll?.total ? votes / poll.total : 0;
      const bar = label.querySelector(".bs-lesson-poll");
      bar.hidden = !poll || !poll.total || !(answered || poll.host);
      bar.style.setProperty("--share", share);
      bar.textContent = bar.hidden ? "" : `${Math.round(100 * share)} % (${votes})`;
    });
    this.crowd.textContent = poll?.total ? t("lessons.votes", { total: poll.total }) + (this.#choices ? "" : ` ${this.#spread(poll)}`) : "";
    this.result.replaceChildren();
    if (answered && !open) { this.result.textContent = t("lessons.wait_for_host"); return; }
    if (!open) return;
    const verdict = document.createElement("p");
    verdict.className = "bs-lesson-verdict";
    verdict.dataset.state = right === null ? "" : this.correct ? "right" : "wrong";
    const shown = this.#choices || right === null ? "" : ` ${t("lessons.measured", { value: `${formatValue(right)} ${this.step.question.unit ?? ""}`.trim() })}`;
    verdict.textContent = (right === null ? t("lessons.not_measured") : t(this.correct ? "lessons.right" : "lessons.wrong")) + shown;
    this.result.append(verdict);
    for (const part of this.words.reveal) {
      const paragraph = document.createElement("p");
      paragraph.append(...this.view.inline(part));
      this.result.append(paragraph);
    }
  }

  // A class's numbers: their middle and how far they reach.
  #spread(poll) {
    const values = Object.entries(poll.counts).flatMap(([value, count]) => Array(count).fill(Number(value))).sort((a, b) => a - b);
    return this.t("lessons.spread", { middle: formatValue(values[(values.length - 1) >> 1]), low: formatValue(values[0]), high: formatValue(values.at(-1)) });
  }
}
