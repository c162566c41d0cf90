"use strict";

const byId = (id) => document.getElementById(id);
let asked = "";
let model = null;
let waiting = null;

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function answer(path, options) {
  const response = await fetch(path, options);
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

function list(id, found, moves) {
  const shown = found.map((one) => one.row);
  byId(id).replaceChildren(...found.map((one, at) => {
    const item = element("li", one.answer ? "answer" : "");
    const button = element("button");
    button.title = one.text;
    const middle = element("span");
    middle.append(element("div", "name", one.name), element("div", "text", one.text));
    button.append(element("span", "place", at + 1), middle);
    const gain = one.other - (at + 1);
    const sign = gain > 0 ? "▲ " : "▼ ";
    button.append(element("span", `moved ${gain > 0 ? "up" : "down"}`, moves && gain ? sign + Math.abs(gain) : ""));
    button.addEventListener("click", () => click(shown, one));
    item.append(button);
    return item;
  }));
}

const RANKINGS = ["embedded", "hybrid", "learned"];

// What a model made of the click: the value of its item, and its place in the learned ranking.
function learned(clicked, found) {
  const place = found.learned.findIndex((one) => one.row === clicked.row);
  const now = RANKINGS.flatMap((name) => found[name]).find((one) => one.row === clicked.row);
  const both = now && now.score !== null && clicked.score !== null;
  const score = both ? ` Its score went from ${clicked.score.toFixed(4)} to ${now.score.toFixed(4)}` : "";
  const where = score ? (place < 0 ? "." : `; it is at place ${place + 1}.`) : "";
  return `Model ${model} has learned your click on ${clicked.name}.${score}${where}`;
}

async function search(text) {
  asked = text;
  if (!text) return;
  try {
    const found = await answer(`/search?q=${encodeURIComponent(text)}`);
    if (text !== asked) return;
    RANKINGS.forEach((name, side) => {
      list(name, found[name], side > 0);
      byId(`${name}-answer`).textContent = found.answer ? `the answer is at ${found.answer[side]}` : "";
    });
    if (waiting && Date.now() > waiting.from && waiting.model !== model && waiting.query === text) {
      byId("note").textContent = learned(waiting, found);
      waiting = null;
    }
  } catch (error) {
    byId("note").textContent = error.message;
  }
}

async function click(shown, one) {
  try {
    const body = JSON.stringify({ query: asked, shown, clicked: one.row });
    const found = await answer("/click", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    // Where lists are learned after a window, a model before its end has not learned this one.
    waiting = { model, query: asked, from: Date.now() + 1000 * (found.after ?? 0), ...one };
    byId("note").textContent = `Sent to Kafka: ${found.people} people clicked ${one.name}. The learner reads it now.`;
  } catch (error) {
    byId("note").textContent = error.message;
  }
}

function curve(points) {
  const svg = byId("curve");
  svg.replaceChildren();
  if (points.length < 2) return;
  const low = Math.min(...points), high = Math.max(...points, low + 1e-6);
  const at = (value, i) => `${(4 + (252 * i) / (points.length - 1)).toFixed(1)},${(40 - (36 * (value - low)) / (high - low)).toFixed(1)}`;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.map(at).join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", "#0a7f4f");
  line.setAttribute("stroke-width", "2");
  svg.append(line);
}

async function look() {
  try {
    const state = await answer("/state");
    byId("phase").textContent = state.phase;
    for (const [id, words] of Object.entries(state.words ?? {})) byId(id).textContent = words;
    byId("ndcg").textContent = state.ndcg.length ? state.ndcg.at(-1).toFixed(3) : "-";
    curve(state.ndcg);
    if (state.ready && !byId("chips").children.length) {
      byId("chips").append(element("p", "", state.chips ?? "Held-out queries:"));
      for (const text of state.proposed) {
        const chip = element("button", "", text);
        chip.addEventListener("click", () => { byId("query").value = text; search(text); });
        byId("chips").append(chip);
      }
    }
    if (state.model !== model) {
      model = state.model;
      search(asked);
    }
  } catch (error) {
    byId("phase").textContent = "The demonstration has ended.";
  }
  setTimeout(look, 1000);
}

byId("form").addEventListener("submit", (event) => { event.preventDefault(); search(byId("query").value.trim()); });
let typing = null;
byId("query").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => search(byId("query").value.trim()), 200);
});
look();
