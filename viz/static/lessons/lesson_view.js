// One lesson: the text at the left opens step by step as the engine gets there, the stage at the right shows the run.

import { Challenge } from "./challenge.js";
import { handoutUrl } from "./course.js";
import { Question } from "./question.js";
import { Stage } from "./stage.js";
import { TextView } from "./text_view.js";

export class LessonView {
  // onStep(index): the learner (or the class) is at that step now; onLeave(name | null): to another lesson, or back to the list.
  constructor(root, { app, course, lesson, recording, progress, classLink, onStep, onLeave }) {
    Object.assign(this, { root, app, course, lesson, recording, progress, classLink, onStep, onLeave, t: app.t });
    this.sections = [];
    this.current = -1;
    this.onPoll = (event) => { const { lesson: name, step } = event.detail; if (name === lesson.name) this.#section(step)?.question?.setPoll(classLink.poll(name, step)); };
    this.onBoard = (event) => { if (event.detail.lesson === lesson.name) for (const section of this.sections) section.challenge?.showBoard(event.detail.board); };
    classLink.addEventListener("poll", this.onPoll);
    classLink.addEventListener("board", this.onBoard);
  }

  async open(step = 0) {
    const { t, lesson, root } = this;
    root.innerHTML = `<div class="bs-lesson"><article class="bs-lesson-text" aria-labelledby="bs-lesson-title">
      <header><p class="bs-soft"><button type="button" class="bs-button" data-go="list">‹ <span data-t="lessons.all"></span></button> <span data-number></span></p>
      <h2 id="bs-lesson-title"></h2><p class="bs-soft" data-summary></p></header><div data-sections></div>
      <nav class="bs-lesson-nav" data-t-label="lessons.steps"><button type="button" class="bs-button" data-go="back">‹ <span data-t="lessons.previous"></span></button>
      <span class="bs-soft" data-place></span><button type="button" class="bs-button bs-primary" data-go="next"><span data-t="lessons.next"></span> ›</button></nav>
      <p class="bs-soft bs-small" data-hint></p>
      <div class="bs-lesson-foot"><button type="button" class="bs-button" data-go="previous-lesson"></button><button type="button" class="bs-button" data-go="next-lesson"></button>
      <a class="bs-button" data-handout target="_blank" rel="noopener" data-t="lessons.handout"></a><button type="button" class="bs-button" data-go="restart" data-t="lessons.restart"></button></div>
      </article><section class="bs-lesson-stage" data-t-label="lessons.stage"></section></div>`;
    this.holder = root.querySelector("[data-sections]");
    this.stage = new Stage(root.querySelector(".bs-lesson-stage"), this.app, lesson, this.recording);
    this.stage.addEventListener("change", () => this.#ranOn());
    root.addEventListener("click", this.onClick = (event) => this.#act(event.target.closest("[data-go]")?.dataset.go));
    root.addEventListener("keydown", this.onKey = (event) => this.#key(event));
    this.head();
    await this.goTo(Math.min(step, lesson.steps.length - 1), { quiet: true });
    return this;
  }

  head() {
    const { t, lesson, root, course } = this;
    const language = t.language();
    t.apply(root);
    root.querySelector("#bs-lesson-title").textContent = lesson.title[language];
    root.querySelector("[data-summary]").textContent = lesson.summary[language];
    root.querySelector("[data-number]").textContent = t("lessons.number", { number: lesson.number, minutes: lesson.minutes }) + (lesson.simulated ? ` · ${t("lessons.simulated")}` : "");
    root.querySelector("[data-handout]").href = handoutUrl(lesson.name, language);
    const at = course.lessons.findIndex((entry) => entry.name === lesson.name);
    for (const [go, entry, mark] of [["previous-lesson", course.lessons[at - 1], "‹ "], ["next-lesson", course.lessons[at + 1], ""]]) {
      const button = root.querySelector(`[data-go="${go}"]`);
      button.hidden = !entry;
      if (entry) { button.textContent = `${mark}${entry.number}. ${entry.title[language]}${mark ? "" : " ›"}`; button.dataset.lesson = entry.name; }
    }
  }

  #section(id) { return this.sections.find((section) => section.step.id === id); }

  // Opens every section up to this one and makes it the current one.
  async goTo(index, { quiet = false } = {}) {
    const { lesson } = this;
    index = Math.max(0, Math.min(index, lesson.steps.length - 1));
    while (this.sections.length <= index) this.#append(this.sections.length);
    const changed = index !== this.current;
    this.current = index;
    const { step, root } = this.sections[index];
    for (const section of this.sections) section.root.dataset.current = String(section.root === root);
    if (this.recording.runs[step.run]) await this.stage.show(step.run);
    this.stage.prepare(step);
    this.stage.point(step.points_at);
    const saved = this.progress.of(lesson.name);
    this.progress.set(lesson.name, { step: Math.max(saved.step, index) });
    this.#draw();
    if (!quiet) { root.querySelector("h3").focus({ preventScroll: true }); root.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" }); }
    if (changed) this.onStep(index);
  }

  #append(index) {
    const { lesson, t, app } = this;
    const step = lesson.steps[index];
    const words = lesson.texts[step.id][t.language()];
    const view = new TextView({ lesson, language: t.language(), names: () => this.stage.metrics, glossary: this.course.glossary, tip: (element, text) => app.tooltip.attach(element, text), t });
    const root = Object.assign(document.createElement("section"), { className: "bs-lesson-section" });
    root.dataset.step = step.id;
    const title = Object.assign(document.createElement("h3"), { textContent: words.title, tabIndex: -1 });
    const kind = Object.assign(document.createElement("span"), { className: "bs-badge", textContent: t(`lessons.kind.${step.kind}`) });
    root.append(kind, title, ...view.blocks(words.blocks));
    const section = { step, root, view };
    if (words.question) {
      const box = document.createElement("div");
      root.append(box);
      section.question = new Question(box, {
        step, words, view, t, metrics: () => this.stage.metrics, saved: this.progress.of(lesson.name).answers[step.id],
        held: () => this.classLink.led && !this.classLink.poll(lesson.name, step.id)?.revealed,
        onAnswer: (value) => { this.progress.answer(lesson.name, step.id, value); this.classLink.vote(lesson.name, step.id, value); this.#ranOn(); },
      });
      section.question.setPoll(this.classLink.poll(lesson.name, step.id));
      if (this.classLink.host) {      // shown while the host leads
        const reveal = Object.assign(document.createElement("button"), { type: "button", className: "bs-button bs-lesson-reveal", textContent: t("lessons.reveal") });
        reveal.dataset.go = "reveal";
        root.append(reveal);
      }
    }
    if (step.challenge) {
      const box = document.createElement("div");
      root.append(box);
      section.challenge = new Challenge(box, { app, lesson, step, words, view, stage: this.stage, classLink: this.classLink, t,
        onReached: () => { this.progress.set(lesson.name, { done: true }); this.#ranOn(); } });
    }
    this.sections[index] = section;
    this.holder.append(root);
  }

  // --- going on ------------------------------------------------------------------------------------------------------------------

  #learner(section) {
    return { answered: section.question?.answered ?? false, read: true, reached: section.challenge?.reached ?? false };
  }

  #reached(section) { return this.stage.reached(section.step.advance, this.#learner(section)) || (section.step.kind !== "run" && this.#learnerAlone(section)); }

  // Predicates that speak of the learner alone hold whatever run is shown.
  #learnerAlone(section) {
    const { advance } = section.step;
    const learner = this.#learner(section);
    return advance === "read" || (advance === "answered" && learner.answered) || (advance === "reached" && learner.reached);
  }

  // Something happened in the run: numbers in the text follow, and a step that waited for it goes on.
  #ranOn() {
    for (const section of this.sections) { section.view.refresh(); section.question?.refresh(); }
    const section = this.sections[this.current];
    if (!section) return;
    const there = this.#reached(section);
    if (there && !section.there && section.step.kind === "run" && this.current === this.sections.length - 1 && !this.classLink.led) {
      section.there = true;
      this.app.announce(this.t("lessons.engine_did_it"));
      if (this.current + 1 < this.lesson.steps.length) this.#append(this.current + 1);      // the prose goes on below; the reader's place stays
    }
    this.#draw();
  }

  // The class has begun, moved or ended.
  refresh() {
    for (const section of this.sections) section.question?.refresh();
    if (this.sections.length) this.#draw();
  }

  #draw() {
    const { t, root } = this;
    const section = this.sections[this.current];
    const there = this.#reached(section);
    const last = this.current === this.lesson.steps.length - 1;
    root.querySelector("[data-place]").textContent = t("lessons.place", { step: this.current + 1, steps: this.lesson.steps.length });
    const next = root.querySelector('[data-go="next"]');
    next.disabled = last;
    next.classList.toggle("bs-primary", there);
    root.querySelector('[data-go="back"]').disabled = this.current === 0;
    root.querySelector("[data-hint]").textContent = last ? (section.challenge?.reached ? t("lessons.finished") : "") : there ? t("lessons.go_on") : t(`lessons.waits.${section.step.kind}`);
    root.dataset.there = String(there);
    root.dataset.leading = String(this.classLink.leading);
  }

  async #act(go) {
    if (!go) return;
    if (go === "reveal") { await this.classLink.reveal(this.lesson.name, this.lesson.steps[this.current].id).catch((error) => this.app.announce(error.message)); return; }
    this.classLink.lookAround();
    if (go === "next") await this.goTo(this.current + 1);
    else if (go === "back") await this.goTo(this.current - 1);
    else if (go === "list") this.onLeave(null);
    else if (go === "restart") { this.progress.forget(this.lesson.name); this.onLeave(this.lesson.name); } else this.onLeave(this.root.querySelector(`[data-go="${go}"]`).dataset.lesson);
  }

  // PageDown and PageUp, or "n" and "p", go through the steps; space and arrows belong to the run beside.
  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const go = { n: "next", p: "back", PageDown: "next", PageUp: "back" }[event.key];
    if (!go) return;
    event.preventDefault();
    this.#act(go);
  }

  async relabel() {
    const at = this.current;
    this.head();
    this.sections = [];
    this.holder.replaceChildren();
    this.stage.relabel();
    await this.goTo(at, { quiet: true });
  }

  async destroy() {
    this.classLink.removeEventListener("poll", this.onPoll);
    this.classLink.removeEventListener("board", this.onBoard);
    this.root.removeEventListener("click", this.onClick);
    this.root.removeEventListener("keydown", this.onKey);
    await this.stage?.destroy();
    this.root.replaceChildren();
  }
}
