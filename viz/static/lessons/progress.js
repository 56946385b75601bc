// What a learner has done, kept in this browser only: opened steps and answers by lesson. Nothing of it is sent anywhere.

const KEY = "batchscope.lessons";

export class Progress {
  constructor() {
    this.data = {};
    try { this.data = JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {}; } catch { /* storage may be blocked in a frame */ }
    if (typeof this.data !== "object" || Array.isArray(this.data)) this.data = {};
  }

  of(lesson) {
    const entry = this.data[lesson];
    return { step: Number.isInteger(entry?.step) ? entry.step : 0, answers: entry?.answers ?? {}, done: Boolean(entry?.done) };
  }

  set(lesson, changes) {
    this.data[lesson] = { ...this.of(lesson), ...changes };
    try { localStorage.setItem(KEY, JSON.stringify(this.data)); } catch { /* as above */ }
  }

  answer(lesson, step, value) { this.set(lesson, { answers: { ...this.of(lesson).answers, [step]: value } }); }
  forget(lesson) { delete this.data[lesson]; this.set(lesson, {}); }
}
