// Completion: what of a JSON Schema fits at a place of a YAML text. Indents, dashes and braces are read and no more;
// what is wrong with the text, lint says.

// Where the caret is: keys from the root, "[]" for an item of a list; whether a key or a value is due; what is typed of it.
export function placeOf(text, caret) {
  const block = []; // {indent, key} of the maps and lists around the line
  const flow = []; // {list} or {key} of the braces around the caret
  const lines = text.slice(0, caret).split("\n");
  let word = "", isKey = true;
  lines.forEach((line, n) => {
    const isLast = n === lines.length - 1;
    if (!isLast && !flow.length && /^\s*(#|$)/.test(line)) return;
    let rest = line;
    if (!flow.length) {
      let indent = /^ */.exec(line)[0].length;
      rest = line.slice(indent);
      for (let dash; (dash = /^-( +|$)/.exec(rest)); indent += dash[0].length, rest = rest.slice(dash[0].length)) enter(block, indent, "[]");
      const key = /^("[^"]*"|'[^']*'|[^\s"'#{}[\],:][^{}[\],:]*):(\s+|$)/.exec(rest);
      if (key) {
        enter(block, indent, key[1].replace(/^["']|["']$/g, ""));
        rest = rest.slice(key[0].length);
        isKey = false;
      } else {
        if (isLast || !/^[{[]/.test(rest)) leave(block, indent);
        isKey = true;
      }
    }
    word = inFlow(flow, rest);
    if (flow.length) isKey = flow.at(-1).key === null;
  });
  const path = [...block.map(({ key }) => key), ...flow.flatMap(({ list, key }) => (list ? ["[]"] : key === null ? [] : [key]))];
  return { path, isKey, word: word.trimStart() };
}

function leave(block, indent) {
  while (block.length && (block.at(-1).indent > indent || (block.at(-1).indent === indent && block.at(-1).key !== "[]"))) block.pop();
}

// A list may stand as far left as its key.
function enter(block, indent, key) {
  while (block.length && (block.at(-1).indent > indent || (block.at(-1).indent === indent && (key !== "[]" || block.at(-1).key === "[]")))) block.pop();
  block.push({ indent, key });
}

// Read braces, quotes and commas; gives what stands behind the last of them.
function inFlow(flow, text) {
  let word = "", quote = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote) { quote = c === quote ? "" : quote; continue; }
    if (c === "#" && (i === 0 || text[i - 1] === " ")) break;
    if (c === '"' || c === "'") quote = c;
    else if (c === "{") { flow.push({ list: false, key: null }); word = ""; continue; }
    else if (c === "[") { flow.push({ list: true, key: "" }); word = ""; continue; }
    else if (c === "}" || c === "]") { flow.pop(); word = ""; continue; }
    else if (flow.length && c === ",") { if (!flow.at(-1).list) flow.at(-1).key = null; word = ""; continue; }
    else if (flow.length && c === ":" && !flow.at(-1).list && flow.at(-1).key === null && /\s|^$/.test(text[i + 1] ?? "")) { flow.at(-1).key = word.trim(); word = ""; continue; }
    word += c;
  }
  return word;
}

// The alternatives that a schema is, references followed.
function forms(root, schema) {
  if (schema === null || typeof schema !== "object") return [];
  const inner = [...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? [])];
  if (schema.$ref) inner.push(root.definitions[schema.$ref.replace("#/definitions/", "")]);
  return [schema, ...inner.flatMap((one) => forms(root, one))];
}

function inside(root, found, key) {
  return found.flatMap((form) => {
    if (key === "[]") return [form.items ?? []].flat();
    if (form.properties?.[key]) return [form.properties[key]];
    const named = Object.entries(form.patternProperties ?? {}).filter(([pattern]) => new RegExp(pattern).test(key)).map(([, one]) => one);
    return named.length ? named : form.additionalProperties ? [form.additionalProperties] : [];
  }).flatMap((one) => forms(root, one));
}

// Names that a text gives its own types.
function ownTypes(text) {
  const part = /^types:(.*\n?(?:[ #].*\n?|\n)*)/m.exec(text)?.[0].replace(/^ *#.*$/gm, "") ?? "";
  const found = new Set();
  for (const { 1: name, index } of part.matchAll(/([\w.-]+):/g)) {
    if (placeOf(part, index + name.length + 1).path.length === 2) found.add(name);
  }
  return [...found];
}

// What fits: {text, told}, by what is typed of it; at a key the schema's keys, else its words.
export function offersAt(schema, text, caret) {
  const { path, isKey, word } = placeOf(text, caret);
  let found = forms(schema, schema);
  for (const key of path) found = inside(schema, found, key);
  const offers = new Map();
  if (isKey) for (const form of found) for (const [name, one] of Object.entries(form.properties ?? {})) offers.set(name, { text: `${name}: `, name, told: one.description ?? "" });
  const isScalar = !isKey || path.at(-1) === "[]";
  if (isScalar) for (const form of found) {
    const words = [...(form.enum ?? []), ...("const" in form ? [form.const] : []), ...(form.type === "boolean" ? [true, false] : [])];
    if (form.enum?.length === 1 && form.enum[0] === "*") words.push(...ownTypes(text)); // a port takes a type by name
    for (const one of words) offers.set(String(one), { text: String(one), name: String(one), told: form.description ?? "" });
  }
  const typed = word.toLowerCase();
  return { word, offers: [...offers.values()].filter(({ name }) => name.toLowerCase().startsWith(typed) && name !== word) };
}
