// The Lessons tab: the list of lessons, one lesson at a time, and the class that goes through it together.

import { start } from '../lessons/class_link.js';
import { loadCourse, loadLesson, loadRecording } from '../lessons/course.js';
import { LessonView } from '../lessons/lesson_view.js';
import { Progress } from '../lessons/progress.js';

export async function mount(root, app) {
  const tab = new LessonsTab(root, app, await loadCourse());
  app.lessons = tab;
  await tab.begin();
}

class LessonsTab {
  constructor(root, app, course) {
    Object.assign(this, { root, app, course, t: app.t, progress: new Progress(), view: null });
    this.classLink = start(app);
    root.innerHTML = `<div class="bs-class-bar bs-card" hidden><span class="bs-badge" data-class></span><span data-class-where></span>
        <button type="button" class="bs-button bs-primary" data-class-do="back" data-t="lessons.class.back"></button>
        <button type="button" class="bs-button" data-class-do="lead"></button></div>
      <div data-list></div><div data-lesson></div>`;
    this.bar = root.querySelector('.bs-class-bar');
    this.list = root.querySelector('[data-list]');
    this.place = root.querySelector('[data-lesson]');
    root.addEventListener('click', (event) => {
      const name = event.target.closest('[data-open]')?.dataset.open;
      if (name) { this.classLink.lookAround(); this.open(name); }
      const action = event.target.closest('[data-class-do]')?.dataset.classDo;
      if (action === 'back') this.classLink.snapBack();
      else if (action === 'lead') this.#lead();
    });
    this.classLink.addEventListener('state', () => this.#classMoved());
    document.addEventListener('bs:language', () => { this.#drawList(); this.#drawBar(); this.view?.relabel(); });
  }

  async begin() {
    this.#drawList();
    this.#drawBar();
    const [name, step] = String(this.app.lesson ?? new URLSearchParams(location.search).get('lesson') ?? '').split(':');
    const wanted = this.course.lessons.find((entry) => entry.name === name || String(entry.number) === name);
    if (this.classLink.led) await this.#classMoved();
    else if (wanted) await this.open(wanted.name, Number(step) || undefined);
  }

  #drawList() {
    const { t, course } = this;
    const language = t.language();
    const intro = Object.assign(document.createElement('p'), { className: 'bs-soft', textContent: t('lessons.intro') });
    const title = Object.assign(document.createElement('h2'), { textContent: t('lessons.title') });
    const items = course.lessons.map((entry) => {
      const { step, done } = this.progress.of(entry.name);
      const button = Object.assign(document.createElement('button'), { type: 'button', className: 'bs-lesson-card' });
      button.dataset.open = entry.name;
      const name = Object.assign(document.createElement('strong'), { textContent: `${entry.number}. ${entry.title[language]}` });
      const about = Object.assign(document.createElement('span'), { className: 'bs-soft', textContent: entry.summary[language] });
      const state = Object.assign(document.createElement('span'), { className: 'bs-badge' });
      state.textContent = done ? `✓ ${t('lessons.done')}` : step ? t('lessons.place', { step: step + 1, steps: entry.steps.length }) : t('lessons.minutes', { minutes: entry.minutes });
      button.append(name, about, state);
      const item = document.createElement('li');
      item.append(button);
      return item;
    });
    const list = Object.assign(document.createElement('ol'), { className: 'bs-lesson-cards' });
    list.append(...items);
    this.list.replaceChildren(title, intro, list);
    this.list.hidden = Boolean(this.view);
  }

  // Opens a lesson where the learner left it, or at `step`.
  async open(name, step) {
    await this.view?.destroy();
    this.view = null;
    if (name === null) { this.app.lesson = null; this.#drawList(); this.list.querySelector('button')?.focus(); this.#drawBar(); return; }
    this.list.hidden = true;
    this.opening = name;
    this.place.textContent = this.t('lessons.loading');
    try {
      const [lesson, recording] = await Promise.all([loadLesson(name), loadRecording(name)]);
      if (this.opening !== name) return;
      this.place.replaceChildren();
      this.view = new LessonView(this.place, {
        app: this.app, course: this.course, lesson, recording, progress: this.progress, classLink: this.classLink,
        onStep: (index) => this.#stepped(name, index), onLeave: (other) => this.open(other),
      });
      const { step: saved, done } = this.progress.of(name);
      await this.view.open(step ?? (done ? 0 : saved));
    } catch (error) {
      this.place.textContent = this.t('lessons.broken', { error: String(error.message ?? error) });
      console.error('lesson', name, error);
    }
    this.#drawBar();
  }

  #stepped(name, index) {
    this.app.lesson = `${name}:${index}`;
    if (this.classLink.leading) this.classLink.lead(name, this.view.lesson.steps[index].id).catch((error) => this.app.announce(error.message));
  }

  // --- the class -----------------------------------------------------------------------------------------------------------------

  async #lead() {
    const { classLink, view } = this;
    try {
      if (classLink.state.leading) await classLink.stop();
      else if (view) await classLink.lead(view.lesson.name, view.lesson.steps[view.current].id);
    } catch (error) { this.app.announce(error.message); }
  }

  // Where the class is: those who follow go there.
  async #classMoved() {
    this.#drawBar();
    const { classLink } = this;
    this.view?.refresh();
    if (!classLink.led || !classLink.state.lesson) return;
    const { lesson, step } = classLink.state;
    const index = this.course.lessons.find((entry) => entry.name === lesson)?.steps.indexOf(step) ?? -1;
    if (index < 0) return;
    if (this.view?.lesson.name === lesson) { if (this.view.current !== index) await this.view.goTo(index); } else if (this.opening !== lesson || this.view) await this.open(lesson, index);
    // The host may have gone on while the lesson was being opened.
    const now = classLink.state;
    if (classLink.led && this.view?.lesson.name === now.lesson && this.view.lesson.steps[this.view.current].id !== now.step) await this.#classMoved();
  }

  #drawBar() {
    const { t, classLink, bar, view } = this;
    const { state, host } = classLink;
    bar.hidden = !(state.leading || (host && view));
    const entry = this.course.lessons.find((one) => one.name === state.lesson);
    bar.querySelector('[data-class]').textContent = t(state.leading ? (host ? 'lessons.class.leading' : classLink.following ? 'lessons.class.following' : 'lessons.class.away') : 'lessons.class.off');
    bar.querySelector('[data-class-where]').textContent = state.leading && entry ? `${entry.number}. ${entry.title[t.language()]} · ${t('lessons.place', { step: entry.steps.indexOf(state.step) + 1, steps: entry.steps.length })}` : '';
    bar.querySelector('[data-class-do=back]').hidden = !(state.leading && !host && !classLink.following);
    const lead = bar.querySelector('[data-class-do=lead]');
    lead.hidden = !host;
    lead.textContent = t(state.leading ? 'lessons.class.stop' : 'lessons.class.lead');
    t.apply(bar);
  }
}
