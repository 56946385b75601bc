// Numbers as the prose shows them: the twin of lessons/values.py.

import { roundHalfUp } from "./expression.js";

const BYTES = { KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
const SCALES = { s: 1, ms: 1e3, us: 1e6 };

function fixed(value, digits) {
  const [whole, part] = Math.abs(roundHalfUp(value, digits)).toFixed(digits).split(".");
  const rounded = roundHalfUp(value, digits);
  const sign = rounded < 0 || Object.is(rounded, -0) ? "-" : "";
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

function graded(value) {
  const size = Math.abs(value);
  if (size >= 100) return fixed(value, 0);
  return fixed(value, size >= 10 ? 1 : 2);
}

/** `value` in one of the formats of lessons/format.py; a dash for what was not measured. */
export function formatValue(value, format = "") {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "✓" : "✗";
  if (typeof value !== "number") return "…";
  if (format === "") return value === Math.trunc(value) ? fixed(value, 0) : graded(value);
  if (format === "int") return fixed(value, 0);
  if (format.startsWith(".")) return fixed(value, Number(format.slice(1)));
  if (format.startsWith("%")) return `${fixed(value * 100, Number(format.slice(2) || 0))} %`;
  if (format in BYTES) return `${graded(value / BYTES[format])} ${format}`;
  if (format === "x") return `${graded(value)}×`;
  return `${graded(value * SCALES[format])} ${format === "us" ? "µs" : format}`;
}
