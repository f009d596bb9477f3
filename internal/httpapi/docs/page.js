// Shows /openapi.json as a page. All text from the document is set as text, never as markup.
"use strict";

const methods = ["get", "put", "post", "patch", "delete"];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// prose is text with paragraphs and `code`.
function prose(text, tag = "p") {
  return (text || "").split(/\n\n+/).filter(Boolean).map((paragraph) => {
    const element = make(tag);
    paragraph.split("`").forEach((piece, i) => element.append(i % 2 ? make("code", {}, piece) : piece));
    return element;
  });
}

const nameOf = (schema) => schema.$ref && schema.$ref.split("/").pop();

// typeOf is a schema in a few words, with a link where it has a name.
function typeOf(schema) {
  if (!schema) return ["any"];
  if (schema.$ref) return [make("a", { href: "#schema-" + nameOf(schema) }, nameOf(schema))];
  const either = schema.anyOf || schema.oneOf;
  if (either) return either.flatMap((s, i) => (i ? [" or ", ...typeOf(s)] : typeOf(s)));
  const types = [].concat(schema.type || "any");
  if (types.includes("array")) return ["list of ", ...typeOf(schema.items)];
  return [types.join(" or ") + (schema.format && !/^(int|double|float)/.test(schema.format) ? ` (${schema.format})` : "")];
}

// limitsOf are the bounds of a schema in words.
function limitsOf(schema) {
  const limits = [];
  if (schema.enum) limits.push("one of " + schema.enum.map((v) => (v === null ? "null" : v)).join(", "));
  if (schema.minimum !== undefined && schema.maximum !== undefined) limits.push(`${schema.minimum} to ${schema.maximum}`);
  else if (schema.minimum !== undefined) limits.push(`at least ${schema.minimum}`);
  else if (schema.maximum !== undefined) limits.push(`at most ${schema.maximum}`);
  if (schema.minLength !== undefined && schema.maxLength !== undefined) limits.push(`${schema.minLength} to ${schema.maxLength} characters`);
  else if (schema.maxLength !== undefined) limits.push(`at most ${schema.maxLength} characters`);
  return limits.join("; ");
}

function row(name, schema, required, description) {
  const first = make("td", {}, make("code", {}, name));
  if (required) first.append(make("span", { class: "needed" }, "required"));
  const last = make("td", {}, ...prose(description || schema.description));
  const limits = limitsOf(schema);
  if (limits) last.append(make("p", { class: "note" }, limits));
  return make("tr", {}, first, make("td", { class: "kind" }, ...typeOf(schema)), last);
}

function fieldsOf(schema) {
  const required = schema.required || [];
  const rows = Object.entries(schema.properties || {}).map(([name, s]) => row(name, s, required.includes(name)));
  return make("table", {}, make("tbody", {}, ...rows));
}

// example makes a value of a schema up.
function example(schema, schemas, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(schemas[nameOf(schema)], schemas, depth + 1);
  if (schema.examples) return schema.examples[0];
  if (schema.anyOf || schema.oneOf) return example((schema.anyOf || schema.oneOf)[0], schemas, depth + 1);
  if (schema.enum) return schema.enum[0];
  switch ([].concat(schema.type)[0]) {
    case "object":
      return Object.fromEntries(Object.entries(schema.properties || {}).map(([k, s]) => [k, example(s, schemas, depth + 1)]));
    case "array": return [example(schema.items, schemas, depth + 1)];
    case "integer": case "number": return Math.max(schema.minimum || 0, 1);
    case "boolean": return true;
    case "string":
      if (schema.format === "uuid") return "0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11";
      if (schema.format === "date-time") return "2026-11-20T12:00:00Z";
      return "…";
    default: return null;
  }
}

function curl(method, path, operation, schemas) {
  const parts = ["curl -sS"];
  if (method !== "get" && !(method === "post" && operation.requestBody)) parts.push("-X " + method.toUpperCase());
  if ((operation.security || []).length) parts.push('-H "Authorization: Bearer $HOLDFAST_KEY"');
  const content = (operation.requestBody || {}).content || {};
  const type = Object.keys(content)[0];
  if (type === "application/json") {
    parts.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(example(content[type].schema, schemas))}'`);
  } else if (type) {
    parts.push(`-H 'Content-Type: ${type}'`, "--data-binary @FILE");
  }
  return parts.join(" ") + ` "$HOLDFAST_URL${path}"`;
}

