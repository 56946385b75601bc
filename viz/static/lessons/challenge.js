// The challenge at the end of a lesson: choose knobs, run it on the engine, and see whether the goal is met. In a lesson with a score
// the server runs it again and keeps the score on the board.

import { evaluate } from "./expression.js";
import { formatValue } from "./values.js";

const FORMATS = { seconds: "ms", ttft_p50: "ms", ttft_p99: "ms", ttft_max: "ms", ttft_mean: "ms", itl_p50: "ms", itl_p99: "ms", itl_max: "ms", decode_s_p50: "ms",
  waste_mean: "%", padding_share: "%", hit_share: "%", device_busy: "%", good_share: "%", output_tok_s: "int", good_tok_s: "int" };

export class Challenge {
  constructor(root, { app, lesson, step, words, view, stage, onReached, classLink, t }) {
    Object.assign(this, { root, app, lesson, step, words, view, stage, onReached, classLink, t });
    this.challenge = step.challenge;
    this.reached = false;
    root.className = "bs-lesson-challenge";
    this.#build();
  }

  #build() {
    const { root, t, challenge, lesson } = this;
    const form = document.createElement("form");
    const grid = Object.assign(document.createElement("div"), { className: "bs-lesson-knobs" });
    const base = lesson.runs[challenge.run].config;
    const defaults = Object.fromEntries(this.app.data.knobs.map((knob) => [knob.name, knob.default]));
    this.selects = Object.entries(challenge.knobs).map(([name, values]) => {
      const label = Object.assign(document.createElement("label"), { className: "bs-lesson-knob" });
      const select = Object.assign(document.createElement("select"), { className: "bs-select", name });
      const now = base[name] ?? defaults[name];
      for (const value of values) {
        const option = new Option(value === true ? t("lessons.on") : value === false ? t("lessons.off") : String(value), JSON.stringify(value), value === now, value === now);
        select.append(option);
      }
      const words = Object.assign(document.createElement("code"), { className: "bs-mono", textContent: name });
      label.append(words, select);
      grid.append(label);
      return select;
    });
    this.button = Object.assign(document.createElement("button"), { type: "submit", className: "bs-button bs-primary", textContent: t("lessons.run_challenge") });
    form.append(grid, this.button);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#run(); });
    this.result = Object.assign(document.createElement("div"), { className: "bs-lesson-result" });
    this.result.setAttribute("role", "status");
    root.replaceChildren(form, this.result);
    if (lesson.score) this.#buildScore();
  }

  get knobs() { return Object.fromEntries(this.selects.map((select) => [select.name, JSON.parse(select.value)])); }

  async #run() {
    this.button.disabled = true;
    this.result.textContent = this.t("lessons.running");
    const metrics = await this.stage.runLive(this.challenge.run, { changes: this.knobs, pace: 0, as: "mine" });
    this.button.disabled = false;
    if (metrics) this.judge(metrics); else this.result.textContent = this.stage.message.textContent;
  }

  judge(metrics) {
    const before = this.stage.metrics[this.challenge.run] ?? {};
    let met = false;
    try { met = evaluate(this.challenge.goal, { ...this.stage.metrics, mine: metrics }) === true; } catch { /* not measured: not met */ }
    const table = document.createElement("table");
    table.className = "bs-lesson-figures";
    const row = (cells, tag) => { const made = document.createElement("tr"); for (const cell of cells) made.append(Object.assign(document.createElement(tag), { textContent: cell })); return made; };
    table.append(row(["", this.t("lessons.before"), this.t("lessons.yours")], "th"));
    for (const name of this.challenge.show ?? []) table.append(row([name, formatValue(before[name], FORMATS[name] ?? ""), formatValue(metrics[name], FORMATS[name] ?? "")], "td"));
    const verdict = Object.assign(document.createElement("p"), { className: "bs-lesson-verdict", textContent: this.t(met ? "lessons.reached" : "lessons.not_reached") });
    verdict.dataset.state = met ? "right" : "wrong";
    this.result.replaceChildren(table, verdict);
    if (!met) return;
    this.reached = true;
    for (const part of this.words.reveal) { const made = document.createElement("p"); made.append(...this.view.inline(part)); this.result.append(made); }
    this.onReached();
  }

  // --- the board -------------------------------------------------------------------------------------------------------------------

  #buildScore() {
    const { t } = this;
    const box = Object.assign(document.createElement("section"), { className: "bs-lesson-board" });
    box.innerHTML = `<h4 data-t="lessons.board"></h4><form class="bs-lesson-score"><label><span data-t="lessons.nickname"></span>
      <input class="bs-input" maxlength="20" name="nickname" autocomplete="off" required></label>
      <button type="submit" class="bs-button" data-t="lessons.send_score"></button></form>
      <p class="bs-soft bs-small" data-t="lessons.board_note"></p><p class="bs-sentence" role="status" data-score></p><ol></ol>`;
    this.boardList = box.querySelector("ol");
    this.scoreLine = box.querySelector("[data-score]");
    box.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); this.#score(new FormData(event.target).get("nickname")); });
    t.apply(box);
    this.root.append(box);
    this.classLink.board(this.lesson.name).then((answer) => this.showBoard(answer.board)).catch(() => {});
  }

  async #score(nickname) {
    this.#say(this.t("lessons.scoring"));
    try {
      const result = await this.classLink.score(this.lesson.name, this.knobs, nickname);
      this.#say(this.t(result.best ? "lessons.scored_best" : "lessons.scored", { score: formatValue(result.score, "int") }), "good");
      if (result.reached && !this.reached) { this.reached = true; this.onReached(); }
    } catch (error) { this.#say(error.message, "error"); }
  }

  #say(text, kind = "") { this.scoreLine.textContent = text; this.scoreLine.dataset.kind = kind; }

  showBoard(board) {
    this.boardList?.replaceChildren(...board.map(({ nickname, score }) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("span"), { textContent: nickname }), Object.assign(document.createElement("strong"), { textContent: formatValue(score, "int") }));
      if (this.classLink.host) {
        const remove = Object.assign(document.createElement("button"), { type: "button", className: "bs-icon", textContent: "×" });
        remove.setAttribute("aria-label", this.t("lessons.board_remove", { nickname }));
        remove.addEventListener("click", () => this.classLink.remove(this.lesson.name, nickname));
        item.append(remove);
      }
      return item;
    }));
  }
}
