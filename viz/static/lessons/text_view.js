// Turns the trees of a lesson's text into elements. Every word becomes a text node: nothing in a lesson is ever markup.

import { evaluate } from "./expression.js";
import { figureUrl } from "./course.js";
import { formatValue } from "./values.js";

const element = (tag, className, children = []) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
};

export class TextView {
  // names: () => metrics by run; glossary: term → language → {term, text}; tip(element, text): attaches a tooltip.
  constructor({ lesson, language, names, glossary, tip, t }) {
    Object.assign(this, { lesson, language, names, glossary, tip, t });
    this.values = [];              // elements that show a number of a run, to be filled again when the run changes
  }

  blocks(list) { return list.map((block) => this.block(block)); }

  block([kind, content, caption]) {
    if (kind === "paragraph") return element("p", "bs-lesson-p", this.inline(content));
    if (kind === "list") return element("ul", "bs-lesson-list", content.map((item) => element("li", "", this.inline(item))));
    if (kind === "table") return this.#table(content);
    const image = Object.assign(document.createElement("img"), { src: figureUrl(this.lesson.name, content, this.language), loading: "lazy" });
    const words = this.inline(caption);
    image.alt = element("span", "", words.map((word) => word.cloneNode(true))).textContent;
    return element("figure", "bs-lesson-figure", [image, element("figcaption", "", words)]);
  }

  #table([head, ...rows]) {
    const row = (cells, tag) => element("tr", "", cells.map((cell) => element(tag, "", this.inline(cell))));
    const table = element("table", "", [element("thead", "", [row(head, "th")]), element("tbody", "", rows.map((cells) => row(cells, "td")))]);
    const box = element("div", "bs-lesson-table", [table]);
    box.tabIndex = 0;              // a wide table scrolls sideways, by keyboard too
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", this.t("lessons.table"));
    return box;
  }

  inline(spans) {
    return spans.map((span) => {
      if (typeof span === "string") return document.createTextNode(span);
      const [kind, content, extra] = span;
      if (kind === "bold") return element("strong", "", this.inline(content));
      if (kind === "stress") return element("em", "", this.inline(content));
      if (kind === "code") return element("code", "bs-mono", [content]);
      if (kind === "term") return this.#term(content, extra);
      return this.#value(content, extra);
    });
  }

  #term(id, shown) {
    const entry = this.glossary[id]?.[this.language];
    const made = element("span", "bs-term", [shown ?? entry?.term ?? id]);
    made.tabIndex = 0;
    if (entry) this.tip(made, `${entry.term}\n${entry.text}`);
    return made;
  }

  #value(expression, format) {
    const made = element("span", "bs-lesson-value");
    this.values.push({ made, expression, format });
    this.#fill({ made, expression, format });
    return made;
  }

  #fill({ made, expression, format }) {
    let text = "–";
    try { text = formatValue(evaluate(expression, this.names()), format); } catch { /* that run has not been measured */ }
    if (made.textContent !== text) made.textContent = text;
  }

  refresh() { for (const value of this.values) this.#fill(value); }
}