function call(method, path, operation, schemas) {
  const id = "call-" + operation.operationId;
  const route = make("div", { class: "route" },
    make("span", { class: "method " + method }, method.toUpperCase()), make("span", { class: "path" }, path));
  for (const scopes of (operation.security || []).map((s) => Object.values(s).flat()))
    route.append(make("span", { class: "scope" }, "scope " + scopes.join(", ")));
  const article = make("details", { id, class: "entry" }, make("summary", {}, make("h3", {}, operation.summary), route), ...prose(operation.description));

  const parameters = operation.parameters || [];
  for (const [place, title] of [["path", "Path"], ["query", "Query"], ["header", "Headers"]]) {
    const rows = parameters.filter((p) => p.in === place).map((p) => row(p.name, p.schema, p.required, p.description));
    if (rows.length) article.append(make("h4", {}, title), make("table", {}, make("tbody", {}, ...rows)));
  }
  for (const [type, media] of Object.entries((operation.requestBody || {}).content || {})) {
    article.append(make("h4", {}, "Body"), make("p", { class: "kind" }, type));
    if (media.schema.$ref) article.append(fieldsOf(schemas[nameOf(media.schema)]));
  }
  article.append(make("h4", {}, "Try it"), make("pre", { tabindex: "0" }, make("code", {}, curl(method, path, operation, schemas))));

  const answers = make("table", {}, make("tbody"));
  const problems = make("table", {}, make("tbody"));
  for (const [status, response] of Object.entries(operation.responses || {})) {
    const media = Object.values(response.content || {})[0];
    const text = make("td", {}, ...prose(response.description));
    for (const [name, header] of Object.entries(response.headers || {}))
      text.append(make("p", { class: "note" }, make("code", {}, name), " " + (header.description || "")));
    const kind = make("td", { class: "kind" }, ...(media ? typeOf(media.schema) : [""]));
    (status < 400 ? answers : problems).tBodies[0].append(make("tr", {}, make("td", {}, make("code", {}, status)), kind, text));
  }
  article.append(make("h4", {}, "Answers"), answers);
  if (problems.rows.length) article.append(make("details", {}, make("summary", {}, "Problems"), problems));
  return article;
}

function show(spec) {
  const schemas = (spec.components || {}).schemas || {};
  document.title = spec.info.title + " API";
  const intro = document.getElementById("intro");
  intro.replaceChildren(make("h1", {}, spec.info.title + " API"), make("p", { class: "version" }, "Version " + spec.info.version + ", OpenAPI ",
    spec.openapi, ": ", make("a", { href: "/openapi.json" }, "openapi.json")), ...prose(spec.info.description));

  const calls = document.getElementById("calls");
  const index = document.getElementById("index");
  calls.replaceChildren();
  for (const tag of spec.tags || []) {
    const list = make("ul");
    const group = make("section", {}, make("h2", {}, tag.name), ...prose(tag.description));
    for (const [path, item] of Object.entries(spec.paths))
      for (const method of methods)
        if (item[method] && (item[method].tags || []).includes(tag.name)) {
          group.append(call(method, path, item[method], schemas));
          list.append(make("li", { "data-words": (method + " " + path + " " + item[method].summary).toLowerCase() },
            make("a", { href: "#call-" + item[method].operationId, title: method.toUpperCase() + " " + path }, item[method].summary)));
        }
    if (list.children.length) { calls.append(group); index.append(make("div", {}, make("h2", {}, tag.name), list)); }
  }

  const shown = document.getElementById("schemas");
  for (const [name, schema] of Object.entries(schemas))
    if (schema.properties) shown.append(make("details", { id: "schema-" + name, class: "entry" }, make("summary", {}, make("h3", {}, name)), fieldsOf(schema)));
  shown.hidden = false;

  document.getElementById("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const entry of index.querySelectorAll("li")) entry.hidden = !words.every((w) => entry.dataset.words.includes(w));
    for (const group of index.children) group.hidden = !group.querySelector("li:not([hidden])");
  });
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => { // a link to the present address changes no hash
    if (event.target.closest("a[href^='#']")?.hash === location.hash) reveal();
  });
  for (const entry of document.querySelectorAll(".entry"))
    entry.addEventListener("toggle", () => { if (entry.open) history.replaceState(null, "", "#" + entry.id); });
  reveal();
}

// reveal opens the call or the schema that the address names.
function reveal() {
  const entry = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!entry) return;
  if (entry.matches(".entry")) entry.open = true;
  entry.scrollIntoView();
}

fetch("/openapi.json")
  .then((response) => { if (!response.ok) throw new Error("status " + response.status); return response.json(); })
  .then(show)
  .catch((error) => { document.getElementById("state").textContent = "The document could not be loaded: " + error.message; });
