/**
 * Markdown as a tree, which `ui/Markdown.svelte` shows as elements. No HTML is made of the text: tags in it are
 * text, links go to http, https and mailto only, and images are links.
 */

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "em" | "strike"; inner: Inline[] }
  | { kind: "link"; url: string; inner: Inline[] }
  | { kind: "break" };

export type Block =
  | { kind: "paragraph"; inner: Inline[] }
  | { kind: "heading"; level: number; inner: Inline[] }
  | { kind: "code"; text: string; language: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; start: number | null; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const DEEPEST = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const ROW = /^\s*\|.*\|\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Parse a text. Its time is linear in the text's length, for each level of nesting. */
export function parse(text: string, depth = 0): Block[] {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const found: Block[] = [];
  let paragraph: string[] = [];
  const close = () => {
    if (paragraph.length) found.push({ kind: "paragraph", inner: inlines(paragraph.join("\n")) });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]!;
    const fence = FENCE.exec(line);
    const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(line);
    if (fence) {
      close();
      let end = at + 1;
      while (end < lines.length && !isFenceEnd(lines[end]!, fence[1]!)) end++;
      found.push({ kind: "code", text: lines.slice(at + 1, end).join("\n"), language: fence[2]!.trim().slice(0, 20) });
      at = end + 1;
    } else if (!line.trim()) {
      close();
      at++;
    } else if (heading) {
      close();
      found.push({ kind: "heading", level: heading[1]!.length, inner: inlines(heading[2]!) });
      at++;
    } else if (/^ {0,3}([-*_])\s*(\1\s*){2,}$/.test(line)) {
      close();
      found.push({ kind: "rule" });
      at++;
    } else if (depth < DEEPEST && /^ {0,3}>/.test(line)) {
      close();
      let end = at;
      while (end < lines.length && /^ {0,3}>/.test(lines[end]!)) end++;
      const inner = lines.slice(at, end).map((each) => each.replace(/^ {0,3}> ?/, ""));
      found.push({ kind: "quote", blocks: parse(inner.join("\n"), depth + 1) });
      at = end;
    } else if (depth < DEEPEST && ITEM.test(line)) {
      close();
      at = list(lines, at, depth, found);
    } else if (ROW.test(line) && TABLE_RULE.test(lines[at + 1] ?? "")) {
      close();
      let end = at + 2;
      while (end < lines.length && ROW.test(lines[end]!)) end++;
      found.push({ kind: "table", head: cells(line), rows: lines.slice(at + 2, end).map(cells) });
      at = end;
    } else {
      paragraph.push(line);
      at++;
    }
  }
  close();
  return found;
}

const isFenceEnd = (line: string, fence: string): boolean => {
  const text = line.trim();
  return text.length >= fence.length && [...text].every((each) => each === fence[0]);
};

const cells = (line: string): Inline[][] =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => inlines(cell.trim().replace(/\\\|/g, "|")));

/** Parse a list that begins at a line, and return the line after it. */
function list(lines: string[], begin: number, depth: number, into: Block[]): number {
  const first = ITEM.exec(lines[begin]!)!;
  const isOrdered = /\d/.test(first[2]!);
  const items: string[][] = [];
  let width = 0;
  let at = begin;
  for (; at < lines.length; at++) {
    const line = lines[at]!;
    const item = ITEM.exec(line);
    const indent = line.length - line.trimStart().length;
    if (item && (items.length === 0 || indent < width) && /\d/.test(item[2]!) === isOrdered) {
      width = item[1]!.length + item[2]!.length + Math.max(1, item[3]!.length);
      items.push([item[4]!]);
    } else if (items.length && (!line.trim() || indent >= width)) {
      if (!line.trim() && !belongs(lines[at + 1], width, isOrdered)) break;
      items.at(-1)!.push(line.slice(Math.min(width, indent)));
    } else if (item || !line.trim() || !lines[at - 1]?.trim() || FENCE.test(line)) break;
    else items.at(-1)!.push(line.trimStart());
  }
  const blocks = items.map((each) => parse(each.join("\n"), depth + 1));
  into.push({ kind: "list", start: isOrdered ? parseInt(first[2]!) : null, items: blocks });
  return at;
}

function belongs(line: string | undefined, width: number, isOrdered: boolean): boolean {
  if (!line?.trim()) return false;
  const item = ITEM.exec(line);
  return line.length - line.trimStart().length >= width || (item !== null && /\d/.test(item[2]!) === isOrdered);
}

const TOKEN =
  /\\([\\`*_{}[\]()#+\-.!|~<>])|(`+)([^`]|[^`][\s\S]{0,2000}?[^`])\2(?!`)|!?\[([^[\]]{0,1000})\]\(\s*<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,500}\))?[^\s()<>]{0,500})>?(?:\s+"[^"]{0,300}")?\s*\)|(https?:\/\/[^\s<>"'`]{1,2000})|(\*\*|__)(?=\S)([\s\S]{1,2000}?\S)\7|(?<![\w*])([*_])(?=\S)([^*_]{1,1000}?)(?<=\S)\9(?!\w)|~~(?=\S)([^~]{1,1000})~~|( {2,}|\\)\n/g;

/** Parse a line's text. */
export function inlines(text: string, depth = 0): Inline[] {
  if (depth > DEEPEST) return [{ kind: "text", text }];
  const found: Inline[] = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > last) found.push({ kind: "text", text: text.slice(last, match.index) });
    last = match.index + match[0].length;
    const [whole, escaped, , code, label, target, bare, , strong, , em, strike] = match;
    if (escaped !== undefined) found.push({ kind: "text", text: escaped });
    else if (code !== undefined) found.push({ kind: "code", text: code.trim() || code });
    else if (target !== undefined) {
      const url = safeUrl(target);
      const inner: Inline[] = label ? inlines(label, depth + 1) : [{ kind: "text", text: target }];
      if (url) found.push({ kind: "link", url, inner });
      else found.push({ kind: "text", text: whole });
    } else if (bare !== undefined) {
      const end = bare.replace(/[.,;:!?)\]]+$/, "");
      found.push({ kind: "link", url: end, inner: [{ kind: "text", text: end }] });
      if (end.length < bare.length) found.push({ kind: "text", text: bare.slice(end.length) });
    } else if (strong !== undefined) found.push({ kind: "strong", inner: inlines(strong, depth + 1) });
    else if (em !== undefined) found.push({ kind: "em", inner: inlines(em, depth + 1) });
    else if (strike !== undefined) found.push({ kind: "strike", inner: inlines(strike, depth + 1) });
    else found.push({ kind: "break" });
  }
  if (last < text.length) found.push({ kind: "text", text: text.slice(last) });
  return found;
}

/** A URL that a person may follow; null for any other, such as `javascript:`. */
export function safeUrl(text: string): string | null {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
