// The lesson language in the browser: the twin of lessons/expression.py, held to it by tests/lessons/expression_cases.json.
// A tokenizer, a recursive-descent parser to a small tree, and a walker. Nothing is ever given to eval or Function.

const MAX_LENGTH = 400;
const MAX_NODES = 200;
const TOKEN = /\s*(?:(\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)|('[^'\\\n]*'|"[^"\\\n]*")|([A-Za-z_]\w*)|(==|!=|<=|>=|\/\/|[<>+\-*/%().,[\]]))/y;
const KEYWORDS = new Set(["and", "or", "not", "if", "else", "True", "False", "None"]);
const WORDS = { True: true, False: false, None: null };
const ORDER = new Set(["==", "!=", "<", "<=", ">", ">="]);

export class ExpressionError extends Error {}
const fail = (message) => { throw new ExpressionError(message); };
const own = (record, name) => Object.prototype.hasOwnProperty.call(record, name);
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function describe(value) {
  if (value === null || value === undefined) return "None (nothing was measured)";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return "a number";
  if (typeof value === "string") return "a text";
  return Array.isArray(value) ? "a list" : "a record";
}

function number(value, what) {
  return typeof value === "number" ? value : fail(`${what} needs a number, not ${describe(value)}.`);
}

function boolean(value, what) {
  return typeof value === "boolean" ? value : fail(`${what} needs True or False, not ${describe(value)}.`);
}

function finite(value, what) {
  return typeof value === "number" && !Number.isFinite(value) ? fail(`${what} gave no finite number.`) : value;
}

function numbers(name, values) {
  const list = values.length === 1 && Array.isArray(values[0]) ? values[0] : values;
  if (!list.length) fail(`${name} needs at least one number.`);
  return list.map((value) => number(value, name));
}

function column([rows, field]) {
  if (!Array.isArray(rows) || typeof field !== "string") fail("column needs a list of records and the name of a field.");
  const found = rows.filter((row) => isRecord(row) && own(row, field) && row[field] !== null).map((row) => row[field]);
  if (!found.length && rows.length && !rows.some((row) => isRecord(row) && own(row, field))) {
    fail(`No record of that list has a field '${field}'.`);
  }
  return found;
}

export function roundHalfUp(value, digits = 0) {
  const scale = 10 ** digits;
  return Math.floor(value * scale + 0.5) / scale;
}

function length([value]) {
  return Array.isArray(value) || typeof value === "string" ? value.length : fail(`len needs a list or a text, not ${describe(value)}.`);
}

const FUNCTIONS = {
  min: [1, 20, (a) => Math.min(...numbers("min", a))],
  max: [1, 20, (a) => Math.max(...numbers("max", a))],
  sum: [1, 20, (a) => numbers("sum", a).reduce((x, y) => x + y, 0)],
  abs: [1, 1, (a) => Math.abs(number(a[0], "abs"))],
  round: [1, 2, (a) => roundHalfUp(number(a[0], "round"), a.length > 1 ? Math.trunc(number(a[1], "round")) : 0)],
  floor: [1, 1, (a) => Math.floor(number(a[0], "floor"))],
  ceil: [1, 1, (a) => Math.ceil(number(a[0], "ceil"))],
  sqrt: [1, 1, (a) => (number(a[0], "sqrt") < 0 ? fail("sqrt needs a number that is not negative.") : Math.sqrt(a[0]))],
  log2: [1, 1, (a) => (number(a[0], "log2") <= 0 ? fail("log2 needs a number above zero.") : Math.log2(a[0]))],
  len: [1, 1, length],
  column: [2, 2, column],
};

function tokenize(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  let end = 0;
  while (end < text.length) {
    const match = TOKEN.exec(text);
    if (!match) fail(`'${text.slice(0, 60)}' is not a complete expression.`);
    end = TOKEN.lastIndex;
    const [, digits, quoted, word, sign] = match;
    if (digits !== undefined) {
      // Python refuses "007" and "1__0"; so does this.
      if (/^0\d/.test(digits) || /__|_(?!\d)/.test(digits)) fail(`'${digits}' is not a number of this language.`);
      tokens.push({ kind: "number", value: Number(digits.replaceAll("_", "")) });
    } else if (quoted !== undefined) tokens.push({ kind: "text", value: quoted.slice(1, -1) });
    else if (word !== undefined) tokens.push({ kind: KEYWORDS.has(word) ? "keyword" : "name", value: word });
    else tokens.push({ kind: "sign", value: sign });
  }
  return tokens;
}

class Parser {
  constructor(text) {
    this.text = text;
    this.tokens = tokenize(text);
    this.at = 0;
    this.nodes = 0;
  }

  incomplete() { return fail(`'${this.text.slice(0, 60)}' is not a complete expression.`); }
  peek(value) { const token = this.tokens[this.at]; return Boolean(token) && token.kind !== "text" && token.value === value; }
  take(value) { if (!this.peek(value)) return false; this.at += 1; return true; }
  need(value) { if (!this.take(value)) this.incomplete(); }
  node(tree) { this.nodes += 1; return this.nodes > MAX_NODES ? fail("The expression has too many parts.") : tree; }

  whole() {
    const tree = this.ternary();
    if (this.at < this.tokens.length) this.incomplete();
    return tree;
  }

  ternary() {
    const body = this.either();
    if (!this.take("if")) return body;
    const test = this.either();
    this.need("else");
    return this.node({ op: "if", test, body, otherwise: this.ternary() });
  }

  chain(word, next) {
    const first = next();
    if (!this.peek(word)) return first;
    const values = [first];
    while (this.take(word)) values.push(next());
    return this.node({ op: word, values });
  }

  either() { return this.chain("or", () => this.chain("and", () => this.negation())); }
  negation() { return this.take("not") ? this.node({ op: "not", value: this.negation() }) : this.comparison(); }

  comparison() {
    const first = this.binary(["+", "-"], () => this.binary(["*", "/", "//", "%"], () => this.unary()));
    const rest = [];
    while (this.tokens[this.at]?.kind === "sign" && ORDER.has(this.tokens[this.at].value)) {
      const operator = this.tokens[this.at++].value;
      rest.push([operator, this.binary(["+", "-"], () => this.binary(["*", "/", "//", "%"], () => this.unary()))]);
    }
    return rest.length ? this.node({ op: "compare", first, rest }) : first;
  }

  binary(operators, next) {
    let left = next();
    while (this.tokens[this.at]?.kind === "sign" && operators.includes(this.tokens[this.at].value)) {
      const operator = this.tokens[this.at++].value;
      left = this.node({ op: "arithmetic", operator, left, right: next() });
    }
    return left;
  }

  unary() { return this.take("-") ? this.node({ op: "minus", value: this.unary() }) : this.postfix(); }

  postfix() {
    let tree = this.atom();
    for (;;) {
      if (this.take(".")) {
        const token = this.tokens[this.at++];
        if (token?.kind !== "name") this.incomplete();
        if (token.value.startsWith("_")) fail("A field's name may not begin with an underscore.");
        tree = this.node({ op: "field", value: tree, name: token.value });
      } else if (this.take("[")) {
        tree = this.node({ op: "item", value: tree, index: this.ternary() });
        this.need("]");
      } else return tree;
    }
  }

  atom() {
    const token = this.tokens[this.at++];
    if (!token) this.incomplete();
    if (token.kind === "number" || token.kind === "text") return this.node({ op: "constant", value: token.value });
    if (token.kind === "keyword" && token.value in WORDS) return this.node({ op: "constant", value: WORDS[token.value] });
    if (token.kind === "sign" && token.value === "(") {
      const tree = this.ternary();
      this.need(")");
      return tree;
    }
    if (token.kind !== "name") this.incomplete();
    return this.peek("(") ? this.call(token.value) : this.node({ op: "name", name: token.value });
  }

  call(name) {
    if (!own(FUNCTIONS, name)) fail(`There is no such function; the functions are ${Object.keys(FUNCTIONS).join(", ")}.`);
    this.need("(");
    const values = [];
    while (!this.take(")")) {
      if (values.length) this.need(",");
      if (values.length && this.take(")")) break;
      values.push(this.ternary());
    }
    const [fewest, most] = FUNCTIONS[name];
    if (values.length < fewest || values.length > most) {
      fail(`${name} takes ${fewest === most ? fewest : `${fewest} to ${most}`} arguments.`);
    }
    return this.node({ op: "call", name, values });
  }
}

export function compare(left, operator, right) {
  if (operator === "==") return same(left, right);
  if (operator === "!=") return !same(left, right);
  const a = number(left, operator);
  const b = number(right, operator);
  return operator === "<" ? a < b : operator === "<=" ? a <= b : operator === ">" ? a > b : a >= b;
}

function same(left, right) {
  if (typeof left !== "object" || left === null || right === null) return left === right;
  return JSON.stringify(left) === JSON.stringify(right);
}

function divide(left, right, operator) {
  if (right === 0) fail("There is a division by zero.");
  if (operator === "/") return left / right;
  const quotient = Math.floor(left / right);
  return operator === "//" ? quotient : left - quotient * right;
}

function arithmetic(operator, left, right) {
  if (operator === "+") return left + right;
  if (operator === "-") return left - right;
  return operator === "*" ? left * right : divide(left, right, operator);
}

function item(values, index) {
  if (isRecord(values)) return typeof index === "string" && own(values, index) ? values[index] : fail(`There is no field '${index}' here.`);
  if (!Array.isArray(values)) fail(`[ ] needs a list or a record, not ${describe(values)}.`);
  const position = number(index, "[ ]");
  if (position !== Math.trunc(position) || position < 0 || position >= values.length) {
    fail(`The list has ${values.length} entries, there is no entry ${index}.`);
  }
  return values[position];
}

function walk(tree, names) {
  switch (tree.op) {
    case "constant": return tree.value;
    case "name": return own(names, tree.name) ? names[tree.name] : fail(`There is no name '${tree.name}' here.`);
    case "field": {
      const record = walk(tree.value, names);
      return isRecord(record) && own(record, tree.name) ? record[tree.name] : fail(`There is no field '${tree.name}' here.`);
    }
    case "item": return item(walk(tree.value, names), walk(tree.index, names));
    case "call": return finite(FUNCTIONS[tree.name][2](tree.values.map((value) => walk(value, names))), tree.name);
    case "or": return tree.values.some((value) => boolean(walk(value, names), "or"));
    case "and": return tree.values.every((value) => boolean(walk(value, names), "and"));
    case "not": return !boolean(walk(tree.value, names), "not");
    case "minus": return -number(walk(tree.value, names), "-");
    case "if": return walk(boolean(walk(tree.test, names), "if") ? tree.body : tree.otherwise, names);
    case "arithmetic": {
      const left = number(walk(tree.left, names), tree.operator);
      const right = number(walk(tree.right, names), tree.operator);
      return finite(arithmetic(tree.operator, left, right), tree.operator);
    }
    default: {
      let left = walk(tree.first, names);
      for (const [operator, next] of tree.rest) {
        const right = walk(next, names);
        if (!compare(left, operator, right)) return false;
        left = right;
      }
      return true;
    }
  }
}

const parsed = new Map();   // expressions are evaluated after every event: parse each once

function parse(text) {
  if (typeof text !== "string" || !text.trim()) fail("The expression is empty.");
  if (text.length > MAX_LENGTH) fail(`The expression is longer than ${MAX_LENGTH} characters.`);
  if (!/^[\x00-\x7f]*$/.test(text) || /[#\\\n]/.test(text)) fail("An expression holds plain ASCII signs on one line, without # and \\.");
  if (!parsed.has(text)) parsed.set(text, new Parser(text.trim()).whole());
  return parsed.get(text);
}

/** The value of an expression over a record of names. Throws ExpressionError. */
export function evaluate(text, names) {
  return walk(parse(text), names);
}
